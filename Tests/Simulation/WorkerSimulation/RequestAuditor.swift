import EventLoop

/// The auditor's view of requests: what their worker knew when it sent them. The auditor judges a request by the answers
/// that the worker has surely read, and by the requests that it surely awaits.
final class RequestAuditor {
    private let scenario: WorkerScenario
    private let scheduler: Scheduler
    private let report: (WorkerViolation.Promise, String) -> Void
    /// Requests without an answer.
    private var open: [(push: Int, attempt: WorkerJob.Attempt)] = []
    /// Newest push of each identity that was sent by the partition's assignment.
    private var newest: [Line: Int] = [:]
    /// The last broadcasts of each channel, oldest first.
    private var broadcasts: [Int: [(push: Int, attempt: WorkerJob.Attempt)]] = [:]
    /// Pauses of device tokens or channels.
    private var devicePauses: [Address: Pause] = [:]
    private var poolPauses: [WorkerRun: Pause] = [:]
    private var topicStops: [TopicOfRun: Pause] = [:]
    /// Nanoseconds at which APNs last accepted a push of a topic.
    private var served: [TopicOfRun: UInt64] = [:]
    /// Nanoseconds until which no request of a worker arrives, because APNs has counted too many provider tokens.
    private var rests: [WorkerRun: Pause] = [:]
    /// First requests of a calm world's pushes that were checked.
    private(set) var promptChecks = 0
    /// The late ones among them.
    private var late = 0
    /// First requests of pushes beside an app in trouble that were checked.
    private(set) var shareChecks = 0
    /// Answers that took the token for wrong.
    private var wrongTokens: [TopicOfRun: Int] = [:]

    /// Pushes of an identity in one partition. Those of two partitions have no order.
    private struct Line: Hashable {
        var identity: WorkerJob.Identity
        var partition: Int32
    }

    private struct Address: Hashable {
        var run: WorkerRun
        var text: String
    }

    private struct TopicOfRun: Hashable {
        var run: WorkerRun
        var topic: String
    }

    /// A pause for which APNs has asked.
    private struct Pause {
        /// The request whose answer set the pause's end.
        var cause: WorkerJob.Attempt
        /// Nanoseconds of its end.
        var until: UInt64
        /// Whether pushes of priority 10 wait as well.
        var isTotal = false
        var lastProbe: UInt64
        /// Nanoseconds of the last answer that ends pauses.
        var endedAt: UInt64 = 0
        /// Whether the worker surely has the pause. Answers on two connections may be read in another order.
        var isSure = true

        static func none(_ cause: WorkerJob.Attempt) -> Pause { Pause(cause: cause, until: 0, lastProbe: 0) }
    }

    private static let second: UInt64 = 1_000_000_000
    private static let transport = WorkerJob.Attempt.transport
    /// Nanoseconds in which a calm world's workers share the partitions, and open connections.
    private static let settling = 30 * second
    /// Nanoseconds within which at least half of a calm world's pushes are requested.
    private static let promptness = second / 10
    /// Nanoseconds within which all of them are. A slow answer delays the next push of its identity.
    private static let longestWait = 6 * second
    /// Nanoseconds within which an app gets its turn, whatever others do.
    private static let turn = 2 * second

    init(
        _ scenario: WorkerScenario, _ scheduler: Scheduler,
        report: @escaping (WorkerViolation.Promise, String) -> Void
    ) {
        self.scenario = scenario
        self.scheduler = scheduler
        self.report = report
    }

    private var now: UInt64 { scheduler.now }

    // MARK: Arrivals

    /// Judges a request that has arrived.
    /// - Parameter calmSince: nanoseconds since which no fault concerns the whole group.
    func received(_ number: Int, _ attempt: WorkerJob.Attempt, _ records: WorkerRecords, calmSince: UInt64) {
        open.removeAll { now >= $0.attempt.end || !$0.attempt.link.isOpen }
        guard !attempt.link.isDelayed, !records[number].isExempt else { return }
        let job = records[number]
        if let last = job.last, isKnown(last, attempt, calmSince) {
            checkRepetition(number, job, last, attempt, records)
        }
        checkIdentity(number, job, attempt, records, calmSince)
        if job.kind == .broadcast { checkTurn(number, job, attempt, records, calmSince) }
        checkDevice(number, job, attempt)
        checkPauses(number, job, attempt, calmSince)
        if job.last == nil {
            checkWindow(number, job, records, calmSince)
            checkPromptness(number, job, calmSince)
        }
    }

    /// Whether the sender of a request is still the assignment of the earlier one, and can't have forgotten it.
    private func isKnown(
        _ earlier: WorkerJob.Attempt, _ attempt: WorkerJob.Attempt, _ calmSince: UInt64
    ) -> Bool {
        earlier.assignment != nil && earlier.assignment == attempt.assignment && earlier.run == attempt.run
            && earlier.receivedAt > calmSince
    }

    private func checkRepetition(
        _ number: Int, _ job: WorkerJob, _ last: WorkerJob.Attempt, _ attempt: WorkerJob.Attempt,
        _ records: WorkerRecords
    ) {
        if last.isOpen(at: now) { report(.noDuplicate, "job \(number) is sent while it is in flight") }
        if job.avoidsDuplicates, last.answer == .accepted, job.delivery != .confirm {
            report(.noDuplicate, "job \(number) avoids duplicates, and is sent after it was accepted")
        }
        guard last.answer != .uncounted else { return }
        if job.isOnce, last.link.isOpen {
            report(.noDuplicate, "job \(number) has expiration 0, and is sent again")
        }
        if last.answer == .none, job.avoidsDuplicates, last.answeredAt < .max, last.isHeard(at: now) {
            report(.noDuplicate, "job \(number) avoids duplicates, and is sent after its answer was lost")
        }
        guard last.isHeard(at: now) else { return }
        switch last.answer {
        case .refused where last.token == attempt.token:
            if wrongTokens[TopicOfRun(run: attempt.run, topic: job.topic), default: 0] < 20 {
                report(.noDuplicate, "job \(number) is sent again though APNs has refused it")
            }
        case .accepted where job.delivery == .confirm:
            if last.token == attempt.token, now < last.answeredAt + job.receiptTimeout * Self.second,
                !hasNews(of: attempt.token, since: last.receivedAt, records)
            {
                report(.noDuplicate, "job \(number) is sent again before its receipt was due")
            }
        case .accepted: report(.noDuplicate, "job \(number) is sent again though APNs has accepted it")
        case .failed:
            if let most = scenario.maxAttempts, job.failures >= most {
                report(.noDuplicate, "job \(number) is sent after \(job.failures) failures")
            }
        case .refused, .uncounted, .none: break
        }
    }

    /// Whether a device has reported something that a worker may have read since a time.
    private func hasNews(of token: Int, since: UInt64, _ records: WorkerRecords) -> Bool {
        records.tokens(from: token).contains { token in
            records.records(of: token).contains {
                let job = records[$0]
                return !job.kind.isPush && (job.outcomes == 0 || job.outcomeAt > since)
            }
        }
    }

    // MARK: Identities

    private func checkIdentity(
        _ number: Int, _ job: WorkerJob, _ attempt: WorkerJob.Attempt, _ records: WorkerRecords,
        _ calmSince: UInt64
    ) {
        // Pushes that a token change has brought together come from several partitions, which have no order.
        guard job.kind == .push, attempt.token == job.token, !records.hasChange(job.token) else { return }
        for other in open
        where other.push != number && other.attempt.run == attempt.run && other.attempt.isOpen(at: now)
            && isKnown(other.attempt, attempt, calmSince) && records[other.push].kind == .push
            && records[other.push].identity == job.identity && records[other.push].partition == job.partition
        {
            report(.newestWins, "job \(number) is sent while \(other.push) of its identity is in flight")
        }
        let line = Line(identity: job.identity, partition: job.partition)
        let last = newest[line] ?? -1
        guard last > number else {
            newest[line] = number
            return
        }
        let newer = records[last]
        guard !job.outranks(newer), !newer.isExempt, let sent = newer.last else { return }
        if isKnown(sent, attempt, calmSince) || isPast(newer) {
            report(.newestWins, "job \(number) is sent after \(last)")
        }
    }

    /// Whether no worker sends anything older than the push.
    private func isPast(_ newer: WorkerJob) -> Bool {
        switch scenario.mode {
        case .none: newer.settledAt < now - Self.transport
        case .transactions: newer.outcomes > 0 && newer.outcomeAt < now - Self.transport
        case .local, .changelog: false
        }
    }

    /// Checks that a broadcast follows those that the channel got before.
    private func checkTurn(
        _ number: Int, _ job: WorkerJob, _ attempt: WorkerJob.Attempt, _ records: WorkerRecords,
        _ calmSince: UInt64
    ) {
        let wall = wallClockMilliseconds()
        for (push, other) in broadcasts[job.token] ?? []
        where push != number && isKnown(other, attempt, calmSince)
            && records[push].partition == job.partition
        {
            if other.isOpen(at: now) {
                report(.inTurn, "broadcast \(number) is sent while \(push) is in flight")
            }
            let passed = Int64((now - other.receivedAt) / 1_000_000)
            // A push holds up no other before it is due. The other may have been on its way for a request's timeout.
            let latest = job.due + WorkerScenario.requestTimeout * 1000 + 1500 + scenario.clockDeviation
            if push > number, latest < wall - passed {
                report(.inTurn, "broadcast \(number) is sent after \(push), which is newer")
            }
        }
    }

    /// Checks that a push waited for a newer one of its identity.
    private func checkWindow(_ number: Int, _ job: WorkerJob, _ records: WorkerRecords, _ calmSince: UInt64) {
        let window = Int64(scenario.coalesceWindow)
        guard window > 0, job.kind == .push, job.collapse != nil || job.isState, !job.isOnce,
            job.expires == .max || job.expires - job.created > window + 10_000,
            !records.hasChange(job.token),
            !records.pushes(of: job.identity).contains(where: {
                let other = records[$0]
                // A push that is read again after its outcome hands its window on.
                let mayBeRead = other.isExempt || calmSince > job.producedAt
                return $0 != number && other.producedAt <= job.producedAt
                    && (mayBeRead || other.outcomes == 0 || other.outcomeAt >= job.producedAt)
            })
        else { return }
        // The store has the window's end by the clock of the worker that put the push there.
        let deviation = UInt64(scenario.clockDeviation) * 1_000_000
        if now + deviation < job.producedAt + UInt64(window) * 1_000_000 {
            report(.waits, "job \(number) is sent before its window is over")
        }
    }

    /// Checks that a push of a calm world waited for slow answers alone, also beside an app in trouble.
    private func checkPromptness(_ number: Int, _ job: WorkerJob, _ calmSince: UInt64) {
        guard scenario.isCalm, job.producedAt > calmSince + Self.settling else { return }
        let passed = now - job.producedAt
        if let trouble = scenario.trouble {
            guard job.topic != WorkerService.topics[0] else { return }
            // A push without a collapse identifier doesn't wait for the answer to another one.
            if job.collapse == nil { shareChecks += 1 }
            // A token connection has a single stream until an answer. Where requests have none, others may wait until these
            // expire, and new connections are open.
            let longest = trouble == .silence || trouble == .cap ? 5 * Self.longestWait : Self.turn
            if passed > longest, job.collapse == nil {
                report(
                    .prompt, "job \(number) is sent after \(passed / 1_000_000) ms beside an app in trouble")
            }
            if passed > Self.promptness { late += 1 }
            promptChecks += 1
            return
        }
        if passed > Self.longestWait {
            report(.prompt, "job \(number) is sent after \(passed / 1_000_000) ms")
        }
        promptChecks += 1
        if passed > Self.promptness { late += 1 }
    }

    /// Checks at a calm world's end that at least half of the pushes waited for nothing.
    func ended() {
        guard promptChecks >= 10, late > promptChecks / 2 else { return }
        report(.prompt, "\(late) of \(promptChecks) pushes are sent late")
    }

    // MARK: Limits and pauses

    private func checkDevice(_ number: Int, _ job: WorkerJob, _ attempt: WorkerJob.Attempt) {
        guard job.kind == .push else { return }
        let flying = open.count {
            $0.push != number && $0.attempt.run == attempt.run && $0.attempt.token == attempt.token
                && $0.attempt.isOpen(at: now)
        }
        if flying >= scenario.inFlightPerDevice {
            report(.bounded, "job \(number) is sent while \(flying) of its device are in flight")
        }
    }

    private func checkPauses(
        _ number: Int, _ job: WorkerJob, _ attempt: WorkerJob.Attempt, _ calmSince: UInt64
    ) {
        func holds(_ pause: Pause?) -> Bool {
            guard let pause, pause.isSure, pause.until > now, pause.cause.receivedAt > calmSince
            else { return false }
            return pause.cause.isHeard(at: now)
        }
        if holds(
            devicePauses[
                Address(
                    run: attempt.run,
                    text: job.kind == .broadcast ? job.address : WorkerJob.token(attempt.token))])
        {
            report(.waits, "job \(number) is sent though APNs has asked for a pause of its device")
        }
        if holds(rests[attempt.run]) { report(.waits, "job \(number) is sent though its key rests") }
        // A pool belongs to a shard, which nobody sees from outside.
        guard scenario.shards == 1 else { return }
        if holds(poolPauses[attempt.run]), job.priority != 10 || poolPauses[attempt.run]!.isTotal {
            if now + Self.transport < poolPauses[attempt.run]!.lastProbe + Self.second {
                report(.waits, "job \(number) is sent though APNs has asked for a pause of all pushes")
            }
            poolPauses[attempt.run]!.lastProbe = now
        }
        let topic = TopicOfRun(run: attempt.run, topic: Self.name(job))
        guard holds(topicStops[topic]), let stop = topicStops[topic] else { return }
        let since = stop.cause.answeredAt + Self.transport
        if open.contains(where: {
            $0.attempt.run == attempt.run && $0.attempt.topic == topic.topic
                && $0.attempt.receivedAt > since && $0.attempt.isOpen(at: now) && $0.push != number
        }) {
            report(.waits, "job \(number) is sent though its topic is stopped, and has a probe in flight")
        }
    }

    /// Name under which the push's topic is stopped. Broadcasts have topics of their own.
    static func name(_ job: WorkerJob) -> String {
        job.kind == .broadcast ? "\(job.topic) of broadcasts" : job.topic
    }

    // MARK: Answers

    /// APNs has decided about a request. ``answered(_:_:_:)`` follows, unless there is no answer.
    func decided(_ number: Int, _ job: WorkerJob, _ attempt: WorkerJob.Attempt) {
        open.append((number, attempt))
        if job.kind == .broadcast {
            broadcasts[job.token, default: []].append((number, attempt))
            if broadcasts[job.token]!.count > 50 { broadcasts[job.token]!.removeFirst() }
        }
    }

    /// APNs answers a request now.
    func answered(_ job: WorkerJob, _ attempt: WorkerJob.Attempt, _ answer: SimulatedAPNS.Answer) {
        let address = Address(
            run: attempt.run, text: job.kind == .broadcast ? job.address : WorkerJob.token(attempt.token))
        let topic = TopicOfRun(run: attempt.run, topic: attempt.topic)
        switch answer {
        case .accepted:
            served[topic] = now
            end(&devicePauses[address, default: .none(attempt)])
            end(&poolPauses[attempt.run, default: .none(attempt)])
            end(&topicStops[topic, default: .none(attempt)])
        case .status(429, "TooManyProviderTokenUpdates", _, _):
            // Another key doesn't rest.
            guard !scenario.faults.contains(.renewal) else { break }
            begin(&rests[attempt.run, default: .none(attempt)], attempt, 58)
        case .status(let status, let reason, let retryAfter, _):
            let wait = min(retryAfter ?? 0, scenario.retryAfterLimit)
            if reason == "TooManyRequests", wait > 0 {
                begin(&devicePauses[address, default: .none(attempt)], attempt, wait)
            }
            if reason == "ServiceUnavailable", wait > 0 { pause(topic, job, attempt, wait) }
            if reason == "BadDeviceToken" || reason == "DeviceTokenNotForTopic" {
                wrongTokens[TopicOfRun(run: attempt.run, topic: job.topic), default: 0] += 1
            }
            if reason == "TopicDisallowed" || reason == "InvalidProviderToken" {
                // A broadcast doesn't stop its topic.
                guard job.kind == .push else { break }
                begin(&topicStops[topic, default: .none(attempt)], attempt, 3600)
            } else if attempt.answer == .refused || status == 429 {
                end(&topicStops[topic, default: .none(attempt)])
            }
        case .reset, .goAway, .none: break
        }
    }

    private func begin(_ pause: inout Pause, _ attempt: WorkerJob.Attempt, _ seconds: Int) {
        if pause.until <= now { pause.isSure = now > pause.endedAt + Self.transport }
        let until = now + UInt64(seconds) * Self.second
        guard until > pause.until else { return }
        (pause.cause, pause.until) = (attempt, until)
    }

    private func end(_ pause: inout Pause) {
        pause.endedAt = now
        if now > pause.cause.answeredAt + Self.transport { pause.until = 0 } else { pause.isSure = false }
    }

    /// APNs asks for a pause. It concerns the topic while APNs accepts pushes of another one, or has asked for no pause of
    /// another one; otherwise the pool.
    private func pause(
        _ topic: TopicOfRun, _ job: WorkerJob, _ attempt: WorkerJob.Attempt, _ seconds: Int
    ) {
        let others = served.filter { $0.key.run == topic.run && $0.key.topic != topic.topic }.values
        guard others.contains(where: { now < $0 + 10 * Self.second + Self.transport }) else {
            let isAlone = scenario.topics == 1 && scenario.channels == 0 && scenario.policies[.states] == nil
            return isAlone ? pausePool(job, attempt, seconds) : ()
        }
        // The worker has surely read an answer that is neither new nor old.
        let isSure = others.contains { now > $0 + Self.transport && now < $0 + 9 * Self.second }
        guard isSure else { return }
        begin(&topicStops[topic, default: .none(attempt)], attempt, seconds)
    }

    private func pausePool(_ job: WorkerJob, _ attempt: WorkerJob.Attempt, _ seconds: Int) {
        var pause = poolPauses[attempt.run] ?? .none(attempt)
        // The worker may have read this answer before the end of the pause, or after it.
        let isAtEnd = max(pause.until, now) - min(pause.until, now) < Self.transport
        if pause.until > now {
            let isLater = now > pause.cause.answeredAt + Self.second / 2 + Self.transport
            pause.isTotal = pause.isTotal || job.priority == 10 && isLater
        } else {
            (pause.isTotal, pause.lastProbe) = (false, now)
        }
        begin(&pause, attempt, seconds)
        if isAtEnd { pause.isSure = false }
        poolPauses[attempt.run] = pause
    }
}

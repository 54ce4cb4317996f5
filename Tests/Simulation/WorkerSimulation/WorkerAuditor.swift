import DeliveryCore
import EventLoop
import HTTP2
import Kafka
import SluiceModel

/// An observer outside of the workers, which checks Sluice's promises. The auditor knows the records of the jobs topic, the
/// requests that reach APNs with their answers, the committed records of the workers, and the faults.
final class WorkerAuditor {
    private var records = WorkerRecords()
    private let requests: RequestAuditor
    private let scenario: WorkerScenario
    private let scheduler: Scheduler
    /// Receives each broken promise.
    private let report: (WorkerViolation.Promise, String) -> Void
    /// Returns the number of workers that have started on a host.
    private let runs: (Int) -> Int
    /// Faults of Kafka that excuse lost knowledge.
    private var disturbances = Disturbances()
    /// The same for faults of a host or its connections, by host.
    private var hostDisturbances: [Disturbances]
    /// Connections by the network's number; the numbers of those whose packets were delayed; and of those among them that
    /// were slow.
    private var links: [Int: WorkerLink] = [:]
    private var delayedLinks: Set<Int> = []
    private var slowLinks: Set<Int> = []
    /// Nanoseconds until which requests may be under way that APNs hasn't seen.
    private var unseenUntil: UInt64 = 0
    /// By partition: offset below which new records are exempt, because the log has lost records with these offsets.
    private var lostBelow: [Int32: Int64] = [:]
    /// Worker that has each partition.
    private var owners: [Owner] = []
    /// Processes without Kafka, with the nanoseconds until which they have none.
    private var cutOffs: [(process: SimulatedProcess, until: UInt64)] = []
    /// Number of assignments so far.
    private var assignments = 0
    /// Push of each identity that its device shows.
    private var newest = NewestAuditor()
    /// Milliseconds since the epoch since which tokens are gone, as APNs has said; `Int64.max` where it hasn't said when.
    private var goneTokens: [Int: Int64] = [:]
    /// The group's offset of each partition, and the records that it doesn't cover yet.
    private var commits: [Commit] = []
    private(set) var repeatedPushes = 0
    private(set) var repeatedOutcomes = 0
    private(set) var outcomes = 0
    /// Log lines on apps whose pushes beyond their share are parked.
    private(set) var parkings = 0
    var promptChecks: Int { requests.promptChecks }
    var shareChecks: Int { requests.shareChecks }
    /// Outcomes by kind and cause.
    private(set) var kinds: [String: Int] = [:]

    private struct Owner {
        var process: SimulatedProcess?
        var run: WorkerRun?
        /// Nanoseconds since which the auditor has known.
        var since: UInt64
        /// Number of the assignment.
        var assignment: Int
    }

    private struct Commit {
        var offset: Int64 = -1
        var metadata = ""
        /// Records without an outcome, or that the offset doesn't cover.
        var unsettled: [Int] = []
    }

    private static let second: UInt64 = 1_000_000_000
    /// Nanoseconds in which packets may be under way.
    private static let aftermath = 30 * second
    /// Nanoseconds in which a worker removes a push from its store whose offset the group has.
    private static let settling = 10 * second
    /// Milliseconds that a request may take to APNs.
    private static let transport: Int64 = 100

    init(
        _ scenario: WorkerScenario, _ scheduler: Scheduler, runs: @escaping (Int) -> Int,
        report: @escaping (WorkerViolation.Promise, String) -> Void
    ) {
        self.scenario = scenario
        self.scheduler = scheduler
        self.runs = runs
        self.report = report
        requests = RequestAuditor(scenario, scheduler, report: report)
        commits = Array(repeating: Commit(), count: scenario.partitions)
        hostDisturbances = Array(repeating: Disturbances(), count: scenario.workers)
    }

    // MARK: Faults

    /// A fault of Kafka begins, and lasts for a while.
    func disturbed(nanoseconds: UInt64, forgets: Bool) {
        disturbances.add(at: scheduler.now, nanoseconds: nanoseconds, forgets: forgets)
    }

    /// A fault of a host or one of its connections begins, and lasts for a while.
    func disturbed(host: Int, nanoseconds: UInt64 = 0, forgets: Bool = false) {
        hostDisturbances[host].add(at: scheduler.now, nanoseconds: nanoseconds, forgets: forgets)
    }

    /// A connection's packets are held back for a while. A connection that is closed meanwhile sends nothing more.
    func delayed(link: Int) {
        delayedLinks.insert(link)
        links[link]?.isDelayed = true
        unseenUntil = max(unseenUntil, scheduler.now + Self.aftermath)
    }

    func isDelayed(link: Int) -> Bool { delayedLinks.contains(link) }

    private func known(_ link: SimulatedLink?) -> WorkerLink {
        guard let link else { return WorkerLink(nil) }
        if let known = links[link.number] { return known }
        let known = WorkerLink(link)
        known.isDelayed = delayedLinks.contains(link.number)
        links[link.number] = known
        return known
    }

    /// A connection's packets take long from now on.
    func slowed(link: Int) {
        delayed(link: link)
        slowLinks.insert(link)
        unseenUntil = .max
    }

    /// Retention removes a partition's records below an offset. Those that aren't committed may be lost.
    func retained(_ partition: Int32, below start: Int64, committed: Int64) {
        exempt { $0.partition == partition && $0.offset >= committed && $0.offset < start }
    }

    /// A partition's log loses its records from an offset on.
    func lostTail(_ partition: Int32, from offset: Int64, end: Int64) {
        exempt { $0.partition == partition && $0.offset >= offset }
        lostBelow[partition] = max(lostBelow[partition] ?? 0, end)
    }

    /// The jobs topic is deleted, and created again.
    /// - Parameter ends: ends of the logs before.
    func recreated(_ ends: [Int64]) {
        exempt { _ in true }
        for (partition, end) in ends.enumerated() {
            lostBelow[Int32(partition)] = max(lostBelow[Int32(partition)] ?? 0, end)
        }
    }

    /// The group's offset of a partition is set.
    func reset(_ partition: Int32) { exempt { $0.partition == partition } }

    private func exempt(_ isHit: (WorkerJob) -> Bool) {
        for number in jobs.indices where isHit(jobs[number]) { records[number].isExempt = true }
    }

    /// Whether a log of the topic has lost records, and nobody needs to read up to this end.
    func mayIgnore(_ partition: Int32, end: Int64) -> Bool { end <= lostBelow[partition] ?? 0 }

    /// Whether the acceptance may be unknown to the worker that sent the job last.
    private func isExcused(_ job: WorkerJob) -> Bool {
        guard let accepted = job.accepted, !job.isExcused, !job.isExempt, !accepted.link.isDelayed,
            !disturbances.concern(from: accepted.receivedAt, to: knownAt(job, accepted.receivedAt))
        else { return true }
        // APNs learns a moment later that the worker has closed the connection.
        if let closedAt = accepted.link.closedAt, closedAt < accepted.answeredAt &+ WorkerJob.Attempt.transport {
            return true
        }
        return hostDisturbances[accepted.run.host].concern(
            from: accepted.receivedAt, to: knownAt(job, accepted.receivedAt))
    }

    /// Returns the nanoseconds from which on no worker sends a job again that APNs or Kafka had at a time.
    private func knownAt(_ job: WorkerJob, _ time: UInt64) -> UInt64 {
        // A commit may have been under way, and the removal from the store follows the next one.
        job.settledAt == .max || job.settledAt < time ? .max : job.settledAt + Self.settling
    }

    /// A worker logs a line.
    func logged(_ line: LogWatch.Line, host: Int) {
        switch line {
        case .permitEnded:
            // Otherwise sockets may have taken nothing for long.
            if slowLinks.isEmpty { report(.oneOwner, "worker \(host) begins requests without a permit") }
        case .catchUpCut(let partition, let readTo): newest.catchUpCut(partition, readTo: readTo)
        case .commitLeftOut, .partitionStopped:
            hostDisturbances[host].add(at: scheduler.now, nanoseconds: 0, forgets: false)
        case .parked: parkings += 1
        }
    }

    // MARK: The service and the group

    var jobs: [WorkerJob] { records.jobs }

    func appended(_ job: WorkerJob) {
        var job = job
        job.isExempt = job.offset < lostBelow[job.partition] ?? 0
        while commits.count <= job.partition { commits.append(Commit()) }
        commits[Int(job.partition)].unsettled.append(records.jobs.count)
        records.append(job)
    }

    /// Returns the device tokens of unfinished pushes that may wait for their devices.
    var awaitedTokens: [Int] {
        var tokens: [Int] = []
        for job in jobs where job.kind == .push && job.outcomes == 0 && job.delivery != .accept {
            for token in records.tokens(from: job.token) where !tokens.contains(token) {
                tokens.append(token)
            }
        }
        return tokens
    }

    /// Looks who has the partitions.
    func followOwners(_ kafka: KafkaCluster) {
        for partition in 0..<Int(kafka.partitionCount(of: WorkerWorld.jobsTopic)) {
            let process = kafka.owner(of: Int32(partition))
            let run = process.flatMap { Self.host($0) }.map { WorkerRun(host: $0, number: runs($0)) }
            if owners.count > partition, owners[partition].process === process, owners[partition].run == run {
                continue
            }
            let isSame = owners.count > partition && owners[partition].process === process
            assignments += 1
            let owner = Owner(
                process: process, run: run, since: isSame ? owners[partition].since : scheduler.now,
                assignment: assignments)
            if owners.count > partition { owners[partition] = owner } else { owners.append(owner) }
        }
    }

    /// Returns a process's number of its host; nil: the process is no worker.
    private static func host(_ process: SimulatedProcess) -> Int? {
        let parts = process.name.split(separator: "-")
        return parts.count > 1 ? Int(parts[1]) : nil
    }

    /// Follows the group's offsets.
    func followCommits(_ kafka: KafkaCluster) {
        for partition in commits.indices {
            guard let committed = kafka.committedOffset(Int32(partition)),
                committed != (commits[partition].offset, commits[partition].metadata)
                    || commits[partition].unsettled.contains(where: { records[$0].outcomes > 0 })
            else { continue }
            (commits[partition].offset, commits[partition].metadata) = committed
            let metadata = CommitMetadata.decode(committed.metadata, committedOffset: committed.offset)
            commits[partition].unsettled.removeAll { settle($0, committed.offset, metadata) }
        }
    }

    /// Returns whether a record's outcome is visible, and the group's offset covers the record.
    private func settle(_ number: Int, _ offset: Int64, _ metadata: CommitMetadata.Decoded) -> Bool {
        let job = records[number]
        guard job.offset < offset || metadata.completed.ranges.contains(where: { $0.contains(job.offset) })
        else { return false }
        guard job.outcomes > 0 else {
            if scenario.mode == .none, !job.isExempt {
                report(.nothingLost, "job \(number) is committed before its outcome is in Kafka")
            }
            return false
        }
        records[number].settledAt = scheduler.now
        return true
    }

    // MARK: APNs

    /// Returns the request as the auditor keeps it; nil: its push isn't one of the world's.
    private func attempt(_ push: SimulatedAPNS.Push) -> WorkerJob.Attempt? {
        let job = records[push.job]
        guard let host = push.host else { return nil }
        let run = WorkerRun(host: host, number: runs(host))
        let owner = owners[Int(job.partition)]
        return WorkerJob.Attempt(
            run: run, assignment: owner.process === push.process && owner.run == run ? owner.assignment : nil,
            token: token(push.address, job), topic: RequestAuditor.name(job), connection: push.connection,
            link: known(push.link), receivedAt: scheduler.now, answeredAt: .max, answer: .none,
            retryAfter: 0)
    }

    /// Returns the number of a request's token or channel; -1: the job has never had the token.
    func token(of push: SimulatedAPNS.Push) -> Int { token(push.address, records[push.job]) }

    /// Returns the number of a request's token or channel; -1: the job has never had the token.
    private func token(_ address: String, _ job: WorkerJob) -> Int {
        if job.kind == .broadcast { return address == job.address ? job.token : -1 }
        return records.tokens(from: job.token).first { WorkerJob.token($0) == address } ?? -1
    }

    /// A request has arrived.
    func received(_ push: SimulatedAPNS.Push) {
        let number = push.job
        let job = records[number]
        guard let attempt = attempt(push) else { return }
        checkContent(push, job, attempt)
        if push.hasNewToken {
            report(.rightOutcome, "job \(number) has another provider token than its connection")
        }
        // The system sends nothing more of a connection that was closed by a reset, also after a black hole.
        if let link = push.link, let closedAt = link.client.closedAt, !slowLinks.contains(link.number),
            scheduler.now > closedAt + WorkerJob.Attempt.transport
        {
            report(.neverLate, "job \(number) arrives though its worker has closed the connection")
        }
        if !attempt.link.isDelayed {
            let now = wallClockMilliseconds()
            if job.expires < now - Self.transport - scenario.clockDeviation {
                report(.neverLate, "job \(number) arrives \(now - job.expires) ms after its expiration")
            }
            if job.due > now + scenario.clockDeviation {
                report(.waits, "job \(number) arrives before its time")
            }
            if !isUninformed(push) {
                checkOwner(push)
                if !job.isExempt { checkEnded(number, job, attempt) }
            }
            checkPresence(number, job, attempt)
        }
        requests.received(number, attempt, records, calmSince: disturbances.until)
    }

    /// Checks that a request has what its record has.
    private func checkContent(_ push: SimulatedAPNS.Push, _ job: WorkerJob, _ attempt: WorkerJob.Attempt) {
        if attempt.token < 0 { report(.rightOutcome, "job \(push.job) is sent to \(push.address)") }
        guard job.kind.isPush else {
            return report(.rightOutcome, "job \(push.job) is sent, and is \(job.kind)")
        }
        let expiration = job.isOnce ? 0 : job.expires == .max ? nil : job.expires / 1000
        let isLonger = (push.expiration ?? .max) > (expiration ?? .max)
        let isSame =
            push.topic == job.topic && push.collapse == job.collapse && push.priority == job.priority
            && (job.identifier < 0 || push.identifier == "\(WorkerJob.identifier(job.identifier))")
        if !isSame || isLonger { report(.rightOutcome, "job \(push.job) is sent as \(push)") }
    }

    /// A process has no Kafka for a while.
    func cutOff(_ process: SimulatedProcess, until time: UInt64) { cutOffs.append((process, time)) }

    /// Whether the push's process may not know yet that it has lost the partition. When Kafka is back, records may reach
    /// the process before the answer to its heartbeat.
    private func isUninformed(_ push: SimulatedAPNS.Push) -> Bool {
        owners[Int(records[push.job].partition)].process !== push.process
            && cutOffs.contains { $0.process === push.process && scheduler.now < $0.until + Self.second }
    }

    /// A process that has lost a partition sends nothing of it. What was sent before arrives within two seconds.
    private func checkOwner(_ push: SimulatedAPNS.Push) {
        let owner = owners[Int(records[push.job].partition)]
        guard let process = push.process, let other = owner.process, other !== process,
            owner.since + 2 * Self.second < scheduler.now
        else { return }
        report(.oneOwner, "\(process.name) sends job \(push.job), whose partition \(other.name) has")
    }

    /// Checks that nothing has ended the push before.
    private func checkEnded(_ number: Int, _ job: WorkerJob, _ attempt: WorkerJob.Attempt) {
        guard !job.isExempt else { return }
        let now = scheduler.now - WorkerJob.Attempt.transport
        func isKnown(_ assignment: Int?, since: UInt64) -> Bool {
            assignment != nil && assignment == attempt.assignment && since > disturbances.until
        }
        let isOver =
            switch scenario.mode {
            case .none: job.settledAt < now
            case .transactions: job.outcomes > 0 && job.outcomeAt < now
            // The store may have the push until its removal is durable.
            case .local, .changelog: false
            }
        if isOver || job.outcomes > 0 && job.outcomeAt < now && isKnown(job.outcomeIn, since: job.outcomeAt) {
            report(.noDuplicate, "job \(number) is sent though its outcome was seen")
        }
        // A worker that reads a push and its token change again may send the push before the change has its effect.
        let isLasting = scenario.mode == .transactions && job.withdrawal?.isLasting == true
        guard let withdrawal = job.withdrawal, withdrawal.at < now,
            withdrawal.token ?? attempt.token == attempt.token,
            isLasting || isKnown(withdrawal.assignment, since: withdrawal.at),
            // A log that has lost the event repeats what came before.
            !records[withdrawal.event].isExempt,
            isKnown(withdrawal.assignment, since: withdrawal.at)
                || !newest.isCut(job.partition, before: records[withdrawal.event].offset)
        else { return }
        report(
            .rightOutcome,
            "job \(number), due at \(job.due), is sent after job \(withdrawal.event), \(records[withdrawal.event].kind), which is visible for \((scheduler.now - withdrawal.at) / 1_000_000) ms"
        )
    }

    /// Checks that the push doesn't have to wait for its device.
    private func checkPresence(_ number: Int, _ job: WorkerJob, _ attempt: WorkerJob.Attempt) {
        // A missing receipt makes workers try again without a report of the device.
        guard job.delivery != .accept, attempt.token == job.token, !records.isPresumable(job.token),
            !records.hasChange(job.token), let newest = records.presence(of: job.token)
        else { return }
        let event = records[newest]
        guard event.kind == .offline, event.outcomes > 0, !event.isExempt,
            // Reports of two partitions have no order.
            records.records(of: job.token).allSatisfy({ records[$0].partition == job.partition }),
            event.outcomeAt + WorkerJob.Attempt.transport < scheduler.now,
            wallClockMilliseconds() - event.occurred < WorkerScenario.longestLife * 1000 - 10_000,
            // An erasure forgets the presence.
            !records.records(of: job.token).contains(where: { records[$0].kind == .erase && $0 > newest })
        else { return }
        let isKnown =
            event.outcomeIn != nil && event.outcomeIn == attempt.assignment
            && event.outcomeAt > disturbances.until
        if isKnown || scenario.mode.hasStore {
            report(.waits, "job \(number) is sent though its device is offline, as job \(newest) reports")
        }
    }

    /// APNs decides about a request, and answers at a time.
    func decided(_ push: SimulatedAPNS.Push, _ answer: SimulatedAPNS.Answer, at answered: UInt64) {
        guard var attempt = attempt(push) else { return }
        let number = push.job
        let job = records[number]
        switch answer {
        case .none, .goAway: break
        default: attempt.answeredAt = answered
        }
        attempt.answer = effect(of: answer, job)
        if case .status(let status, _, let retryAfter, let timestamp) = answer {
            if retryAfter != nil || status == 429 { records[number].isPaused = true }
            // A broadcast is refused with the key, unless another key takes over.
            if attempt.answer == .refused || attempt.answer == .uncounted && job.kind == .broadcast {
                records[number].refusals += 1
                if status == 410 {
                    goneTokens[attempt.token] = max(goneTokens[attempt.token] ?? 0, timestamp ?? .max)
                }
            }
        }
        if let last = job.last {
            let isSame = last.assignment != nil && last.assignment == attempt.assignment
            if !isSame || last.answer == .accepted {
                records[number].failures = 0
            } else if last.answer == .failed, last.isHeard(at: scheduler.now) {
                records[number].failures += 1
            }
        }
        records[number].last = attempt
        requests.decided(number, job, attempt)
        if attempt.answeredAt < .max {
            scheduler.schedule(at: answered) { [unowned self] in requests.answered(job, attempt, answer) }
        }
        if attempt.answer == .accepted { accepted(number, attempt) }
    }

    private func effect(of answer: SimulatedAPNS.Answer, _ job: WorkerJob) -> WorkerJob.Attempt.Answer {
        switch answer {
        case .accepted: return .accepted
        case .reset(errorCode: 7), .goAway: return .uncounted
        case .reset, .none: return .none
        case .status(let status, var reason, _, _):
            let found = reason.withUTF8 { Reason.parse(name: UnsafeRawBufferPointer($0)) }
            switch found == .unknown ? ReasonClass.fallback(status: status) : found.class {
            case .token, .job: return .refused
            case .configuration where found.refusesKey || found.refusesCertificate: return .uncounted
            case .configuration where found == .forbidden || job.kind == .broadcast: return .refused
            case .configuration: return .uncounted
            default: return .failed
            }
        }
    }

    /// APNs accepts a push.
    private func accepted(_ number: Int, _ attempt: WorkerJob.Attempt) {
        let job = records[number]
        // A worker without room for all uncommitted records sends before it has read them.
        let isCrowded = commits.reduce(0) { $0 + $1.unsettled.count } >= scenario.maxInFlight
        if let last = newest.accepted(number, attempt, records, isCrowded: isCrowded), !job.isExempt,
            !isExcused(records[last]),
            records[last].partition == job.partition,
            records[last].expires == .max, !records.hasChange(job.token)
        {
            report(.newestWins, "job \(number) is accepted after \(last)")
        }
        if job.accepted != nil, job.delivery != .confirm {
            repeatedPushes += 1
            if !isExcused(job) {
                report(.noDuplicate, "job \(number) is accepted again though no answer was lost")
            }
        }
        records[number].accepted = attempt
        records[number].isExcused = false
    }

    /// All is finished.
    func ended() {
        requests.ended()
        for (older, newer) in newest.shown(records) {
            report(.newestWins, "job \(older) is shown in the end, and job \(newer) was accepted before")
        }
    }

    /// A connection of APNs is gone. Answers that were given a moment ago may not have arrived.
    func closed(_ connection: Int) {
        for number in jobs.indices {
            if let last = jobs[number].last, last.connection == connection {
                last.link.goneAt = scheduler.now
            }
            guard let accepted = jobs[number].accepted, accepted.connection == connection,
                accepted.answeredAt + Self.second > scheduler.now
            else { continue }
            records[number].isExcused = true
        }
    }

    // MARK: What becomes visible

    /// A dead letter is visible. Returns a line for the trace.
    func sawDeadLetter(_ record: KafkaCluster.Record) -> String {
        func number(_ header: DeadLetter.Header) -> Int64? {
            record.headers.first { $0.name == header.rawValue }?.value
                .flatMap { Int64(String(decoding: $0, as: UTF8.self)) }
        }
        guard let partition = number(.sourcePartition), let offset = number(.sourceOffset),
            let found = records.numbers(Int32(truncatingIfNeeded: partition), offset), let job = found.last
        else {
            report(.rightOutcome, "a dead letter belongs to no job")
            return "a dead letter of no job"
        }
        guard found.count == 1 else { return sawOne(of: found) }
        if records[job].kind != .invalid {
            let rule = record.headers.first { $0.name == DeadLetter.Header.message.rawValue }?.value ?? []
            report(
                .rightOutcome,
                "job \(job) is sound, and has a dead letter: \(String(decoding: rule, as: UTF8.self))")
        }
        saw(job)
        return "job \(job) has a dead letter"
    }

    /// An outcome is visible. Returns a line for the trace.
    func sawOutcome(_ record: KafkaCluster.Record, _ kafka: KafkaCluster) -> String {
        guard let outcome = record.value?.withUnsafeBytes({ OutcomeSummary(json: $0) }),
            let found = records.numbers(outcome.partition, Int64(outcome.offset)), let number = found.last
        else {
            report(.rightOutcome, "an outcome belongs to no job")
            return "an outcome of no job"
        }
        guard found.count == 1 else { return sawOne(of: found) }
        if let problem = problem(outcome, number) {
            report(.rightOutcome, "job \(number) ends as \(outcome.kind.name), and \(problem)")
        }
        checkProducer(record, number, kafka)
        let kind = "\(outcome.kind.name)\(outcome.cause.map { ", \($0)" } ?? "")"
        kinds[kind, default: 0] += 1
        saw(number)
        withdraw(by: number, outcome)
        let successor = outcome.supersededBy.map { " by \($0.low)" } ?? ""
        return "job \(number) ends as \(kind)\(successor)"
    }

    /// One of several records with the same place has visibly ended. Returns a line for the trace.
    private func sawOne(of numbers: [Int]) -> String {
        for number in numbers { saw(number) }
        return "one of the jobs \(numbers) ends"
    }

    /// A process that has given a partition up produces no outcome of it, once its shards know.
    private func checkProducer(_ record: KafkaCluster.Record, _ number: Int, _ kafka: KafkaCluster) {
        let partition = records[number].partition
        guard scenario.mode != .transactions, let process = record.process,
            let leftAt = kafka.leftAt(partition, by: process), process.suspendedUntil < leftAt
        else { return }
        let left = Int64(leftAt / 1_000_000) + scheduler.wallMilliseconds
        guard record.timestamp > left + 1000 + scenario.clockDeviation else { return }
        report(
            .oneOwner,
            "\(process.name) produces the outcome of job \(number), and has given partition \(partition) up")
    }

    /// Returns what contradicts an outcome; nil: nothing does.
    private func problem(_ outcome: OutcomeSummary, _ number: Int) -> String? {
        let job = records[number]
        if outcome.job != job.kind.name { return "it is a \(job.kind.name)" }
        switch job.kind {
        case .invalid: return "it can't be decoded"
        case .push, .broadcast: return problem(outcome, ofPush: number)
        case .cancel:
            return [.cancelled, .tooLate, .notFound].contains(outcome.kind) ? nil : "it is a cancel"
        default: return outcome.kind == .applied ? nil : "it is an event"
        }
    }

    private func problem(_ outcome: OutcomeSummary, ofPush number: Int) -> String? {
        let job = records[number]
        let isAccepted = job.accepted != nil
        if isAccepted, job.delivery != .confirm, outcome.kind != .accepted, !isExcused(job) {
            return "APNs has accepted it"
        }
        switch outcome.kind {
        case .accepted:
            if !isAccepted { return "APNs hasn't accepted it" }
            return job.delivery == .confirm && !isWithdrawn(number) ? "no receipt confirms it" : nil
        case .confirmed:
            let isShown = records.tokens(from: job.token).contains {
                records.records(of: $0).contains { records[$0].kind == .receipt(of: job.identifier) }
            }
            // The receipt concerns all pushes with the identifier that were sent.
            let isSent =
                job.last != nil
                && records.pushes(withIdentifier: job.identifier).contains { records[$0].accepted != nil }
            return isSent && isShown && job.delivery == .confirm ? nil : "no receipt confirms it"
        case .rejected: return problem(ofRejection: outcome, job)
        case .expired:
            // A push that is due after its expiration ends at once.
            let end = min(job.expires, job.created + WorkerScenario.longestLife * 1000)
            let left = end - wallClockMilliseconds() - scenario.clockDeviation
            let mayEnd = job.isPaused && job.expires < .max || job.isOnce && job.last != nil
            return left <= 0 || job.expires <= job.due || mayEnd ? nil : "its life goes on for \(left) ms"
        case .superseded: return problem(ofSuperseding: outcome, number)
        case .undeliverable:
            switch outcome.cause {
            case "attempts-exhausted":
                return job.isOnce || scenario.maxAttempts != nil ? nil : "it has attempts left"
            case "answer-lost":
                if hasAnswer(job) { return "APNs has answered it" }
                return job.isOnce || job.avoidsDuplicates ? nil : "it may be sent again"
            case "ends-connections":
                if hasAnswer(job) { return "APNs has answered it" }
                return job.last?.link.isOpen == false ? nil : "its last connection has not ended"
            case "no-credential": return job.topic.hasPrefix("org.") ? nil : "its app has a credential"
            case "device-limit":
                let pushes = records.records(of: job.token).count { records[$0].kind == .push }
                let mayBeMore = job.kind == .broadcast || records.hasChange(job.token)
                return mayBeMore || pushes > scenario.pendingPerDevice ? nil : "its device may have more"
            default: return "its cause is \(outcome.cause ?? "nothing")"
            }
        case .cancelled:
            // A push that was in flight has no cause.
            let needsErasure = outcome.cause == "device-erased"
            return isWithdrawn(number, onlyErased: needsErasure) ? nil : "nobody has asked for that"
        case .tooLate, .notFound, .applied: return "it is a push"
        }
    }

    /// Whether the worker has surely read an answer to the push, and had no other request with it under way.
    private func hasAnswer(_ job: WorkerJob) -> Bool {
        guard let last = job.last, last.answer != .none, last.isHeard(at: scheduler.now) else { return false }
        return last.receivedAt > max(disturbances.until, unseenUntil, hostDisturbances[last.run.host].until)
    }

    /// Whether a cancel or an erasure concerns a push.
    /// - Parameter onlyErased: whether cancels don't count.
    private func isWithdrawn(_ number: Int, onlyErased: Bool = false) -> Bool {
        let job = records[number]
        return records.tokens(from: job.token).contains { token in
            records.records(of: token).contains {
                let event = records[$0]
                guard event.partition != job.partition || event.offset > job.offset || job.isExempt
                else { return false }
                return event.kind == .erase || !onlyErased && targets(event, job)
            }
        }
    }

    /// Whether an event is a cancel of pushes like this one.
    private func targets(_ event: WorkerJob, _ job: WorkerJob) -> Bool {
        switch event.kind {
        case .cancel(.collapse(let collapse, let topic)): job.collapse == collapse && job.topic == topic
        case .cancel(.identifier(let identifier)): job.identifier == identifier
        default: false
        }
    }

    private func problem(ofRejection outcome: OutcomeSummary, _ job: WorkerJob) -> String? {
        let tokens = records.tokens(from: job.token)
        // All pushes end with the answer that the token is gone, or with its report.
        if outcome.cause == "device-unregistered" {
            // A token that was registered later is valid.
            let registered = job.registeredAt ?? .min
            let isReported = tokens.contains {
                goneTokens[$0] ?? .min >= registered && goneTokens[$0] != nil
                    || records.records(of: $0).contains {
                        records[$0].kind == .unregistered && records[$0].occurred >= registered
                    }
            }
            return isReported ? nil : "nobody has said that its token is gone"
        }
        if job.refusals == 0 {
            return "APNs hasn't refused it: \(outcome.status ?? 0) \(outcome.reason ?? "")"
        }
        guard outcome.status == 410 else { return outcome.deleteToken ? "its token isn't gone" : nil }
        let since = outcome.tokenInvalidSinceMilliseconds
        let isValid = job.registeredAt.map { registered in since.map { registered >= $0 } ?? true } ?? false
        return outcome.deleteToken == !isValid ? nil : "its token is \(isValid ? "valid" : "gone")"
    }

    private func problem(ofSuperseding outcome: OutcomeSummary, _ number: Int) -> String? {
        let job = records[number]
        // Offsets of a partition's two logs are compared as if the logs were one.
        guard !job.isExempt else { return nil }
        let tokens = records.tokens(from: job.token)
        guard let successor = outcome.supersededBy else {
            // The newer push had ended before its worker was replaced.
            let isReplaced =
                tokens.count > 1 || records.hasChange(job.token)
                || records.pushes(of: job.identity).contains {
                    $0 > number || records[$0].partition != job.partition
                }
            return isReplaced ? nil : "nothing replaces it"
        }
        guard successor.high == 1 else { return nil }
        let isReplaced = records.pushes(withIdentifier: Int(successor.low)).contains {
            let other = records[$0]
            let hasMoved = tokens.count > 1 || records.tokens(from: other.token).count > 1
            guard $0 != number, hasMoved || other.identity == job.identity, !job.outranks(other) else {
                return false
            }
            return hasMoved || $0 > number || other.outranks(job) || other.partition != job.partition
        }
        return isReplaced ? nil : "\(successor.low) doesn't replace it"
    }

    /// Notes for the pushes before an event that they aren't sent any more, now that the event's outcome is visible.
    private func withdraw(by number: Int, _ outcome: OutcomeSummary) {
        let event = records[number]
        guard event.outcomes == 1 else { return }
        var newToken: Int?
        switch event.kind {
        case .cancel, .unregistered, .erase: break
        case .receipt: guard outcome.count ?? 0 > 0 else { return }
        case .tokenChanged(let token): newToken = token
        default: return
        }
        for push in records.records(of: event.token) {
            let job = records[push]
            guard job.kind == .push, job.partition == event.partition, job.offset < event.offset,
                job.withdrawal == nil, !event.isExempt
            else { continue }
            switch event.kind {
            case .cancel where !targets(event, job): continue
            case .unregistered where job.registeredAt ?? .min > event.occurred: continue
            case .receipt(let shown)
            where shown != job.identifier || job.delivery != .confirm
                || job.last?.receivedAt ?? .max > event.producedAt
                // The receipt may have confirmed another push with the identifier.
                || records.pushes(withIdentifier: shown).count > 1:
                continue
            default: break
            }
            // A worker knows what it has in flight. The next one doesn't know that the event came meanwhile.
            let flies = mayFly(job, from: event.producedAt)
            if event.kind == .unregistered && flies || newToken == nil && hasMoved(job, before: event) {
                continue
            }
            records[push].withdrawal = .init(
                event: number, at: scheduler.now, assignment: event.outcomeIn,
                token: newToken == nil ? nil : job.token,
                isLasting: newToken == nil && (event.kind == .erase || !flies))
        }
    }

    /// Whether a request with the push may have been under way after a time.
    private func mayFly(_ job: WorkerJob, from time: UInt64) -> Bool {
        time <= unseenUntil || job.last.map { $0.end >= time } ?? false
    }

    private func hasMoved(_ job: WorkerJob, before event: WorkerJob) -> Bool {
        records.records(of: job.token).contains {
            if case .tokenChanged = records[$0].kind { records[$0].offset < event.offset } else { false }
        }
    }

    private func saw(_ number: Int) {
        let job = records[number]
        let owner = owners[Int(job.partition)]
        records[number].outcomes += 1
        records[number].outcomeAt = scheduler.now
        records[number].outcomeIn = owner.process == nil ? nil : owner.assignment
        outcomes += 1
        guard job.outcomes > 0, !job.isExempt else { return }
        repeatedOutcomes += 1
        let end = knownAt(job, job.outcomeAt)
        let isDisturbed =
            disturbances.concern(from: job.outcomeAt, to: end)
            || hostDisturbances.contains { $0.concern(from: job.outcomeAt, to: end) }
        if scenario.mode == .transactions || !isDisturbed {
            report(.oneOutcome, "job \(number) has \(job.outcomes + 1) outcomes")
        }
    }
}

import SluiceModel

/// Judges what became of a load by what was produced, what APNs got and what the outcomes say. It shares no code with
/// the worker and knows nothing of how that works.
///
/// An *epoch* is the time between two kills of the worker, whatever orderly restarts lie between. Within one nothing is
/// done twice; what is done again in the next is bounded by ``WorkerLife/settled``. Where several workers share the
/// partitions, each has epochs of its own, which begin with its ``Takeover``s.
struct Auditor {
    let history: AuditedHistory
    /// What may lie between a decision of the worker and the simulator's clock: a push on its way, the time of an event
    /// loop's turn.
    static let transit: Int64 = 1_000

    private(set) var violations: [AuditViolation] = []
    /// Epochs begin with these lives' starts.
    private let epochStarts: [Int64]
    private var places: [String: JobPlace] = [:]
    private var outcomes: [JobPlace: [AuditedOutcome]] = [:]
    private var arrivals: [JobPlace: [AuditedArrival]] = [:]
    /// Positions in the history's arrivals.
    private var arrivalOrder: [JobPlace: [Int]] = [:]
    private var arrivalsOfToken: [String: [AuditedArrival]] = [:]
    private var identities: [AuditedIdentity: [JobPlace]] = [:]
    /// Device tokens by what they were changed to.
    private var formerTokens: [String: Set<String>] = [:]
    private var events: [String: [AuditedJob]] = [:]
    private var cancels: [AuditedJob] = []
    private var receipts: Set<String> = []

    init(_ history: AuditedHistory) {
        self.history = history
        epochStarts = zip(history.lives, history.lives.dropFirst()).compactMap { life, next in
            life.end == .killed ? next.start : nil
        }
        index()
        judge()
    }

    private mutating func index() {
        for job in history.jobs.values.sorted(by: { $0.place < $1.place }) {
            switch job.kind {
            case .push(let push):
                places[push.apnsID] = job.place
                identities[AuditedIdentity(job, push), default: []].append(job.place)
            case .cancel: cancels.append(job)
            case .event(let event):
                events[job.deviceToken, default: []].append(job)
                if case .receipt(let identifier) = event { receipts.insert(identifier) }
                if case .tokenChanged(let new) = event {
                    formerTokens[new, default: []].insert(job.deviceToken)
                }
            }
        }
        for outcome in history.outcomes { outcomes[outcome.place, default: []].append(outcome) }
        for (order, arrival) in history.arrivals.enumerated() {
            arrivalsOfToken[arrival.deviceToken, default: []].append(arrival)
            guard let place = places[arrival.apnsID] else { continue }
            arrivals[place, default: []].append(arrival)
            arrivalOrder[place, default: []].append(order)
        }
    }

    private mutating func judge() {
        if history.unreadable > 0 { note(.unreadable, nil, "\(history.unreadable) records or lines") }
        for arrival in history.arrivals where places[arrival.apnsID] == nil {
            note(.unknown, nil, "nobody produced \(arrival.apnsID), which was pushed")
        }
        for outcome in history.outcomes where history.jobs[outcome.place] == nil {
            note(.unknown, outcome.place, "an outcome (\(outcome.kind.name)) of what nobody produced")
        }
        for job in history.jobs.values.sorted(by: { $0.place < $1.place }) {
            judgeOutcomes(job)
            if let push = job.push { judgeArrivals(job, push) }
        }
        judgeReturns()
        for (identity, places) in identities where places.count > 1 { judgeOrder(identity, places) }
        for (token, events) in events { judgePresence(token, events) }
    }

    // MARK: Epochs

    /// Number of the epoch of a partition that an instant lies in.
    private func epoch(_ time: Int64, _ partition: Int32) -> Int {
        epochStarts.count { $0 <= time } + (history.takeovers[partition]?.count { $0.time <= time } ?? 0)
    }

    /// Whether the simulator lost answers between two instants.
    private func answersLost(_ from: Int64, _ to: Int64) -> Bool {
        history.simulatorDeaths.contains { from - Self.transit <= $0 && $0 <= to }
    }

    // MARK: Outcomes

    private mutating func judgeOutcomes(_ job: AuditedJob) {
        guard let found = outcomes[job.place] else {
            return note(.lost, job.place, "it has no outcome")
        }
        var inEpoch: [Int: Int] = [:]
        for outcome in found {
            inEpoch[epoch(outcome.finished, job.place.partition), default: 0] += 1
            if let push = job.push {
                judge(outcome, job, push)
            } else {
                judge(outcome, ofControl: job)
            }
        }
        for (epoch, count) in inEpoch where count > 1 {
            note(
                .doubled, job.place, "\(count) outcomes in epoch \(epoch), within which no worker was killed")
        }
    }

    private mutating func judge(_ outcome: AuditedOutcome, ofControl job: AuditedJob) {
        let isRight =
            switch job.kind {
            case .event: outcome.kind == .applied
            default: [.cancelled, .notFound, .tooLate].contains(outcome.kind)
            }
        if !isRight { note(.unfounded, job.place, "its outcome is \(outcome.kind.name)") }
        if outcome.deviceToken != job.deviceToken {
            note(.unknown, job.place, "its outcome names another device")
        }
    }

    private mutating func judge(_ outcome: AuditedOutcome, _ job: AuditedJob, _ push: AuditedPush) {
        if outcome.apnsID != push.apnsID || !isToken(outcome.deviceToken, of: job) {
            note(.unknown, job.place, "its outcome names another job or device")
        }
        let arrivals = arrivals[job.place] ?? []
        let isAccepted = arrivals.contains { $0.status == 200 && $0.time <= outcome.finished + Self.transit }
        switch outcome.kind {
        case .accepted where isAccepted: break
        case .confirmed
        where !arrivals.isEmpty && push.delivery == .confirm && receipts.contains(push.apnsID): break
        case .superseded where isSuperseded(outcome, job, push): break
        case .cancelled where cancels.contains(where: { matches($0, job, push) }): break
        case .expired where push.expiration != nil: break
        case .rejected where tokens(of: job).contains(where: wasUnregistered): break
        default: note(.unfounded, job.place, "nothing explains its outcome: \(outcome.kind.name)")
        }
    }

    private func wasUnregistered(_ token: String) -> Bool {
        events[token]?.contains { $0.event == .unregistered } ?? false
    }

    private func isSuperseded(_ outcome: AuditedOutcome, _ job: AuditedJob, _ push: AuditedPush) -> Bool {
        guard let place = outcome.supersededBy.flatMap({ places[$0] }), let successor = history.jobs[place],
            let newer = successor.push
        else { return false }
        let isSameName =
            newer.topic == push.topic && push.collapseID != nil && newer.collapseID == push.collapseID
        let isSameDevice = !tokens(of: successor).isDisjoint(with: tokens(of: job))
        let isNewer = place.partition != job.place.partition || place > job.place
        return isSameName && isSameDevice && isNewer
    }

    private func matches(_ cancel: AuditedJob, _ job: AuditedJob, _ push: AuditedPush) -> Bool {
        guard case .cancel(let target) = cancel.kind, tokens(of: job).contains(cancel.deviceToken),
            cancel.place.partition != job.place.partition || cancel.place > job.place
        else { return false }
        switch target {
        case .notification(let identifier): return identifier == push.apnsID
        case .collapse(let topic, let identifier):
            return topic == push.topic && identifier == push.collapseID
        }
    }

    // MARK: Tokens

    /// The tokens that a job may be pushed to: its own, and what that was changed to.
    private func tokens(of job: AuditedJob) -> Set<String> {
        var all: Set = [job.deviceToken]
        var open = [job.deviceToken]
        while let token = open.popLast() {
            for change in events[token] ?? [] {
                if case .tokenChanged(let new)? = change.event, all.insert(new).inserted { open.append(new) }
            }
        }
        return all
    }

    private func isToken(_ token: String, of job: AuditedJob) -> Bool {
        token == job.deviceToken || (formerTokens[token] != nil && tokens(of: job).contains(token))
    }

    // MARK: Arrivals

    private mutating func judgeArrivals(_ job: AuditedJob, _ push: AuditedPush) {
        let arrivals = arrivals[job.place] ?? []
        var lastAccepted: Int64?
        for arrival in arrivals {
            if !isToken(arrival.deviceToken, of: job) {
                note(.wrongDevice, job.place, "it went to \(arrival.deviceToken.prefix(8))…")
            }
            if let expiration = push.expiration, arrival.time > expiration + Self.transit {
                note(.late, job.place, "it arrived \(arrival.time - expiration) ms after its expiration")
            }
            if let moment = push.deliverAt, arrival.time < moment {
                note(.early, job.place, "it arrived \(moment - arrival.time) ms before its deliver-at")
            }
            let epoch = epoch(arrival.time, job.place.partition)
            for outcome in outcomes[job.place] ?? []
            where self.epoch(outcome.finished, job.place.partition) == epoch
                && outcome.finished + Self.transit < arrival.time
            {
                note(.afterEnd, job.place, "it was pushed after its outcome, \(outcome.kind.name)")
            }
            // A receipt that does not come is a reason to push again.
            if let last = lastAccepted, push.delivery != .confirm,
                self.epoch(last, job.place.partition) == epoch,
                !answersLost(last, arrival.time)
            {
                note(
                    .repeated, job.place, "it was pushed again after it was accepted, and no answer was lost")
            }
            if arrival.status == 200 { lastAccepted = arrival.time }
        }
    }

    // MARK: Kills

    /// What was settled when a worker ended does not come back.
    private mutating func judgeReturns() {
        for (number, life) in history.lives.enumerated() {
            guard life.end != nil, number + 1 < history.lives.count else { continue }
            let next = history.lives[number + 1].start
            for place in life.settled {
                for outcome in outcomes[place] ?? [] where outcome.finished >= next {
                    note(
                        .returned, place,
                        "a second outcome, though it was settled when worker \(number) ended")
                }
                for arrival in arrivals[place] ?? [] where arrival.time >= next {
                    note(.returned, place, "pushed again, though it was settled when worker \(number) ended")
                    break
                }
            }
        }
    }

    // MARK: Newest wins

    /// Of one identity: within an epoch no older push arrives after a newer one, nor after a newer one has ended as
    /// expired. In the first epoch after a kill the older ones may come once more, in their order; then the newest that
    /// APNs had comes again as well, or ends otherwise after that.
    private mutating func judgeOrder(_ identity: AuditedIdentity, _ places: [JobPlace]) {
        let all = places.flatMap { place in (arrivalOrder[place] ?? []).map { (place, $0) } }
            .sorted { $0.1 < $1.1 }.map { ($0.0, history.arrivals[$0.1]) }
        // Records of one identity are in one partition, so their places are their order.
        let partition = places[0].partition
        let expired = places.flatMap { outcomes[$0] ?? [] }.filter { $0.kind == .expired }
        var newest: (epoch: Int, place: JobPlace)?
        for (place, arrival) in all {
            let epoch = epoch(arrival.time, partition)
            // Where a token has changed they need not have met.
            if let newer = expired.first(where: {
                place < $0.place && $0.finished + Self.transit < arrival.time
                    && $0.deviceToken == arrival.deviceToken
                    && self.epoch($0.finished, partition) == epoch
            }) {
                note(.newestWins, place, "it was pushed after \(newer.place), which is newer, had expired")
            }
            if let newest, newest.epoch == epoch, place < newest.place {
                note(.newestWins, place, "it was pushed after \(newest.place), which is newer (\(identity))")
            }
            if newest == nil || newest!.epoch != epoch || newest!.place < place { newest = (epoch, place) }
        }
        let accepted = all.filter { $0.1.status == 200 }
        guard let last = accepted.last, let top = accepted.map(\.0).max(), last.0 < top else { return }
        // Within an epoch nothing explains it; in a later one the newest was taken up again as well.
        let epoch = epoch(last.1.time, partition)
        let shown = accepted.last { $0.0 == top }.map { self.epoch($0.1.time, partition) } ?? 0
        let endedAgain =
            shown < epoch && (outcomes[top] ?? []).contains { self.epoch($0.finished, partition) >= epoch }
        if !endedAgain {
            note(.newestLast, top, "the device shows \(last.0) instead, which is older (\(identity))")
        }
    }

    // MARK: Presence

    /// While a device is offline, nothing is sent to it that asks to be held then.
    private mutating func judgePresence(_ token: String, _ events: [AuditedJob]) {
        for (index, event) in events.enumerated() where event.event == .offline {
            let back = events[(index + 1)...].first { later in
                switch later.event {
                case .online, .receipt: true
                default: false
                }
            }
            for outcome in outcomes[event.place] ?? [] {
                let until = min(back?.produced ?? .max, forgotten(event, after: outcome))
                judgeSilence(token, event, from: outcome.read, until: until)
            }
        }
    }

    /// The start of the first worker that may have to learn it again: one that follows a kill before it was settled.
    private func forgotten(_ event: AuditedJob, after outcome: AuditedOutcome) -> Int64 {
        let takeover = history.takeovers[event.place.partition]?.first {
            $0.time > outcome.finished && $0.committed <= event.place.offset
        }
        return min(takeover?.time ?? .max, forgottenByKill(event, after: outcome))
    }

    private func forgottenByKill(_ event: AuditedJob, after outcome: AuditedOutcome) -> Int64 {
        for (life, next) in zip(history.lives, history.lives.dropFirst())
        where next.start > outcome.finished && life.end == .killed && !life.settled.contains(event.place) {
            return next.start
        }
        return .max
    }

    private mutating func judgeSilence(_ token: String, _ event: AuditedJob, from: Int64, until: Int64) {
        var wasInFlight: Set<JobPlace> = []
        for arrival in arrivalsOfToken[token] ?? [] where arrival.time > from && arrival.time < until {
            guard let place = places[arrival.apnsID], let push = history.jobs[place]?.push,
                push.delivery != .accept
            else { continue }
            // What came before the event may have been in flight, once.
            if place < event.place, wasInFlight.insert(place).inserted { continue }
            note(.sentOffline, place, "it was pushed while its device was offline, since \(event.place)")
        }
    }

    // MARK: Notes

    private mutating func note(_ promise: AuditViolation.Promise, _ place: JobPlace?, _ text: String) {
        // The first ones tell the most.
        let lines =
            violations.count < 5 ? place.map { story(of: $0, tellsAll: promise == .sentOffline) } ?? [] : []
        violations.append(AuditViolation(promise: promise, place: place, text: text, history: lines))
    }
}

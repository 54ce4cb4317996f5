import SluiceModel

/// Judges a load by the produced jobs, the pushes at APNs and the outcomes. The auditor shares no code with the worker
/// and assumes nothing about its design.
///
/// An *epoch* is the time between two kills of the worker; orderly restarts don't end it. Nothing is repeated within an
/// epoch. ``WorkerLife/settled`` bounds the repetitions in the next one. Where several workers share the partitions,
/// each partition has its own epochs, which begin with its ``Takeover``s.
struct Auditor {
    let history: AuditedHistory
    /// The longest time between a decision of the worker and the push's arrival by the simulator's clock, in
    /// milliseconds.
    static let transit: Int64 = 1_000

    private(set) var violations: [AuditViolation] = []
    /// Starts of the lives that begin an epoch.
    private let epochStarts: [Int64]
    private var places: [String: JobPlace] = [:]
    private var outcomes: [JobPlace: [AuditedOutcome]] = [:]
    private var arrivals: [JobPlace: [AuditedArrival]] = [:]
    /// Indices into the history's arrivals.
    private var arrivalOrder: [JobPlace: [Int]] = [:]
    private var arrivalsOfToken: [String: [AuditedArrival]] = [:]
    private var identities: [AuditedIdentity: [JobPlace]] = [:]
    /// Former device tokens by the token that they were changed to.
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
            note(.unknown, nil, "a push of \(arrival.apnsID), which was never produced")
        }
        for outcome in history.outcomes where history.jobs[outcome.place] == nil {
            note(
                .unknown, outcome.place, "an outcome (\(outcome.kind.name)) of a job that was never produced")
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

    /// Returns the number of a partition's epoch at an instant.
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
        // A worker that reads the newer job's complete record again, after a crash, doesn't name the job.
        guard let identifier = outcome.supersededBy else {
            return history.jobs.keys.contains { isNewer($0, than: job, push) }
        }
        return places[identifier].map { isNewer($0, than: job, push) } ?? false
    }

    /// Returns true when the job at `place` has a push of the same identity, and may be newer.
    private func isNewer(_ place: JobPlace, than job: AuditedJob, _ push: AuditedPush) -> Bool {
        guard let successor = history.jobs[place], let newer = successor.push, place != job.place else {
            return false
        }
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

    /// Returns the tokens that a job may be pushed to: its own token, and those that it was changed to.
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
            // A missing receipt is a reason to push again.
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

    /// A job that was settled when a worker ended must not be repeated.
    private mutating func judgeReturns() {
        for (number, life) in history.lives.enumerated() {
            guard life.end != nil, number + 1 < history.lives.count else { continue }
            let next = history.lives[number + 1].start
            for place in life.settled {
                for outcome in outcomes[place] ?? [] where outcome.finished >= next {
                    note(
                        .returned, place,
                        "a second outcome, although it was settled when worker \(number) ended")
                }
                for arrival in arrivals[place] ?? [] where arrival.time >= next {
                    note(
                        .returned, place, "pushed again, although it was settled when worker \(number) ended")
                    break
                }
            }
        }
    }

    // MARK: Newest wins

    /// Judges the order of one identity. Within an epoch no older push arrives after a newer one has arrived or
    /// expired.
    ///
    /// After a kill, older pushes may arrive once more, in their order. Then the newest push that APNs had must arrive
    /// again, or end in another way after them.
    private mutating func judgeOrder(_ identity: AuditedIdentity, _ places: [JobPlace]) {
        let all = places.flatMap { place in (arrivalOrder[place] ?? []).map { (place, $0) } }
            .sorted { $0.1 < $1.1 }.map { ($0.0, history.arrivals[$0.1]) }
        // Records of one identity are in one partition, so their places are their order.
        let partition = places[0].partition
        let expired = places.flatMap { outcomes[$0] ?? [] }.filter { $0.kind == .expired }
        var newest: (epoch: Int, place: JobPlace)?
        for (place, arrival) in all {
            let epoch = epoch(arrival.time, partition)
            // Pushes to different tokens of a device need not have met.
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
        // In a later epoch the worker may have processed the newest push again, too.
        let epoch = epoch(last.1.time, partition)
        let shown = accepted.last { $0.0 == top }.map { self.epoch($0.1.time, partition) } ?? 0
        let endedAgain =
            shown < epoch && (outcomes[top] ?? []).contains { self.epoch($0.finished, partition) >= epoch }
        if !endedAgain {
            note(.newestLast, top, "the device shows \(last.0) instead, which is older (\(identity))")
        }
    }

    // MARK: Presence

    /// While a device is offline, no push arrives that asks to be held.
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

    /// Returns the start of the first worker that may not know the event: it followed a kill before the event was
    /// settled.
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
            // A push from before the event may have been in flight, once.
            if place < event.place, wasInFlight.insert(place).inserted { continue }
            note(.sentOffline, place, "it was pushed while its device was offline, since \(event.place)")
        }
    }

    // MARK: Notes

    private mutating func note(_ promise: AuditViolation.Promise, _ place: JobPlace?, _ text: String) {
        // The first violations explain the most.
        let lines =
            violations.count < 5 ? place.map { story(of: $0, tellsAll: promise == .sentOffline) } ?? [] : []
        violations.append(AuditViolation(promise: promise, place: place, text: text, history: lines))
    }
}

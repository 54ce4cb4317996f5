import DeliveryCore

/// Decides which connections a pool has: how many, when one more, when one less, when another one in its place, and
/// whether to send at all. Without I/O and clock: events and times (nanoseconds of the monotonic clock) come in, the
/// shell takes ``actions`` after each call and carries them out.
///
/// A connection's number goes through
///
///     free -> opening -> active <-> reserve
///                          |           |
///                       retiring       |    (serves until its successor is open)
///                          |           |
///                          +-> draining -> free
///
/// and to free from anywhere, when the connection is gone.
struct PoolStateMachine {
    enum Phase: Sendable, Equatable {
        case free, opening, active, reserve, retiring, draining
    }

    /// What the shell is to do.
    enum Action: Equatable {
        /// Look the name up, dial, and tell how it ended: ``opened(_:now:)`` or ``ended(_:_:now:)``.
        case open(UInt32)
        /// Take no more requests on it and close it when it has none.
        case drain(UInt32)
        /// The scheduler is to be told anew of what this connection may be used for.
        case report(UInt32)
        case reportAll
        case changed(PoolChange)
    }

    /// One open connection as the shell sees it at a tick.
    struct View: Equatable {
        var number: UInt32
        var inFlight = 0
        /// Streams that it may have open: the server's limit and ours.
        var limit = 0
        /// The server takes our credential; before, a token connection has one stream (CON).
        var isAuthenticated = true
        /// Its window takes no more content.
        var isWindowFull = false
        /// Its stream ids come to an end.
        var isNearlyExhausted = false

        /// Nine tenths of the streams are taken.
        var isFull: Bool { isWindowFull || inFlight * 10 >= limit * 9 }
    }

    /// What waits at a tick.
    struct Demand: Equatable {
        /// Something waits that may go.
        var isWaiting = false
        /// How long the next has waited.
        var age: UInt64 = 0
        /// The most requests in flight since the last tick.
        var peakInFlight = 0
    }

    /// How a connection ended.
    enum End: Sendable, Equatable {
        /// We ended it.
        case ours
        /// Anything else.
        case failed
        /// It can't come about until someone mends a certificate or the like: tried again seldom.
        case settings
    }

    struct Member {
        var phase = Phase.free
        var since: UInt64 = 0
        var rotateAt = UInt64.max
        /// Since when it has had nothing in flight, in reserve.
        var idleSince: UInt64?
        var hasAnswered = false
    }

    let limits: PoolLimits
    var members: [Member]
    var actions: [Action] = []
    private(set) var circuit = PoolCircuit.closed
    /// Connections that there should be.
    private(set) var target: Int
    /// No opening before this.
    private(set) var notBefore: UInt64 = 0
    private(set) var stoppedUntil: UInt64?
    private(set) var failures = 0
    private(set) var isClosing = false
    var lastOpening: UInt64?
    var lastGrowth: UInt64?
    private var fullSince: UInt64?
    private var serverErrors = 0
    private var serverErrorsSince: UInt64 = 0
    private var peaks: (previous: Int, current: Int) = (0, 0)
    private var peakWindowEnd: UInt64?
    var generator: SeededGenerator

    init(_ limits: PoolLimits, seed: UInt64) {
        var limits = limits
        limits.minimum = max(1, limits.minimum)
        limits.maximum = max(limits.minimum, limits.maximum)
        self.limits = limits
        members = Array(repeating: Member(), count: limits.numbers)
        target = limits.minimum
        generator = SeededGenerator(seed: seed)
    }

    func count(_ phase: Phase) -> Int {
        members.reduce(0) { $0 + ($1.phase == phase ? 1 : 0) }
    }

    /// Connections that take requests, or soon will, and stay.
    var live: Int {
        members.reduce(0) {
            switch $1.phase {
            case .opening, .active, .reserve: $0 + 1
            case .free, .retiring, .draining: $0
            }
        }
    }

    // MARK: Connections

    mutating func opened(_ number: UInt32, now: UInt64) {
        guard members[Int(number)].phase == .opening else { return }
        members[Int(number)].phase = .active
        members[Int(number)].since = now
        members[Int(number)].rotateAt = limits.maximumAge == 0 ? .max : now + rotationAge()
        actions.append(.report(number))
        // One that was to be replaced has done its service.
        if let old = members.firstIndex(where: { $0.phase == .retiring }) { drain(old) }
    }

    /// An answer came on the connection: it works.
    mutating func answered(_ number: UInt32) {
        members[Int(number)].hasAnswered = true
        guard case .open(_, .unreachable) = circuit else {
            failures = circuit == .closed ? 0 : failures
            return
        }
        failures = 0
        setCircuit(.closed)
    }

    /// Answers of one read: how many were below 500, and how many of the last ones were not.
    mutating func answers(good: Int, serverErrors errors: Int, now: UInt64) {
        if good > 0 {
            serverErrors = 0
            failures = 0
            // What was sent before the circuit opened says nothing of the time since.
            if case .halfOpen = circuit { setCircuit(.closed) }
        }
        guard errors > 0 else { return }
        if serverErrors == 0 { serverErrorsSince = now }
        serverErrors += errors
        switch circuit {
        case .closed:
            guard serverErrors >= limits.circuitServerErrors,
                now >= serverErrorsSince + limits.circuitErrorTime
            else { return }
            openCircuit(.serverErrors, now: now)
        case .halfOpen: openCircuit(.serverErrors, now: now)
        case .open: break
        }
    }

    /// The server announced the connection's end, or its stream ids are used up: it takes no more.
    mutating func ending(_ number: UInt32, now: UInt64) {
        switch members[Int(number)].phase {
        case .active, .reserve, .retiring: members[Int(number)].phase = .draining
        case .free, .opening, .draining: return
        }
        maintain(now: now)
    }

    /// The connection is gone, or did not come about.
    mutating func ended(_ number: UInt32, _ end: End, now: UInt64) {
        let member = members[Int(number)]
        members[Int(number)] = Member()
        guard !isClosing else { return }
        // A server that takes connections and ends them unused must not be called again and again.
        let isYoung = member.phase == .opening || now < member.since + 60_000_000_000
        if end != .ours, isYoung, !member.hasAnswered {
            if end == .settings { notBefore = max(notBefore, now + limits.reconnectMaximum / 2) }
            openingFailed(now: now)
        }
        maintain(now: now)
    }

    private mutating func openingFailed(now: UInt64) {
        failures += 1
        notBefore = max(notBefore, now + backoff())
        let serves = members.contains { $0.hasAnswered && ($0.phase == .active || $0.phase == .reserve) }
        switch circuit {
        case .closed where failures >= limits.circuitFailures && !serves: openCircuit(.unreachable, now: now)
        case .halfOpen(let fault): openCircuit(fault, now: now)
        case .closed, .open: break
        }
    }

    // MARK: Circuit

    private mutating func openCircuit(_ fault: PoolFault, now: UInt64) {
        if fault == .serverErrors {
            failures += 1
            serverErrors = 0
            notBefore = max(notBefore, now + backoff())
        }
        setCircuit(.open(until: notBefore, fault))
    }

    private mutating func setCircuit(_ new: PoolCircuit) {
        guard circuit != new else { return }
        circuit = new
        fullSince = nil
        actions += [.changed(.circuit(new)), .reportAll]
    }

    /// The one connection that may carry a request while the circuit is half open.
    var probe: UInt32? {
        members.firstIndex { $0.phase == .active || $0.phase == .reserve }.map { UInt32($0) }
    }

    /// Full jitter, but at least a tenth of the window, so that a circuit is open for some time.
    private mutating func backoff() -> UInt64 {
        let doublings = UInt64(min(failures - 1, 30))
        let window = min(limits.reconnectInitial << doublings, limits.reconnectMaximum)
        return UInt64.random(in: window / 10...max(window, 1), using: &generator)
    }

    private mutating func rotationAge() -> UInt64 {
        let tenth = limits.maximumAge / 10
        return UInt64.random(in: limits.maximumAge - tenth...limits.maximumAge + tenth, using: &generator)
    }

    // MARK: Orders

    /// Opening would not help for the time being.
    mutating func stop(until: UInt64) {
        stoppedUntil = until
    }

    mutating func close() {
        isClosing = true
    }

    /// Takes a connection out at once and opens another.
    mutating func replaceNow(_ number: UInt32, now: UInt64) {
        switch members[Int(number)].phase {
        case .active, .reserve, .retiring: drain(Int(number))
        case .free, .opening, .draining: return
        }
        maintain(now: now)
    }

    /// Replaces a connection that may be worn out, unless it is young: a fresh one was no better then.
    mutating func replaceWhenSuccessorIsOpen(_ number: UInt32, now: UInt64) {
        let member = members[Int(number)]
        guard member.phase == .active || member.phase == .reserve,
            now >= member.since + limits.leastAgeToReplace
        else { return }
        retire(Int(number), .doubt)
        maintain(now: now)
    }

    private mutating func retire(_ index: Int, _ cause: PoolRotationCause) {
        let wasReserve = members[index].phase == .reserve
        members[index].phase = .retiring
        if wasReserve { actions.append(.report(UInt32(index))) }
        actions.append(.changed(.rotates(connection: UInt32(index), cause)))
    }

    private mutating func drain(_ index: Int) {
        members[index].phase = .draining
        actions.append(.drain(UInt32(index)))
    }

    // MARK: Time

    /// Looks at load and clock: opens, recalls, retires, drains.
    mutating func tick(now: UInt64, demand: Demand, views: [View]) {
        guard !isClosing else { return }
        if case .open(let until, let fault) = circuit, until <= now { setCircuit(.halfOpen(fault)) }
        notePeak(max(demand.peakInFlight, views.reduce(0) { $0 + $1.inFlight }), now: now)
        rotate(now: now, views)
        grow(now: now, demand, views)
        closeIdle(now: now, views)
        maintain(now: now)
    }

    /// When to be called again, at the latest.
    func nextTick(now: UInt64, isWaiting: Bool) -> UInt64 {
        var next = now + (isWaiting ? 10_000_000 : min(1_000_000_000, max(limits.idleTimeout / 8, 1_000_000)))
        if case .open(let until, _) = circuit { next = min(next, until) }
        if let stoppedUntil { next = min(next, stoppedUntil) }
        if live < target { next = min(next, earliestOpening) }
        return max(next, now + 1_000_000)
    }

    private mutating func notePeak(_ inFlight: Int, now: UInt64) {
        guard let end = peakWindowEnd else {
            peakWindowEnd = now + limits.idleTimeout / 2
            peaks = (.max, inFlight)
            return
        }
        peaks.current = max(peaks.current, inFlight)
        guard now >= end else { return }
        peaks = (peaks.current, inFlight)
        peakWindowEnd = now + limits.idleTimeout / 2
    }

    private mutating func rotate(now: UInt64, _ views: [View]) {
        guard circuit == .closed, stoppedUntil == nil, count(.retiring) == 0, count(.free) > 1 else { return }
        for view in views where view.isNearlyExhausted && isServing(view.number) {
            return retire(Int(view.number), .streamIDs)
        }
        if let old = members.firstIndex(where: {
            ($0.phase == .active || $0.phase == .reserve) && $0.rotateAt <= now
        }) {
            retire(old, .age)
        }
    }

    private func isServing(_ number: UInt32) -> Bool {
        members[Int(number)].phase == .active || members[Int(number)].phase == .reserve
    }

    private mutating func grow(now: UInt64, _ demand: Demand, _ views: [View]) {
        guard demand.isWaiting, circuit == .closed, stoppedUntil == nil else {
            fullSince = nil
            return
        }
        let active = views.filter { members[Int($0.number)].phase == .active }
        // At its start a token connection has one stream: being full then tells nothing.
        guard active.contains(where: \.isAuthenticated) else {
            fullSince = nil
            return
        }
        let isFull = active.allSatisfy(\.isFull)
        guard isFull else {
            fullSince = nil
            return
        }
        let since = fullSince ?? now
        fullSince = since
        let cause: PoolGrowthCause
        if now >= since + limits.growthPatience {
            cause = .connectionsFull
        } else if demand.age >= limits.queueAgeTarget {
            cause = .queueAge
        } else {
            return
        }
        if let reserve = members.firstIndex(where: { $0.phase == .reserve }) {
            members[reserve].phase = .active
            members[reserve].idleSince = nil
            actions += [.report(UInt32(reserve)), .changed(.recalled(connection: UInt32(reserve)))]
            fullSince = nil
            return
        }
        guard target < limits.maximum, live >= target, count(.opening) == 0, now >= notBefore,
            lastGrowth.map({ now >= $0 + limits.growthInterval }) ?? true
        else { return }
        target += 1
        lastGrowth = now
        fullSince = nil
        actions.append(.changed(.grew(to: target, cause)))
    }

    private mutating func closeIdle(now: UInt64, _ views: [View]) {
        let active = views.filter { members[Int($0.number)].phase == .active }
        let limit = active.map(\.limit).min() ?? 0
        // With half of the streams to spare the load fits into one connection less.
        let peak = max(peaks.previous, peaks.current)
        if target > limits.minimum, active.count > limits.minimum, count(.opening) == 0, limit > 0,
            peak <= (active.count - 1) * limit / 2,
            let least = active.min(by: { $0.inFlight < $1.inFlight })
        {
            members[Int(least.number)].phase = .reserve
            members[Int(least.number)].idleSince = nil
            actions += [.report(least.number), .changed(.reserved(connection: least.number))]
        }
        for view in views where members[Int(view.number)].phase == .reserve {
            let index = Int(view.number)
            if view.inFlight > 0 {
                members[index].idleSince = nil
                continue
            }
            let since = members[index].idleSince ?? now
            members[index].idleSince = since
            guard now >= since + limits.idleTimeout / 2, live > limits.minimum, target > limits.minimum else {
                continue
            }
            target -= 1
            drain(index)
            actions.append(.changed(.shrank(to: target)))
        }
    }

    // MARK: Opening

    private var earliestOpening: UInt64 {
        let paced = lastOpening.map { $0 + limits.openInterval } ?? 0
        return max(paced, notBefore, stoppedUntil ?? 0)
    }

    /// Opens what is missing, at its pace.
    mutating func maintain(now: UInt64) {
        guard !isClosing else { return }
        if let until = stoppedUntil, until <= now { stoppedUntil = nil }
        while live < target, earliestOpening <= now {
            switch circuit {
            case .open: return
            // One connection is enough to find out.
            case .halfOpen: if live > 0 { return }
            case .closed: break
            }
            guard let free = members.firstIndex(where: { $0.phase == .free }) else { return }
            members[free] = Member(phase: .opening, since: now)
            lastOpening = now
            actions.append(.open(UInt32(free)))
        }
    }
}

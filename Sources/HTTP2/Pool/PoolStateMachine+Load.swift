import StreamScheduling

/// What the pool does as load and time go on.
extension PoolStateMachine {
    /// Looks at load and clock: opens, recalls, retires, drains.
    ///
    /// - Parameter views: of every connection that takes requests, reserves and those that are being replaced included.
    mutating func tick(now: UInt64, demand: Demand, views: [View]) {
        guard !isClosing else { return }
        if case .open(let until, let fault) = circuit, until <= now { setCircuit(.halfOpen(fault)) }
        forgetShortLives(now: now)
        endOldRamp(now: now)
        replaceStuck(now: now, demand, views)
        load.note(max(demand.peakInFlight, views.reduce(0) { $0 + $1.inFlight }), now: now)
        rotate(now: now, views)
        grow(now: now, demand, views)
        closeIdle(now: now, demand, views)
        maintain(now: now)
    }

    /// When to be called again, at the latest.
    func nextTick(now: UInt64, isWaiting: Bool) -> UInt64 {
        var next = now + (isWaiting ? Self.demandInterval : Self.calmInterval(limits))
        if case .open(let until, _) = circuit { next = min(next, until) }
        if let stoppedUntil { next = min(next, stoppedUntil) }
        if mayOpen { next = min(next, earliestOpening) }
        return max(next, now + 1_000_000)
    }

    /// Between two looks at the load while requests wait and the pool may grow.
    static let demandInterval: UInt64 = 10_000_000

    private static func calmInterval(_ limits: PoolLimits) -> UInt64 {
        min(1_000_000_000, max(limits.idleTimeout / 8, 1_000_000))
    }

    /// Whether waiting requests can make the pool grow: if not, nobody needs to look at the load all the time.
    var mayGrow: Bool {
        !isClosing && circuit == .closed && stoppedUntil == nil
            && (target < limits.maximum || count(.reserve) > 0)
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

    /// With requests waiting, a connection that takes none and has none in flight is of no use, however well it answers
    /// PINGs: the server leaves it no stream (MAX_CONCURRENT_STREAMS 0) or credits no window. When no other takes requests
    /// either, the circuit opens.
    private mutating func replaceStuck(now: UInt64, _ demand: Demand, _ views: [View]) {
        if case .open = circuit {
            for index in members.indices { members[index].stuckSince = nil }
            return
        }
        var serving = 0
        var stuck: [Int] = []
        // Among connections that are not being replaced already.
        var oldest = now
        var newest: UInt64 = 0
        for view in views {
            let index = Int(view.number)
            guard isServing(view.number) || members[index].phase == .retiring else { continue }
            serving += 1
            guard demand.isWaiting, stoppedUntil == nil, view.inFlight == 0,
                view.isBlocked || view.isWindowFull
            else {
                members[index].stuckSince = nil
                continue
            }
            let since = members[index].stuckSince ?? now
            members[index].stuckSince = since
            stuck.append(index)
            guard members[index].phase != .retiring else { continue }
            oldest = min(oldest, since)
            newest = max(newest, since)
        }
        guard !stuck.isEmpty, now >= oldest + limits.progressTimeout else { return }
        // A connection that takes nothing for a moment is none of those.
        if stuck.count == serving, now >= newest + limits.progressTimeout / 8 {
            for index in stuck {
                if members[index].phase != .retiring {
                    actions.append(.changed(.rotates(connection: UInt32(index), .noProgress)))
                }
                drain(index)
            }
            return openCircuit(.noProgress, until: countFailure(now: now))
        }
        for index in stuck where now >= members[index].stuckSince! + limits.progressTimeout {
            guard members[index].phase != .retiring else { continue }
            members[index].isCounted = true
            let wasActive = members[index].phase == .active
            retire(index, .noProgress)
            if wasActive { countFailure(now: now) }
        }
    }

    private func isServing(_ number: UInt32) -> Bool {
        members[Int(number)].phase == .active || members[Int(number)].phase == .reserve
    }

    private mutating func grow(now: UInt64, _ demand: Demand, _ views: [View]) {
        guard let cause = reasonToGrow(now: now, demand, views) else { return }
        lastNeed = now
        if recall() {
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

    /// Requests wait, and no connection in use takes them: for ``PoolLimits/growthPatience`` as all are full, or for
    /// whatever reason once they have waited too long.
    private mutating func reasonToGrow(
        now: UInt64, _ demand: Demand, _ views: [View]
    ) -> PoolGrowthCause? {
        var isKnown = false
        var isFull = true
        var isTaken = true
        for view in views where members[Int(view.number)].phase == .active {
            // At its start a token connection has one stream: being full then tells nothing.
            if view.isAuthenticated { isKnown = true }
            isFull = isFull && view.isFull
            isTaken = isTaken && (view.isFull || view.isBlocked)
        }
        guard demand.isWaiting, circuit == .closed, stoppedUntil == nil, isKnown, isTaken else {
            fullSince = nil
            return nil
        }
        if !isFull { fullSince = nil }
        if isFull {
            let since = fullSince ?? now
            fullSince = since
            if now >= since + limits.growthPatience { return .connectionsFull }
        }
        return demand.age >= limits.queueAgeTarget ? .queueAge : nil
    }

    private mutating func closeIdle(now: UInt64, _ demand: Demand, _ views: [View]) {
        if !demand.isWaiting, lastNeed.map({ now >= $0 + limits.idleTimeout }) ?? true {
            reserveLeastUsed(views)
        }
        for view in views where members[Int(view.number)].phase == .reserve {
            let index = Int(view.number)
            guard view.inFlight == 0 else {
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

    /// Takes one connection out of use, or does without one that is missing, if, with half of the streams to spare, the
    /// load fits into one less. Streams say nothing of that while one in use takes no request for another reason.
    private mutating func reserveLeastUsed(_ views: [View]) {
        guard target > limits.minimum, count(.opening) == 0, let peak = load.peak else { return }
        var active = 0
        var limit = Int.max
        var least: View?
        for view in views where members[Int(view.number)].phase == .active {
            if view.isWindowFull || view.isBlocked { return }
            active += 1
            if view.isAuthenticated { limit = min(limit, view.limit) }
            if view.inFlight < least?.inFlight ?? .max { least = view }
        }
        if limit == .max { limit = 1 }
        if live < target {
            // One that could not be opened is not needed any more.
            guard peak <= active * limit / 2 else { return }
            target -= 1
            return actions.append(.changed(.shrank(to: target)))
        }
        // One that is replaced may just have called a reserve back as its successor.
        guard let least, active > limits.minimum, count(.retiring) == 0, peak <= (active - 1) * limit / 2
        else {
            return
        }
        members[Int(least.number)].phase = .reserve
        members[Int(least.number)].idleSince = nil
        actions += [.report(least.number), .changed(.reserved(connection: least.number))]
    }
}

/// The most requests that were in flight at once over a time: kept by quarters, of which the oldest is forgotten as
/// a new one begins.
struct LoadWindow: Sendable {
    private static let parts = 4

    private let part: UInt64
    /// The parts that are over, in a ring, and the one that runs.
    private var peaks: [Int]
    private var current = 0
    private var ended = 0
    private var endsAt: UInt64?

    /// - Parameter length: nanoseconds.
    init(length: UInt64) {
        part = max(1, length / UInt64(Self.parts))
        peaks = Array(repeating: 0, count: Self.parts)
    }

    /// Over at least the whole length, at most a quarter more; nil while that has not passed.
    var peak: Int? {
        ended < Self.parts ? nil : peaks.reduce(current, max)
    }

    mutating func note(_ inFlight: Int, now: UInt64) {
        let end = endsAt ?? now + part
        endsAt = end
        current = max(current, inFlight)
        guard now >= end else { return }
        peaks[ended % Self.parts] = current
        ended += 1
        current = inFlight
        endsAt = now + part
    }
}

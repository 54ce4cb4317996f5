import StreamScheduling

/// Decisions that follow load and time.
extension PoolStateMachine {
    /// Looks at load and clock, and opens, recalls, retires or drains connections.
    ///
    /// - Parameter views: the connections that accept requests, including reserves and connections that are being
    ///   replaced.
    mutating func tick(now: UInt64, demand: Demand, views: [View]) {
        guard !isClosing else { return }
        if case .open(let until, let fault) = circuit, until <= now || demand.hasWitness {
            // A new connection may take a while.
            probesSuspects = until > now
            setCircuit(.halfOpen(fault))
        } else if case .halfOpen = circuit, demand.hasWitness {
            if probe == nil { probesSuspects = true }
            actions.append(.reportAll)
        }
        forgetShortLives(now: now)
        endOldRamp(now: now)
        replaceStuck(now: now, demand, views)
        watchAnswers(now: now, demand, views)
        drainExtra(demand)
        load.note(max(demand.peakInFlight, views.reduce(0) { $0 + $1.inFlight }), now: now)
        rotate(now: now, views)
        grow(now: now, demand, views)
        closeIdle(now: now, demand, views)
        maintain(now: now)
    }

    /// Returns the latest time of the next tick.
    func nextTick(now: UInt64, isWaiting: Bool) -> UInt64 {
        var next = now + (isWaiting ? Self.demandInterval : Self.calmInterval(limits))
        if case .open(let until, _) = circuit { next = min(next, until) }
        if let stoppedUntil { next = min(next, stoppedUntil) }
        if mayOpen { next = min(next, earliestOpening) }
        return max(next, now + 1_000_000)
    }

    /// Interval between two looks at the load while requests wait and the pool may grow, in nanoseconds.
    static let demandInterval: UInt64 = 10_000_000

    private static func calmInterval(_ limits: PoolLimits) -> UInt64 {
        min(1_000_000_000, max(limits.idleTimeout / 8, 1_000_000))
    }

    /// Whether waiting requests can make the pool grow. If not, the load needs no frequent look.
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

    /// Replaces connections that accept no request and have none in flight while requests wait. Such a connection is of
    /// no use, however well it acknowledges PINGs. The server leaves it no stream (MAX_CONCURRENT_STREAMS 0) or credits
    /// no window. When no other connection accepts requests either, the circuit opens.
    private mutating func replaceStuck(now: UInt64, _ demand: Demand, _ views: [View]) {
        if case .open = circuit {
            for index in members.indices { members[index].stuckSince = nil }
            return
        }
        var serving = 0
        var stuck: [Int] = []
        // Only connections that are not being replaced already count here.
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
        // A connection that pauses only for a moment is not stuck.
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

    /// Suspects connections that don't answer their first request, however well they acknowledge PINGs. Opens the
    /// circuit when no connection has answered for ``PoolLimits/progressTimeout``.
    private mutating func watchAnswers(now: UInt64, _ demand: Demand, _ views: [View]) {
        // Connections without a request, or with fresh ones alone, may answer.
        var mayAnswer = false
        var isInFlight = false
        for view in views {
            let index = Int(view.number)
            guard view.inFlight > 0 else {
                members[index].unansweredSince = nil
                if circuit == .closed, members[index].hasAnswered { clear(index) }
                if members[index].phase == .active { mayAnswer = true }
                continue
            }
            isInFlight = true
            let since = members[index].unansweredSince ?? now
            members[index].unansweredSince = since
            guard now >= since + limits.answerPatience else {
                mayAnswer = true
                continue
            }
            if case .open = circuit { continue }
            if members[index].phase == .active { suspect(index, now: now) }
        }
        if isInFlight {
            unansweredSince = unansweredSince ?? now
        } else if !demand.isWaiting {
            unansweredSince = nil
        }
        guard circuit == .closed, isInFlight, !mayAnswer, let since = unansweredSince,
            now >= since + limits.progressTimeout
        else { return }
        for view in views where isServing(view.number) && view.inFlight > 0 {
            (members[Int(view.number)].isSuspect, members[Int(view.number)].isCounted) = (true, true)
        }
        openCircuit(.noAnswer, until: countFailure(now: now))
    }

    private mutating func suspect(_ index: Int, now: UInt64) {
        guard !members[index].hasAnswered, !members[index].isSuspect else { return }
        members[index].isSuspect = true
        // Another one may fare no better.
        members[index].isCounted = true
        countFailure(now: now)
        actions += [.report(UInt32(index)), .changed(.suspects(connection: UInt32(index)))]
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
            lastGrowth.map({ now >= $0 + limits.growthInterval }) ?? true,
            // More connections don't help with a server that answers nothing.
            members.contains(where: { $0.phase == .active && $0.hasAnswered }),
            members.allSatisfy({ $0.phase != .active || $0.hasAnswered || $0.isSuspect })
        else { return }
        target += 1
        lastGrowth = now
        fullSince = nil
        actions.append(.changed(.grew(to: target, cause)))
    }

    /// Returns a reason to grow when requests wait and no connection in use accepts them, else nil. All connections
    /// have been full for ``PoolLimits/growthPatience``, or requests have waited for ``PoolLimits/queueAgeTarget``,
    /// whatever the cause.
    private mutating func reasonToGrow(
        now: UInt64, _ demand: Demand, _ views: [View]
    ) -> PoolGrowthCause? {
        var isKnown = false
        var isFull = true
        var isTaken = true
        for view in views where members[Int(view.number)].phase == .active {
            // At its start a token connection has one stream, so a full one proves nothing.
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

    /// Puts one connection in reserve, or gives up a missing one, if the load fits into one fewer with half the streams
    /// spare. Stream counts prove nothing while a connection in use accepts no request for another reason.
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
            // A connection that could not be opened is not needed any more.
            guard peak <= active * limit / 2 else { return }
            target -= 1
            return actions.append(.changed(.shrank(to: target)))
        }
        // The replacement of a connection may just have recalled a reserve as its successor.
        guard let least, active > limits.minimum, count(.retiring) == 0, peak <= (active - 1) * limit / 2
        else {
            return
        }
        members[Int(least.number)].phase = .reserve
        members[Int(least.number)].idleSince = nil
        actions += [.report(least.number), .changed(.reserved(connection: least.number))]
    }
}

/// The highest number of requests in flight at once over a period. The window keeps quarters of the period and forgets
/// the oldest as a new quarter begins.
struct LoadWindow: Sendable {
    private static let parts = 4

    private let part: UInt64
    /// Peaks of the finished quarters, in a ring; `current` holds the running quarter.
    private var peaks: [Int]
    private var current = 0
    private var ended = 0
    private var endsAt: UInt64?

    /// - Parameter length: the period, in nanoseconds.
    init(length: UInt64) {
        part = max(1, length / UInt64(Self.parts))
        peaks = Array(repeating: 0, count: Self.parts)
    }

    /// Peak over at least the whole period and at most a quarter more; nil until a whole period has passed.
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

import StreamScheduling

/// Pause of one pool, because a server asked for a pause (503 with `Retry-After`).
///
///     none ── asked ──▶ urgent only ── asked again, for a later push of priority 10 ──▶ total
///      ▲                     │                                                    │
///      └───── a push was accepted, or the time is over ───────────────────────────┘
///
/// During the pause, single pushes of any priority are probes: the first after a second, the others at growing
/// intervals.
///
/// A rest is a pause without probes: APNs accepts no further provider token of the pool's key for a while. Pushes that
/// are accepted meanwhile were sent before, so they don't end a rest.
struct RetryAfterPause: BitwiseCopyable {
    /// End of the pause, in nanoseconds of the monotonic clock; 0 without a pause.
    var until: UInt64 = 0
    /// Start of the pause, in nanoseconds of the monotonic clock.
    var begin: UInt64 = 0
    /// True when pushes of priority 10 wait as well.
    var isTotal = false
    /// Time of the next probe, in nanoseconds of the monotonic clock.
    var nextProbe: UInt64 = 0
    /// Probes that have left.
    var probes: UInt32 = 0
    /// End of a rest, in nanoseconds of the monotonic clock; 0 without a rest.
    var restUntil: UInt64 = 0

    /// Interval before the next probe, in milliseconds.
    var probeInterval: Int64 { ExponentialBackoff.configuration.window(attempt: probes + 1) }

    /// Whether there is neither a pause nor a rest.
    var isNone: Bool { until == 0 && restUntil == 0 }

    /// Time after the pause's start in which answers belong to earlier pushes, in nanoseconds.
    static let grace: UInt64 = 500_000_000
}

/// Pushes of a pool that may leave.
public enum PoolGate: Sendable, Equatable {
    /// All pushes.
    case open
    /// A single push of any priority; ``DeliveryMachine/probed(_:at:)`` follows.
    case probe
    /// Pushes of priority 10.
    case urgentOnly
    /// None.
    case closed
}

extension DeliveryMachine {
    /// Returns the pushes of a pool that may leave now.
    public func poolGate(_ pool: UInt16, at now: DeliveryTime) -> PoolGate {
        guard pausedPools > 0, Int(pool) < poolPauses.count else { return .open }
        let pause = poolPauses[Int(pool)]
        if pause.restUntil > now.monotonicNanoseconds { return .closed }
        guard pause.until > now.monotonicNanoseconds else { return .open }
        if pause.nextProbe <= now.monotonicNanoseconds { return .probe }
        return pause.isTotal ? .closed : .urgentOnly
    }

    /// Pools for which the server has asked for a pause.
    public var overloadedPools: [UInt16] {
        poolPauses.indices.filter { poolPauses[$0].until != 0 }.map { UInt16($0) }
    }

    /// Records that a push has left through ``PoolGate/probe``.
    public mutating func probed(_ pool: UInt16, at now: DeliveryTime) {
        guard Int(pool) < poolPauses.count else { return }
        poolPauses[Int(pool)].probes += 1
        poolPauses[Int(pool)].nextProbe = now.monotonic(inMilliseconds: poolPauses[Int(pool)].probeInterval)
    }

    /// Nanoseconds for which an accepted push shows that APNs serves its topic.
    private static let served: UInt64 = 10_000_000_000

    /// Returns true when a pause concerns this topic alone: the pool has others, and APNs accepts pushes of one of them, or
    /// has not asked for a pause of any.
    func isOverloadedAlone(_ topic: UInt16, at now: DeliveryTime) -> Bool {
        let pool = circuits[Int(topic)].pool
        var (hasOthers, isShared) = (false, false)
        for other in circuits.indices where other != Int(topic) && circuits[other].pool == pool {
            let accepted = circuits[other].accepted
            if accepted > 0, now.monotonicNanoseconds < accepted &+ Self.served { return true }
            hasOthers = true
            if circuits[other].state != .closed, circuits[other].fault == .overload { isShared = true }
        }
        return hasOthers && !isShared
    }

    /// Stops a topic because the server has asked for a pause. Single pushes probe, as in a pool's pause.
    mutating func overloaded(_ slot: UInt32, milliseconds: Int64, at now: DeliveryTime) {
        let topic = Int(items[Int(slot)].topic)
        circuitFailed(slot, .overload, at: now)
        guard circuits[topic].state == .open, circuits[topic].fault == .overload else { return }
        circuits[topic].until = min(circuits[topic].until, now.monotonic(inMilliseconds: milliseconds))
    }

    /// Pauses the pool because the server has asked for a pause.
    mutating func pause(_ pool: UInt16, milliseconds: Int64, isUrgent: Bool, at now: DeliveryTime) {
        var pause = poolPauses[Int(pool)]
        if pause.until > now.monotonicNanoseconds {
            let isLater = now.monotonicNanoseconds >= pause.begin + RetryAfterPause.grace
            pause.isTotal = pause.isTotal || isUrgent && isLater
        } else {
            if pause.isNone { pausedPools += 1 }
            actions.append(.poolOverloaded(pool))
            let rest = pause.restUntil
            pause = RetryAfterPause()
            pause.restUntil = rest
            pause.begin = now.monotonicNanoseconds
            pause.nextProbe = now.monotonic(inMilliseconds: pause.probeInterval)
        }
        pause.until = max(pause.until, now.monotonic(inMilliseconds: milliseconds))
        poolPauses[Int(pool)] = pause
    }

    /// Lets a pool rest, together with the other pools of its key. Nothing leaves before `until`, in nanoseconds of the
    /// monotonic clock.
    public mutating func rest(_ pool: UInt16, until: UInt64, at now: DeliveryTime) {
        guard until > now.monotonicNanoseconds else { return }
        growPauses(to: pool)
        if poolPauses[Int(pool)].isNone { pausedPools += 1 }
        poolPauses[Int(pool)].restUntil = max(poolPauses[Int(pool)].restUntil, until)
    }

    /// Ends a pool's rest, because another key serves.
    public mutating func endRest(_ pool: UInt16) {
        guard Int(pool) < poolPauses.count, poolPauses[Int(pool)].restUntil != 0 else { return }
        poolPauses[Int(pool)].restUntil = 0
        if poolPauses[Int(pool)].isNone { pausedPools -= 1 }
    }

    /// Makes room for the pool's pause.
    mutating func growPauses(to pool: UInt16) {
        guard Int(pool) >= poolPauses.count else { return }
        poolPauses.append(
            contentsOf: repeatElement(RetryAfterPause(), count: Int(pool) + 1 - poolPauses.count))
    }

    /// Ends the pause because a push was accepted; a rest stays.
    mutating func endPause(_ pool: UInt16) {
        guard poolPauses[Int(pool)].until != 0 else { return }
        let rest = poolPauses[Int(pool)].restUntil
        poolPauses[Int(pool)] = RetryAfterPause()
        poolPauses[Int(pool)].restUntil = rest
        if rest == 0 { pausedPools -= 1 }
    }

    /// Ends the pauses and rests whose time is over.
    mutating func endPauses(at now: DeliveryTime) {
        for pool in poolPauses.indices {
            if poolPauses[pool].until <= now.monotonicNanoseconds { endPause(UInt16(pool)) }
            let rest = poolPauses[pool].restUntil
            guard rest != 0, rest <= now.monotonicNanoseconds else { continue }
            poolPauses[pool].restUntil = 0
            if poolPauses[pool].isNone { pausedPools -= 1 }
        }
    }

    /// Returns when a pool may send more than now, in nanoseconds of the monotonic clock; `.max` when no pool is
    /// paused.
    func nextPauseEnd(after now: DeliveryTime) -> UInt64 {
        var wake = UInt64.max
        for pause in poolPauses where !pause.isNone {
            if pause.restUntil != 0 { wake = min(wake, pause.restUntil) }
            guard pause.until != 0 else { continue }
            wake = min(wake, pause.until)
            if pause.nextProbe > now.monotonicNanoseconds { wake = min(wake, pause.nextProbe) }
        }
        return wake
    }
}

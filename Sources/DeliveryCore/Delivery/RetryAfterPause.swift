import StreamScheduling

/// Pause of one pool, because a server asked for a pause (503 with `Retry-After`).
///
///     none ── asked ──▶ urgent only ── asked again, for a later push of priority 10 ──▶ total
///      ▲                     │                                                    │
///      └───── a push was accepted, or the time is over ───────────────────────────┘
///
/// During the pause, single pushes of any priority are probes: the first after a second, the others at growing
/// intervals.
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

    /// Interval before the next probe, in milliseconds.
    var probeInterval: Int64 { ExponentialBackoff.configuration.window(attempt: probes + 1) }

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
        guard pause.until > now.monotonicNanoseconds else { return .open }
        if pause.nextProbe <= now.monotonicNanoseconds { return .probe }
        return pause.isTotal ? .closed : .urgentOnly
    }

    /// Records that a push has left through ``PoolGate/probe``.
    public mutating func probed(_ pool: UInt16, at now: DeliveryTime) {
        guard Int(pool) < poolPauses.count else { return }
        poolPauses[Int(pool)].probes += 1
        poolPauses[Int(pool)].nextProbe = now.monotonic(inMilliseconds: poolPauses[Int(pool)].probeInterval)
    }

    /// Pauses the pool because the server has asked for a pause.
    mutating func pause(_ pool: UInt16, milliseconds: Int64, isUrgent: Bool, at now: DeliveryTime) {
        var pause = poolPauses[Int(pool)]
        if pause.until > now.monotonicNanoseconds {
            let isLater = now.monotonicNanoseconds >= pause.begin + RetryAfterPause.grace
            pause.isTotal = pause.isTotal || isUrgent && isLater
        } else {
            if pause.until == 0 { pausedPools += 1 }
            pause = RetryAfterPause()
            pause.begin = now.monotonicNanoseconds
            pause.nextProbe = now.monotonic(inMilliseconds: pause.probeInterval)
        }
        pause.until = max(pause.until, now.monotonic(inMilliseconds: milliseconds))
        poolPauses[Int(pool)] = pause
    }

    mutating func endPause(_ pool: UInt16) {
        guard poolPauses[Int(pool)].until != 0 else { return }
        poolPauses[Int(pool)] = RetryAfterPause()
        pausedPools -= 1
    }

    mutating func endPauses(at now: DeliveryTime) {
        for pool in poolPauses.indices where poolPauses[pool].until <= now.monotonicNanoseconds {
            endPause(UInt16(pool))
        }
    }

    /// Returns when a pool may send more than now, in nanoseconds of the monotonic clock; `.max` when no pool is
    /// paused.
    func nextPauseEnd(after now: DeliveryTime) -> UInt64 {
        var wake = UInt64.max
        for pause in poolPauses where pause.until != 0 {
            wake = min(wake, pause.until)
            if pause.nextProbe > now.monotonicNanoseconds { wake = min(wake, pause.nextProbe) }
        }
        return wake
    }
}

import StreamScheduling

/// Hold of one lane, because a server asked for a pause (503 with `Retry-After`).
///
///     none ── asked ──▶ urgent only ── asked again, for a later push of priority 10 ──▶ total
///      ▲                     │                                                    │
///      └───── a push was accepted, or the time is over ───────────────────────────┘
///
/// During the hold, single pushes of any priority are probes: the first after a second, the others at growing
/// intervals.
struct LaneHold: BitwiseCopyable {
    /// End of the hold, in nanoseconds of the monotonic clock; 0 when there is none.
    var until: UInt64 = 0
    /// Start of the hold, in nanoseconds of the monotonic clock.
    var begin: UInt64 = 0
    /// True when pushes of priority 10 wait as well.
    var isTotal = false
    /// Time of the next probe, in nanoseconds of the monotonic clock.
    var nextProbe: UInt64 = 0
    /// Probes that have left.
    var probes: UInt32 = 0

    /// Pause before the next probe, in milliseconds.
    var pause: Int64 { ExponentialBackoff.configuration.window(attempt: probes + 1) }

    /// Time after the hold's start in which answers belong to earlier pushes, in nanoseconds.
    static let grace: UInt64 = 500_000_000
}

/// Pushes of a lane that may leave.
public enum LaneGate: Sendable, Equatable {
    case open
    /// A single push of any priority; ``DeliveryMachine/probed(_:at:)`` follows.
    case probe
    /// Pushes of priority 10.
    case urgentOnly
    case closed
}

extension DeliveryMachine {
    /// Returns the pushes of a lane that may leave now.
    public func laneGate(_ lane: UInt16, at now: DeliveryTime) -> LaneGate {
        guard heldLanes > 0, Int(lane) < laneHolds.count else { return .open }
        let hold = laneHolds[Int(lane)]
        guard hold.until > now.monotonicNanoseconds else { return .open }
        if hold.nextProbe <= now.monotonicNanoseconds { return .probe }
        return hold.isTotal ? .closed : .urgentOnly
    }

    /// Records that a push has left through ``LaneGate/probe``.
    public mutating func probed(_ lane: UInt16, at now: DeliveryTime) {
        guard Int(lane) < laneHolds.count else { return }
        laneHolds[Int(lane)].probes += 1
        laneHolds[Int(lane)].nextProbe = now.monotonic(inMilliseconds: laneHolds[Int(lane)].pause)
    }

    /// Holds the lane because the server has asked for a pause.
    mutating func hold(_ lane: UInt16, milliseconds: Int64, isUrgent: Bool, at now: DeliveryTime) {
        var hold = laneHolds[Int(lane)]
        if hold.until > now.monotonicNanoseconds {
            let isLater = now.monotonicNanoseconds >= hold.begin + LaneHold.grace
            hold.isTotal = hold.isTotal || isUrgent && isLater
        } else {
            if hold.until == 0 { heldLanes += 1 }
            hold = LaneHold()
            hold.begin = now.monotonicNanoseconds
            hold.nextProbe = now.monotonic(inMilliseconds: hold.pause)
        }
        hold.until = max(hold.until, now.monotonic(inMilliseconds: milliseconds))
        laneHolds[Int(lane)] = hold
    }

    mutating func endLaneHold(_ lane: UInt16) {
        guard laneHolds[Int(lane)].until != 0 else { return }
        laneHolds[Int(lane)] = LaneHold()
        heldLanes -= 1
    }

    mutating func endLaneHolds(at now: DeliveryTime) {
        for lane in laneHolds.indices where laneHolds[lane].until <= now.monotonicNanoseconds {
            endLaneHold(UInt16(lane))
        }
    }

    /// Returns when a lane may send more than now, in nanoseconds of the monotonic clock; `.max` when no lane is
    /// held.
    func nextLaneWake(after now: DeliveryTime) -> UInt64 {
        var wake = UInt64.max
        for hold in laneHolds where hold.until != 0 {
            wake = min(wake, hold.until)
            if hold.nextProbe > now.monotonicNanoseconds { wake = min(wake, hold.nextProbe) }
        }
        return wake
    }
}

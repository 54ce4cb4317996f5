import EventLoop
import Synchronization

/// Until when this worker may take it for granted that its partitions are still its own. A process that was stopped for
/// longer than the group waits has lost them without knowing: its shards must not send what they hold before the group has
/// confirmed that it is still a member.
///
/// The intake's loop renews it; shards only read it.
final class MembershipLease: Sendable {
    private let until: Atomic<UInt64>
    private let length: UInt64

    /// - Parameter sessionTimeout: of the consumer; the lease is half as long.
    init(sessionTimeout: Duration, now: MonotonicTime) {
        length = UInt64(sessionTimeout / .nanoseconds(1)) / 2
        until = Atomic(now.nanoseconds &+ length)
    }

    /// Whether pushes may be sent. One load.
    func isValid(at now: MonotonicTime) -> Bool { now.nanoseconds < until.load(ordering: .relaxed) }

    /// The worker is a member of the group for sure.
    func renew(at now: MonotonicTime) { until.store(now.nanoseconds &+ length, ordering: .relaxed) }
}

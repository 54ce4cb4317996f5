import Synchronization

/// Time until which a process may send notifications that only the owner of its partitions may send. A single thread
/// extends the permit, other threads read it. Senders read the clock right before sending, because a process can be
/// stopped at any moment.
public final class SendPermit: Sendable {
    private let deadline: Atomic<UInt64>

    public init(until deadline: MonotonicTime) { self.deadline = Atomic(deadline.nanoseconds) }

    /// End of the permit, on the monotonic clock.
    public var until: MonotonicTime { MonotonicTime(nanoseconds: deadline.load(ordering: .relaxed)) }

    /// Whether sending is allowed now. Reads the clock.
    public var isValid: Bool { MonotonicTime.read() < until }

    /// Moves the end of the permit.
    public func extend(until deadline: MonotonicTime) {
        self.deadline.store(deadline.nanoseconds, ordering: .relaxed)
    }
}

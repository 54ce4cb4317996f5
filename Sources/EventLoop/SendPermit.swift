import Synchronization

/// Until when a process may send what only the owner of its partitions may send. One thread extends the permit, others read
/// it. Whoever sends reads the clock right before, as a process can be stopped at any moment.
public final class SendPermit: Sendable {
    private let deadline: Atomic<UInt64>

    public init(until deadline: MonotonicTime) { self.deadline = Atomic(deadline.nanoseconds) }

    /// The end of the permit, on the monotonic clock.
    public var until: MonotonicTime { MonotonicTime(nanoseconds: deadline.load(ordering: .relaxed)) }

    /// Whether something may be sent now. Reads the clock.
    public var isValid: Bool { MonotonicTime.read() < until }

    /// Moves the end.
    public func extend(until deadline: MonotonicTime) {
        self.deadline.store(deadline.nanoseconds, ordering: .relaxed)
    }
}

import EventLoop
import Synchronization

/// An orderly stop of a worker, requested or begun by the worker itself.
public struct WorkerStop: Sendable, Equatable {
    /// Time since the request.
    public var elapsed: Duration
    /// Longest time the stop may take: the drain deadline, and some more for outcomes, offsets, store and group.
    public var limit: Duration

    public init(elapsed: Duration, limit: Duration) {
        self.elapsed = elapsed
        self.limit = limit
    }

    /// Whether the stop is within its limit.
    public var isInTime: Bool { elapsed <= limit }

    static let margin: Duration = .seconds(15)
}

/// Moment of a worker's stop request. Any thread may read it, whatever the loops do.
final class StopNote: Sendable {
    /// Nanoseconds of the monotonic clock; 0: no stop.
    private let since = Atomic<UInt64>(0)

    /// Notes the stop request; later calls change nothing.
    func note(at now: MonotonicTime) {
        _ = since.compareExchange(expected: 0, desired: max(1, now.nanoseconds), ordering: .relaxed)
    }

    func elapsed(at now: MonotonicTime) -> Duration? {
        let since = since.load(ordering: .relaxed)
        guard since > 0 else { return nil }
        return .nanoseconds(Int64(clamping: now.nanoseconds(since: MonotonicTime(nanoseconds: since))))
    }
}

extension Worker {
    /// Nil while the worker is to continue.
    public var stop: WorkerStop? {
        intake.stopNote.elapsed(at: .read()).map {
            WorkerStop(elapsed: $0, limit: intake.settings.drainDeadline + WorkerStop.margin)
        }
    }
}

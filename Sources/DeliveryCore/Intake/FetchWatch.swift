/// Decides when the consumer's fetching must be looked after.
///
/// librdkafka stops fetching while its queue is at a limit. Before release 2.2.0 nothing wakes its broker thread when the
/// queue has been drained. The thread looks again a second later, and a worker with a backlog waits for most of that
/// second. Any request to the broker wakes the thread.
///
/// Pure: facts are arguments. The queue can't tell its bytes, so they are estimated by the mean of the polled records.
public struct FetchWatch: Sendable {
    /// Limits of the consumer's queue: `queued.min.messages` and `queued.max.messages.kbytes`.
    public struct Limits: Sendable {
        /// Records in the queue at which fetching stops.
        public var records: Int
        /// Bytes of values in the queue at which fetching stops.
        public var bytes: Int

        public init(records: Int, bytes: Int) {
            self.records = records
            self.bytes = bytes
        }
    }

    private let limits: Limits
    /// Mean bytes of a polled record's value, at least 1; a moving average.
    private var mean = 1.0
    /// Most records in the queue since the last request.
    private var highest = 0
    /// Whether a request is under way.
    private var isAsking = false

    public init(_ limits: Limits) { self.limits = limits }

    /// Notes a poll. Returns whether a request is needed. The queue then was so full that fetching may have stopped, and
    /// half of it is gone. ``asked(queued:)`` must follow the request.
    /// - Parameters:
    ///   - records: polled records.
    ///   - bytes: bytes of their values.
    ///   - queued: records in the queue after the poll.
    public mutating func polled(_ records: Int, bytes: Int, queued: Int) -> Bool {
        if records > 0 {
            let size = max(1, Double(bytes) / Double(records))
            mean = mean == 1 ? size : mean + (size - mean) / 8
        }
        highest = max(highest, queued + records)
        return needsRequest(queued)
    }

    /// Notes that the request was answered, or has failed. Returns whether another request is needed, because half of the
    /// queue that the thread has seen is gone meanwhile.
    /// - Parameter queued: records in the queue.
    public mutating func asked(queued: Int) -> Bool {
        isAsking = false
        return needsRequest(queued)
    }

    private mutating func needsRequest(_ queued: Int) -> Bool {
        guard !isAsking, highest > 0, queued <= highest / 2, mayHaveStopped else { return false }
        isAsking = true
        highest = queued
        return true
    }

    /// Whether the queue was within half of a limit. The estimate needs room for records of very different sizes.
    private var mayHaveStopped: Bool {
        highest >= max(1, limits.records / 2) || Double(highest) * mean >= Double(limits.bytes) / 2
    }
}

import EventLoop
import Synchronization

/// Carries out ``PurgeSchedule`` on a thread of its own, which may block for long.
// Sendable: the loop is; the state is behind locks. Timers are set and fire on the loop's thread only.
final class StorePurger: TimerHandler, Sendable {
    private struct Request {
        /// Partitions with the number of their purges that have to end.
        var left: [Int32: Int]
        var failure: RetryStoreError?
        var completion: @Sendable (RetryStoreError?) -> Void
    }

    private struct State {
        var schedule: PurgeSchedule
        var requests: [Request] = []
        var completed = 0
        var failed = 0
        /// See ``PurgeStatus/dropped``. No more entries than the topic has partitions.
        var dropped: [Int32: Int] = [:]
        var last: PurgeStatus.End?
        var observer: (@Sendable (PurgeStatus.End) -> Void)?
        var timer: TimerID?
        /// Begins a purge on the loop's thread; nil before ``start(_:)`` and after ``close()``.
        var begin: (@Sendable (Int32) -> Void)?
    }

    let loop: EventLoop
    /// See ``PurgeStatus/opening``.
    private let opening: String
    /// Longest time between a removal and the begin of its purge, in milliseconds.
    private let delay: Int64
    private let state: Mutex<State>

    /// Longest sleep, in milliseconds: the wall clock can be set meanwhile.
    private static let longestSleep: Int64 = 600_000

    init(delay: Duration) throws(SystemError) {
        loop = try EventLoop(name: "store-purge")
        var generator = ProcessRandom()
        opening = RetryStore.name(of: generator.next())
        self.delay = Int64(delay / .milliseconds(1))
        state = Mutex(State(schedule: PurgeSchedule(delay: self.delay)))
    }

    /// Starts the thread.
    /// - Parameter begin: begins a purge on the thread; ``ended(_:_:at:from:)`` follows.
    func start(_ begin: @escaping @Sendable (Int32) -> Void) {
        state.withLock { $0.begin = begin }
        loop.start()
        advance()
    }

    /// Ends the thread, after the call that it is in.
    func close() {
        loop.stop()
        loop.join()
        let requests = state.withLock { state in
            defer { (state.begin, state.observer, state.requests) = (nil, nil, []) }
            return state.requests
        }
        for request in requests { request.completion(.closed) }
    }

    var status: PurgeStatus {
        state.withLock { state in
            var status = PurgeStatus()
            (status.opening, status.delay) = (opening, delay)
            (status.pending, status.current) = (state.schedule.pending, state.schedule.current)
            (status.completed, status.failed, status.last) = (state.completed, state.failed, state.last)
            (status.dropped, status.failingSince) = (state.dropped, state.schedule.failingSince)
            return status
        }
    }

    /// Returns whether the partition needs a purge, or one is under way.
    func needsPurge(_ partition: Int32) -> Bool { state.withLock { $0.schedule.needsPurge(partition) } }

    func observe(_ observer: @escaping @Sendable (PurgeStatus.End) -> Void) {
        state.withLock { $0.observer = observer }
    }

    /// Returns the time to record with a removal of now.
    func since(_ partition: Int32, at now: Int64) -> Int64 {
        state.withLock { $0.schedule.since(partition, at: now) }
    }

    /// Records a removal that is written.
    func removed(from partition: Int32, at now: Int64) {
        state.withLock { $0.schedule.removed(from: partition, at: now) }
        advance()
    }

    /// Requests purges without delay, and calls `completion` with the first failure when all have ended, or at once
    /// when there are none. Returns the partitions.
    func request(
        all: [Int32], at now: Int64, completion: @escaping @Sendable (RetryStoreError?) -> Void
    ) -> [Int32] {
        let (partitions, isOpen) = state.withLock { state in
            let partitions = state.schedule.request(all: all, at: now)
            let isOpen = state.begin != nil
            if isOpen, !partitions.isEmpty {
                state.requests.append(Request(left: partitions, completion: completion))
            }
            return (partitions, isOpen)
        }
        if !isOpen || partitions.isEmpty { completion(isOpen ? nil : .closed) }
        advance()
        return Array(partitions.keys)
    }

    /// Records the end of a purge. Returns true when the partition needs no further purge.
    func ended(_ partition: Int32, _ outcome: PurgeStatus.Outcome, began: Int64, at now: Int64) -> Bool {
        let end = PurgeStatus.End(
            partition: partition, milliseconds: now, instant: .now, duration: max(0, now - began),
            outcome: outcome)
        let failure = end.failure
        let (isCovered, observer, done) = state.withLock { state in
            let isCovered = state.schedule.ended(partition, isDone: failure == nil, at: now)
            state.last = end
            switch outcome {
            case .purged: state.completed += 1
            case .dropped: state.dropped[partition, default: 0] += 1
            case .failed: state.failed += 1
            }
            return (isCovered, state.observer, Self.settle(partition, failure, &state.requests))
        }
        observer?(end)
        for request in done { request.completion(request.failure) }
        advance()
        return isCovered
    }

    /// Counts the purge's end for the requests, and returns those that are complete. A failure ends the waiting for the
    /// partition, because it is repeated after a pause only.
    private static func settle(
        _ partition: Int32, _ failure: RetryStoreError?, _ requests: inout [Request]
    ) -> [Request] {
        for index in requests.indices {
            guard let ends = requests[index].left[partition] else { continue }
            requests[index].left[partition] = failure == nil && ends > 1 ? ends - 1 : nil
            requests[index].failure = requests[index].failure ?? failure
        }
        defer { requests.removeAll { $0.left.isEmpty } }
        return requests.filter(\.left.isEmpty)
    }

    // MARK: Loop's thread

    private func advance() { loop.execute { [self] in step() } }

    func timerFired(_ timer: TimerID) {
        state.withLock { $0.timer = nil }
        step()
    }

    private func step() {
        let now = wallClockMilliseconds()
        if let timer = state.withLock({ $0.timer.take() }) { loop.cancel(timer) }
        guard let begin = state.withLock({ $0.begin }) else { return }
        switch state.withLock({ $0.schedule.next(at: now) }) {
        case .idle: break
        case .purge(let partition): begin(partition)
        case .wait(let until):
            let sleep = min(max(1, until.subtractingReportingOverflow(now).partialValue), Self.longestSleep)
            let timer = loop.schedule(after: .milliseconds(sleep), handler: self)
            state.withLock { $0.timer = timer }
        }
    }
}

import Configuration
import DeliveryCore
import EventLoop
import Kafka
import Logging
import StreamScheduling
import Synchronization

/// Why a worker had to stop.
public struct WorkerFailure: Sendable, Equatable, CustomStringConvertible {
    /// For people: what failed, where, and what to do.
    public var reason: String
    /// A new worker in the same process mends it: its clients of Kafka are new, and it begins with what is committed.
    public var startsOver: Bool

    public init(reason: String, startsOver: Bool) {
        self.reason = reason
        self.startsOver = startsOver
    }

    public var description: String { reason }
}

/// Runs a worker until it is asked to stop. After a failure that a fresh start mends, a new worker takes the place of the
/// failed one: Kafka has locked its transactional producer out, for instance, as a broker was away for longer than a
/// transaction may be open. The new one has new clients of Kafka, joins the group, and restores what is committed; what the
/// failed one had not committed counts for nothing.
///
/// ```
/// let supervisor = WorkerSupervisor(configuration: configuration, logger: logger)
/// let result = try supervisor.run()   // requestStop() from a signal handler's thread
/// ```
public final class WorkerSupervisor: Sendable {
    private struct State {
        var worker: Worker?
        var isStopping = false
    }

    private let configuration: Configuration
    private let logger: Logger
    private let started: @Sendable (Worker) -> Void
    private let ended: @Sendable (WorkerResult) -> Void
    private let state = Mutex(State())
    private let stopping = BlockingFlag()

    /// A worker that has run for so long has mended what had failed before.
    private static let healthyAfter: Duration = .seconds(60)
    /// Each has threads and sockets that only the process's end frees.
    private static let mostKeptClients = 16
    /// Between two workers: nearly none at first.
    private static let pause = ExponentialBackoff.reconnect

    /// - Parameters:
    ///   - started: called with each worker when it runs, on the thread of ``run()``.
    ///   - ended: called when a worker has ended, on the same thread.
    public init(
        configuration: Configuration, logger: Logger,
        started: @escaping @Sendable (Worker) -> Void = { _ in },
        ended: @escaping @Sendable (WorkerResult) -> Void = { _ in }
    ) {
        self.configuration = configuration
        self.logger = logger
        self.started = started
        self.ended = ended
    }

    /// Blocks until the last worker has ended.
    /// - Throws: why the first worker can't start. A later one waits for Kafka for as long as Kafka is away.
    /// - Returns: how the last one ended.
    public func run() throws -> WorkerResult {
        var generator = SeededGenerator(seed: MonotonicTime.read().nanoseconds)
        var failures: UInt32 = 0
        var restarts = 0
        var last = try runOne(restarts: 0, &failures)
        while let failure = last.failure, failure.startsOver, !isStopping {
            guard KafkaConsumer.keptClients < Self.mostKeptClients else {
                last.failure = WorkerFailure(
                    reason:
                        "\(failure.reason); \(Self.mostKeptClients) clients of Kafka could not be closed, so the process has to start anew",
                    startsOver: false)
                return last
            }
            failures += 1
            restarts += 1
            let milliseconds = Self.pause.wait(attempt: failures, using: &generator)
            logger.error(
                "the worker starts over",
                metadata: [
                    "reason": "\(failure.reason)", "in-milliseconds": "\(milliseconds)",
                    "times": "\(restarts)",
                ])
            if stopping.wait(milliseconds: Int(milliseconds)) { break }
            do {
                last = try runOne(restarts: restarts, &failures)
            } catch WorkerError.kafka(let reason) {
                last.failure = WorkerFailure(reason: reason, startsOver: true)
            }
        }
        if isStopping, last.failure?.startsOver == true {
            // Nothing is in flight between two workers.
            last.failure = nil
            last.totals.outstanding = 0
        }
        return last
    }

    private func runOne(restarts: Int, _ failures: inout UInt32) throws -> WorkerResult {
        let worker = try Worker(configuration: configuration, logger: logger, restarts: restarts)
        let isStopping = state.withLock { state in
            state.worker = worker
            return state.isStopping
        }
        let beginning = MonotonicTime.read()
        worker.start()
        if isStopping { worker.requestStop() }
        started(worker)
        let result = worker.waitUntilStopped()
        state.withLock { $0.worker = nil }
        ended(result)
        if MonotonicTime.read() > beginning + Self.healthyAfter { failures = 0 }
        return result
    }

    private var isStopping: Bool { state.withLock { $0.isStopping } }

    /// Asks for an orderly stop, of whatever worker there is. Any thread; returns at once.
    public func requestStop() {
        let worker = state.withLock { state in
            state.isStopping = true
            return state.worker
        }
        stopping.set()
        worker?.requestStop()
    }
}

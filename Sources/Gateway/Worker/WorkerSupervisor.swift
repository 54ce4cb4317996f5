import Configuration
import DeliveryCore
import EventLoop
import Kafka
import Logging
import SluiceModel
import StreamScheduling
import Synchronization

/// Reason for which a worker had to stop.
public struct WorkerFailure: Sendable, Equatable, CustomStringConvertible {
    /// Text for people: the fault, its place, and the remedy.
    public var reason: String
    /// Whether a new worker in the same process mends the failure. Its Kafka clients are new, and it begins with the
    /// committed state.
    public var startsOver: Bool

    public init(reason: String, startsOver: Bool) {
        self.reason = reason
        self.startsOver = startsOver
    }

    public var description: String { reason }
}

/// Runs a worker until it is asked to stop. After a failure that a fresh start mends, a new worker replaces the failed
/// one. An example of such a failure: a broker was away for longer than a transaction may be open, so Kafka fenced the
/// transactional producer. The new worker has new Kafka clients, joins the group, and restores the committed state. The
/// failed worker's uncommitted work counts for nothing.
///
/// ```
/// let supervisor = WorkerSupervisor(configuration: configuration, logger: logger)
/// let result = try supervisor.run()   // requestStop() from a signal handler's thread
/// ```
public final class WorkerSupervisor: Sendable {
    private struct State {
        /// Settings of the next worker; credentials may be renewed.
        var configuration: Configuration
        var worker: Worker?
        /// Credentials of the last worker, which the next one takes over; nil before the first.
        var credentials: CredentialKeeper?
        /// Changes of switches by the last worker that nothing else keeps.
        var switches: [SwitchRecord] = []
        /// Keys of the last worker's store, which the next one takes over; nil before the first, and without encryption.
        var storeKeys: StoreKeyKeeper?
        var isStopping = false
    }

    private let logger: Logger
    private let started: @Sendable (Worker) -> Void
    private let ended: @Sendable (WorkerResult) -> Void
    private let state: Mutex<State>
    private let stopping = BlockingFlag()
    /// Most Kafka clients that could not be closed. With more of them no worker starts over, because their threads and sockets
    /// stay until the process ends.
    private let mostKeptClients: Int
    private let bounds: WorkerBounds

    /// Time after which a running worker counts as having mended the earlier failure.
    private static let healthyAfter: Duration = .seconds(60)
    /// Pause between two workers, nearly none at first.
    private static let pause = ExponentialBackoff.reconnect

    /// - Parameters:
    ///   - bounds: bounds of each worker that no setting has.
    ///   - mostKeptClients: most Kafka clients of the process that could not be closed and with which a worker still
    ///     starts over.
    ///   - started: called with each worker when it runs, on the thread of ``run()``.
    ///   - ended: called when a worker has ended, on the same thread.
    public init(
        configuration: Configuration, logger: Logger, bounds: WorkerBounds = WorkerBounds(),
        mostKeptClients: Int = 1,
        started: @escaping @Sendable (Worker) -> Void = { _ in },
        ended: @escaping @Sendable (WorkerResult) -> Void = { _ in }
    ) {
        state = Mutex(State(configuration: configuration))
        self.logger = logger
        self.bounds = bounds
        self.mostKeptClients = mostKeptClients
        self.started = started
        self.ended = ended
    }

    /// Runs workers, and blocks until the last worker has ended.
    /// - Throws: the reason for which the first worker can't start. A later worker waits for as long as Kafka is away or
    ///   the store's disk can't be used; another reason is thrown.
    /// - Returns: the end of the last worker.
    public func run() throws -> WorkerResult {
        var generator = SeededGenerator(seed: MonotonicTime.read().nanoseconds)
        var failures: UInt32 = 0
        var restarts = 0
        var last = try runOne(restarts: 0, &failures)
        while let failure = last.failure, failure.startsOver, !isStopping {
            guard KafkaConsumer.keptClients <= mostKeptClients else {
                last.failure = WorkerFailure(
                    reason:
                        "\(failure.reason); the process ends, because \(KafkaConsumer.keptClients) Kafka clients could not be closed: restart it",
                    startsOver: false)
                return last
            }
            failures += 1
            restarts += 1
            let milliseconds = Self.pause.wait(attempt: failures, using: &generator)
            logger.error(
                "the worker restarts",
                metadata: [
                    "reason": "\(failure.reason)", "in-milliseconds": "\(milliseconds)",
                    "times": "\(restarts)",
                ])
            if stopping.wait(milliseconds: Int(milliseconds)) { break }
            do {
                last = try runOne(restarts: restarts, &failures)
            } catch WorkerError.kafka(let reason), WorkerError.disk(let reason) {
                last.failure = WorkerFailure(reason: reason, startsOver: true)
            }
        }
        if isStopping, last.failure?.startsOver == true {
            // Nothing is in flight between two workers.
            last.failure = nil
            last.snapshot.intake?.outstanding = 0
        }
        return last
    }

    private func runOne(restarts: Int, _ failures: inout UInt32) throws -> WorkerResult {
        let (configuration, credentials, storeKeys, switches) = state.withLock {
            ($0.configuration, $0.credentials, $0.storeKeys, $0.switches)
        }
        let worker = try Worker(
            configuration: configuration, logger: logger, restarts: restarts, bounds: bounds,
            credentials: credentials, storeKeys: storeKeys, switches: switches)
        let (isStopping, latest) = state.withLock { state in
            state.worker = worker
            state.credentials = worker.credentials
            state.storeKeys = worker.storeKeys
            return (state.isStopping, state.configuration)
        }
        let beginning = MonotonicTime.read()
        worker.start()
        // Settings may have changed while the worker was made.
        if latest != configuration { worker.renewCredentials(latest) }
        if isStopping { worker.requestStop() }
        started(worker)
        let result = worker.waitUntilStopped()
        state.withLock {
            $0.worker = nil
            $0.switches = worker.switches.unkept
        }
        ended(result)
        if MonotonicTime.read() > beginning + Self.healthyAfter { failures = 0 }
        return result
    }

    private var isStopping: Bool { state.withLock { $0.isStopping } }

    /// Takes renewed credentials and a changed key file of the store over: their files, keys and proxies. Other settings
    /// stay until the process restarts. Any thread but a loop's; returns when the files were read.
    public func renewCredentials(_ configuration: Configuration) {
        let worker = state.withLock { state in
            state.configuration = state.configuration.adopting(
                credentials: configuration.credentials, apns: configuration.apns)
            return state.worker
        }
        worker?.renewCredentials(configuration)
    }

    /// Requests an orderly stop of the present worker. Any thread; returns at once.
    public func requestStop() {
        let worker = state.withLock { state in
            state.isStopping = true
            return state.worker
        }
        stopping.set()
        worker?.requestStop()
    }
}

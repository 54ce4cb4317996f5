import Gateway
import RetryStore
import Synchronization

/// Source of the endpoint's answers: a worker, or a stand-in in tests.
public struct AdminSource: Sendable {
    /// Names of the loops that `ask` asks.
    public var loops: [String]
    /// Calls its last argument once for each loop that turns, on any thread. The first is whether details are wanted.
    public var ask: @Sendable (_ isDetailed: Bool, @escaping @Sendable (LoopAnswer) -> Void) -> Void
    /// The worker's store; nil when the worker has none.
    public var store: RetryStore?
    /// The worker's switches; nil when there are none, as in tests.
    public var switches: SwitchControl?
    /// Returns the orderly stop that is under way or done; nil when there is none. Any thread.
    public var stop: @Sendable () -> WorkerStop?
    /// Search for pushes in the loops' memory; nil in stand-ins that have none.
    public var tracing: TraceSource?
    /// Returns the state of the store's keys; nil without encryption. Any thread.
    public var storeKeys: @Sendable () -> StoreKeyReport?

    public init(
        loops: [String], store: RetryStore? = nil, switches: SwitchControl? = nil,
        stop: @escaping @Sendable () -> WorkerStop? = { nil }, tracing: TraceSource? = nil,
        storeKeys: @escaping @Sendable () -> StoreKeyReport? = { nil },
        ask: @escaping @Sendable (Bool, @escaping @Sendable (LoopAnswer) -> Void) -> Void
    ) {
        self.loops = loops
        self.store = store
        self.switches = switches
        self.stop = stop
        self.tracing = tracing
        self.storeKeys = storeKeys
        self.ask = ask
    }

    /// Creates the source of a worker's answers.
    public init(_ worker: Worker) {
        self.init(
            loops: worker.loopNames, store: worker.store, switches: SwitchControl(worker),
            stop: { worker.stop },
            tracing: TraceSource(
                group: worker.group, jobsTopic: worker.jobsTopic, routes: worker.traceRoutes
            ) { worker.trace($0, $1) }, storeKeys: { worker.storeKeyReport }
        ) {
            worker.ask(isDetailed: $0, $1)
        }
    }
}

extension WorkerSnapshot {
    /// Returns texts on the loops whose part is missing, with the reason.
    func missing(of loops: [String]) -> [String] {
        silent(of: loops).map { "the thread `\($0)` does not answer" }
            + ended.map { "the thread `\($0)` has ended" }
    }

    /// Returns the partitions whose part of the store counts: the worker's, because others are copies of the changelog.
    /// Nil when all count, because without a changelog nothing else has the store's content.
    func counted(in store: RetryStore) -> Set<Int32>? {
        store.isChangelogBacked ? Set((intake?.partitions ?? []).map(\.partition)) : nil
    }
}

extension AdminSource {
    /// Asks all loops, and waits `patience` at most.
    func snapshot(for patience: Duration, isDetailed: Bool) async -> WorkerSnapshot {
        let gathered = Gathered(count: loops.count)
        ask(isDetailed) { gathered.add($0) }
        _ = await gathered.isComplete.wait(for: patience)
        var snapshot = gathered.snapshot
        snapshot.stop = stop()
        return snapshot
    }

    private final class Gathered: Sendable {
        private let answers = Mutex(WorkerSnapshot())
        private let count: Int
        let isComplete = Reply<Void>()

        init(count: Int) { self.count = count }

        var snapshot: WorkerSnapshot { answers.withLock { $0 } }

        func add(_ answer: LoopAnswer) {
            let isLast = answers.withLock {
                $0.add(answer)
                return $0.count == count
            }
            if isLast { isComplete.give(()) }
        }
    }
}

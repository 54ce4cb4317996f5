import Gateway
import RetryStore
import Synchronization

/// Source of the endpoint's answers: a worker, or a stand-in in tests.
public struct AdminSource: Sendable {
    /// Names of the loops that `ask` asks.
    public var loops: [String]
    /// Calls its argument once for each loop that turns, on any thread.
    public var ask: @Sendable (@escaping @Sendable (LoopAnswer) -> Void) -> Void
    /// The worker's store; nil when the worker has none.
    public var store: RetryStore?
    /// Returns the orderly stop that is under way or done; nil when there is none. Any thread.
    public var stop: @Sendable () -> WorkerStop?

    public init(
        loops: [String], store: RetryStore? = nil, stop: @escaping @Sendable () -> WorkerStop? = { nil },
        ask: @escaping @Sendable (@escaping @Sendable (LoopAnswer) -> Void) -> Void
    ) {
        self.loops = loops
        self.store = store
        self.stop = stop
        self.ask = ask
    }

    /// Creates the source of a worker's answers.
    public init(_ worker: Worker) {
        self.init(loops: worker.loopNames, store: worker.store, stop: { worker.stop }) { worker.ask($0) }
    }
}

/// Answers of a worker's loops, as far as they answered.
public struct Observation: Sendable {
    /// Nil when the intake did not answer or has ended.
    public var intake: IntakeObservation?
    /// Counters of the shards that answered, by shard number.
    public var shards: [Int: ShardCounters] = [:]
    /// Loops that have ended.
    public var ended: [String] = []
    /// State after the loops had answered, or the time was over.
    public var stop: WorkerStop?

    public init() {}

    mutating func add(_ answer: LoopAnswer) {
        switch answer {
        case .intake(let observation): intake = observation
        case .shard(let index, let counters): shards[index] = counters
        case .ended(let loop): ended.append(loop)
        }
    }

    var count: Int { (intake == nil ? 0 : 1) + shards.count + ended.count }

    /// Returns the names of the loops that did not answer: the intake's first, then the shards'.
    func silent(of loops: [String]) -> [String] {
        loops.enumerated().filter { index, name in
            !ended.contains(name) && (index == 0 ? intake == nil : shards[index - 1] == nil)
        }.map(\.element)
    }

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

    var totals: ShardCounters { shards.values.reduce(ShardCounters()) { $0 + $1 } }
}

extension AdminSource {
    /// Asks all loops, and waits `patience` at most.
    func observe(for patience: Duration) async -> Observation {
        let gathered = Gathered(count: loops.count)
        ask { gathered.add($0) }
        _ = await gathered.isComplete.wait(for: patience)
        var observation = gathered.observation
        observation.stop = stop()
        return observation
    }

    private final class Gathered: Sendable {
        private let answers = Mutex(Observation())
        private let count: Int
        let isComplete = Reply<Void>()

        init(count: Int) { self.count = count }

        var observation: Observation { answers.withLock { $0 } }

        func add(_ answer: LoopAnswer) {
            let isLast = answers.withLock {
                $0.add(answer)
                return $0.count == count
            }
            if isLast { isComplete.give(()) }
        }
    }
}

import LoadTest
import Synchronization

/// State that the producers, the reader of outcomes and the run's own thread share.
final class LoadExchange: Sendable {
    private struct State {
        var entries: [JobLedger.Entry] = []
        var refused: [Int] = []
        var finishedByLoad: [Int]
        var progress = Progress()
        var fullSeconds = 0.0
        var runningProducers: Int
        var failure: CommandFailure?
    }

    /// Counts for the run's thread.
    struct Progress {
        var produced = 0
        var finished = 0
        var open = 0
        var openPresence = 0
    }

    private let state: Mutex<State>
    /// Beginning of the first phase on the monotonic clock, in nanoseconds; 0 until it is known.
    private let start = Atomic<UInt64>(0)
    /// Beginning of the first phase in milliseconds since 1970.
    private let startMilliseconds = Atomic<Int64>(0)
    private let stopsProducers = Atomic<Bool>(false)
    private let stopsReader = Atomic<Bool>(false)
    private let readers = Atomic<Int>(0)
    private let prepared = Atomic<Bool>(false)

    init(producers: Int, loads: Int) {
        state = Mutex(State(finishedByLoad: Array(repeating: 0, count: loads), runningProducers: producers))
    }

    // MARK: Run's thread

    func begin(nanoseconds: UInt64, milliseconds: Int64) {
        startMilliseconds.store(milliseconds, ordering: .relaxed)
        start.store(nanoseconds, ordering: .releasing)
    }

    func stopProducers() { stopsProducers.store(true, ordering: .relaxed) }
    func stopReader() { stopsReader.store(true, ordering: .relaxed) }

    var progress: Progress { state.withLock { $0.progress } }
    var runningProducers: Int { state.withLock { $0.runningProducers } }
    var fullSeconds: Double { state.withLock { $0.fullSeconds } }
    /// First failure of a thread; nil while all work.
    var failure: CommandFailure? { state.withLock { $0.failure } }

    /// Whether the reader reads, so that production may begin.
    var isReading: Bool { readers.load(ordering: .acquiring) > 0 }
    /// Whether the events before the first phase have been handed to Kafka.
    var isPrepared: Bool { prepared.load(ordering: .acquiring) }

    // MARK: Producers

    /// Beginning of the first phase; nil until it is known.
    var beginning: (nanoseconds: UInt64, milliseconds: Int64)? {
        let nanoseconds = start.load(ordering: .acquiring)
        return nanoseconds == 0 ? nil : (nanoseconds, startMilliseconds.load(ordering: .relaxed))
    }

    var isStopping: Bool { stopsProducers.load(ordering: .relaxed) }

    func setPrepared() { prepared.store(true, ordering: .releasing) }

    /// Announces jobs before they are handed to Kafka, so that no outcome is read before its job is known.
    func add(_ entries: [JobLedger.Entry]) { state.withLock { $0.entries += entries } }

    func refuse(_ numbers: [Int]) {
        if !numbers.isEmpty { state.withLock { $0.refused += numbers } }
    }

    func wasFull(seconds: Double) { state.withLock { $0.fullSeconds += seconds } }

    /// Jobs of a load with an outcome.
    func finished(_ load: Int) -> Int { state.withLock { $0.finishedByLoad[load] } }

    func producerEnded() { state.withLock { $0.runningProducers -= 1 } }

    func fail(_ failure: CommandFailure) { state.withLock { $0.failure = $0.failure ?? failure } }

    // MARK: Reader

    var readerStops: Bool { stopsReader.load(ordering: .relaxed) }

    func setReading() { readers.store(1, ordering: .releasing) }

    /// Takes the announced jobs and the refusals, in this order.
    func take() -> (entries: [JobLedger.Entry], refused: [Int]) {
        state.withLock { state in
            defer {
                state.entries.removeAll()
                state.refused.removeAll()
            }
            return (state.entries, state.refused)
        }
    }

    func publish(_ ledger: borrowing JobLedger) {
        let progress = Progress(
            produced: ledger.expected, finished: ledger.finished, open: ledger.open,
            openPresence: ledger.openPresence)
        let byLoad = ledger.finishedByLoad
        state.withLock {
            $0.finishedByLoad = byLoad
            $0.progress = progress
        }
    }
}

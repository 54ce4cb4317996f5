import LoadTest
import Synchronization

/// State that the producers, the reader of outcomes and the run's own thread share.
final class LoadExchange: Sendable {
    private struct State {
        var entries: [JobLedger.Entry] = []
        var refused: [Int] = []
        var notProduced: [NotProduced] = []
        var finishedByLoad: [Int]
        var progress = Progress()
        var fullSeconds = 0.0
        var runningProducers: Int
        var failure: CommandFailure?
    }

    /// Job that was due and not produced when the run ended.
    struct NotProduced {
        /// Index of the load.
        var load: UInt8
        /// Intended time in microseconds since the beginning of the first phase.
        var intended: Int64
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
    /// Producers that have handed their events before the first phase to Kafka.
    private let prepared = Atomic<Int>(0)
    private let producers: Int
    /// First number of a job that no producer has.
    private let nextNumber = Atomic<Int>(0)
    private static let numbersAtOnce = 256

    init(producers: Int, loads: Int) {
        self.producers = producers
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
    /// Whether all producers have handed their events before the first phase to Kafka.
    var isPrepared: Bool { prepared.load(ordering: .acquiring) == producers }

    // MARK: Producers

    /// Beginning of the first phase; nil until it is known.
    var beginning: (nanoseconds: UInt64, milliseconds: Int64)? {
        let nanoseconds = start.load(ordering: .acquiring)
        return nanoseconds == 0 ? nil : (nanoseconds, startMilliseconds.load(ordering: .relaxed))
    }

    var isStopping: Bool { stopsProducers.load(ordering: .relaxed) }

    /// Counts a producer whose events before the first phase have been handed to Kafka. Each producer calls this once.
    func setPrepared() { prepared.add(1, ordering: .releasing) }

    /// Announces jobs before they are handed to Kafka, so that no outcome is read before its job is known.
    func add(_ entries: [JobLedger.Entry]) { state.withLock { $0.entries += entries } }

    /// Returns numbers of jobs for a producer. Numbers of all producers are dense, because the ledger has a place for each.
    /// - Throws: when a run has more jobs than its ledger has places for.
    func reserveNumbers() throws(CommandFailure) -> Range<Int> {
        let first = nextNumber.wrappingAdd(Self.numbersAtOnce, ordering: .relaxed).oldValue
        guard first + Self.numbersAtOnce <= JobLedger.mostJobs else {
            throw CommandFailure(
                .failure,
                "a run can have \(JobLedger.mostJobs) jobs at most; shorten its phases, or lower its rates")
        }
        return first..<first + Self.numbersAtOnce
    }

    func addNotProduced(_ jobs: [NotProduced]) {
        if !jobs.isEmpty { state.withLock { $0.notProduced += jobs } }
    }

    func refuse(_ numbers: [Int]) {
        if !numbers.isEmpty { state.withLock { $0.refused += numbers } }
    }

    func wasFull(seconds: Double) { state.withLock { $0.fullSeconds += seconds } }

    /// Jobs of a load that are no longer in flight: with an outcome, or refused by Kafka.
    func finished(_ load: Int) -> Int { state.withLock { $0.finishedByLoad[load] } }

    func producerEnded() { state.withLock { $0.runningProducers -= 1 } }

    func fail(_ failure: CommandFailure) { state.withLock { $0.failure = $0.failure ?? failure } }

    // MARK: Reader

    var readerStops: Bool { stopsReader.load(ordering: .relaxed) }

    func setReading() { readers.store(1, ordering: .releasing) }

    /// Takes the announced jobs, the refusals, and the jobs that were not produced.
    func take() -> (entries: [JobLedger.Entry], refused: [Int], notProduced: [NotProduced]) {
        state.withLock { state in
            defer {
                state.entries.removeAll()
                state.refused.removeAll()
                state.notProduced.removeAll()
            }
            return (state.entries, state.refused, state.notProduced)
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

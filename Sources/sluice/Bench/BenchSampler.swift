import Foundation
import LoadTest
import Synchronization

/// Reads the figures of processes, workers and machine at intervals, on a thread of its own: processor time and the
/// calibration five times a second, memory and the workers' admin endpoints once.
final class BenchSampler: Sendable {
    private struct State {
        var series: BenchSeries
        /// Identifiers of the processes that run, by their index in the series.
        var running: [Int: pid_t] = [:]
        /// Processor time of a process's ended predecessors, by index.
        var ended: [Double] = []
        /// Most resident bytes so far, by index.
        var mostResident: [Int] = []
        var pollers: [String: WorkerPoller] = [:]
        var isStopped = false
    }

    private static let interval = Duration.milliseconds(200)
    /// Readings between two samples.
    private static let readingsPerSample = 5

    private let calibration: Calibration
    private let state: Mutex<State>
    /// Signalled at the stop, for the thread; and by the thread at its end.
    private let stopped = DispatchSemaphore(value: 0)
    private let threadEnded = DispatchSemaphore(value: 0)

    /// Begins to sample, until ``stop()``.
    init(_ calibration: Calibration) {
        self.calibration = calibration
        state = Mutex(
            State(series: BenchSeries(origin: .now, quietNanoseconds: calibration.quietNanoseconds)))
        let thread = Thread { [self] in
            var next = ContinuousClock.now
            var count = 0
            while true {
                take(withSample: count % Self.readingsPerSample == 0)
                count += 1
                next = max(.now, next + Self.interval)
                let nanoseconds = Int((next - .now) / .nanoseconds(1))
                if stopped.wait(timeout: .now() + .nanoseconds(max(0, nanoseconds))) == .success { break }
            }
            threadEnded.signal()
        }
        thread.name = "sampler"
        thread.start()
    }

    // MARK: Processes and workers

    /// Adds a process, or the successor of one with the same name.
    func begin(_ name: String, _ role: RunResult.Role, process: pid_t) {
        state.withLock { state in
            let index: Int
            if let known = state.series.processes.firstIndex(where: { $0.name == name }) {
                index = known
            } else {
                index = state.series.processes.count
                state.series.processes.append(BenchSeries.Process(name: name, role: role))
                state.ended.append(0)
                state.mostResident.append(0)
            }
            state.running[index] = process
        }
    }

    /// Notes the end of a process.
    /// - Parameter cpuSeconds: its whole processor time.
    func end(_ name: String, cpuSeconds: Double) {
        state.withLock { state in
            guard let index = state.series.processes.firstIndex(where: { $0.name == name }),
                state.running.removeValue(forKey: index) != nil
            else { return }
            state.ended[index] += cpuSeconds
        }
    }

    /// Begins to ask a worker's admin endpoint, in place of an earlier one of the same name.
    func poll(_ name: String, at address: AdminAddress) {
        let poller = WorkerPoller(address, interval: .seconds(1), limit: .milliseconds(900))
        poller.start()
        state.withLock { state in
            state.pollers[name]?.end()
            state.pollers[name] = poller
        }
    }

    /// Ceases to ask a worker.
    func endPolling(_ name: String) {
        state.withLock { $0.pollers.removeValue(forKey: name)?.end() }
    }

    // MARK: Samples

    private func take(withSample: Bool) {
        let slowdown = calibration.slowdown()
        let machine = MachineReading.read()
        state.withLock { state in
            let time = state.series.elapsed(.now)
            let indices = state.series.processes.indices
            let cpu = indices.map { index in
                let now = state.running[index].flatMap(ProcessReadings.cpuSeconds) ?? 0
                // A process that has ended and isn't noted yet has no figure: time never falls.
                let last = state.series.readings.last.flatMap { index < $0.cpu.count ? $0.cpu[index] : nil }
                return max(last ?? 0, state.ended[index] + now)
            }
            state.series.readings.append(
                BenchSeries.Reading(time: time, cpu: cpu, slowdown: slowdown, machine: machine))
            guard withSample else { return }
            var resident: [Int?] = Array(repeating: nil, count: indices.count)
            for (index, process) in state.running {
                guard let bytes = ProcessReadings.residentBytes(process) else { continue }
                resident[index] = bytes.now
                state.mostResident[index] = max(state.mostResident[index], bytes.most)
            }
            var workers = WorkerSample(state.pollers.sorted { $0.key < $1.key }.map(\.value.worker))
            // A worker that is being started can't be asked yet.
            if workers.workers == nil, state.series.processes.contains(where: { $0.role == .worker }) {
                workers.workers = 0
            }
            state.series.samples.append(
                BenchSeries.Sample(
                    time: time, resident: resident, workers: workers))
        }
    }

    /// Takes a last sample, ends the thread and the asking, and returns all samples. Blocks for a moment. Later calls
    /// return the same.
    func stop() -> BenchSeries {
        let isFirst = state.withLock { state in
            defer { state.isStopped = true }
            return !state.isStopped
        }
        if isFirst {
            stopped.signal()
            threadEnded.wait()
            take(withSample: true)
        }
        return state.withLock { state in
            for poller in state.pollers.values { poller.end() }
            state.pollers = [:]
            for index in state.series.processes.indices {
                state.series.processes[index].maximumResidentBytes = state.mostResident[index]
            }
            return state.series
        }
    }
}

/// Figures of all workers at a moment. Nil: no worker reports the figure.
struct WorkerSample: Sendable, Equatable {
    /// Workers that answer; nil when none is asked.
    var workers: Int?
    var connections: Int?
    var streamsInUse: Int?
    var streamsFree: Int?
    var circuitsOpen: Int?
    var queued: Int?
    var queueAgeSeconds: Double?
    var stored: Int?
    var storeBytes: Int?
    var lagRecords: Int?
    var lagSeconds: Double?
    var loopBusy: Double?

    /// - Parameter all: the workers that are asked.
    init(_ all: [TopWorker]) {
        guard !all.isEmpty else { return }
        let figures = all.compactMap(\.figures)
        workers = figures.count
        guard var sum = figures.first else { return }
        for other in figures.dropFirst() { sum.add(other, worker: nil) }
        let pools = sum.pools.values
        connections = Self.count(Self.sum(pools.flatMap(\.connections.values)))
        streamsInUse = Self.count(Self.sum(pools.compactMap(\.streamsInUse)))
        streamsFree = Self.count(Self.sum(pools.compactMap(\.streamsFree)))
        circuitsOpen = Self.count(Self.sum(pools.compactMap(\.openCircuits)))
        // Pushes in flight wait for APNs, not for the worker.
        queued = Self.count(Self.sum(sum.held.filter { $0.key != "inFlight" }.map(\.value)))
        queueAgeSeconds = pools.compactMap(\.oldest).max()
        stored = Self.count(sum.store?.items)
        storeBytes = Self.count(sum.store?.disk)
        lagRecords = Self.count(Self.sum(sum.partitions.compactMap(\.lag)))
        lagSeconds = sum.partitions.compactMap(\.lagSeconds).max()
        loopBusy = sum.loops.map(\.busy).max()
    }

    private static func sum(_ values: some Collection<Double>) -> Double? {
        values.isEmpty ? nil : values.reduce(0, +)
    }

    private static func count(_ value: Double?) -> Int? {
        value.flatMap { $0.isFinite ? Int(max(0, min($0, 1e15)).rounded()) : nil }
    }

    /// Puts the figures into a second of a run.
    func apply(to second: inout RunResult.Second) {
        second.workers = workers
        second.connections = connections
        second.streamsInUse = streamsInUse
        second.streamsFree = streamsFree
        second.circuitsOpen = circuitsOpen
        second.queued = queued
        second.queueAgeSeconds = queueAgeSeconds
        second.stored = stored
        second.storeBytes = storeBytes
        second.lagRecords = lagRecords
        second.lagSeconds = lagSeconds
        second.loopBusy = loopBusy
    }
}

import LoadTest

/// Figures of a run's processes, workers and machine over time. Pure.
///
/// Times of readings and samples are seconds since ``origin``. Spans and seconds of the functions count from the
/// beginning of the first phase, ``start``.
struct BenchSeries: Sendable {
    struct Process: Sendable {
        var name: String
        var role: RunResult.Role
        var maximumResidentBytes = 0
    }

    struct Reading: Sendable {
        var time: Double
        /// Processor time so far, in seconds, by the index of the process. Later processes are absent.
        var cpu: [Double]
        /// Time of the calibration ÷ its quiet time.
        var slowdown: Double
        var machine: MachineReading?
    }

    struct Sample: Sendable {
        var time: Double
        /// Resident bytes by the index of the process; nil while it does not run.
        var resident: [Int?]
        var workers: WorkerSample
    }

    let origin: ContinuousClock.Instant
    /// Beginning of the first phase.
    var start: ContinuousClock.Instant
    let quietNanoseconds: Double
    var processes: [Process] = []
    /// Readings in order of time.
    var readings: [Reading] = []
    var samples: [Sample] = []

    init(origin: ContinuousClock.Instant, quietNanoseconds: Double) {
        self.origin = origin
        start = origin
        self.quietNanoseconds = quietNanoseconds
    }

    /// Returns seconds since ``origin``.
    func elapsed(_ instant: ContinuousClock.Instant) -> Double { (instant - origin) / .seconds(1) }

    private var offset: Double { elapsed(start) }

    // MARK: Processor time

    /// Index of the first reading at a time or later.
    private func index(from time: Double) -> Int {
        var (low, high) = (0, readings.count)
        while low < high {
            let middle = (low + high) / 2
            if readings[middle].time < time { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// Returns a figure that grows over time, between two readings in proportion.
    private func value(at time: Double, _ figure: (Reading) -> Double?) -> Double? {
        guard !readings.isEmpty else { return nil }
        let index = index(from: time)
        guard index > 0 else { return figure(readings[0]) }
        guard index < readings.count else { return figure(readings[readings.count - 1]) }
        let (before, after) = (readings[index - 1], readings[index])
        guard let a = figure(before), let b = figure(after) else { return nil }
        let span = after.time - before.time
        return span > 0 ? a + (b - a) * (time - before.time) / span : b
    }

    /// Returns the growth of a figure in a span since the start.
    private func growth(in span: ClosedRange<Double>, _ figure: (Reading) -> Double?) -> Double? {
        guard let from = value(at: offset + span.lowerBound, figure),
            let to = value(at: offset + span.upperBound, figure)
        else { return nil }
        return max(0, to - from)
    }

    /// Returns the processor time of a process in a span, in seconds.
    func cpuSeconds(_ process: Int, in span: ClosedRange<Double>) -> Double {
        growth(in: span) { process < $0.cpu.count ? $0.cpu[process] : 0 } ?? 0
    }

    // MARK: Machine

    /// Returns the noise of the machine in the given spans.
    func noise(in spans: [ClosedRange<Double>]) -> RunResult.Noise {
        var slowdowns: [Double] = []
        var (total, stolen, busy, own) = (0.0, 0.0, 0.0, 0.0)
        for span in spans {
            let range = (offset + span.lowerBound)...(offset + span.upperBound)
            var index = index(from: range.lowerBound)
            while index < readings.count, range.contains(readings[index].time) {
                slowdowns.append(readings[index].slowdown)
                index += 1
            }
            total += growth(in: span) { $0.machine?.total } ?? 0
            stolen += growth(in: span) { $0.machine?.stolen } ?? 0
            busy += growth(in: span) { $0.machine?.busy } ?? 0
            for process in processes.indices { own += cpuSeconds(process, in: span) }
        }
        slowdowns.sort()
        func percentile(_ share: Double) -> Double {
            slowdowns.isEmpty
                ? 1 : slowdowns[min(slowdowns.count - 1, Int(share * Double(slowdowns.count)))]
        }
        return RunResult.Noise(
            quietNanoseconds: quietNanoseconds, medianSlowdown: percentile(0.5),
            worstSlowdown: percentile(0.99), stolenShare: total > 0 ? min(1, stolen / total) : 0,
            othersShare: total > 0 ? min(1, max(0, busy - own) / total) : nil)
    }

    // MARK: Seconds

    /// Adds the figures to the seconds of the run.
    func add(to seconds: inout [RunResult.Second]) {
        for number in seconds.indices {
            let span = Double(number)...Double(number + 1)
            for (index, process) in processes.enumerated() {
                seconds[number].cpuSeconds[process.name] = cpuSeconds(index, in: span)
            }
            var slowdowns: [Double] = []
            var index = index(from: offset + span.lowerBound)
            while index < readings.count, readings[index].time < offset + span.upperBound {
                slowdowns.append(readings[index].slowdown)
                index += 1
            }
            if !slowdowns.isEmpty { seconds[number].slowdown = slowdowns.sorted()[slowdowns.count / 2] }
        }
        for sample in samples {
            let time = sample.time - offset
            guard time >= 0, time < Double(seconds.count) else { continue }
            let number = Int(time)
            for (index, bytes) in sample.resident.enumerated() {
                if let bytes { seconds[number].residentBytes[processes[index].name] = bytes }
            }
            sample.workers.apply(to: &seconds[number])
        }
    }
}

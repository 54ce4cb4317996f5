import LoadTest

/// Figures of a stage's processes during a run.
struct StageResult: Sendable {
    /// Processes, with their processor time in the main phases. Time per outcome is nil.
    var processes: [RunResult.Process]
    var annotations: [RunResult.Annotation]
    /// Faults without an annotation.
    var faultsLeftOut: Int
    /// Machine and executable, with the noise in the main phases.
    var environment: RunResult.Environment
    /// Counts of the simulator; nil without a simulator of this run, or when it was killed.
    var simulator: SimulatorCounts?
    /// Processes that did not end in order, in words.
    var badEndings: [String]
    var series: BenchSeries

    /// Adds the figures of processes, workers and machine to the seconds of the run.
    func add(to seconds: inout [RunResult.Second]) { series.add(to: &seconds) }

    /// Returns the processor time of the processes of a role in a span, in seconds; nil when no such process ran here.
    /// - Parameter span: seconds since the beginning of the first phase.
    func cpuSeconds(_ role: RunResult.Role, in span: ClosedRange<Double>) -> Double? {
        let indices = series.processes.indices.filter { series.processes[$0].role == role }
        guard !indices.isEmpty else { return nil }
        return indices.reduce(0) { $0 + series.cpuSeconds($1, in: span) }
    }
}

extension SimulatorCounts {
    /// Adds the counts of a simulator that ran afterwards in the place of this one.
    mutating func add(_ later: SimulatorCounts) {
        requests += later.requests
        accepted += later.accepted
        broadcasts += later.broadcasts
        rejected.merge(later.rejected, uniquingKeysWith: +)
        cancelled += later.cancelled
        connections += later.connections
        mostConnections = max(mostConnections, later.mostConnections)
        devices = later.devices ?? devices
    }
}

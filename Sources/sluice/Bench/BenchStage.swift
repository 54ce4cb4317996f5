import Foundation
import LoadTest

/// Processes of a run of `sluice bench`: Kafka, a simulator and workers, or those of them that the plan wants here.
///
/// One thread owns a stage. All processes end with the stage.
final class BenchStage {
    let plan: StagePlan
    /// Cluster with jobs and outcomes, for producers and readers.
    let cluster: KafkaCluster
    /// Partitions of the jobs topic.
    let partitions: Int
    /// Address of the simulator, host:port; nil without a simulator of this run.
    private(set) var simulatorAddress: String?
    /// Device tokens that may be pushed to; nil: any.
    let allowedTokens: [[UInt8]]?

    /// Checks the plan, starts its processes and waits until all are ready. Blocks for seconds.
    ///
    /// - Throws: for a plan that can't be carried out; when a process ends or takes too long, with the end of its log;
    ///   when a stop was requested meanwhile.
    init(_ plan: StagePlan, files: LocalFiles, stop: StopSignals) throws(CommandFailure) {
        self.plan = plan
        cluster = KafkaCluster(bootstrapServers: "")
        partitions = plan.partitions
        allowedTokens = nil
        throw CommandFailure(.internalError, "the stage of a load test is not built yet")
    }

    /// Begins the timeline of faults and the actions. Call this once, when the first phase begins.
    func beginPhases(at start: ContinuousClock.Instant) {}

    /// Carries out what is due, and checks the processes. Never waits for a process. Call this at least each 50 ms.
    /// - Parameter now: seconds since the beginning of the first phase.
    /// - Throws: when a process has ended that should run, or was not ready in time, with the end of its log.
    func tick(now: Double) throws(CommandFailure) {}

    /// Whether all actions have been carried out to their end.
    var isSettled: Bool { true }

    /// Stops all processes, the workers first, and returns the figures of the run. Blocks until the processes ended.
    /// - Parameter main: spans of the main phases, in seconds since the beginning of the first phase.
    func end(main: [ClosedRange<Double>]) -> StageResult { StageResult() }
}

/// Figures of a stage's processes during a run.
struct StageResult: Sendable {
    /// Processes, with their processor time in the main phases. Time per outcome is nil.
    var processes: [RunResult.Process] = []
    var annotations: [RunResult.Annotation] = []
    var noise = RunResult.Noise(quietNanoseconds: 0, medianSlowdown: 1, worstSlowdown: 1, stolenShare: 0)
    /// Counts of the simulator; nil without a simulator of this run.
    var simulator: SimulatorCounts?
    /// Processes that did not end in order, in words.
    var badEndings: [String] = []

    /// Adds the figures of processes, workers and machine to the seconds of the run.
    func add(to seconds: inout [RunResult.Second]) {}

    /// Returns the processor time of the processes of a role in a span, in seconds; nil when no such process ran here.
    /// - Parameter span: seconds since the beginning of the first phase.
    func cpuSeconds(_ role: RunResult.Role, in span: ClosedRange<Double>) -> Double? { nil }
}

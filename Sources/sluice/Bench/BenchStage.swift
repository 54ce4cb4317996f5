import APNSSimulator
import Foundation
import LoadTest

/// Processes of a run of `sluice bench`: Kafka, a simulator and workers, or those of them that the plan wants here.
///
/// A single thread owns a stage. All processes end with the stage, even if this process is killed.
final class BenchStage {
    let plan: StagePlan
    /// Cluster with jobs and outcomes, for producers and readers.
    let cluster: KafkaCluster
    /// Partitions of the jobs topic.
    let partitions: Int
    /// Device tokens that may be pushed to, in small hexadecimal digits; nil: any.
    let allowedTokens: [[UInt8]]?
    private let processes: StageProcesses
    private let sampler: BenchSampler
    private let machine: BenchMachine
    private let stop: StopSignals
    private var actions: StageActions
    private var start = ContinuousClock.now
    private var startedMilliseconds: Int64 = 0
    private var lastCheck = -Double.infinity

    /// Time between two checks of the processes, in seconds.
    private static let checkInterval = 0.1

    /// Address of the simulator, host:port; nil without a simulator of this run.
    var simulatorAddress: String? { processes.simulatorAddress }

    /// Checks the plan, starts its processes and waits until all are ready. Blocks for seconds.
    ///
    /// - Throws: for a plan that can't be carried out; when a process ends or takes too long, with the end of its log;
    ///   when a stop was requested meanwhile.
    init(_ plan: StagePlan, files: LocalFiles, stop: StopSignals) throws(CommandFailure) {
        self.plan = plan
        self.stop = stop
        allowedTokens = try plan.check()
        machine = BenchMachine.read()
        sampler = BenchSampler(Calibration())
        processes = StageProcesses(plan, files: files, sampler: sampler)
        actions = StageActions(plan)
        do throws(CommandFailure) {
            (cluster, partitions) = try Self.startAll(plan, processes, sampler, stop)
        } catch {
            // The sampler's thread must end as well.
            _ = sampler.stop()
            throw error
        }
    }

    deinit { _ = sampler.stop() }

    private static func startAll(
        _ plan: StagePlan, _ processes: StageProcesses, _ sampler: BenchSampler, _ stop: StopSignals
    ) throws(CommandFailure) -> (KafkaCluster, partitions: Int) {
        sampler.begin("generator", .generator, process: getpid())
        if case .embedded = plan.cluster { try processes.start(.kafka) }
        if case .simulator = plan.apns { try processes.start(.simulator) }
        let cluster: KafkaCluster
        switch plan.cluster {
        case .embedded:
            try processes.waitUntilReady(.kafka, stop: stop)
            cluster = KafkaCluster(bootstrapServers: processes.bootstrapServers)
        case .given(let servers, let properties):
            processes.bootstrapServers = servers
            cluster = try KafkaCluster(
                bootstrapServers: servers,
                more: properties.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
        }
        if case .simulator = plan.apns { try processes.waitUntilReady(.simulator, stop: stop) }
        let partitions = try checkTopics(plan, cluster)
        let workers = (0..<plan.workers.count).map { StageSlot.worker($0 + 1) }
        for worker in workers { try processes.start(worker) }
        for worker in workers { try processes.waitUntilReady(worker, stop: stop) }
        if workers.isEmpty {
            for text in plan.workers.adminAddresses {
                guard let address = AdminAddress(text) else {
                    throw CommandFailure(
                        .configuration, "admin endpoint of a worker: `\(text)` is not \(AdminAddress.grammar)"
                    )
                }
                sampler.poll(text, at: address)
            }
        }
        return (cluster, partitions)
    }

    /// Checks that the topics exist, and that the workers' first jobs are those of the run.
    /// - Returns: the partitions of the jobs topic.
    private static func checkTopics(
        _ plan: StagePlan, _ cluster: KafkaCluster
    ) throws(CommandFailure) -> Int {
        let partitions = try cluster.partitionCount(of: plan.topics.jobs)
        _ = try cluster.partitionCount(of: plan.topics.outcomes)
        _ = try cluster.partitionCount(of: plan.topics.deadLetters)
        if plan.workers.store.hasChangelog { _ = try cluster.partitionCount(of: plan.topics.changelog) }
        guard plan.mostWorkersAtATime <= partitions else {
            throw CommandFailure(
                .configuration,
                "\(plan.mostWorkersAtATime) workers need as many partitions; topic \(plan.topics.jobs) has \(partitions)"
            )
        }
        if case .given = plan.cluster, plan.workers.count > 0 {
            let backlog = try cluster.uncommitted(plan.topics.jobs, group: plan.group)
            guard backlog == 0 else {
                throw CommandFailure(
                    .configuration,
                    "topic \(plan.topics.jobs) has \(Numbers.counted(backlog, "record")) that the workers (group \(plan.group)) would push first; use topics of the run's own, or a group that has finished them"
                )
            }
        }
        return partitions
    }

    // MARK: Run

    /// Begins the timeline of faults, and then the first phase, from which on actions are due. Call this once.
    /// - Parameter lead: time until the first phase begins. The first faults are in force before.
    /// - Returns: the beginning of the first phase.
    /// - Throws: when the simulator's timeline can't be written, or does not begin.
    func beginPhases(in lead: Duration = .zero) throws(CommandFailure) -> ContinuousClock.Instant {
        if case .simulator(let options) = plan.apns, !options.faults.entries.isEmpty {
            try processes.play(options.faults, stop: stop)
        }
        start = .now + lead
        startedMilliseconds = Int64(Date().timeIntervalSince1970 * 1_000)
        return start
    }

    /// Carries out what is due, and checks the processes. Never waits for a process. Call this at least each 50 ms.
    /// - Parameter now: seconds since the beginning of the first phase.
    /// - Throws: when a process has ended that should run, or was not ready in time, with the end of its log.
    func tick(now: Double) throws(CommandFailure) {
        try actions.tick(now: now, processes)
        guard now - lastCheck >= Self.checkInterval else { return }
        lastCheck = now
        try processes.check()
    }

    /// Throws when a process has ended that should run, with the end of its log. For the time before the first phase.
    func check() throws(CommandFailure) { try processes.check() }

    /// Whether all actions have been carried out to their end.
    var isSettled: Bool { actions.isSettled }

    /// Stops all processes, the workers first, and returns the figures of the run. Blocks until the processes ended.
    /// - Parameter main: spans of the main phases, in seconds since the beginning of the first phase.
    func end(main: [ClosedRange<Double>]) -> StageResult {
        let length = max(0, (.now - start) / .seconds(1))
        var series = sampler.stop()
        series.start = start
        var bad = actions.badEndings
        bad += processes.end(processes.workers.map { .worker($0) }, within: .seconds(60))
        bad += processes.end([.simulator], within: .seconds(10))
        bad += processes.end([.kafka], within: .seconds(10))
        let all = series.processes.indices.map { index in
            RunResult.Process(
                name: series.processes[index].name, role: series.processes[index].role,
                cpuSeconds: main.reduce(0) { $0 + series.cpuSeconds(index, in: $1) },
                maximumResidentBytes: series.processes[index].maximumResidentBytes)
        }
        var annotations = actions.annotations
        var faultsLeftOut = 0
        if case .simulator(let options) = plan.apns {
            let faults = options.faults.annotations(until: length)
            annotations += faults.shown
            faultsLeftOut = faults.leftOut
        }
        return StageResult(
            processes: all, annotations: annotations.sorted { $0.at < $1.at },
            faultsLeftOut: faultsLeftOut,
            environment: machine.environment(
                started: startedMilliseconds, noise: series.noise(in: main)),
            simulator: processes.simulatorCounts, badEndings: bad, series: series)
    }
}

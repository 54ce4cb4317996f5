import EventLoop
import Foundation
import Gateway
import LoadTest
import SluiceModel

/// A run of a scenario: starts the stage, generates the load, and joins all figures into a result.
struct BenchRun {
    /// Directory that relative names of files in the scenario are relative to.
    var directory: String
    /// Permission of the command line to reach other machines.
    var consent: StagePlan.Consent
    /// Whether no progress is shown.
    var isQuiet: Bool
    let stop: StopSignals

    struct Output {
        var result: RunResult
        /// Processes that did not end in order, in words.
        var badEndings: [String]
    }

    /// Runs a scenario. Blocks until all processes have ended.
    /// - Throws: when a process or thread failed; when a stop was requested.
    func run(_ scenario: LoadScenario) throws(CommandFailure) -> Output {
        let traces = try traces(scenario)
        let plan = try plan(scenario, traces)
        let files = try LocalFiles()
        do throws(CommandFailure) {
            return try run(scenario, plan, traces, files)
        } catch {
            if !stop.isRequested {
                files.isKept = true
                throw CommandFailure(
                    error.status, "\(error.message)\nconfiguration and logs are kept in \(files.directory)")
            }
            throw error
        }
    }

    /// Greatest factor of a scenario's rates that another machine's rate cap permits; infinite without a cap.
    func greatestFactor(_ scenario: LoadScenario) throws(CommandFailure) -> Double {
        let plan = try plan(scenario, traces(scenario))
        // Less by a trifle, because products are rounded.
        return plan.rateLimit.map { $0 / plan.highestRate * (1 - 1e-9) } ?? .infinity
    }

    private func plan(
        _ scenario: LoadScenario, _ traces: [Int: ArrivalTrace]
    ) throws(CommandFailure) -> StagePlan {
        try StagePlan(scenario, directory: directory, consent: consent, traces: traces)
    }

    private func traces(_ scenario: LoadScenario) throws(CommandFailure) -> [Int: ArrivalTrace] {
        var traces: [Int: ArrivalTrace] = [:]
        for (index, load) in scenario.loads.enumerated() {
            guard case .trace(let file) = load.arrival else { continue }
            let path = URL(
                filePath: file, relativeTo: URL(filePath: directory, directoryHint: .isDirectory)
            ).path(percentEncoded: false)
            do {
                let text = try String(contentsOfFile: path, encoding: .utf8)
                traces[index] = try ArrivalTrace(text, name: path)
            } catch let fault as ArrivalTrace.Fault {
                throw CommandFailure(.configuration, fault.description)
            } catch {
                throw CommandFailure(
                    .configuration,
                    "can't read \(path), the trace of load \(load.name): \(error.localizedDescription)")
            }
        }
        return traces
    }

    private func run(
        _ scenario: LoadScenario, _ plan: StagePlan, _ traces: [Int: ArrivalTrace], _ files: LocalFiles
    ) throws(CommandFailure) -> Output {
        let stage = try BenchStage(plan, files: files, stop: stop)
        var isOwn = false
        if case .embedded = plan.cluster { isOwn = true }
        // Generators in containers of their own may have the same process number.
        let run = UInt64(Date().timeIntervalSince1970) << 24 | UInt64.random(in: 0..<1 << 24)
        let generator = LoadGenerator(
            LoadGenerator.Plan(
                scenario: scenario, traces: traces,
                names: StagePlan.names(scenario, allowed: stage.allowedTokens),
                cluster: stage.cluster.properties, bootstrapServers: stage.cluster.bootstrapServers,
                topics: plan.topics, isOwnCluster: isOwn, run: run))
        do throws(CommandFailure) {
            let (started, ended) = try carryOut(scenario, stage, generator)
            guard var ledger = generator.end() else {
                throw CommandFailure(.internalError, "the reader of outcomes has not ended in time")
            }
            ledger.end(at: ended)
            let stageResult = stage.end(main: scenario.mainSpans)
            return Output(
                result: join(
                    scenario, ledger, stageResult, started: started, fullSeconds: generator.fullSeconds),
                badEndings: stageResult.badEndings)
        } catch {
            _ = generator.end()
            throw error
        }
    }

    /// Plays all phases. Returns the beginning in milliseconds since 1970, and the end in seconds since the beginning.
    private func carryOut(
        _ scenario: LoadScenario, _ stage: BenchStage, _ generator: LoadGenerator
    ) throws(CommandFailure) -> (started: Int64, ended: Double) {
        var progress = Progress()
        defer { if !isQuiet { progress.clear() } }
        let patience = ContinuousClock.now + .seconds(120)
        while !generator.isPrepared {
            try generator.check()
            try pause(stage, now: nil)
            if ContinuousClock.now > patience {
                throw CommandFailure(
                    .failure, "the events of the offline devices were not processed within two minutes")
            }
        }
        // Threads need a moment to see the beginning.
        let lead = Duration.milliseconds(50)
        let instant = try stage.beginPhases(in: lead)
        let begin = MonotonicTime.read() + (instant - .now)
        let started = Int64(Date().timeIntervalSince1970 * 1_000) + 50
        generator.begin(at: begin, milliseconds: started)
        let end = scenario.spans.last?.upperBound ?? 0
        /// Time for repeated outcomes after the last first outcome.
        let quiet = 0.5
        var settled: Double?
        while true {
            let now = (Double(MonotonicTime.read().nanoseconds) - Double(begin.nanoseconds)) / 1e9
            try generator.check()
            try pause(stage, now: max(0, now))
            let counts = generator.progress
            if !isQuiet {
                let phase =
                    zip(scenario.phases, scenario.spans).first { $0.1.contains(now) }?.0.name ?? "drain"
                progress.show(fraction: min(1, max(0, now / max(end, 1e-3)))) {
                    "\(phase), \(Numbers.fixed(max(0, now), 0)) s, \(Numbers.grouped(counts.produced)) jobs, "
                        + "\(Numbers.grouped(counts.open)) without an outcome"
                }
            }
            guard now >= scenario.loadEnd else { continue }
            if generator.hasProducedAll, counts.open == 0, stage.isSettled {
                if settled == nil { settled = now }
                if let settled, now > settled + quiet { return (started, now) }
            } else {
                settled = nil
            }
            if now > end + quiet { return (started, now) }
        }
    }

    /// Waits for a hundredth of a second, and lets the stage carry out what is due.
    private func pause(_ stage: BenchStage, now: Double?) throws(CommandFailure) {
        if stop.isRequested { throw LocalStage.stopped }
        if let now { try stage.tick(now: now) } else { try stage.check() }
        usleep(10_000)
    }

    // MARK: Result

    private func join(
        _ scenario: LoadScenario, _ ledger: JobLedger, _ stage: StageResult, started: Int64,
        fullSeconds: Double
    ) -> RunResult {
        var phases = ledger.phaseResults
        for index in phases.indices where phases[index].outcomes > 0 && phases[index].to > phases[index].from
        {
            let span = phases[index].from...phases[index].to
            phases[index].cpuMicrosecondsPerOutcome = stage.cpuSeconds(.worker, in: span).map {
                $0 * 1e6 / Double(phases[index].outcomes)
            }
        }
        let mainOutcomes = phases.filter { $0.kind == .main }.reduce(0) { $0 + $1.outcomes }
        var seconds = ledger.secondResults
        stage.add(to: &seconds)
        let processes = stage.processes.map { process in
            var process = process
            if mainOutcomes > 0 {
                process.cpuMicrosecondsPerOutcome = process.cpuSeconds * 1e6 / Double(mainOutcomes)
            }
            return process
        }
        let generator = ledger.generator(producers: scenario.producers, fullSeconds: fullSeconds)
        let reader = ledger.readerResult
        var annotations = stage.annotations
        for (limit, wasLimit, reason) in [
            ("generator", generator.wasLimit, generator.reason),
            ("reader of outcomes", reader.wasLimit, reader.reason),
        ] where wasLimit {
            annotations.append(
                RunResult.Annotation(
                    at: scenario.mainSpans.first?.lowerBound ?? 0, kind: .note,
                    text: "the \(limit) was the limit: \(reason)"))
        }
        for ending in stage.badEndings where !annotations.contains(where: { $0.text == ending }) {
            annotations.append(RunResult.Annotation(at: phases.last?.to ?? 0, kind: .note, text: ending))
        }
        var environment = stage.environment
        environment.startedMilliseconds = started
        var result = RunResult(
            scenario: RunResult.Scenario(
                name: scenario.name, description: scenario.description, text: scenario.text,
                seed: scenario.seed,
                target: Self.describe(scenario.target), overrides: scenario.overrides),
            environment: environment,
            phases: phases, loads: ledger.loadResults, seconds: seconds, processes: processes,
            annotations: annotations.bounded(leftOut: stage.faultsLeftOut),
            audit: ledger.audit(simulatorRequests: stage.simulator.map { Int($0.requests) }),
            generator: generator, reader: reader, thresholds: [])
        result.thresholds = scenario.judged(result)
        return result
    }

    private static func describe(_ target: LoadScenario.Target) -> String {
        var text = target.kind.rawValue
        if let servers = target.bootstrapServers { text += " \(servers)" }
        if let server = target.server { text += " \(server.host):\(server.port)" }
        return text
    }
}

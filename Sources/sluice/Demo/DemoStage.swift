import Foundation
import Kafka
import SluiceModel

/// The demo's load, from start to end, through the processes of a local stage.
final class DemoStage {
    private let options: DemoCommand
    private let stop: StopSignals
    private let stage: LocalStage
    private let cluster: KafkaCluster
    private var audit: DemoAudit
    private var duration: Duration = .zero

    /// Starts all processes and waits until the worker has its partitions.
    init(files: LocalFiles, options: DemoCommand, stop: StopSignals) throws(CommandFailure) {
        self.options = options
        self.stop = stop
        audit = DemoAudit(partitions: options.partitions)
        try files.write(DemoLoad.declarations(devices: options.devices, seed: options.seed), to: "apps.yaml")
        var plan = LocalStage.Plan(
            apps: DemoLoad.apps.map { LocalStage.Plan.App(name: $0.name, bundle: $0.bundle) },
            group: Self.group)
        plan.partitions = options.partitions
        plan.shards = options.shards
        // Short, so that the demo ends soon after its last job.
        plan.retry = "{initial: 100ms, maximum: 1s, max-attempts: 8}"
        plan.simulatorArguments =
            [
                "--apps", files.path("apps.yaml"), "--errors", DemoLoad.errors, "--device-reasons",
                DemoLoad.deviceRules, "--latency", "\(options.latency)", "--jitter", "\(options.latency)",
                "--seed",
                "\(options.seed)",
            ] + DemoLoad.apps.flatMap { ["--app", $0.bundle] }
        stage = try LocalStage(plan: plan, files: files, stop: stop)
        cluster = KafkaCluster(bootstrapServers: stage.bootstrapServers)
        Terminal.output(
            "kafka      \(stage.bootstrapServers), \(Numbers.counted(options.partitions, "partition"))   (process \(stage.kafka.identifier))"
        )
        Terminal.output("simulator  \(stage.simulatorAddress)   (process \(stage.simulator.identifier))")
        Terminal.output("page       \(stage.page)")
        Terminal.output(
            "worker     \(options.shards) shard\(options.shards == 1 ? "" : "s")   (process \(stage.worker.identifier))"
        )
    }

    private static let group = "demo"

    /// Runs the whole load, stops all processes, and returns the results.
    func run() throws(CommandFailure) -> DemoReport {
        let outcomes = try TopicReader(
            topic: LocalStage.outcomesTopic, start: .beginning, stopsAtEnd: false, cluster: cluster)
        let deadLetters = try TopicReader(
            topic: LocalStage.deadLettersTopic, start: .beginning, stopsAtEnd: false, cluster: cluster)
        try pushEverything(outcomes, deadLetters)

        // The worker stops first, because the records that it flushes while it stops count as well.
        var report = DemoReport(jobs: options.jobs, duration: duration)
        let workerEnded = stage.worker.stop(within: .seconds(40))
        if !workerEnded { report.badEndings.append("worker \(stage.worker.ending)") }
        report.recordsLost = try readToTheEnd(outcomes, LocalStage.outcomesTopic)
        report.recordsLost += try readToTheEnd(deadLetters, LocalStage.deadLettersTopic)
        outcomes.close()
        deadLetters.close()
        report.uncommitted = try cluster.uncommitted(LocalStage.jobsTopic, group: Self.group)
        report.devices = stage.devices()
        if options.keep {
            report.isKept = true
        } else {
            if !stage.simulator.stop(within: .seconds(10)) {
                report.badEndings.append("simulator \(stage.simulator.ending)")
            }
            report.simulator = SimulatorCounts(file: stage.files.path("simulator.json"))
            if !stage.kafka.stop(within: .seconds(10)) {
                report.badEndings.append("kafka \(stage.kafka.ending)")
            }
        }
        report.audit = audit
        return report
    }

    /// Starts a worker again, and leaves all running until a stop is requested.
    func keep() throws(CommandFailure) {
        try stage.restartWorker()
        Terminal.output("")
        for line in stage.hints(DemoLoad.sample(seed: options.seed)) { Terminal.output(line) }
        while !stop.wait(for: .milliseconds(200)) { try stage.check() }
        let bad = stage.end()
        guard bad.isEmpty else { throw CommandFailure(.failure, bad.joined(separator: ", ")) }
    }

    private func pushEverything(_ outcomes: TopicReader, _ deadLetters: TopicReader) throws(CommandFailure) {
        let producer = try RecordProducer(topic: LocalStage.jobsTopic, properties: cluster.properties) { _ in
        }
        var expectations: [DemoLoad.Expectation] = []
        expectations.reserveCapacity(options.jobs)
        producer.onAcknowledgement = { [self] opaque, partition, offset in
            audit.produced(partition: partition, offset: offset, expectations[Int(opaque)])
        }
        var load = DemoLoad(seed: options.seed, devices: options.devices)
        var progress = Progress()
        let begin = ContinuousClock.now
        var lastChange = begin
        var lastFinished = 0
        func state() -> String {
            let elapsed = ContinuousClock.now - begin
            return "\(Numbers.grouped(audit.finished)) of \(Numbers.counted(options.jobs, "job")) done, "
                + "\(Numbers.rate(audit.finished, over: elapsed)), \(Numbers.grouped(audit.retried)) needed a retry"
        }
        while audit.finished < options.jobs {
            if stop.isRequested {
                progress.clear()
                throw LocalStage.stopped
            }
            let now = ContinuousClock.now
            let allowed = min(
                options.jobs, audit.finished + options.window,
                options.rate.map { Int($0 * ((now - begin) / .seconds(1))) + 1 } ?? .max)
            let batch = min(max(0, allowed - expectations.count), 500)
            for _ in 0..<batch {
                let job = load.next(number: expectations.count)
                expectations.append(job.expectation)
                try producer.produce(
                    key: job.key, value: job.value, headers: job.headers, opaque: UInt(expectations.count - 1)
                )
            }
            producer.poll()
            try read(outcomes, deadLetters, timeoutMilliseconds: batch == 500 ? 0 : 2)
            progress.show(fraction: Double(audit.finished) / Double(options.jobs), state)
            if audit.finished > lastFinished {
                lastFinished = audit.finished
                lastChange = now
            }
            try checkProcesses(stalledFor: now - lastChange, &progress)
        }
        duration = ContinuousClock.now - begin
        producer.finish(timeoutMilliseconds: 10_000)
        progress.finish(fraction: 1, state())
        if producer.failed > 0 {
            throw CommandFailure(
                .failure,
                "\(Numbers.counted(producer.failed, "job")) could not be produced: \(producer.firstError?.description ?? "")"
            )
        }
    }

    private func checkProcesses(stalledFor: Duration, _ progress: inout Progress) throws(CommandFailure) {
        do {
            try stage.check()
        } catch {
            progress.clear()
            throw error
        }
        if stalledFor > .seconds(60) {
            progress.clear()
            throw CommandFailure(
                .failure,
                "no job was finished for a minute; \(audit.finished) of \(options.jobs) are\n\(stage.worker.logTail)"
            )
        }
    }

    private func read(
        _ outcomes: TopicReader, _ deadLetters: TopicReader, timeoutMilliseconds: Int32
    ) throws(CommandFailure) {
        try outcomes.poll(timeoutMilliseconds: timeoutMilliseconds) { add(outcome: $0) }
        try deadLetters.poll(timeoutMilliseconds: 0) { add(deadLetter: $0) }
    }

    private func add(outcome record: ConsumedRecord) {
        audit.add(record.value.flatMap { OutcomeSummary(json: $0) })
    }

    private func add(deadLetter record: ConsumedRecord) {
        var headers: [String: String] = [:]
        record.forEachHeader { name, value in
            headers[String(decoding: name, as: UTF8.self)] = value.map { String(decoding: $0, as: UTF8.self) }
        }
        let field = headers[DeadLetter.Header.field.rawValue] ?? "?"
        let rule = headers[DeadLetter.Header.rule.rawValue] ?? "?"
        audit.addDeadLetter(
            partition: headers[DeadLetter.Header.sourcePartition.rawValue].flatMap { Int32($0) },
            offset: headers[DeadLetter.Header.sourceOffset.rawValue].flatMap { Int64($0) },
            rule: "\(field): \(rule)")
    }

    /// Reads the records that arrived after everything seemed done, because a second outcome would be found here.
    /// - Returns: the number of records that the cluster has dropped before they were read.
    private func readToTheEnd(_ reader: TopicReader, _ topic: String) throws(CommandFailure) -> Int {
        let marks = try cluster.watermarks(of: topic)
        let all = marks.reduce(0) { $0 + Int($1.high) }
        let dropped = marks.reduce(0) { $0 + Int($1.low) }
        let deadline = ContinuousClock.now + .seconds(10)
        while reader.count < all, ContinuousClock.now < deadline {
            try reader.poll(timeoutMilliseconds: 20) { record in
                topic == LocalStage.outcomesTopic ? add(outcome: record) : add(deadLetter: record)
            }
        }
        return max(dropped, all - reader.count)
    }
}

import Foundation
import Kafka
import SluiceModel

/// The demo's processes and its load, from start to end.
final class DemoStage {
    private let files: DemoFiles
    private let options: DemoCommand
    private let stop: StopSignals
    private let kafka: DemoProcess
    private let simulator: DemoProcess
    private var worker: DemoProcess?
    private let cluster: KafkaCluster
    private var audit: DemoAudit
    private var duration: Duration = .zero

    static let jobsTopic = "sluice.jobs"
    static let outcomesTopic = "sluice.outcomes"
    static let deadLettersTopic = "sluice.dead-letters"

    /// Starts all processes and waits until the worker has its partitions.
    init(files: DemoFiles, options: DemoCommand, stop: StopSignals) throws(CommandFailure) {
        self.files = files
        self.options = options
        self.stop = stop
        let partitions = options.partitions
        audit = DemoAudit(partitions: partitions)
        kafka = try DemoProcess(
            "kafka",
            [
                "kafka", "--port", "0", "--stop-with-input", "--ready-file", files.path("kafka.ready"),
                "--topic", "\(Self.jobsTopic):\(partitions)", "--topic",
                "\(Self.outcomesTopic):\(partitions)",
                "--topic", "\(Self.deadLettersTopic):2",
            ], directory: files.directory)
        simulator = try DemoProcess(
            "simulator",
            [
                "simulator", "--port", "0", "--stop-with-input", "--ready-file",
                files.path("simulator.ready"),
                "--directory", files.directory, "--summary-file", files.path("simulator.json"),
                "--key", "\(DemoFiles.keyID):\(DemoFiles.teamID):\(files.path("AuthKey.p8"))",
                "--errors", DemoLoad.errors, "--device-reasons", DemoLoad.deviceRules,
                "--latency", "\(options.latency)", "--jitter", "\(options.latency)", "--seed",
                "\(options.seed)",
            ] + DemoLoad.apps.flatMap { ["--app", $0.bundle] }, directory: files.directory)
        let limit = Duration.seconds(60)
        guard let servers = try kafka.waitUntilReady(files.path("kafka.ready"), within: limit, stop: stop),
            let address = try simulator.waitUntilReady(
                files.path("simulator.ready"), within: limit, stop: stop)
        else { throw DemoStage.stopped }
        Terminal.output(
            "kafka      \(servers), \(Numbers.counted(partitions, "partition"))   (process \(kafka.identifier))"
        )
        Terminal.output("simulator  \(address)   (process \(simulator.identifier))")
        cluster = KafkaCluster(bootstrapServers: servers)
        try files.writeConfiguration(
            bootstrapServers: servers,
            simulatorPort: address.split(separator: ":").last.map(String.init) ?? "",
            shards: options.shards)
        let worker = try DemoProcess(
            "worker",
            [
                "run", "--config", files.path("sluice.yaml"), "--stop-with-input",
                "--ready-file", files.path("worker.ready"),
            ], directory: files.directory)
        self.worker = worker
        guard try worker.waitUntilReady(files.path("worker.ready"), within: limit, stop: stop) != nil else {
            throw DemoStage.stopped
        }
        Terminal.output(
            "worker     \(options.shards) shard\(options.shards == 1 ? "" : "s")   (process \(worker.identifier))"
        )
    }

    private static let stopped = CommandFailure(.failure, "stopped")

    /// Runs the whole load, stops all processes, and returns the results.
    func run() throws(CommandFailure) -> DemoReport {
        let outcomes = try TopicReader(
            topic: Self.outcomesTopic, start: .beginning, stopsAtEnd: false, cluster: cluster)
        let deadLetters = try TopicReader(
            topic: Self.deadLettersTopic, start: .beginning, stopsAtEnd: false, cluster: cluster)
        try pushEverything(outcomes, deadLetters)

        // The worker stops first, because the records that it flushes while it stops count as well.
        var report = DemoReport(jobs: options.jobs, duration: duration)
        let workerEnded = worker?.stop(within: .seconds(40)) ?? false
        report.recordsLost = try readToTheEnd(outcomes, Self.outcomesTopic)
        report.recordsLost += try readToTheEnd(deadLetters, Self.deadLettersTopic)
        outcomes.close()
        deadLetters.close()
        report.uncommitted = try uncommittedJobs()
        let simulatorEnded = simulator.stop(within: .seconds(10))
        report.simulator = SimulatorCounts(file: files.path("simulator.json"))
        let kafkaEnded = kafka.stop(within: .seconds(10))
        for (process, ended) in [(worker, workerEnded), (simulator, simulatorEnded), (kafka, kafkaEnded)] {
            if let process, !ended { report.badEndings.append("\(process.name) \(process.ending)") }
        }
        report.audit = audit
        return report
    }

    private func pushEverything(_ outcomes: TopicReader, _ deadLetters: TopicReader) throws(CommandFailure) {
        let producer = try RecordProducer(topic: Self.jobsTopic, properties: cluster.properties) { _ in }
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
                throw DemoStage.stopped
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
        for process in [worker, simulator, kafka] {
            guard let process, process.exitStatus() != nil else { continue }
            progress.clear()
            throw CommandFailure(.failure, "\(process.name) \(process.ending)\n\(process.logTail)")
        }
        if stalledFor > .seconds(60) {
            progress.clear()
            throw CommandFailure(
                .failure,
                "no job was finished for a minute; \(audit.finished) of \(options.jobs) are\n\(worker?.logTail ?? "")"
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
        let marks = try watermarks(topic)
        let all = marks.reduce(0) { $0 + Int($1.high) }
        let dropped = marks.reduce(0) { $0 + Int($1.low) }
        let deadline = ContinuousClock.now + .seconds(10)
        while reader.count < all, ContinuousClock.now < deadline {
            try reader.poll(timeoutMilliseconds: 20) { record in
                topic == Self.outcomesTopic ? add(outcome: record) : add(deadLetter: record)
            }
        }
        return max(dropped, all - reader.count)
    }

    private func watermarks(_ topic: String) throws(CommandFailure) -> [Watermarks] {
        let count = try cluster.partitionCount(of: topic)
        do {
            let admin = try KafkaAdmin(properties: cluster.properties)
            return try (0..<Int32(count)).map { try admin.watermarks(of: TopicPartition(topic, $0)) }
        } catch {
            throw CommandFailure(.unavailable, "Kafka: \(error)")
        }
    }

    /// Returns the number of jobs that another worker of the group would read again.
    private func uncommittedJobs() throws(CommandFailure) -> Int {
        let marks = try watermarks(Self.jobsTopic)
        do {
            var properties = cluster.properties
            properties["group.id"] = "demo"
            let consumer = try KafkaConsumer(properties: properties, topics: []) { _ in }
            defer { consumer.close() }
            let partitions = marks.indices.map { TopicPartition(Self.jobsTopic, Int32($0)) }
            let committed = try consumer.committed(partitions, timeoutMilliseconds: 10_000)
            return committed.reduce(0) { sum, offset in
                sum + Int(marks[Int(offset.topicPartition.partition)].high - (offset.offset ?? 0))
            }
        } catch {
            throw CommandFailure(.unavailable, "Kafka: \(error)")
        }
    }
}

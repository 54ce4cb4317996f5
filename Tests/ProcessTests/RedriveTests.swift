import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// Kafka with the topics of a redrive.
struct RedriveBed {
    static let partitions = 4
    let kafka: TestKafka

    /// - Parameter isOwn: excludes real brokers, for a test that stops Kafka.
    init(isOwn: Bool = false) throws {
        kafka = try TestKafka(
            [
                ("jobs", Self.partitions), ("dead-letters", Self.partitions), ("outcomes", Self.partitions),
                ("dead-letters-ledger", 1), ("outcomes-ledger", 1),
            ], isOwn: isOwn)
    }

    /// Starts a redrive of dead letters.
    func start(_ arguments: [String]) throws -> ChildProcess {
        try ChildProcess(Executables.sluice, self.arguments + arguments)
    }

    private var arguments: [String] {
        [
            "redrive", "-b", kafka.bootstrapServers, "--dead-letters", "--topic",
            kafka.topic("dead-letters"), "--ledger", kafka.topic("dead-letters-ledger"),
            "--outcomes-topic", kafka.topic("outcomes"), "--group", kafka.group, "--json",
        ]
    }

    func redrive(_ more: String...) throws -> RedriveReport { RedriveReport(try run(more)) }

    /// Runs a redrive of dead letters to its end.
    func run(
        _ more: [String]
    ) throws -> (exit: ChildProcess.Exit, standardOutput: String, standardError: String) {
        try ChildProcess.run(Executables.sluice, arguments + more)
    }

    /// Device token of a number.
    static func token(_ number: Int) -> String { String(format: "%064x", number) }

    /// Returns a dead letter that this version calls valid, and whose key is its number.
    func letter(
        _ number: Int, rule: String = "json", body: String? = nil, timestamp: Int64 = -1, offset: Int? = nil,
        more: [(String, String?)] = []
    ) -> NewRecord {
        NewRecord(
            key: Self.token(number), value: #"{"aps":{"alert":"\#(body ?? "number \(number)")"}}"#,
            headers: [
                ("apns-topic", "com.example.news"), ("apns-push-type", "alert"),
                ("x-number", "\(number)"), ("sluice-error-field", "apns-topic"),
                ("sluice-error-rule", rule), ("sluice-error-message", "is wrong"),
                ("sluice-source-topic", kafka.topic("jobs")),
                ("sluice-source-partition", "\(number % Self.partitions)"),
                ("sluice-source-offset", "\(offset ?? 1_000_000 + number)"),
                ("sluice-source-timestamp", "\(timestamp)"),
            ] + more)
    }

    func produce(_ numbers: Range<Int>, rule: String) throws {
        try kafka.produce(to: "dead-letters", numbers.map { letter($0, rule: rule) })
    }

    /// Number of records of a topic, without those of open transactions.
    func count(_ topic: String, partitions: Int = Self.partitions) throws -> Int {
        try count(topic, partitions, isolation: "read_committed")
    }

    /// Number of records of a topic, with those of open transactions.
    func uncommittedCount(_ topic: String) throws -> Int {
        try count(topic, Self.partitions, isolation: "read_uncommitted")
    }

    private func count(_ topic: String, _ partitions: Int, isolation: String) throws -> Int {
        var properties = KafkaProperties(bootstrapServers: kafka.bootstrapServers)
        properties["isolation.level"] = isolation
        let admin = try KafkaAdmin(properties: properties)
        return try (0..<Int32(partitions)).reduce(0) {
            $0 + Int(try admin.watermarks(of: TopicPartition(kafka.topic(topic), $1)).high)
        }
    }

    /// Reads the jobs topic to its end.
    func jobs() throws -> [ReadRecord] {
        let reader = try TopicReader(kafka, "jobs", partitions: Self.partitions)
        try eventually("the jobs are read") {
            reader.poll()
            return reader.endedCount == Self.partitions
        }
        return reader.records
    }
}

/// End of `sluice redrive --json`.
struct RedriveReport {
    let exit: ChildProcess.Exit
    let error: String
    private let document: [String: Any]

    init(_ result: (exit: ChildProcess.Exit, standardOutput: String, standardError: String)) {
        exit = result.exit
        error = result.standardError
        document =
            (try? JSONSerialization.jsonObject(with: Data(result.standardOutput.utf8))) as? [String: Any]
            ?? [:]
    }

    subscript(name: String) -> Int? { document[name] as? Int }

    /// Counts of jobs about which a question was not answered.
    var unchecked: [String: Int] { document["unchecked"] as? [String: Int] ?? [:] }
    /// Offsets behind open transactions, by topic.
    var unread: [String: Int] { document["unread"] as? [String: Int] ?? [:] }
}

@Suite("Redrive, as a process")
struct RedriveTests {
    @Test func tenThousandDeadLettersAreRedrivenOnce() throws {
        let bed = try RedriveBed()
        try bed.produce(0..<10_000, rule: "topic-suffix")
        try bed.produce(10_000..<12_000, rule: "json")

        let dry = try bed.redrive("--where", "rule=topic-suffix", "--dry-run")
        #expect(dry.exit == .status(0), "\(dry.error)")
        #expect(dry["read"] == 12_000 && dry["selected"] == 10_000 && dry["redriven"] == 10_000)
        // The embedded cluster names no offsets for times, so the records' timestamps decide.
        #expect(try bed.redrive("--dry-run", "--since", "1h")["redriven"] == 12_000)
        #expect(try bed.redrive("--dry-run", "--until", "1h")["read"] == 0)
        #expect(try bed.count("jobs") == 0 && bed.count("dead-letters-ledger", partitions: 1) == 0)

        let first = try bed.redrive("--where", "rule=topic-suffix")
        #expect(first.exit == .status(0), "\(first.error)")
        #expect(first["redriven"] == 10_000)
        let second = try bed.redrive("--where", "rule=topic-suffix")
        #expect(second.exit == .status(0), "\(second.error)")
        #expect(second["redriven"] == 0 && second["redriven-before"] == 10_000)

        let jobs = try bed.jobs()
        let numbers = Set(jobs.compactMap { $0.header("x-number") })
        #expect(jobs.filter { $0.header("x-number") != nil }.count == 10_000 && numbers.count == 10_000)
        for job in jobs where job.key != nil {
            let number = try #require(job.header("x-number").flatMap { Int($0) })
            #expect(number < 10_000)
            #expect(
                job.keyText == RedriveBed.token(number)
                    && job.valueText?.contains("number \(number)\"") == true)
            #expect(
                job.headers.map(\.name) == ["apns-topic", "apns-push-type", "x-number", "sluice-redriven"])
            #expect(job.partition == Int32(number % RedriveBed.partitions))
            let mark = try #require(job.header("sluice-redriven").flatMap { RedrivenMark(text: $0) })
            #expect(mark.place.topic == bed.kafka.topic("dead-letters") && mark.count == 1)
        }
        // On purpose, and the rest.
        #expect(try bed.redrive("--where", "rule=topic-suffix", "--again")["redriven"] == 10_000)
        #expect(try bed.redrive()["redriven"] == 2_000)
    }

    @Test func anInterruptedRunIsContinuedExactlyOnce() throws {
        let bed = try RedriveBed()
        try bed.produce(0..<4_000, rule: "json")
        let run = try bed.start(["--rate", "2000"])
        try run.waits(for: "some jobs are redriven") { try bed.count("jobs") > 500 }
        run.signal(SIGINT)
        #expect(try run.wait() == .status(75), "\(run.standardError)")
        let before = try bed.jobs().filter { $0.key != nil }.count
        #expect(before > 0 && before < 4_000)
        let rest = try bed.redrive()
        #expect(rest.exit == .status(0), "\(rest.error)")
        #expect(rest["redriven-before"] == before && rest["redriven"] == 4_000 - before)
        let numbers = try bed.jobs().compactMap { $0.header("x-number") }
        #expect(numbers.count == 4_000 && Set(numbers).count == 4_000)
    }

    /// Only real brokers drop the records of a killed run's open transaction.
    @Test(.enabled(if: TestKafka.realBrokers != nil))
    func aKilledRunWithTransactionsIsContinuedExactlyOnce() throws {
        let bed = try RedriveBed()
        try bed.produce(0..<4_000, rule: "json")
        let run = try bed.start(["--rate", "2000"])
        try run.waits(for: "some jobs are redriven") { try bed.count("jobs") > 500 }
        run.signal(SIGKILL)
        _ = try run.wait()
        let rest = try bed.redrive()
        #expect(rest.exit == .status(0), "\(rest.error)")
        let reader = try TopicReader(bed.kafka, "jobs", partitions: RedriveBed.partitions)
        try eventually("all jobs") {
            reader.poll()
            return reader.records.count >= 4_000
        }
        let numbers = reader.records.compactMap { $0.header("x-number") }
        #expect(numbers.count == 4_000 && Set(numbers).count == 4_000)
    }

    /// The producer refuses one of three records. The others are sent, and a later run can send the third.
    @Test func aRefusedRecordFailsAlone() throws {
        let bed = try RedriveBed()
        let large = String(repeating: "x", count: 3_000)
        try bed.kafka.produce(
            to: "dead-letters", [bed.letter(0), bed.letter(1, body: large), bed.letter(2)])
        let first = try bed.redrive("-X", "message.max.bytes=2000")
        #expect(first.exit == .status(1), "\(first.error)")
        #expect(first.error.contains("1 job was not produced"))
        #expect(first["redriven"] == 2 && first["failed"] == 1)
        let second = try bed.redrive()
        #expect(second.exit == .status(0), "\(second.error)")
        #expect(second["redriven"] == 1 && second["redriven-before"] == 2)
        // The embedded cluster shows the records of the aborted transaction, too.
        let numbers = try bed.jobs().compactMap { $0.header("x-number") }
        #expect(Set(numbers) == ["0", "1", "2"])
        #expect(numbers.filter { $0 == "1" }.count == 1)
    }

    /// A job's life counts from its first production, also after it was redriven.
    @Test func expiredAndInvalidJobsAreSkipped() throws {
        let bed = try RedriveBed()
        let now = Int64(Date.now.timeIntervalSince1970 * 1_000)
        try bed.kafka.produce(
            to: "dead-letters",
            [
                bed.letter(0, timestamp: now - 120_000, more: [("ttl", "60")]),
                bed.letter(1, timestamp: now - 120_000, more: [("ttl", "3600")]),
                bed.letter(
                    2, timestamp: now,
                    more: [("ttl", "60"), ("sluice-redriven", "dl/0/1;count=1;first=\(now - 120_000)")]),
                bed.letter(3, more: [("apns-priority", "7")]),
            ])
        let first = try bed.redrive()
        #expect(first.exit == .status(0), "\(first.error)")
        #expect(first["expired"] == 2 && first["invalid"] == 1 && first["redriven"] == 1)
        let job = try #require(try bed.jobs().first { $0.header("x-number") == "1" })
        let mark = try #require(job.header("sluice-redriven").flatMap { RedrivenMark(text: $0) })
        #expect(mark.firstMilliseconds == now - 120_000)
        let second = try bed.redrive("--invalid")
        #expect(second["redriven"] == 1 && second["redriven-before"] == 1 && second["expired"] == 2)
    }

    /// Outcomes that came after the dead letters, and offsets of the group.
    @Test func jobsWithALaterEndAreSkipped() throws {
        let bed = try RedriveBed()
        func outcome(
            _ number: Int, _ kind: String = "accepted", offset: Int, topic: String = "com.example.news",
            collapse: String = "c", job: String = ""
        ) -> NewRecord {
            let now = Int64(Date.now.timeIntervalSince1970 * 1_000) + 1_000
            return NewRecord(
                value: """
                    {"outcome":"\(kind)",\(job)"device-token":"\(RedriveBed.token(number))","topic":"\(topic)",\
                    "push-type":"alert","apns-id":"123e4567-e89b-12d3-a456-426614174000","collapse-id":"\(collapse)",\
                    "attempts":1,"source":{"topic":"\(bed.kafka.topic("jobs"))",\
                    "partition":\(number % RedriveBed.partitions),"offset":\(offset)},\
                    "created-at":\(now),"polled-at":\(now),"finished-at":\(now)}
                    """)
        }
        try bed.kafka.produce(
            to: "jobs",
            (0..<4).map { _ in NewRecord(key: "k", value: "x", partition: 3) })
        let collapse = [("apns-collapse-id", "c" as String?)]
        try bed.kafka.produce(
            to: "dead-letters",
            [
                bed.letter(0), bed.letter(1, more: collapse), bed.letter(2, more: collapse),
                bed.letter(3, offset: 3), bed.letter(7, offset: 1), bed.letter(5, more: collapse),
                bed.letter(6, more: collapse),
            ])
        try bed.kafka.produce(
            to: "outcomes",
            [
                outcome(0, "rejected", offset: 1_000_000), outcome(1, offset: 1_000_100),
                outcome(2, "not-found", offset: 1_000_100, job: #""job":"cancel","#),
                outcome(5, "rejected", offset: 1_000_100), outcome(6, offset: 1_000_100, collapse: "d"),
            ])
        var properties = KafkaProperties(bootstrapServers: bed.kafka.bootstrapServers)
        properties["group.id"] = bed.kafka.group
        let group = try KafkaConsumer(properties: properties, topics: []) { _ in }
        _ = try group.commit(
            [OffsetCommit(topic: bed.kafka.topic("jobs"), partition: 3, offset: 2)],
            synchronous: true)
        group.close()
        let report = try bed.redrive()
        #expect(report.exit == .status(0), "\(report.error)")
        #expect(report["later-outcome"] == 1 && report["superseded"] == 2 && report["uncommitted"] == 1)
        #expect(report["redriven"] == 3 && report["selected"] == 7)
        #expect(report.unchecked == ["later-outcome": 0, "superseded": 0, "uncommitted": 2])
        let numbers = Set(try bed.jobs().compactMap { $0.header("x-number") })
        #expect(numbers == ["5", "6", "7"])
    }

    /// The embedded cluster shows the records of open transactions.
    @Test(.enabled(if: TestKafka.realBrokers != nil))
    func recordsBehindAnOpenTransactionAreNamed() throws {
        let bed = try RedriveBed()
        try bed.produce(0..<4, rule: "json")
        let transactions = try TransactionalProducer(
            properties: KafkaProperties(bootstrapServers: bed.kafka.bootstrapServers),
            transactionalID: "open-\(bed.kafka.suffix)")
        func complete(_ start: (TransactionalProducer) throws -> Void) throws {
            try start(transactions)
            try eventually("the step ends") { transactions.wait(timeoutMilliseconds: 100) != nil }
        }
        try complete { try $0.initialize() }
        try complete { try $0.beginTransaction() }
        let letters = try transactions.producer.topic(bed.kafka.topic("dead-letters"))
        _ = transactions.producer.produce(
            letters, key: nil, value: nil, headers: [(name: String, value: [UInt8]?)](), opaque: 0,
            partition: 0)
        try eventually("the record is written") {
            transactions.producer.pollDeliveryReports(timeoutMilliseconds: 100) { _ in }
            return try bed.count("dead-letters") >= 4 && bed.uncommittedCount("dead-letters") >= 5
        }
        let report = try bed.redrive()
        #expect(report.exit == .status(0), "\(report.error)")
        #expect(report["redriven"] == 4)
        #expect(report.unread[bed.kafka.topic("dead-letters")] == 1)
        try complete { try $0.abort() }
        transactions.close()
    }

    @Test func aMissingTopicFailsItsOwnJobsOnly() throws {
        let bed = try RedriveBed()
        try bed.produce(0..<1, rule: "json")
        try bed.kafka.produce(
            to: "dead-letters",
            [
                NewRecord(
                    key: "k", value: "v",
                    headers: [
                        ("sluice-source-topic", "no topic at all"), ("sluice-source-partition", "0"),
                        ("sluice-source-offset", "1"),
                    ])
            ])
        try bed.produce(2..<3, rule: "json")
        let report = try bed.redrive("--invalid")
        #expect(report.exit == .status(1), "\(report.error)")
        #expect(report.error.contains("there is no topic no topic at all; create it"))
        #expect(report["redriven"] == 2 && report["failed"] == 1)
    }

    @Test func omittedValuesAreReadAtTheSourceAndDoubledDeadLettersOnce() throws {
        let bed = try RedriveBed()
        let large = String(repeating: "x", count: 20_000)
        try bed.kafka.produce(
            to: "jobs",
            [
                NewRecord(key: "k0", value: "first", partition: 2),
                NewRecord(key: "k1", value: large, headers: [("apns-topic", "a.b")], partition: 2),
            ])
        func letter(_ offset: Int, partition: Int = 2, omitted: Bool = true) -> NewRecord {
            NewRecord(
                key: "k1", value: omitted ? nil : "whole",
                headers: [
                    ("apns-topic", "a.b"), ("sluice-error-rule", "payload-size"),
                    ("sluice-source-topic", bed.kafka.topic("jobs")),
                    ("sluice-source-partition", "\(partition)"), ("sluice-source-offset", "\(offset)"),
                ] + (omitted ? [("sluice-error-value-omitted", "MSG_SIZE_TOO_LARGE")] : []),
                partition: 0)
        }
        try bed.kafka.produce(
            to: "dead-letters",
            [
                letter(1), letter(1), letter(7), letter(0, partition: 77), letter(5, omitted: false),
                NewRecord(key: "k", value: "no dead letter", partition: 0),
            ])
        let report = try bed.redrive("--invalid")
        #expect(report.exit == .status(0), "\(report.error)")
        #expect(report["redriven"] == 2 && report["same-job"] == 1 && report["gone"] == 2)
        #expect(report["unreadable"] == 1)
        let jobs = try bed.jobs()
        #expect(jobs.filter { $0.valueText == large && $0.header("sluice-redriven") != nil }.count == 1)
        #expect(jobs.filter { $0.valueText == "whole" }.count == 1)
        #expect(jobs.count == 4)
    }

    @Test func undeliverableJobsAreRedrivenFromTheirSources() throws {
        try withBed(BedOptions(partitions: 3)) { bed in
            let worker = try bed.start()
            var random = SeededGenerator(seed: 5)
            // No credential serves this environment.
            try bed.produce(
                (0..<300).map { number in
                    var push = PushDescription(
                        deviceToken: random.hexadecimal(bytes: 32), topic: "com.example.news",
                        payload: Array(#"{"aps":{"alert":"number \#(number)"}}"#.utf8))
                    push.environment = "production"
                    return JobEncoder.binary(push)
                })
            try bed.outcomes.wait(for: 300, of: worker)
            let sample = try #require(bed.outcomes.outcomes.first)
            func forged(_ offset: Int64, id: String) -> NewRecord {
                NewRecord(
                    key: "0a0a",
                    value: """
                        {"outcome":"undeliverable","device-token":"0a0a","topic":"com.example.news","apns-id":"\(id)",\
                        "cause":"no-credential","message":"m","attempts":0,"source":{"topic":"\(sample.sourceTopic)",\
                        "partition":0,"offset":\(offset)},"created-at":1,"polled-at":1,"finished-at":1}
                        """)
            }
            let id = "123e4567-e89b-12d3-a456-426614174000"
            try bed.kafka.produce(to: "outcomes", [forged(100_000, id: id), forged(3, id: id)])
            let path = try bed.directory.write(bed.configuration(), to: "redrive.yaml")
            func redrive(_ more: String...) throws -> RedriveReport {
                RedriveReport(
                    try ChildProcess.run(
                        Executables.sluice,
                        [
                            "redrive", "-c", path, "--outcomes", "undeliverable", "--where", "app=news",
                            "--where", "cause=no-credential", "--json",
                        ] + more))
            }
            func expectCommit() throws {
                try worker.waits(for: "the group has committed") {
                    let report = try redrive("--dry-run")
                    return report["uncommitted"] == 0 && report.unchecked["uncommitted"] == 0
                }
            }
            try expectCommit()
            let dry = try redrive("--dry-run")
            #expect(
                dry["gone"] == 1
                    && (dry["redriven"] ?? 0) + (dry["differs"] ?? 0) + (dry["same-job"] ?? 0) == 301)
            let first = try redrive()
            #expect(first.exit == .status(0), "\(first.error)")
            // The forged outcome names another job's place: whichever is read first is looked up.
            #expect(first["gone"] == 1 && (first["redriven"] ?? 0) >= 299)
            let redriven = try #require(first["redriven"])
            try bed.outcomes.wait(for: 301 + redriven, of: worker)
            try expectCommit()
            // The redriven jobs failed again, with outcomes of their own.
            let second = try redrive()
            #expect(second["redriven"] == redriven && second["redriven-repeatedly"] == redriven)
            #expect((second["redriven-before"] ?? 0) >= redriven)
            try bed.outcomes.wait(for: 301 + 2 * redriven, of: worker)
            #expect(bed.pushes().isEmpty)
        }
    }

    @Test func hashedDeadLettersAndOutcomesAreRedrivenFromTheirSources() throws {
        try withBed(BedOptions(partitions: 1)) { bed in
            let key = String(repeating: "0f", count: 32)
            try bed.directory.write(key, to: "token-hash.key")
            let options = WorkerOptions(
                more: "outcomes: {device-token: hash, hash-key-file: token-hash.key}")
            let worker = try bed.start(options)
            let path = try bed.directory.write(bed.configuration(options), to: "redrive.yaml")
            try bed.kafka.produce(
                to: "jobs",
                [
                    NewRecord(
                        key: deviceToken, value: #"{"aps":{"alert":"Hi"}}"#,
                        headers: [
                            ("apns-topic", "com.example.news"), ("apns-push-type", "alert"),
                            ("apns-priority", "7"), ("x-to", deviceToken),
                        ]),
                    NewRecord(
                        key: deviceToken, value: #"{"aps":{"alert":"Hi"}}"#,
                        headers: [
                            ("apns-topic", "com.example.news"), ("apns-push-type", "alert"),
                            ("environment", "production"),
                        ]),
                ])
            try bed.outcomes.wait(for: 1, of: worker)
            let outcome = try #require(bed.outcomes.outcomes.first)
            let hash = try sluice("config", "token-hash", path, input: "\(deviceToken.uppercased())\n")
            #expect(hash.exit == .status(0) && hash.standardOutput == outcome.deviceToken + "\n")
            #expect(outcome.isTokenHashed)
            func redrive(_ arguments: String...) throws -> RedriveReport {
                RedriveReport(
                    try ChildProcess.run(
                        Executables.sluice, ["redrive", "-c", path, "--json"] + arguments))
            }
            try worker.waits(for: "the dead letter, and the commit") {
                try redrive("--dead-letters", "--invalid", "--dry-run")["redriven"] == 1
                    && redrive("--outcomes", "undeliverable", "--dry-run")["redriven"] == 1
            }
            #expect(try redrive("--dead-letters")["invalid"] == 1)
            let letters = try redrive(
                "--dead-letters", "--invalid", "--where", "app=news", "--where", "rule=choice")
            #expect(letters["redriven"] == 1, "\(letters.error)")
            let outcomes = try redrive("--outcomes", "undeliverable")
            #expect(outcomes["redriven"] == 1, "\(outcomes.error)")
            let jobs = try TopicReader(bed.kafka, "jobs", partitions: 1)
            try worker.waits(for: "the redriven jobs") {
                jobs.poll()
                return jobs.records.filter { $0.header("sluice-redriven") != nil }.count == 2
            }
            for (index, job) in jobs.records.filter({ $0.key != nil }).enumerated() where index >= 2 {
                let original = jobs.records[index - 2]
                #expect(job.key == original.key && job.value == original.value)
                #expect(
                    job.headers.dropLast().map(\.name) == original.headers.map(\.name)
                        && job.headers.last?.name == "sluice-redriven")
            }
            // Both fail again.
            try bed.outcomes.wait(for: 2, of: worker)
            #expect(!worker.log.contains(deviceToken))
        }
    }

    @Test func wrongOptionsAreNamed() throws {
        func failure(_ arguments: String...) throws -> (ChildProcess.Exit, String) {
            let result = try ChildProcess.run(
                Executables.sluice, ["redrive", "-b", "127.0.0.1:1"] + arguments)
            return (result.exit, result.standardError)
        }
        let unknown = try failure("--dead-letters", "--where", "colour=red")
        #expect(unknown.0 == .status(64) && unknown.1.contains("the fields are app, topic, push-type"))
        #expect(try failure().0 == .status(64))
        #expect(try failure("--dead-letters", "--outcomes", "expired").0 == .status(64))
        let kind = try failure("--outcomes", "accepted")
        #expect(kind.0 == .status(64) && kind.1.contains("undeliverable, rejected, expired"))
        #expect(try failure("--dead-letters", "--since", "soon").0 == .status(64))
        #expect(try failure("--dead-letters", "--rate", "0").0 == .status(64))
        #expect(try failure("--dead-letters", "--rate", "1e19").0 == .status(64))
        for topic in ["sluice.dead-letters", "sluice.outcomes", "sluice.jobs"] {
            let ledger = try failure("--dead-letters", "--ledger", topic)
            #expect(ledger.0 == .status(78) && ledger.1.contains("a topic of its own"))
        }
        #expect(try failure("--dead-letters", "--to", "sluice.dead-letters").0 == .status(78))
        #expect(try failure("--dead-letters").0 == .status(69))
    }
}

import Configuration
import Gateway
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// Records of producers that know little of Sluice: wrong clocks, foreign headers.
@Suite struct ForeignProducerTests {
    @Test func reportOfTheYear2106IsUndoneByALaterOnline() throws {
        try withBed { bed in
            let worker = try bed.worker()
            let device = SeededGenerator.hexadecimal(seed: 701)
            try bed.produce([
                try event("offline", of: device, #","occurred-at":4294967295000"#), held("held", to: device),
            ])
            try eventually("the push is held") { worker.snapshot().totals.count(in: .held) == 1 }
            try bed.produce([try event("online", of: device)])
            let outcomes = try bed.waitForOutcomes(3)
            #expect(outcomes.count { $0.kind == .accepted } == 1)
        }
    }

    /// Headers of a push in memory, of a device event and of a dead letter; what a framework adds disappears.
    @Test func traceAndOwnHeadersReturnOnOutcomesAndDeadLetters() throws {
        try withBed { bed in
            let worker = try bed.worker()
            let device = SeededGenerator.hexadecimal(seed: 702)
            let trace: [(name: String, value: String?)] = [
                ("traceparent", Self.trace), ("X-Tenant", "7"), ("x-null", nil),
                ("__TypeId__", "com.example.Push"),
            ]
            let fields = [("Apns-Topic", newsTopic), ("apns-push-type", "alert")].map {
                (name: $0.0, value: Optional($0.1))
            }
            try bed.kafka.produce(
                to: "jobs",
                [
                    NewRecord(key: device, value: "{}", headers: fields + trace),
                    NewRecord(key: device, headers: [("kind", "device"), ("event", "online")] + trace),
                    NewRecord(key: device, value: "{", headers: fields + trace),
                    NewRecord(key: device, value: "{}", headers: fields),
                ])
            try bed.waitForOutcomes(3)
            try eventually("there is a dead letter") {
                bed.deadLetters.poll()
                return bed.deadLetters.records.count == 1
            }
            let passed = bed.outcomes.records.map { $0.headers.map(\.name) }
            #expect(passed.count { $0 == ["traceparent", "X-Tenant", "x-null"] } == 2)
            #expect(passed.count { $0.isEmpty } == 1)
            let outcome = try #require(bed.outcomes.records.first { !$0.headers.isEmpty })
            #expect(outcome.header("traceparent") == Self.trace)
            #expect(outcome.headers.last?.value == nil)
            let letter = bed.deadLetters.records[0]
            #expect(letter.header("traceparent") == Self.trace)
            #expect(letter.header("__TypeId__") == "com.example.Push")
            let decoding = bed.stop(worker).snapshot.totals.decoding
            #expect(decoding.foreignHeaders == 12 && decoding.droppedHeaders == 0)
        }
    }

    static let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    /// The push leaves memory, is moved to a new token, and is restored by another worker.
    @Test(arguments: [true, false])
    func passedHeadersSurviveTheStore(_ transactions: Bool) throws {
        try withBed { bed in
            func store(_ configuration: inout Configuration) {
                configuration.store = .init(directory: bed.directory.file("store"), after: .seconds(1))
                configuration.store?.transactions = transactions ? .on : .off
                configuration.apns.environment = .production
            }
            let worker = try bed.worker(store)
            let device = SeededGenerator.hexadecimal(seed: 703)
            let soon = (wallClockSeconds() + 40) * 1000
            var job = push("later", to: device) {
                $0.deliverAtMilliseconds = soon
                $0.environment = "production"
                $0.createdAtMilliseconds = 4_000_000_000_000
            }
            job.headers.append((name: "traceparent", value: Array(Self.trace.utf8)))
            job.headers.append((name: "x-request", value: Array("42".utf8)))
            try bed.produce([job])
            try worker.waitUntilEvicted(devices: 1)
            bed.stop(worker)
            let second = try bed.worker(store)
            try bed.produce([try event("unregistered", of: device)])
            let outcomes = try bed.waitForOutcomes(2)
            let rejected = try #require(outcomes.first { $0.kind == .rejected })
            #expect(rejected.environment == "production")
            #expect(rejected.adjusted == ["created-at"])
            let record = try #require(bed.outcomes.records.first { !$0.headers.isEmpty })
            #expect(record.headers.map(\.name) == ["traceparent", "x-request"])
            #expect(record.header("traceparent") == Self.trace)
            #expect(record.header("x-request") == "42")
            bed.stop(second)
        }
    }

    /// Kafka Connect's JsonConverter writes the key as a JSON string.
    @Test func quotedKeyIsTheSameDevice() throws {
        try withBed { bed in
            let worker = try bed.worker { $0.delivery.shards = 2 }
            let devices = (0..<6).map { SeededGenerator.hexadecimal(seed: 710 + $0) }
            try bed.kafka.produce(
                to: "jobs",
                try devices.map { device in
                    var report = NewRecord(try event("offline", of: device))
                    report.partition = 0
                    return report
                })
            try bed.waitForOutcomes(devices.count)
            try bed.kafka.produce(
                to: "jobs",
                devices.map { device in
                    var record = NewRecord(held("held", to: device))
                    record.key = Array("\"\(device)\"".utf8)
                    record.partition = 0
                    return record
                })
            try eventually("all pushes are held") {
                worker.snapshot().totals.count(in: .held) == devices.count
            }
            try bed.produce(try devices.map { try event("online", of: $0) })
            let outcomes = try bed.waitForOutcomes(3 * devices.count)
            #expect(Set(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken)) == Set(devices))
        }
    }

    @Test func deadLetterInTheLogNamesItsTrace() throws {
        try withBed { bed in
            let log = LogRecorder()
            let worker = try bed.worker(log: log, logLevel: .debug)
            try bed.kafka.produce(
                to: "jobs", [NewRecord(key: "no token", value: "{}", headers: [("traceparent", Self.trace)])])
            try eventually("the dead letter is logged") {
                log.messages.count(containing: "4bf92f3577b34da6a3ce929d0e0e4736") == 1
            }
            bed.stop(worker)
        }
    }
}

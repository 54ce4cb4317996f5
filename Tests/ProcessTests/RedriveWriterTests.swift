import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

@testable import sluice

@Suite("Redrive: writing")
struct RedriveWriterTests {
    private func item(_ number: Int, topic: String) throws -> RedriveItem {
        let glimpse = JobGlimpse(
            JobRecord(
                key: nil, value: nil, headers: UnsafeBufferPointer(start: nil, count: 0),
                topic: UnsafeRawBufferPointer(start: nil, count: 0), partition: 0, offset: 0,
                timestampMilliseconds: -1))
        let headers: [(name: String, value: [UInt8]?)] = [
            ("sluice-source-topic", Array(topic.utf8)), ("sluice-source-partition", Array("0".utf8)),
            ("sluice-source-offset", Array("\(number)".utf8)),
        ]
        let facts = try #require(
            RedriveFacts(
                deadLetter: headers, glimpse: glimpse, place: try place("dl/0/\(number)"),
                timestampMilliseconds: 5, apps: redriveApps))
        let record = RecordCopy(key: [1], value: Array("\(number)".utf8), headers: headers)
        return try #require(
            try RedriveItem(record, of: facts, destination: nil) { _ in 1 })
    }

    private func records(_ kafka: TestKafka, _ topic: String) throws -> [ReadRecord] {
        let reader = try TopicReader(kafka, topic, partitions: 1)
        try eventually("the records are read") {
            reader.poll()
            return reader.endedCount == 1
        }
        return reader.records
    }

    /// Runs a writer whose produce requests get these errors. Returns the ends by the jobs' numbers.
    private func ends(
        _ kafka: TestKafka, _ errors: [Int32], jobs: Int = 8
    ) throws -> [Int64: RedriveEnd] {
        var ends: [Int64: RedriveEnd] = [:]
        let writer = try RedriveWriter(
            RedriveWriter.Settings(
                properties: KafkaProperties(bootstrapServers: kafka.bootstrapServers),
                ledger: kafka.topic("ledger"), transactionalID: "redrive", run: "r")
        ) { ends[$0.place.offset] = $1 }
        defer { writer.close() }
        try #require(kafka.embedded).fail(.produce, with: errors)
        for number in 0..<jobs {
            try writer.add(try item(number, topic: kafka.topic("jobs")))
        }
        try writer.flush()
        return ends
    }

    /// Kafka's MSG_SIZE_TOO_LARGE for a batch whose jobs are all small enough.
    @Test func aRefusedBatchIsWrittenInParts() throws {
        let kafka = try TestKafka(embedding: [("jobs", 1), ("ledger", 1)])
        let ends = try ends(kafka, [10])
        #expect(ends.count == 8 && ends.values.allSatisfy { $0 == .redriven })
        let values = try records(kafka, "jobs").compactMap(\.valueText)
        #expect(Set(values) == Set((0..<8).map { "\($0)" }))
    }

    /// Kafka stands still between two batches. A stop ends the wait, however long the patience is.
    @Test(arguments: [true, false])
    func aBatchWithoutAnswersEndsInTime(isStopped: Bool) throws {
        let kafka = try TestKafka([("jobs", 1), ("ledger", 1)], isOwn: true)
        var ends: [Int64: RedriveEnd] = [:]
        var isStopping = false
        let writer = try RedriveWriter(
            RedriveWriter.Settings(
                properties: KafkaProperties(bootstrapServers: kafka.bootstrapServers),
                ledger: kafka.topic("ledger"), transactionalID: "redrive", run: "r"),
            isStopping: { isStopping }, ended: { ends[$0.place.offset] = $1 })
        for number in 0..<4 { try writer.add(try item(number, topic: kafka.topic("jobs"))) }
        try writer.flush()
        kafka.suspend()
        defer { kafka.resume() }
        isStopping = isStopped
        writer.wait(atMost: .seconds(isStopped ? 3_600 : 1))
        for number in 4..<8 { try writer.add(try item(number, topic: kafka.topic("jobs"))) }
        let failure = #expect(throws: CommandFailure.self) { try writer.flush() }
        #expect(failure?.status == .unavailable)
        let message = failure?.message ?? ""
        #expect(message.contains("at \(kafka.bootstrapServers)") && message.contains("check the brokers"))
        #expect(message.contains(isStopped ? "before the stop" : "within 1 s"), "\(message)")
        #expect((0..<4).allSatisfy { ends[$0] == .redriven })
        // A commit without an answer may have been carried out.
        #expect((4..<8).allSatisfy { ends[$0] == .unanswered })
        writer.close()
    }

    /// An answer is lost, and the repeated commit finds another run. The first commit may have taken effect.
    @Test(arguments: [47, 90] as [Int32])
    func aFencedCommitIsUnanswered(code: Int32) throws {
        let kafka = try TestKafka(embedding: [("jobs", 1), ("ledger", 1)])
        var ends: [Int64: RedriveEnd] = [:]
        let writer = try RedriveWriter(
            RedriveWriter.Settings(
                properties: KafkaProperties(bootstrapServers: kafka.bootstrapServers),
                ledger: kafka.topic("ledger"), transactionalID: "redrive", run: "r")
        ) { ends[$0.place.offset] = $1 }
        defer { writer.close() }
        try #require(kafka.embedded).fail(.endTransaction, with: [code])
        for number in 0..<4 { try writer.add(try item(number, topic: kafka.topic("jobs"))) }
        let failure = #expect(throws: CommandFailure.self) { try writer.flush() }
        #expect(failure?.message.contains("has fenced this one") == true, "\(failure?.message ?? "")")
        #expect(ends.count == 4 && ends.values.allSatisfy { $0 == .unanswered })
    }

    /// The queue is full while a partition has no leader. The coordinator answers, so that the abort succeeds.
    @Test func aFullQueueEndsTheBatch() throws {
        let kafka = try TestKafka(embedding: [("jobs", 1), ("ledger", 1)])
        var ends: [Int64: RedriveEnd] = [:]
        var properties = KafkaProperties(bootstrapServers: kafka.bootstrapServers)
        properties["queue.buffering.max.messages"] = "4"
        let writer = try RedriveWriter(
            RedriveWriter.Settings(
                properties: properties, ledger: kafka.topic("ledger"), transactionalID: "redrive", run: "r")
        ) { ends[$0.place.offset] = $1 }
        defer { writer.close() }
        try writer.add(try item(0, topic: kafka.topic("jobs")))
        try writer.flush()
        try #require(kafka.embedded).setLeader(nil, topic: kafka.topic("jobs"), partition: 0)
        try #require(kafka.embedded).setLeader(nil, topic: kafka.topic("ledger"), partition: 0)
        writer.wait(atMost: .seconds(5))
        for number in 1..<9 { try writer.add(try item(number, topic: kafka.topic("jobs"))) }
        let failure = #expect(throws: CommandFailure.self) { try writer.flush() }
        #expect(
            failure?.message.contains("didn't take a batch within 5 s") == true, "\(failure?.message ?? "")")
        #expect(ends[0] == .redriven && (1..<9).allSatisfy { ends[$0] == .failed })
    }

    /// A user without the right on the transactional identifier is told which right.
    @Test func aRefusedIdentifierNamesTheRight() throws {
        let kafka = try TestKafka(embedding: [("jobs", 1), ("ledger", 1)])
        try #require(kafka.embedded).fail(.findCoordinator, with: [53])
        let failure = #expect(throws: CommandFailure.self) {
            try RedriveWriter(
                RedriveWriter.Settings(
                    properties: KafkaProperties(bootstrapServers: kafka.bootstrapServers),
                    ledger: kafka.topic("ledger"), transactionalID: "redrive", run: "r")
            ) { _, _ in }
        }
        #expect(
            failure?.message.contains("Write and Describe on the transactional identifier redrive") == true)
    }

    @Test func aJobThatIsRefusedAloneFails() throws {
        let kafka = try TestKafka(embedding: [("jobs", 1), ("ledger", 1)])
        #expect(try ends(kafka, [10], jobs: 1) == [0: .failed])
    }
}

import DeliveryCore
import Foundation
import Gateway
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// The group's offset lies beyond the log's end.
@Suite struct LostTailTests {
    /// Sets the group's offset of the first partition before any worker has run.
    private func commit(_ bed: WorkerBed, _ offset: Int64, metadata: String = "") throws {
        var properties = bed.kafka.clientProperties
        properties["group.id"] = bed.kafka.group
        let consumer = try KafkaConsumer(properties: properties, topics: []) { _ in }
        defer { consumer.close() }
        try consumer.commit(
            [
                OffsetCommit(
                    topic: bed.kafka.topic("jobs"), partition: 0, offset: offset, metadata: metadata)
            ], synchronous: true)
    }

    private static func jobs(_ count: Int, seed: UInt64) -> [EncodedJob] {
        var random = SeededGenerator(seed: seed)
        return (0..<count).map { _ in
            JobEncoder.binary(
                PushDescription(
                    deviceToken: random.hexadecimal(bytes: 32), topic: "com.example.news",
                    payload: Array("{}".utf8)))
        }
    }

    @Test(arguments: [false, true]) func partitionWithoutEvidenceIsNotRead(hasStore: Bool) throws {
        try withBed { bed in
            let directory = bed.directory.file("store")
            try commit(bed, 14)
            try bed.produce(Self.jobs(10, seed: 1), in: 0)
            try bed.produce(Self.jobs(5, seed: 2), in: 1)
            let worker = try bed.worker {
                if hasStore { $0.store = .init(directory: directory) }
            }
            try eventually("the partition is not read") { worker.snapshot().intake?.unexplained == [0] }
            // The other partitions are read.
            let outcomes = try bed.waitForOutcomes(5)
            #expect(outcomes.allSatisfy { $0.partition == 1 })
            #expect(worker.snapshot().intake?.isAssigned == false, "the worker isn't ready")
            bed.stop(worker)
            let committed = try bed.kafka.committed(group: bed.kafka.group, topic: "jobs", partitions: 1)
            #expect(committed == 14, "the offset stays")
        }
    }

    /// The embedded cluster finds no records by time.
    @Test(.enabled(if: TestKafka.realBrokers != nil)) func shorterLogIsReadAtItsEnd() throws {
        try withBed { bed in
            try bed.produce(Self.jobs(10, seed: 1), in: 0)
            let now = Int64(Date().timeIntervalSince1970 * 1_000)
            try commit(
                bed, 14,
                metadata: CommitMetadata.encode(watermark: 14, completed: [], newestMilliseconds: now))
            let second = try bed.worker()
            try eventually("the log's end is lost") { second.snapshot().counters.lostTails == 1 }
            try bed.produce(Self.jobs(5, seed: 2), in: 0)
            let all = try bed.waitForOutcomes(5)
            bed.stop(second)
            #expect(all.count == 5 && all.allSatisfy { $0.offset >= 10 }, "nothing is repeated")
        }
    }
}

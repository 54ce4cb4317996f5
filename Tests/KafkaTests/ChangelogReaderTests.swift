import TestSupport
import Testing

@testable import Kafka

/// A reader that records its events and records.
private final class Restore {
    private(set) var reader: ChangelogReader!
    private(set) var records: [Received] = []
    private(set) var complete: [TopicPartition: Int64] = [:]
    private(set) var outOfRange: [(ChangelogProgress, Watermarks)] = []
    private(set) var waiting: [ChangelogProgress] = []
    private(set) var failed: [TopicPartition: KafkaError] = [:]

    init(_ bed: KafkaTestBed, _ more: [(name: String, value: String)] = []) throws {
        reader = try ChangelogReader(properties: bed.properties([("group.id", bed.group)] + more)) {
            [weak self] in self?.take($0)
        }
    }

    private func take(_ event: ChangelogEvent) {
        switch event {
        case .complete(let progress):
            #expect(progress.position == progress.end)
            #expect(complete[progress.topicPartition] != progress.end, "completion reported twice")
            complete[progress.topicPartition] = progress.end
        case .outOfRange(let progress, let log): outOfRange.append((progress, log))
        case .waitingForTransaction(let progress): waiting.append(progress)
        case .failed(let partition, let error): failed[partition] = error
        case .partitionError, .client: break
        }
    }

    func poll(limit: Int = 64) {
        withUnsafeTemporaryAllocation(of: ConsumedRecord.self, capacity: limit) { buffer in
            for record in buffer[..<reader.poll(into: buffer)] {
                records.append(Received(record))
                record.destroy()
            }
        }
    }

    func finish() throws {
        try eventually("all partitions are read") {
            poll()
            return reader.isComplete
        }
    }

    func texts(_ partition: Int32) -> [String?] { records.filter { $0.partition == partition }.map(\.text) }
}

@Suite struct ChangelogReaderTests {
    private func values(_ partition: Int32, _ range: Range<Int>) -> [String] {
        range.map { "\(partition).\($0)" }
    }

    @Test func partitionsAreReadFromTheirStartsToTheirEnds() throws {
        let bed = try KafkaTestBed(partitions: 4)
        try bed.fill(0, with: values(0, 0..<300))
        try bed.fill(1, with: values(1, 0..<300))
        try bed.fill(2, with: values(2, 0..<5))
        let restore = try Restore(bed)
        try restore.reader.read([
            TopicPartitionOffset(bed.partition(0), .beginning),
            TopicPartitionOffset(bed.partition(1), .offset(290)),
            TopicPartitionOffset(bed.partition(2), .offset(5)),
            TopicPartitionOffset(bed.partition(3), .beginning),
        ])
        // Complete before any poll, because there is nothing to read.
        #expect(restore.complete == [bed.partition(2): 5, bed.partition(3): 0])
        #expect(!restore.reader.isComplete)
        #expect(restore.reader.progress.map(\.remaining) == [300, 10, 0, 0])
        // Later records don't belong to this read.
        try bed.fill(0, with: values(0, 300..<310))
        try restore.finish()
        #expect(restore.texts(0) == values(0, 0..<300))
        #expect(restore.texts(1) == values(1, 290..<300))
        #expect(restore.records.allSatisfy { $0.partition < 2 })
        #expect(restore.complete.values.sorted() == [0, 5, 300, 300])
        let progress = restore.reader.progress
        #expect(progress.map(\.start) == [0, 290, 5, 0])
        #expect(progress.map(\.position) == [300, 300, 5, 0])
        #expect(progress.map(\.remaining) == [0, 0, 0, 0])
        // The next read starts where this one ended.
        try restore.reader.read([TopicPartitionOffset(bed.partition(0), .offset(progress[0].position))])
        #expect(!restore.reader.isComplete)
        try eventually("the remaining records") {
            restore.poll()
            return restore.reader.progress[0].position == 310
        }
        #expect(restore.texts(0) == values(0, 0..<310))
        restore.reader.close()
    }

    @Test func keysTombstonesAndHeadersAreReadUnchanged() throws {
        let bed = try KafkaTestBed()
        let producer = try bed.producer()
        let topic = try producer.topic(bed.topic)
        for (key, value) in [("a", "1"), ("b", nil), ("c", "")] as [(String, String?)] {
            let result = withOptionalBytes(key) { key in
                withOptionalBytes(value) { value in
                    producer.produce(
                        topic, key: key, value: value, headers: [("h", [7])], opaque: 0, partition: 0)
                }
            }
            guard case .queued = result else { throw TestFailure("\(result)") }
        }
        try producer.flush(timeoutMilliseconds: 20_000)
        let restore = try Restore(bed)
        try restore.reader.read([TopicPartitionOffset(bed.partition(0), .beginning)])
        try restore.finish()
        #expect(
            restore.records.map { $0.key.map { String(decoding: $0, as: UTF8.self) } } == ["a", "b", "c"])
        #expect(restore.records.map(\.text) == ["1", nil, ""])
        #expect(restore.records.allSatisfy { $0.headers == [.init(name: "h", value: [7])] })
        restore.reader.close()
    }

    @Test func startBeyondTheLogIsReportedAsOutOfRange() throws {
        let bed = try KafkaTestBed(partitions: 2)
        try bed.fill(0, with: values(0, 0..<10))
        try bed.fill(1, with: values(1, 0..<10))
        let restore = try Restore(bed)
        try restore.reader.read([
            TopicPartitionOffset(bed.partition(0), .offset(11)),
            TopicPartitionOffset(bed.partition(1), .beginning),
        ])
        #expect(restore.outOfRange.map(\.0.topicPartition) == [bed.partition(0)])
        #expect(restore.outOfRange.first?.1 == Watermarks(low: 0, high: 10))
        try eventually("the other partition") {
            restore.poll()
            return restore.complete[bed.partition(1)] == 10
        }
        #expect(!restore.reader.isComplete)
        try restore.reader.read([TopicPartitionOffset(bed.partition(0), .beginning)])
        try restore.finish()
        #expect(restore.texts(0) == values(0, 0..<10))
        #expect(restore.texts(1) == values(1, 0..<10))
        restore.reader.close()
    }

    @Test(.enabled(if: KafkaTestBed.realBrokers == nil, "the embedded cluster drops old batches by size"))
    func startBeforeTheFirstRetainedOffsetIsOutOfRange() throws {
        let bed = try KafkaTestBed()
        let large = String(repeating: "x", count: 200_000)
        let (batches, batchRecords) = (6, 5)
        let records = Int64(batches * batchRecords)
        for _ in 0..<batches { try bed.fill(with: Array(repeating: large, count: batchRecords)) }
        let restore = try Restore(bed)
        try restore.reader.read([TopicPartitionOffset(bed.partition(0), .offset(0))])
        let log = try #require(restore.outOfRange.first?.1)
        #expect(log.low > 0)
        #expect(log.high == records)
        // The broker is asked for the beginning.
        try restore.reader.read([TopicPartitionOffset(bed.partition(0), .beginning)])
        try restore.finish()
        #expect(restore.records.first?.offset == log.low)
        #expect(restore.records.last?.offset == records - 1)
        restore.reader.close()
    }

    @Test(.enabled(if: KafkaTestBed.realBrokers == nil, "the errors are injected into the embedded cluster"))
    func offsetRefusedOnFetchIsReportedAsOutOfRange() throws {
        let bed = try KafkaTestBed()
        try bed.fill(with: values(0, 0..<10))
        let restore = try Restore(bed)
        bed.cluster?.fail(.fetch, with: [1])  // OFFSET_OUT_OF_RANGE
        try restore.reader.read([TopicPartitionOffset(bed.partition(0), .beginning)])
        #expect(restore.outOfRange.isEmpty)
        try eventually("the refusal") {
            restore.poll()
            return !restore.outOfRange.isEmpty
        }
        #expect(restore.reader.progress.map(\.state) == [.outOfRange])
        #expect(restore.records.isEmpty)
        try restore.reader.read([TopicPartitionOffset(bed.partition(0), .beginning)])
        try restore.finish()
        #expect(restore.texts(0) == values(0, 0..<10))
        restore.reader.close()
    }

    @Test(.enabled(if: KafkaTestBed.realBrokers == nil, "the errors are injected into the embedded cluster"))
    func partitionWithUnknownEndFailsAloneAndIsReadLater() throws {
        let bed = try KafkaTestBed(partitions: 2)
        for partition: Int32 in 0..<2 { try bed.fill(partition, with: values(partition, 0..<10)) }
        let restore = try Restore(bed)
        // TOPIC_AUTHORIZATION_FAILED for both at once, and then for one alone.
        bed.cluster?.fail(.listOffsets, with: [29, 29])
        let starts = [0, 1].map { TopicPartitionOffset(bed.partition($0), .beginning) }
        try restore.reader.read(starts)
        let failed = try #require(restore.failed.keys.first)
        #expect(restore.failed.count == 1)
        #expect(restore.failed[failed]?.name == "TOPIC_AUTHORIZATION_FAILED")
        #expect(restore.failed[failed]?.message.contains("\(failed)") == true)
        #expect(restore.reader.progress.filter { $0.state == .failed }.map(\.topicPartition) == [failed])
        try restore.reader.read([TopicPartitionOffset(failed, .beginning)])
        try restore.finish()
        #expect(restore.texts(0) == values(0, 0..<10))
        #expect(restore.texts(1) == values(1, 0..<10))
        restore.reader.close()
    }

    @Test func stoppedPartitionIsNoLongerRead() throws {
        let bed = try KafkaTestBed(partitions: 2)
        // Small batches: the embedded cluster returns one batch per fetch, and Kafka all at once.
        for first in stride(from: 0, to: 200, by: 20) {
            for partition: Int32 in 0..<2 {
                try bed.fill(partition, with: values(partition, first..<first + 20))
            }
        }
        let restore = try Restore(bed)
        try restore.reader.read([0, 1].map { TopicPartitionOffset(bed.partition($0), .beginning) })
        // A poll takes at most ten records, so most of the partition is still unread.
        try eventually("some records") {
            restore.poll(limit: 10)
            return !restore.texts(0).isEmpty
        }
        try restore.reader.stop([bed.partition(0)])
        let before = restore.texts(0).count
        try restore.finish()
        #expect(restore.texts(0).count == before)
        #expect(restore.texts(1) == values(1, 0..<200))
        #expect(restore.complete == [bed.partition(1): 200])
        restore.reader.close()
    }

    @Test func partitionsBeyondTheConcurrencyLimitAreReadInTurn() throws {
        let count = 3 * Int32(ChangelogReader.mostAtOnce)
        let bed = try KafkaTestBed(partitions: Int(count) + 1)
        for partition in 0..<count { try bed.fill(partition, with: values(partition, 0..<5)) }
        let restore = try Restore(bed)
        try restore.reader.read((0..<count).map { TopicPartitionOffset(bed.partition($0), .beginning) })
        #expect(restore.reader.remaining == 5 * Int64(count))
        #expect(restore.reader.progress(of: bed.partition(count - 1))?.remaining == 5)
        // Two partitions still wait: one is stopped, and the other restarts further behind.
        try restore.reader.stop([bed.partition(count - 2)])
        try restore.reader.read([TopicPartitionOffset(bed.partition(count - 1), .offset(3))])
        // A partition that is being read restarts.
        try eventually("some records") {
            restore.poll(limit: 2)
            return !restore.records.isEmpty
        }
        let again = try #require(restore.records.first?.partition)
        let before = restore.texts(again).count
        try restore.reader.read([TopicPartitionOffset(bed.partition(again), .beginning)])
        try restore.finish()
        for partition in 0..<count - 2 where partition != again {
            #expect(restore.texts(partition) == values(partition, 0..<5))
        }
        #expect(Array(restore.texts(again).dropFirst(before)) == values(again, 0..<5))
        #expect(restore.texts(count - 2).isEmpty)
        #expect(restore.texts(count - 1) == values(count - 1, 3..<5))
        #expect(restore.complete.count == Int(count) - 1)
        #expect(restore.reader.remaining == 0)
        restore.reader.close()
    }

    @Test func invalidStartsAndPropertiesAreRefused() throws {
        let bed = try KafkaTestBed()
        let restore = try Restore(bed)
        for start in [StartOffset.committed, .end, .offset(-1)] {
            #expect(throws: KafkaError.self) {
                try restore.reader.read([TopicPartitionOffset(bed.partition(0), start)])
            }
        }
        #expect(restore.reader.progress.isEmpty)
        restore.reader.close()
        for (name, value) in [
            ("isolation.level", "read_uncommitted"), ("auto.offset.reset", "earliest"),
            ("enable.partition.eof", "false"), ("enable.auto.commit", "true"),
        ] {
            do {
                _ = try Restore(bed, [(name, value)])
                Issue.record("\(name)=\(value) is accepted")
            } catch let error as KafkaError {
                #expect(error.message.contains("\"\(name)\""))
            }
        }
    }

    /// Only a cluster with real transactions shows this.
    @Test(
        .enabled(
            if: KafkaTestBed.realBrokers != nil,
            "the embedded cluster has no transactions: SLUICE_TEST_BOOTSTRAP_SERVERS names a cluster that has"
        ))
    func markersAreSkippedAndOpenTransactionsAwaited() throws {
        let bed = try KafkaTestBed()
        let transactions = try bed.transactions()
        let topic = try transactions.producer.topic(bed.topic)
        func write(_ value: String) throws {
            try transactions.complete { try $0.beginTransaction() }
            produce(transactions.producer, topic, value: value, partition: 0)
            try eventually("the report") { transactions.producer.pollDeliveryReports { _ in } > 0 }
        }
        try write("a")
        try transactions.complete { try $0.commit() }
        let admin = try KafkaAdmin(properties: bed.properties())
        try eventually("the commit's marker is written") {
            try admin.watermarks(of: bed.partition(0)).high == 2
        }
        let closed = try Restore(bed)
        try closed.reader.read([TopicPartitionOffset(bed.partition(0), .beginning)])
        try closed.finish()
        // The log has a record and its marker.
        #expect(closed.complete == [bed.partition(0): 2])
        #expect(closed.texts(0) == ["a"])
        closed.reader.close()

        try write("b")
        let open = try Restore(bed)
        try open.reader.read([TopicPartitionOffset(bed.partition(0), .beginning)])
        try eventually("the reader waits for the transaction") {
            open.poll()
            return !open.waiting.isEmpty
        }
        #expect(open.waiting.map(\.position) == [2])
        #expect(open.waiting.map(\.end) == [3])
        #expect(open.texts(0) == ["a"])
        try transactions.complete { try $0.commit() }
        try open.finish()
        #expect(open.texts(0) == ["a", "b"])
        open.reader.close()
        transactions.close()
    }
}

@Suite struct ChangelogProgressTests {
    private let partition = TopicPartition("changelog", 0)

    private func progress(_ start: StartOffset, _ low: Int64, _ high: Int64) -> ChangelogProgress {
        ChangelogProgress(partition, from: start, Watermarks(low: low, high: high))
    }

    /// A mutating call can't stand in `#expect`.
    private func admit(_ progress: inout ChangelogProgress, _ offset: Int64) -> Bool {
        progress.admit(offset)
    }

    @Test func startDeterminesTheInitialState() {
        #expect(progress(.beginning, 0, 0).state == .complete)
        #expect(progress(.beginning, 7, 7).state == .complete)
        #expect(progress(.beginning, 7, 9).state == .reading)
        #expect(progress(.beginning, 7, 9).position == 7)
        #expect(progress(.offset(9), 7, 9).state == .complete)
        #expect(progress(.offset(10), 7, 9).state == .outOfRange)
        #expect(progress(.offset(6), 7, 9).state == .outOfRange)
        #expect(progress(.offset(7), 7, 9).state == .reading)
    }

    @Test func gapsAndMarkersAtTheEndCompleteThePartition() {
        var progress = progress(.beginning, 0, 10)
        #expect(admit(&progress, 0))
        #expect(admit(&progress, 4))
        #expect(progress.position == 5)
        // The remaining offsets were compacted, aborted, or are markers.
        progress.reachedEnd(at: 10)
        #expect(progress.isComplete)
        #expect(progress.position == 10)
    }

    @Test func recordBeyondTheEndCompletesWithoutBeingAdmitted() {
        var progress = progress(.beginning, 0, 10)
        #expect(admit(&progress, 8))
        #expect(!admit(&progress, 12))
        #expect(progress.isComplete)
        #expect(progress.position == 10)
        #expect(!admit(&progress, 13))
    }

    @Test func endBelowTheTargetMeansAnOpenTransaction() {
        var progress = progress(.beginning, 0, 10)
        #expect(admit(&progress, 3))
        progress.reachedEnd(at: 6)
        #expect(progress.state == .waitingForTransaction)
        #expect(progress.position == 6)
        // Noticed before the record that was returned first.
        progress.reachedEnd(at: 5)
        #expect(progress.position == 6)
        #expect(admit(&progress, 7))
        #expect(progress.state == .reading)
        progress.reachedEnd(at: 11)
        #expect(progress.isComplete)
        #expect(progress.position == 10)
    }
}

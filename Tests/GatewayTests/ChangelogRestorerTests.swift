import Kafka
import KafkaTestSupport
import Logging
import RetryStore
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import Gateway

/// Partitions of the changelog on their way into the store.
@Suite struct ChangelogRestorerTests {
    private final class Bed: Sendable {
        // nonisolated(unsafe): set once; each is used by one thread at a time.
        nonisolated(unsafe) let kafka: TestKafka
        let directory: TemporaryDirectory
        let store: RetryStore
        let news = Mutex<[ChangelogRestorer.News]>([])

        init(partitions: Int) throws {
            kafka = try TestKafka([("changelog", partitions)])
            directory = try TemporaryDirectory("restore")
            var settings = RetryStore.Settings(directory: directory.file("store"), sourceTopic: "jobs")
            settings.isChangelogBacked = true
            store = try RetryStore(settings)
        }

        func restorer() throws -> ChangelogRestorer {
            try ChangelogRestorer(
                store: store, topic: kafka.topic("changelog"), properties: kafka.clientProperties,
                logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }),
                extend: {}, news: { [self] news in self.news.withLock { $0.append(news) } })
        }

        /// Items whose offsets are what they are due at, ten of each device.
        func fill(_ partition: Int32, _ count: Int) throws {
            try kafka.produce(
                to: "changelog",
                (0..<count).map { number in
                    var key = ByteWriter()
                    var token = String(repeating: "\(number / 10 % 10)b", count: 30) + "\(1000 + number / 10)"
                    token.withUTF8 {
                        ChangelogKey.item(
                            offset: Int64(number), deviceToken: UnsafeRawBufferPointer($0)
                        ).encode(into: &key)
                    }
                    var record = NewRecord(partition: partition)
                    record.key = Array(key.bytes)
                    record.value = withUnsafeBytes(of: Int64(number).bigEndian) { Array($0) } + [1, 2, 3]
                    return record
                })
        }

        func copy(_ partition: Int32) throws -> StorePartition {
            let opened = Mutex<Result<[RestorablePartition], RetryStoreError>?>(nil)
            store.openCopies(partitions: [partition], reachedAfter: 0) { result in
                opened.withLock { $0 = result }
            }
            return try eventually("a copy") { opened.withLock { $0 } }.get()[0].handle
        }

        func due(_ handle: StorePartition) throws -> [Int64] {
            let scanned = Mutex<Result<DueScan, RetryStoreError>?>(nil)
            store.scanDue(handle, after: nil, through: .max, limit: 100_000) { result in
                scanned.withLock { $0 = result }
            }
            return try eventually("a scan") { scanned.withLock { $0 } }.get().entries.map(\.due)
        }

        /// Waits until a partition is restored.
        func position(of handle: StorePartition) throws -> Int64 {
            try eventually("partition \(handle.number) is restored") {
                news.withLock { news in
                    for case .restored(let restored, let position) in news where restored === handle {
                        return position
                    }
                    return nil
                }
            }
        }
    }

    @Test func partitionsAreRestoredWholeWhileTheirRecordsAreCounted() throws {
        let bed = try Bed(partitions: 12)
        for partition: Int32 in 0..<12 where partition != 5 { try bed.fill(partition, 40 + Int(partition)) }
        let handles = try (0..<12).map { try bed.copy($0) }
        let restorer = try bed.restorer()
        defer {
            restorer.close()
            bed.store.close()
        }
        restorer.restore(handles.map { .init(handle: $0, position: nil) })
        for handle in handles {
            let count = handle.number == 5 ? 0 : 40 + Int64(handle.number)
            #expect(try bed.position(of: handle) == count)
            #expect(try bed.due(handle) == Array(0..<count))
        }
        #expect(restorer.restored.load(ordering: .relaxed) == 11 * 40 + 66 - 5)
        try eventually("nothing remains") { restorer.remaining.load(ordering: .relaxed) == 0 }
        #expect(bed.news.withLock { $0.count } == 12)
    }

    /// The first opening is at the changelog's end, and so complete at once; but by then it was taken away.
    @Test func theEndOfAFormerOpeningIsNotThatOfTheNext() throws {
        let bed = try Bed(partitions: 1)
        try bed.fill(0, 300)
        let former = try bed.copy(0)
        let next = try bed.copy(0)
        let restorer = try bed.restorer()
        defer {
            restorer.close()
            bed.store.close()
        }
        restorer.restore([.init(handle: former, position: 300)])
        restorer.cancel([0])
        restorer.restore([.init(handle: next, position: nil)])
        #expect(try bed.position(of: next) == 300)
        #expect(try bed.due(next) == Array(0..<300))
    }
}

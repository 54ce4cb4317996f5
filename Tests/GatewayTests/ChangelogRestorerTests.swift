import Kafka
import KafkaTestSupport
import Logging
import RetryStore
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import Gateway

/// Restores partitions of the changelog into the store.
@Suite struct ChangelogRestorerTests {
    /// A store and its restorer, which end with the last reference.
    private final class Restoration {
        let kafka: TestKafka
        let store: RetryStore
        let restorer: ChangelogRestorer
        private let news = News()

        private final class News: Sendable {
            let all = Mutex<[ChangelogRestorer.Report]>([])
        }

        init(_ bed: WorkerBed) throws {
            kafka = bed.kafka
            var settings = RetryStore.Settings(directory: bed.directory.file("store"), sourceTopic: "jobs")
            settings.isChangelogBacked = true
            store = try RetryStore(settings)
            restorer = try ChangelogRestorer(
                store: store, topic: kafka.topic("changelog"), properties: kafka.clientProperties,
                logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }),
                extend: {}, news: { [news] item in news.all.withLock { $0.append(item) } })
        }

        deinit {
            restorer.close()
            store.close()
        }

        var newsCount: Int { news.all.withLock { $0.count } }

        /// Produces items, ten for each device, which are due at the instants equal to their offsets.
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
            return try eventually("the copy is open") { opened.withLock { $0 } }.get()[0].handle
        }

        func due(_ handle: StorePartition) throws -> [Int64] {
            let scanned = Mutex<Result<DueScan, RetryStoreError>?>(nil)
            store.scanDue(handle, after: nil, through: .max, limit: 100_000) { result in
                scanned.withLock { $0 = result }
            }
            return try eventually("the scan has ended") { scanned.withLock { $0 } }.get().entries.map(\.due)
        }

        /// Waits until a partition is restored.
        func position(of handle: StorePartition) throws -> Int64 {
            try eventually("partition \(handle.number) is restored") {
                news.all.withLock { news in
                    for case .restored(let restored, let position) in news where restored === handle {
                        return position
                    }
                    return nil
                }
            }
        }
    }

    @Test func partitionsAreRestoredCompletelyAndTheirRecordsCounted() throws {
        try withBed(changelogPartitions: 12) { bed in
            let restoration = try Restoration(bed)
            for partition: Int32 in 0..<12 where partition != 5 {
                try restoration.fill(partition, 40 + Int(partition))
            }
            let handles = try (0..<12).map { try restoration.copy($0) }
            let restorer = restoration.restorer
            restorer.restore(handles.map { .init(handle: $0, position: nil) })
            for handle in handles {
                let count = handle.number == 5 ? 0 : 40 + Int64(handle.number)
                #expect(try restoration.position(of: handle) == count)
                #expect(try restoration.due(handle) == Array(0..<count))
            }
            #expect(restorer.restored.load(ordering: .relaxed) == 11 * 40 + 66 - 5)
            try eventually("no record remains") { restorer.remaining.load(ordering: .relaxed) == 0 }
            #expect(restoration.newsCount == 12)
        }
    }

    /// The first restore is complete at once because it starts at the changelog's end, but it was cancelled before
    /// that.
    @Test func cancelledRestoreDoesNotCompleteTheNextOne() throws {
        try withBed(changelogPartitions: 1) { bed in
            let restoration = try Restoration(bed)
            try restoration.fill(0, 300)
            let former = try restoration.copy(0)
            let next = try restoration.copy(0)
            let restorer = restoration.restorer
            restorer.restore([.init(handle: former, position: 300)])
            restorer.cancel([0])
            restorer.restore([.init(handle: next, position: nil)])
            #expect(try restoration.position(of: next) == 300)
            #expect(try restoration.due(next) == Array(0..<300))
        }
    }
}

import SluiceModel
import TestSupport
import Testing

@testable import RetryStore

@Suite struct NextDueCacheTests {
    private static let cursor = DueCursor(DueEntry(due: 5, key: key(1)))

    private static func key(_ offset: Int64) -> ItemKey {
        ItemKey(device: DeviceKey(high: UInt64(offset), low: 0), offset: offset)
    }

    @Test func newCacheKnowsNothing() {
        let nextDueCache = NextDueCache()
        #expect(!nextDueCache.isQuiet(after: nil, through: 0))
        #expect(!nextDueCache.isQuiet(after: Self.cursor, through: .min))
        nextDueCache.put(due: 7)
        #expect(!nextDueCache.isQuiet(after: nil, through: 6))
    }

    @Test func scanResultHoldsUntilAnEarlierPut() {
        let nextDueCache = NextDueCache()
        nextDueCache.found(after: Self.cursor, next: 100)
        #expect(nextDueCache.isQuiet(after: Self.cursor, through: 99))
        #expect(!nextDueCache.isQuiet(after: Self.cursor, through: 100))
        #expect(!nextDueCache.isQuiet(after: nil, through: 50))
        nextDueCache.put(due: 60)
        nextDueCache.put(due: 80)
        #expect(nextDueCache.isQuiet(after: Self.cursor, through: 59))
        #expect(!nextDueCache.isQuiet(after: Self.cursor, through: 60))
        nextDueCache.forget()
        #expect(!nextDueCache.isQuiet(after: Self.cursor, through: 10))
    }

    @Test func scanCachesOnlyTheRangeItHasSeen() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        try put(store, partition, [10, 40, 500_000])
        var scan = try store.due(partition, through: 20)
        #expect(scan.entries.map(\.due) == [10] && scan.isEnd)
        #expect(partition.nextDueCache.isQuiet(after: scan.cursor, through: 39))
        #expect(!partition.nextDueCache.isQuiet(after: scan.cursor, through: 40))
        scan = try store.due(partition, after: scan.cursor, through: 40)
        #expect(scan.entries.map(\.due) == [40] && scan.isEnd)
        // A scan looks a minute ahead and no further.
        #expect(partition.nextDueCache.isQuiet(after: scan.cursor, through: 60_000))
        #expect(!partition.nextDueCache.isQuiet(after: scan.cursor, through: 61_000))
        scan = try store.due(partition, after: scan.cursor, through: 600_000)
        #expect(scan.entries.map(\.due) == [500_000])
        scan = try store.due(partition, after: scan.cursor)
        #expect(partition.nextDueCache.isQuiet(after: scan.cursor, through: .max - 1))
    }

    @Test func limitedScanLeavesTheRestDue() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        try put(store, partition, [10, 20, 30])
        var scan = try store.due(partition, through: 50, limit: 2)
        #expect(scan.entries.map(\.due) == [10, 20] && !scan.isEnd)
        scan = try store.due(partition, after: scan.cursor, through: 50, limit: 1)
        #expect(scan.entries.map(\.due) == [30] && scan.isEnd)
    }

    @Test func itemPutAfterAScanIsFound() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        let empty = try store.due(partition, through: 1000)
        #expect(empty.isEnd && empty.cursor == nil)
        // Two items in a batch, the earlier one second.
        try put(store, partition, [900, 700])
        #expect(try store.due(partition, through: 699).entries.isEmpty)
        #expect(try store.due(partition, through: 700).entries.map(\.due) == [700])
        #expect(try store.due(partition, through: 1000).entries.map(\.due) == [700, 900])
    }

    @Test func restoredItemIsFound() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        #expect(try store.due(partition).entries.isEmpty)
        let chunk = ChangelogChunk(of: store)
        chunk.begin(partition)
        var keys: RestoreFilter? = RestoreFilter(records: 1, mostBytes: 1024)
        chunk.append(.push(3, due: 30), among: &keys)
        try store.restored(chunk)
        #expect(try store.due(partition).entries.map(\.due) == [30])
    }

    @Test func scanFlushesALargeMemtable() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory, memtableBytes: 64 << 20)
        defer { store.close() }
        let partition = try store.partition(0)
        let dues = (0..<10_000).map { Int64($0 * 7919 % 10_007) }
        try put(store, partition, dues)
        #expect(try store.due(partition).entries.map(\.due) == dues.sorted())
        try eventually("the memtable is written out") {
            partition.due.number("rocksdb.num-entries-active-mem-table") == 0
                && partition.due.number("rocksdb.num-entries-imm-mem-tables") == 0
        }
        #expect(try store.due(partition).entries.map(\.due) == dues.sorted())
    }

    private func put(_ store: RetryStore, _ partition: StorePartition, _ dues: [Int64]) throws {
        try store.submitted { batch in
            for (offset, due) in dues.enumerated() {
                withUnsafeBytes(of: due) {
                    batch.put(partition, Self.key(Int64(offset)), due: due, replacingDue: nil, value: $0)
                }
            }
        }
    }
}

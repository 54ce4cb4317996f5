import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import RetryStore

/// Restores of changelog records into the store.
@Suite struct StoreRestoreTests {
    private struct Stored: Equatable {
        var key: ItemKey
        var due: Int64
    }

    /// Few items with many records each, in chunks of any size. Filters are exact, far too small, or missing.
    @Test(arguments: 1...12 as ClosedRange<UInt64>)
    func restoredStoreMatchesTheLastRecords(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory, memtableBytes: 256 << 10)
        defer { store.close() }
        let partition = try store.partition(0)
        let tokens = (0..<6).map { String(repeating: "\($0)a", count: 32) }
        var keys: RestoreFilter? =
            switch seed % 3 {
            case 0: nil
            case 1: RestoreFilter(records: 2000, mostBytes: 1 << 20)
            default: RestoreFilter(records: 2000, mostBytes: 16)
            }
        var expected: [ItemKey: Int64] = [:]
        let chunks = [ChangelogChunk(of: store), ChangelogChunk(of: store)]
        for number in 0..<40 {
            let chunk = chunks[number % 2]
            chunk.begin(partition)
            for _ in 0..<Int.random(in: 0...60, using: &random) {
                let token = tokens.randomElement(using: &random)!
                let offset = Int64.random(in: 0..<Int64(4 * number + 4), using: &random)
                let due = Bool.random(using: &random) ? Int64.random(in: 0...300, using: &random) : nil
                chunk.append(.push(offset, token: token, due: due), among: &keys)
                expected[ItemKey(device: store.device(token), offset: offset)] = due
            }
            try store.restored(chunk)
            let due = try store.due(partition).entries.map { Stored(key: $0.key, due: $0.due) }
            guard Set(due.map(\.key)).count == due.count, due.count == expected.count,
                due.allSatisfy({ expected[$0.key] == $0.due })
            else {
                Issue.record("seed \(seed), chunk \(number): \(due) instead of \(expected)")
                return
            }
        }
        for token in tokens {
            let device = store.device(token)
            let items = try store.loaded(partition, device).items
            let offsets = expected.keys.filter { $0.device == device }.map(\.offset).sorted()
            guard items.map(\.offset) == offsets,
                items.allSatisfy({ expected[ItemKey(device: device, offset: $0.offset)] == $0.due })
            else {
                Issue.record("seed \(seed): \(items) of \(token)")
                return
            }
        }
    }

    @Test func chunkIsReusableForAnotherPartition() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let (one, other) = (try store.partition(1), try store.partition(2))
        let chunk = ChangelogChunk(of: store)
        var keys: RestoreFilter?
        chunk.begin(one)
        chunk.append(.push(1, due: 10), among: &keys)
        chunk.append(ChangelogRecord(key: [99], value: [1]), among: &keys)
        #expect((chunk.count, chunk.unknown) == (1, 1))
        #expect(chunk.bytes > 0)
        try store.restored(chunk)
        chunk.begin(other)
        #expect((chunk.count, chunk.bytes, chunk.unknown) == (0, 0, 0))
        keys = RestoreFilter(records: 1, mostBytes: 64)
        chunk.append(.push(2, due: 20), among: &keys)
        try store.restored(chunk)
        // An empty chunk without a partition.
        chunk.begin(nil)
        try store.restored(chunk)
        #expect(try store.due(one).entries.map(\.due) == [10])
        #expect(try store.due(other).entries.map(\.due) == [20])
    }

    /// A state that can't be read leaves the device without a state, in the restore and in a copy from before.
    @Test func unreadableStatesAreSkippedAndRemoved() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        let partition = try store.partition(0)
        let (token, other, hostile) = ("ab", "cd", "not hexadecimal")
        func record(_ token: String, _ value: [UInt8]) -> ChangelogRecord {
            ChangelogRecord(key: [2] + Array(token.utf8), value: value)
        }
        var good = ByteWriter()
        ChangelogKey.encode(
            DeviceState(presence: 1, learnedMilliseconds: 5, expiryMilliseconds: 50), into: &good)
        let chunk = ChangelogChunk(of: store)
        var keys: RestoreFilter?
        chunk.begin(partition)
        chunk.append(record(token, Array(good.bytes)), among: &keys)
        chunk.append(record(other, Array(good.bytes)), among: &keys)
        chunk.append(record(token, [1, 2, 3]), among: &keys)
        chunk.append(record(hostile, Array(good.bytes)), among: &keys)
        #expect((chunk.count, chunk.unknown) == (4, 2))
        try store.restored(chunk)
        // A state of an earlier version's restore.
        let left = DeviceKey(high: 3, low: 4)
        try store.submitted { batch in
            batch.put(partition.devices, DeviceKeyBytes(left), count: 1) {
                $0.storeBytes(of: 9, as: UInt8.self)
            }
        }
        let scan = try store.expired(partition, after: nil, through: 60, limit: 9)
        #expect((scan.devices, scan.unreadable) == ([store.device(other)], 1))
        // Runs on the thread of the removal, behind it.
        _ = try store.due(partition)
        #expect(try store.expired(partition, after: nil, through: 60, limit: 9).unreadable == 0)
        store.close()
        let report = try StoreInspector(directory: directory.file("store")).verify()
        #expect(report.isSound && report.deviceStates == 1, "\(report.problems)")
    }

    /// A worker has three memtables for each of its partitions, and all of them fill at the same time.
    @Test func memtablesStayBoundedDuringALargeRestore() throws {
        let directory = try TemporaryDirectory("store")
        let limit = 4 << 20
        let store = try RetryStore.make(directory, memtableBytes: limit)
        defer { store.close() }
        let partitions = try (0..<8).map { try store.partition($0) }
        let record = ChangelogRecord.push(0, due: 5)
        let value = record.value! + Array(repeating: 7, count: 2000)
        // Filled in advance, so that they are written as fast as possible.
        let chunks = (0..<12).flatMap { round in
            partitions.map { partition in
                let chunk = ChangelogChunk(of: store)
                chunk.begin(partition)
                var keys: RestoreFilter? = RestoreFilter(records: 100, mostBytes: 1024)
                for index in 0..<100 {
                    var new = ChangelogRecord.push(Int64(round * 100 + index), due: nil)
                    new.value = value
                    chunk.append(new, among: &keys)
                }
                return chunk
            }
        }
        let families = partitions.flatMap(\.families)
        let most = Mutex(0)
        let last = Awaited<RetryStoreError?>()
        for (index, chunk) in chunks.enumerated() {
            store.restore(chunk) { error in
                let size = families.reduce(0) { $0 + $1.number("rocksdb.cur-size-all-mem-tables") }
                most.withLock { $0 = max($0, size) }
                if index == chunks.count - 1 { last.set(error) }
            }
        }
        #expect(try last.wait("the last chunk") == nil)
        // Between two checks, at most a sixteenth of the limit and a chunk are written.
        let size = most.withLock { $0 }
        #expect(size < limit + limit / 16 + (512 << 10), "\(size >> 10) KiB of memtables")
        #expect(size > limit / 4)
    }
}

@Suite struct RestoredKeysTests {
    private func key(_ device: Int, _ offset: Int) -> ItemKey {
        let hasher = IdentityHasher(key0: 7, key1: 8)
        let device = withUnsafeBytes(of: device) { hasher.device($0) }
        return ItemKey(device: device, offset: Int64(offset))
    }

    @Test func filterFindsEveryInsertedKeyWithFewFalsePositives() {
        var keys = RestoreFilter(records: 20_000, mostBytes: 1 << 20)
        #expect(keys.bytes < 26_000)
        var mistaken = 0
        // Ten keys of each device, one device after another.
        for number in 0..<20_000 {
            let key = key(number / 10, 1_000_000 + number)
            if keys.mayContain(key) { mistaken += 1 }
            if !keys.insert(key) { mistaken += 1 }
            #expect(keys.mayContain(key))
            let isNew = keys.insert(key)
            #expect(!isNew)
        }
        #expect(mistaken < 20_000 / 100, "\(mistaken) of 20,000 new keys are taken for known ones")
        let others = (0..<20_000).filter { keys.mayContain(key($0 / 10, 2_000_000 + $0)) }.count
        #expect(others < 20_000 / 40, "\(others) of 20,000 unknown keys are taken for known ones")
        #expect(others > 0)
    }

    @Test(arguments: [0, 1, 1000, Int.max])
    func filterSizeIsBounded(records: Int) {
        var keys = RestoreFilter(records: records, mostBytes: 64)
        #expect((8...64).contains(keys.bytes))
        for number in 0..<100 {
            _ = keys.insert(key(number, number))
            #expect(keys.mayContain(key(number, number)))
        }
    }
}

@Suite struct ColumnFamilyTests {
    @Test func failedCreationLeavesNoColumnFamily() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let existing = try store.partition(4)
        let database = existing.items.database
        // The third column family exists already.
        let families: [StorePartition.Family] = [
            .init(.items, 9), .init(.due, 9), .init(.due, 4), .init(.devices, 9),
        ]
        var left: [ColumnFamily] = []
        #expect(throws: RetryStoreError.self) { try database.make(families, left: &left) }
        #expect(left.isEmpty)
        let made = try database.make(families.filter { $0.partition == 9 }, left: &left)
        #expect(made.map(\.name) == ["items-9", "due-9", "devices-9"])
        // Dropping again, in part or in full, does nothing.
        for part in [[made[1]], made, made] {
            try database.drop(part, left: &left)
            #expect(left.isEmpty)
        }
        #expect(try database.make([], left: &left).isEmpty)
        try database.drop([], left: &left)
        #expect(try store.due(existing).entries.isEmpty)
    }

    @Test func unremovedFamiliesAreRemovedBeforeTheNextCreation() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let old = try store.partition(4)
        let key = ItemKey(device: DeviceKey(high: 1, low: 1), offset: 1)
        try store.submitted { batch in
            [1].withUnsafeBytes { batch.put(old, key, due: 5, replacingDue: nil, value: $0) }
        }
        // Simulates a failed removal.
        store.opened.withLock { opened in
            opened?.partitions[4] = nil
            opened?.remains = old.families
        }
        let new = try store.partition(4)
        #expect(new !== old)
        #expect(try store.due(new).entries.isEmpty)
        #expect(store.opened.withLock { $0?.remains.isEmpty } == true)
    }

    @Test func createdColumnFamiliesAreFoundAfterReopening() throws {
        let directory = try TemporaryDirectory("store")
        do {
            let store = try RetryStore.make(directory)
            defer { store.close() }
            let made = try store.make(Array(0..<100))
            #expect(made.map(\.number) == Array(0..<100))
            #expect(
                made[57].items.name == "items-57" && made[57].due.name == "due-57"
                    && made[57].devices.name == "devices-57")
            try store.remove(made.filter { $0.number % 2 == 1 })
        }
        let store = try RetryStore.make(directory)
        defer { store.close() }
        #expect(store.partitions.map(\.number) == Array(stride(from: 0, to: 100, by: 2)))
        // The families keep their kinds: due entries are ordered, and device states readable.
        try store.submitted { batch in
            for due in [3, 1, 2] as [Int64] {
                batch.put(
                    store.partitions[7], ItemKey(device: DeviceKey(high: 1, low: 1), offset: due), due: due,
                    replacingDue: nil, value: UnsafeRawBufferPointer(start: nil, count: 0))
            }
        }
        #expect(try store.due(store.partitions[7]).entries.map(\.due) == [1, 2, 3])
    }
}

extension ColumnFamily {
    func removed() throws {
        var left: [ColumnFamily] = []
        try database.drop([self], left: &left)
    }
}

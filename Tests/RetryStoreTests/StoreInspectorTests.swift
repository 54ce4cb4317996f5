import CRocksDB
import SluiceModel
import TestSupport
import Testing

@testable import RetryStore

@Suite struct StoreInspectorTests {
    private static let tokens = (0..<3).map { String(repeating: "0\($0)ab", count: 8) }

    private func push(_ number: Int, offset: Int64) -> TestPush {
        TestPush(
            token: Self.tokens[number], payload: #"{"aps":{"badge":\#(offset)}}"#, partition: 2,
            offset: offset)
    }

    /// Three devices with three items each, in partition 2, and one device state. `change` modifies the store.
    private func made(
        _ directory: TemporaryDirectory, _ change: (RetryStore, StorePartition) throws -> Void = { _, _ in }
    ) throws {
        let store = try RetryStore.make(directory)
        let partition = try store.partition(2)
        try store.submitted { batch in
            for offset in 0..<9 as Range<Int64> {
                let push = push(Int(offset % 3), offset: offset)
                push.withStored {
                    batch.put(partition, store.key(push), due: 100 - offset, replacingDue: nil, $0)
                }
            }
            batch.put(
                partition, device: store.device(Self.tokens[1]),
                DeviceState(presence: 1, learnedMilliseconds: 4, expiryMilliseconds: .max))
        }
        try change(store, partition)
        store.close()
    }

    private func verified(_ directory: TemporaryDirectory) throws -> StoreReport {
        try StoreInspector(directory: directory.file("store")).verify()
    }

    @Test func openStoreIsReadInParts() throws {
        let directory = try TemporaryDirectory("store")
        try made(directory) { store, partition in
            var (items, devices): ([ItemKey], [DeviceKey]) = ([], [])
            var (after, afterDevice): (ItemKey?, DeviceKey?)
            var parts = 0
            repeat {
                let (from, fromDevice) = (after, afterDevice)
                let awaited = Awaited<Result<([ItemKey], [DeviceKey]), RetryStoreError>>()
                store.read { reader throws(RetryStoreError) in
                    var (items, devices): ([ItemKey], [DeviceKey]) = ([], [])
                    try reader.visitItems(of: 2, after: from) {
                        items.append($0.key)
                        return items.count < 2
                    }
                    try reader.visitDevices(of: 2, after: fromDevice) { device in
                        devices.append(device.key)
                        return false
                    }
                    return (items, devices)
                } completion: {
                    awaited.set($0)
                }
                let part = try awaited.wait().get()
                items += part.0
                devices += part.1
                after = part.0.last
                afterDevice = part.1.last ?? afterDevice
                parts += 1
                // Removes the last visited item. It is behind the cursor, so the next part doesn't see it.
                if parts == 2, let after {
                    try store.submitted { $0.remove(partition, after, due: 100 - after.offset) }
                }
            } while after != nil
            #expect(parts == 6)
            #expect(items.count == 9 && Set(items).count == 9)
            #expect(devices == [store.device(Self.tokens[1])])
            let missing = Awaited<Result<Int, RetryStoreError>>()
            store.read { reader throws(RetryStoreError) in
                var count = 0
                try reader.visitItems(of: 7) { _ in
                    count += 1
                    return true
                }
                return count + reader.partitions.count
            } completion: {
                missing.set($0)
            }
            #expect(try missing.wait().get() == 1)
        }
        let closed = try RetryStore.make(directory)
        closed.close()
        let awaited = Awaited<Result<Int, RetryStoreError>>()
        closed.read { _ in
            1
        } completion: {
            awaited.set($0)
        }
        #expect(try awaited.wait() == .failure(.closed))
    }

    @Test func inspectorReadsItemsDuesAndDevices() throws {
        let directory = try TemporaryDirectory("store")
        try made(directory)
        let store = try StoreInspector(directory: directory.file("store"))
        let inspector = store.reader
        #expect(inspector.sourceTopic == "jobs")
        #expect(inspector.partitions == [2])
        var dues: [Int64] = []
        try inspector.visitDue(of: 2) {
            dues.append($0.due)
            return true
        }
        #expect(dues == Array(92...100))
        var items: [Int64: [UInt8]] = [:]
        try inspector.visitItems(of: 2) {
            items[$0.key.offset] = Array($0.push)
            return true
        }
        #expect(items.count == 9)
        for offset in 0..<9 as Range<Int64> {
            #expect(items[offset] == push(Int(offset % 3), offset: offset).encoded())
        }
        var ofToken: [Int64] = []
        try Self.tokens[1].uppercased().utf8.withContiguousStorageIfAvailable { token in
            try inspector.visitItems(of: 2, token: UnsafeRawBufferPointer(token)) {
                ofToken.append($0.key.offset)
                return true
            }
            #expect(try inspector.device(of: 2, token: UnsafeRawBufferPointer(token))?.presence == 1)
        }
        #expect(ofToken == [1, 4, 7])
        var first: [Int64] = []
        try inspector.visitItems(of: 2) {
            first.append($0.key.offset)
            return false
        }
        #expect(first.count == 1)
        try inspector.visitItems(of: 3) { _ in
            Issue.record("partition 3 doesn't exist")
            return true
        }
        let report = store.verify()
        #expect(report.isSound)
        #expect((report.items, report.dueEntries, report.deviceStates) == (9, 9, 1))
    }

    @Test func itemsOnlyInTheLogAreRead() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(2)
        let push = push(0, offset: 5)
        try store.submitted { batch in
            push.withStored { batch.put(partition, store.key(push), due: 7, replacingDue: nil, $0) }
        }
        // The store is still open, as a killed worker leaves it.
        let report = try verified(directory)
        #expect(report.isSound)
        #expect(report.items == 1)
    }

    @Test func missingDueEntryIsReported() throws {
        let directory = try TemporaryDirectory("store")
        var key: ItemKey?
        try made(directory) { store, partition in
            let found = store.key(push(1, offset: 4))
            key = found
            try write(DueKeyBytes(due: 96, found), nil, to: partition.due)
        }
        let report = try verified(directory)
        #expect(
            report.problems == [StoreProblem(partition: 2, key: key, kind: .itemWithoutDue(96))])
        #expect(report.problemCount == 1)
        #expect(
            report.problems[0].description
                == "partition 2, offset 4: an item that is due at 96 has no due entry")
    }

    @Test func surplusDueEntriesAreReported() throws {
        let directory = try TemporaryDirectory("store")
        var expected: Set<StoreProblem> = []
        try made(directory) { store, partition in
            let item = store.key(push(1, offset: 4))
            let absent = ItemKey(device: DeviceKey(high: 1, low: 1), offset: 77)
            try write(DueKeyBytes(due: 50, item), [], to: partition.due)
            try write(DueKeyBytes(due: 60, absent), [], to: partition.due)
            expected = [
                StoreProblem(partition: 2, key: item, kind: .dueOfOtherTime(50, item: 96)),
                StoreProblem(partition: 2, key: absent, kind: .dueWithoutItem(60)),
            ]
        }
        #expect(Set(try verified(directory).problems) == expected)
    }

    @Test func invalidPushesAreReported() throws {
        let directory = try TemporaryDirectory("store")
        var expected: Set<StoreProblem> = []
        try made(directory) { store, partition in
            let (cut, other) = (store.key(push(0, offset: 3)), store.key(push(1, offset: 4)))
            let encoded = push(0, offset: 3).encoded()
            try store.submitted { batch in
                encoded.dropLast().withUnsafeBytes {
                    batch.put(partition, cut, due: 97, replacingDue: 97, value: $0)
                }
                encoded.withUnsafeBytes {
                    batch.put(partition, other, due: 96, replacingDue: 96, value: $0)
                }
            }
            expected = [
                StoreProblem(partition: 2, key: cut, kind: .push(.truncated)),
                StoreProblem(partition: 2, key: other, kind: .otherPush),
            ]
        }
        #expect(Set(try verified(directory).problems) == expected)
    }

    @Test func malformedEntriesAreReported() throws {
        let directory = try TemporaryDirectory("store")
        try made(directory) { store, partition in
            try write(UInt16(1), [1], to: partition.due)
            try write(DeviceKeyBytes(DeviceKey(high: 1, low: 1)), [9, 9], to: partition.devices)
            try write(
                ItemKeyBytes(ItemKey(device: DeviceKey(high: 1, low: 1), offset: 1)), [1], to: partition.items
            )
        }
        let report = try verified(directory)
        #expect(
            Set(report.problems.map(\.kind)) == [
                .shape(columnFamily: "due-2"), .shape(columnFamily: "items-2"), .deviceState,
            ])
        #expect(report.items == 9)
    }

    @Test func problemsBeyondTheLimitAreCounted() throws {
        let directory = try TemporaryDirectory("store")
        try made(directory) { store, partition in
            for number in 0..<5 as Range<Int64> {
                try write(
                    DueKeyBytes(due: number, ItemKey(device: DeviceKey(high: 1, low: 1), offset: number)), [],
                    to: partition.due)
            }
        }
        let report = try StoreInspector(directory: directory.file("store")).verify(problemLimit: 2)
        #expect(report.problems.count == 2)
        #expect(report.problemCount == 5)
        #expect(!report.isSound)
    }

    @Test func incompletePartitionIsReported() throws {
        let directory = try TemporaryDirectory("store")
        try made(directory) { store, partition in try partition.devices.removed() }
        let report = try verified(directory)
        #expect(Set(report.problems.map(\.kind)) == [.incompletePartition])
        #expect(report.items == 0)
    }

    /// Writes an entry that the store itself never writes; nil removes the entry.
    private func write<Key: BitwiseCopyable>(_ key: Key, _ value: [UInt8]?, to family: ColumnFamily) throws {
        let batch: OpaquePointer = rocksdb_writebatch_create()
        defer { rocksdb_writebatch_destroy(batch) }
        withKey(key) { key, count in
            guard let value else { return rocksdb_writebatch_delete_cf(batch, family.handle, key, count) }
            value.withUnsafeBytes {
                rocksdb_writebatch_put_cf(
                    batch, family.handle, key, count, $0.baseAddress?.assumingMemoryBound(to: CChar.self),
                    $0.count)
            }
        }
        try family.database.write(batch)
    }
}

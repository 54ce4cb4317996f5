import CRocksDB
import SluiceModel
import TestSupport
import Testing

@testable import RetryStore

@Suite struct StoreDeviceTests {
    private let device = DeviceKey(high: 1, low: 2)

    @Test func aStateIsReplacedAndRemoved() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        #expect(try store.loaded(partition, device) == Loaded(device: device, items: []))
        for presence in 0...2 as ClosedRange<UInt8> {
            let state = DeviceState(
                presence: presence, learnedMilliseconds: StoredPush.instants.lowerBound,
                expiryMilliseconds: .max - Int64(presence))
            try store.submitted { $0.put(partition, device: device, state) }
            #expect(try store.loaded(partition, device).state == state)
        }
        try store.submitted { $0.remove(partition, device: device) }
        #expect(try store.loaded(partition, device).state == nil)
    }

    @Test func aStateThatHasExpiredGoesWithTheNextCompaction() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        let other = DeviceKey(high: 3, low: 4)
        let expired = DeviceState(presence: 1, learnedMilliseconds: 0, expiryMilliseconds: 1000)
        let current = DeviceState(presence: 1, learnedMilliseconds: 0, expiryMilliseconds: .max)
        try store.submitted { batch in
            batch.put(partition, device: device, expired)
            batch.put(partition, device: other, current)
            withUnsafeBytes(of: 1) { value in
                batch.put(
                    partition, ItemKey(device: device, offset: 1), due: 1000, replacingDue: nil, value: value)
            }
        }
        #expect(try store.loaded(partition, device).state == expired)
        for family in partition.families {
            rocksdb_compact_range_cf(family.database.handle, family.handle, nil, 0, nil, 0)
        }
        #expect(try store.loaded(partition, device).state == nil)
        #expect(try store.loaded(partition, other).state == current)
        // An item that is due has nothing to do with it.
        #expect(try store.loaded(partition, device).items.map(\.offset) == [1])
    }

    @Test func aStateIsWrittenAsItIsRead() throws {
        let state = DeviceState(
            presence: 2, learnedMilliseconds: 0x0102_0304, learnedOffset: 5, expiryMilliseconds: -2)
        let bytes = withUnsafeTemporaryAllocation(byteCount: DeviceStateBytes.count, alignment: 1) { target in
            DeviceStateBytes.write(state, to: target.baseAddress!)
            return Array(UnsafeRawBufferPointer(target))
        }
        #expect(
            bytes == [2, 2, 0, 0, 0, 0, 1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]
                + [0, 0, 0, 0, 0, 0, 0, 5])
        #expect(bytes.withUnsafeBytes { DeviceStateBytes.read($0) } == state)
        #expect(bytes.dropLast().withUnsafeBytes { DeviceStateBytes.read($0) } == nil)
        // Before reports had offsets.
        let former = [1] + bytes[1..<18]
        var older = state
        older.learnedOffset = -1
        #expect(former.withUnsafeBytes { DeviceStateBytes.read($0) } == older)
        #expect(([2] + bytes[1..<18]).withUnsafeBytes { DeviceStateBytes.read($0) } == nil)
        // A moment that sums with it would overflow.
        for top: UInt8 in [0x7f, 0x80, 0x01] {
            let far = bytes[..<2] + [top] + bytes[3...]
            #expect(Array(far).withUnsafeBytes { DeviceStateBytes.read($0) } == nil)
        }
        #expect(([1] + bytes[1...]).withUnsafeBytes { DeviceStateBytes.read($0) } == nil)
        #expect(([9] + bytes.dropFirst()).withUnsafeBytes { DeviceStateBytes.read($0) } == nil)
    }

    @Test func keysSortByNumber() {
        func bytes<Key: BitwiseCopyable>(_ key: Key) -> [UInt8] { withUnsafeBytes(of: key) { Array($0) } }
        let key = ItemKey(device: DeviceKey(high: 0x0102, low: 0x0304), offset: 0x0506)
        #expect(
            bytes(DueKeyBytes(due: 7, key))
                == [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4]
                + [0, 0, 0, 0, 0, 0, 5, 6])
        #expect(Array(bytes(DueKeyBytes(due: 7, key)).dropFirst(8)) == bytes(ItemKeyBytes(key)))
        #expect(Array(bytes(ItemKeyBytes(key)).prefix(16)) == bytes(DeviceKeyBytes(key.device)))
        #expect(DueKeyBytes(DueEntry(due: 7, key: key)).entry == DueEntry(due: 7, key: key))
        #expect(bytes(DueBytes(-1)) == bytes(DueBytes(0)))
    }
}

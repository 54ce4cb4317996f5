import SluiceModel
import TestSupport
import Testing

@testable import RetryStore

@Suite struct StoreDeviceTests {
    private let device = DeviceKey(high: 1, low: 2)

    @Test func deviceStateIsReplacedAndRemoved() throws {
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

    /// The changelog has to remove a device as well, and its tombstone needs the token.
    @Test(arguments: [1, 2, 7, 100]) func expiredStatesAreFoundWithTheirTokens(limit: Int) throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        let token = "0123456789abcdef"
        let devices = (0..<20).map { DeviceKey(high: UInt64($0), low: 1) }
        try store.submitted { batch in
            for (index, device) in devices.enumerated() {
                let state = DeviceState(
                    presence: 1, learnedMilliseconds: 5, learnedOffset: 6,
                    expiryMilliseconds: Int64(index) * 10)
                var text = token
                text.withUTF8 {
                    batch.put(
                        partition, device: device, state,
                        token: index % 2 == 0 ? UnsafeRawBufferPointer($0) : nil)
                }
            }
        }
        var found: [DeviceKey] = []
        var last: DeviceKey?
        while true {
            let scan = try store.expired(partition, after: last, through: 100, limit: limit)
            found += scan.devices
            last = scan.last
            #expect(scan.devices.count <= limit)
            if scan.isEnd { break }
        }
        #expect(found == Array(devices.prefix(11)))
        for index in [4, 5] {
            let result = try store.submitted { $0.load(partition, devices[index]) }
            #expect(result.loads[0].state?.expiryMilliseconds == Int64(index) * 10)
            #expect(Array(result.tokenBytes(result.loads[0])) == (index == 4 ? Array(token.utf8) : []))
        }
    }

    /// A restore keeps the token of the changelog's record.
    @Test func restoredStateKeepsItsToken() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        var token = "00ff" + String(repeating: "ab", count: 30)
        let device = token.withUTF8 { store.hasher.device(UnsafeRawBufferPointer($0)) }
        let state = DeviceState(presence: 0, isAwaited: true, learnedMilliseconds: 7, expiryMilliseconds: 8)
        var key = ByteWriter()
        var value = ByteWriter()
        token.withUTF8 { ChangelogKey.device(deviceToken: UnsafeRawBufferPointer($0)).encode(into: &key) }
        ChangelogKey.encode(state, into: &value)
        for isRemoved in [false, true] {
            let chunk = ChangelogChunk(of: store)
            chunk.begin(partition)
            var keys: RestoreFilter?
            chunk.append(key: key.bytes, value: isRemoved ? nil : value.bytes, among: &keys)
            let done = Awaited<RetryStoreError??>()
            store.restore(chunk) { done.set(.some($0)) }
            #expect(try (done.wait("a chunk") ?? nil) == nil)
            let result = try store.submitted { $0.load(partition, device) }
            #expect(result.loads[0].state == (isRemoved ? nil : state))
            #expect(Array(result.tokenBytes(result.loads[0])) == (isRemoved ? [] : Array(token.utf8)))
        }
    }

    @Test func deviceStateRoundTripsInItsFixedFormat() throws {
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
        // The former format, before reports had offsets.
        let former = [1] + bytes[1..<18]
        var older = state
        older.learnedOffset = -1
        #expect(former.withUnsafeBytes { DeviceStateBytes.read($0) } == older)
        #expect(([2] + bytes[1..<18]).withUnsafeBytes { DeviceStateBytes.read($0) } == nil)
        // An instant out of bounds, with which sums would overflow.
        for top: UInt8 in [0x7f, 0x80, 0x01] {
            let far = bytes[..<2] + [top] + bytes[3...]
            #expect(Array(far).withUnsafeBytes { DeviceStateBytes.read($0) } == nil)
        }
        #expect(([1] + bytes[1...]).withUnsafeBytes { DeviceStateBytes.read($0) } == nil)
        #expect(([9] + bytes.dropFirst()).withUnsafeBytes { DeviceStateBytes.read($0) } == nil)
        // A state with a token, which is never empty.
        #expect(([3] + bytes.dropFirst() + [1]).withUnsafeBytes { DeviceStateBytes.read($0) } == state)
        #expect(([3] + bytes.dropFirst()).withUnsafeBytes { DeviceStateBytes.read($0) } == nil)
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

import Foundation
import SluiceModel
import StoreEncryption
import TestSupport
import Testing

@testable import RetryStore

/// Encrypted items and tokens in real files.
struct StoreEncryptionTests {
    private static func key(_ name: String, _ byte: UInt8) -> StoreKey {
        [UInt8](repeating: byte, count: 32).withUnsafeBytes { StoreKey(name: name, $0)! }
    }

    private let a = StoreKeyring(primary: Self.key("a", 1))
    private let b = StoreKeyring(primary: Self.key("b", 2))
    private let both = StoreKeyring(primary: Self.key("b", 2), others: [Self.key("a", 1)])
    private let otherA = StoreKeyring(primary: Self.key("a", 9))

    private static let secret = "a secret text that no file may have"
    private static let token: String = String(repeating: "5ec9e70b", count: 8)
    private let push: TestPush = TestPush(
        token: Self.token, payload: #"{"aps":{"alert":"\#(Self.secret)"}}"#, offset: 40)

    private func open(
        _ directory: TemporaryDirectory, _ keyring: StoreKeyring?, areCopies: Bool = false
    ) throws(RetryStoreError) -> RetryStore {
        var settings = RetryStore.Settings(directory: directory.file("store"), sourceTopic: "jobs")
        settings.memtableBytes = 1 << 20
        settings.blockCacheBytes = 1 << 20
        settings.keyring = keyring
        settings.isChangelogBacked = areCopies
        return try RetryStore(settings)
    }

    /// Puts a push under the store's key, and a state of its device.
    private func put(_ push: TestPush, into store: RetryStore) throws {
        let partition = try store.partition(push.partition)
        let state = DeviceState(presence: 1, learnedMilliseconds: 5, expiryMilliseconds: 50)
        let cipher = try store.keyring.map { try ValueCipher($0) }
        var value = ByteWriter()
        var scratch = ByteWriter()
        var start = 0
        var failure: CipherFailure?
        push.withStored { stored in
            do throws(CipherFailure) {
                if let cipher {
                    start = try ChangelogKey.encode(
                        stored, due: 7, sealedBy: cipher, scratch: &scratch, into: &value)
                } else {
                    start = ChangelogKey.encode(stored, due: 7, into: &value)
                }
            } catch {
                failure = error
            }
        }
        #expect(failure == nil)
        var token = push.token
        let result = try store.submitted { batch in
            batch.put(
                partition, store.key(push), due: 7, replacingDue: nil,
                value: UnsafeRawBufferPointer(rebasing: value.bytes[start...]))
            token.withUTF8 { token in
                let token = UnsafeRawBufferPointer(token)
                guard let cipher else {
                    return batch.put(
                        partition, device: store.device(push.token), state, token: token)
                }
                #expect(throws: Never.self) {
                    try batch.put(
                        partition, device: store.device(push.token), state, token: token, sealedBy: cipher)
                }
            }
        }
        #expect(result.error == nil)
    }

    /// Returns the plain pushes by offset, and the names of the keys.
    private func pushes(_ store: RetryStore) throws -> [Int64: (push: [UInt8]?, key: String?)] {
        let read = Awaited<Result<[(Int64, [UInt8]?, String?)], RetryStoreError>>()
        store.read { reader throws(RetryStoreError) in
            var found: [(Int64, [UInt8]?, String?)] = []
            for partition in reader.partitions {
                try reader.visitItems(of: partition) { item in
                    found.append(
                        (item.key.offset, item.fault == nil ? Array(item.push) : nil, item.keyName))
                    return true
                }
            }
            return found
        } completion: {
            read.set($0)
        }
        return Dictionary(
            uniqueKeysWithValues: try read.wait("a read").get().map { ($0, (push: $1, key: $2)) })
    }

    private func storedToken(_ store: RetryStore, _ cipher: ValueCipher?) throws -> String {
        let result = try store.submitted { $0.load(try! store.partition(0), store.device(Self.token)) }
        var writer = ByteWriter()
        try result.appendToken(of: result.loads[0], with: cipher, to: &writer)
        return String(decoding: writer.bytes, as: UTF8.self)
    }

    /// Returns whether any file below a directory has these bytes.
    private func anyFile(of directory: TemporaryDirectory, has bytes: [UInt8]) throws -> Bool {
        let files = try #require(FileManager.default.enumerator(atPath: directory.file("store")))
        var count = 0
        for case let name as String in files {
            guard let data = FileManager.default.contents(atPath: directory.file("store/\(name)")) else {
                continue
            }
            count += 1
            if data.range(of: Data(bytes)) != nil { return true }
        }
        #expect(count > 3)
        return false
    }

    @Test(arguments: [true, false])
    func filesHaveNoPlainPush(isEncrypted: Bool) throws {
        let directory = try TemporaryDirectory("store")
        let packed = [0x5e, 0xc9, 0xe7, 0x0b, 0x5e, 0xc9] as [UInt8]
        func check() throws {
            #expect(try anyFile(of: directory, has: Array(Self.secret.utf8)) == !isEncrypted)
            #expect(try anyFile(of: directory, has: packed) == !isEncrypted)
            #expect(try anyFile(of: directory, has: Array("com.example.app".utf8)) == !isEncrypted)
        }
        let store = try open(directory, isEncrypted ? a : nil)
        try put(push, into: store)
        #expect(try store.synced() == nil)
        // The log has the push, the tables have it after the close.
        try check()
        store.close()
        try check()
        #expect(try !anyFile(of: directory, has: Array(repeating: 1, count: 32)), "no file has the key")
    }

    @Test func oldAndNewKeysAreReadAfterARotation() throws {
        let directory = try TemporaryDirectory("store")
        var newer = push
        newer.offset = 41
        do {
            let store = try open(directory, a)
            defer { store.close() }
            try put(push, into: store)
            try store.use(both)
            try put(newer, into: store)
        }
        let store = try open(directory, both)
        defer { store.close() }
        let found = try pushes(store)
        #expect(found[40]?.push == push.encoded() && found[40]?.key == "a")
        #expect(found[41]?.push == newer.encoded() && found[41]?.key == "b")
        #expect(try storedToken(store, try ValueCipher(both)) == Self.token)
        #expect(throws: SealedValueError.unknownKey("b")) { try storedToken(store, try ValueCipher(a)) }
        #expect(throws: SealedValueError.noKeys(needed: "b")) { try storedToken(store, nil) }
    }

    @Test(arguments: [false, true])
    func storeRefusesToOpenWithoutItsKey(isOfDevices: Bool) throws {
        let directory = try TemporaryDirectory("store")
        let path = directory.file("store")
        do {
            let store = try open(directory, a)
            defer { store.close() }
            try put(push, into: store)
            if isOfDevices {
                // The item goes, and the encrypted token stays.
                try store.submitted { $0.remove(try! store.partition(0), store.key(push), due: 7) }
            }
        }
        #expect(throws: RetryStoreError.key(directory: path, partition: 0, .unknownKey("a"))) {
            try open(directory, b)
        }
        #expect(throws: RetryStoreError.key(directory: path, partition: 0, .otherKey("a"))) {
            try open(directory, otherA)
        }
        #expect(throws: RetryStoreError.key(directory: path, partition: 0, .noKeys(needed: "a"))) {
            try open(directory, nil)
        }
        // Nothing was lost by the attempts.
        let store = try open(directory, both)
        defer { store.close() }
        #expect(try pushes(store).count == (isOfDevices ? 0 : 1))
        #expect(try storedToken(store, try ValueCipher(a)) == Self.token)
    }

    @Test func keyThatNoValueNeedsMayGo() throws {
        let directory = try TemporaryDirectory("store")
        try open(directory, a).close()
        try open(directory, otherA).close()
        try open(directory, b).close()
        let store = try open(directory, nil)
        defer { store.close() }
        #expect(try KeyRecords.read(from: store.metaFamily()) == KeyRecords())
    }

    /// A copy needs no key, because it may be of a partition that was given up long ago. The restore checks the
    /// changelog's values.
    @Test func copyWithoutItsKeyIsRestored() throws {
        let directory = try TemporaryDirectory("store")
        do {
            let store = try open(directory, a, areCopies: true)
            defer { store.close() }
            try put(push, into: store)
        }
        do {
            let store = try open(directory, b, areCopies: true)
            defer { store.close() }
            #expect(store.copiesWithoutKey == [])
            let checkpointed = Awaited<Result<Void, RetryStoreError>>()
            store.checkpoint(
                try store.partition(0), position: ChangelogCheckpoint(offset: 1, reachedMilliseconds: 1)
            ) { checkpointed.set($0) }
            try checkpointed.wait("a checkpoint").get()
            try store.use(both)
        }
        let path = directory.file("store")
        #expect(throws: RetryStoreError.key(directory: path, partition: 0, .otherKey("a"))) {
            try open(directory, otherA, areCopies: true)
        }
        // Keys may be removed from the file, or with the section.
        for keyring in [b, nil] {
            let copy = try TemporaryDirectory("copy")
            try FileManager.default.copyItem(atPath: path, toPath: copy.file("store"))
            let store = try open(copy, keyring, areCopies: true)
            defer { store.close() }
            #expect(store.copiesWithoutKey == [0])
            #expect(try store.metaFamily().copy(of: 0).position == nil)
        }
        let store = try open(directory, both, areCopies: true)
        defer { store.close() }
        #expect(store.copiesWithoutKey == [])
        #expect(try store.metaFamily().copy(of: 0).position != nil)
    }

    @Test func encryptionCanBeTurnedOnAndOff() throws {
        let directory = try TemporaryDirectory("store")
        var second = push
        second.offset = 41
        do {
            let store = try open(directory, nil)
            defer { store.close() }
            try put(push, into: store)
        }
        do {
            let store = try open(directory, a)
            defer { store.close() }
            #expect(try storedToken(store, try ValueCipher(a)) == Self.token, "a plain token")
            try put(second, into: store)
            let found = try pushes(store)
            #expect(found[40]?.push == push.encoded() && found[40]?.key == nil)
            #expect(found[41]?.push == second.encoded() && found[41]?.key == "a")
        }
        #expect(throws: RetryStoreError.self) { try open(directory, nil) }
        do {
            // Written again in clear, as a rewrite without keys does it.
            let store = try open(directory, a)
            defer { store.close() }
            let partition = try store.partition(0)
            try store.submitted { batch in
                second.withStored { batch.put(partition, store.key(second), due: 7, replacingDue: 7, $0) }
                batch.remove(partition, device: store.device(Self.token))
            }
        }
        let store = try open(directory, nil)
        defer { store.close() }
        #expect(try pushes(store).values.allSatisfy { $0.push != nil && $0.key == nil })
    }

    @Test func inspectorReadsWithKeysAndCountsWithout() throws {
        let directory = try TemporaryDirectory("store")
        do {
            let store = try open(directory, a)
            defer { store.close() }
            try put(push, into: store)
        }
        let path = directory.file("store")
        let sound = try StoreInspector(directory: path, keyring: both).verify()
        #expect(sound.isSound && sound.locked == 0 && sound.items == 1 && sound.deviceStates == 1)
        let blind = try StoreInspector(directory: path).verify()
        #expect(blind.isSound && blind.locked == 2)
        let wrong = try StoreInspector(directory: path, keyring: otherA).verify()
        #expect(wrong.problems.map(\.kind) == [.sealed(.otherKey("a")), .sealed(.otherKey("a"))])
        let reader = try StoreInspector(directory: path).reader
        try reader.visitItems(of: 0) { item in
            #expect(item.keyName == "a" && item.fault == .noKeys(needed: "a"))
            return true
        }
        try reader.visitDevices(of: 0) { device in
            #expect(device.keyName == "a" && device.state.presence == 1)
            return true
        }
    }

    /// A value at another record's key is refused.
    @Test func movedValueIsNoPush() throws {
        let directory = try TemporaryDirectory("store")
        do {
            let store = try open(directory, a)
            defer { store.close() }
            try put(push, into: store)
            let partition = try store.partition(0)
            let loaded = try store.loaded(partition, store.device(Self.token))
            try store.submitted { batch in
                loaded.items[0].push.withUnsafeBytes {
                    batch.put(
                        partition, ItemKey(device: store.device(Self.token), offset: 41), due: 7,
                        replacingDue: nil, value: $0)
                }
            }
        }
        let report = try StoreInspector(directory: directory.file("store"), keyring: a).verify()
        #expect(report.problems.map(\.kind) == [.sealed(.notAuthentic(key: "a"))])
        #expect(report.problems.first?.key?.offset == 41)
    }

    /// Restored values keep their bytes, their due entries and their waits; tokens are encrypted.
    @Test func changelogIsRestoredWithoutDecryption() throws {
        let directory = try TemporaryDirectory("store")
        let store = try open(directory, both, areCopies: true)
        defer { store.close() }
        let partition = try store.partition(0)
        let cipher = try ValueCipher(a)
        var suspended = push
        suspended.wait = .suspended
        var value = ByteWriter()
        var scratch = ByteWriter()
        var key = ByteWriter()
        var deviceKey = ByteWriter()
        var state = ByteWriter()
        suspended.withStored { stored in
            _ = try? ChangelogKey.encode(
                stored, due: 9, sealedBy: cipher, scratch: &scratch, into: &value)
        }
        var token = Self.token
        token.withUTF8 {
            ChangelogKey.item(offset: 40, deviceToken: UnsafeRawBufferPointer($0)).encode(into: &key)
            ChangelogKey.device(deviceToken: UnsafeRawBufferPointer($0)).encode(into: &deviceKey)
        }
        ChangelogKey.encode(
            DeviceState(presence: 0, learnedMilliseconds: 7, expiryMilliseconds: 8), into: &state)
        #expect(ChangelogKey.missingKey(of: key.bytes, value.bytes, with: both) == nil)
        #expect(ChangelogKey.missingKey(of: key.bytes, value.bytes, with: b) == .unknownKey("a"))
        #expect(ChangelogKey.missingKey(of: key.bytes, value.bytes, with: otherA) == .otherKey("a"))
        #expect(ChangelogKey.missingKey(of: key.bytes, value.bytes, with: nil) == .noKeys(needed: "a"))
        #expect(ChangelogKey.missingKey(of: deviceKey.bytes, state.bytes, with: nil) == nil)
        let chunk = ChangelogChunk(of: store)
        chunk.begin(partition)
        var keys: RestoreFilter?
        let sealing = try ValueCipher(both)
        chunk.append(key: key.bytes, value: value.bytes, among: &keys, cipher: sealing)
        chunk.append(key: deviceKey.bytes, value: state.bytes, among: &keys, cipher: sealing)
        #expect(chunk.failure == nil)
        try store.restored(chunk)
        #expect(try pushes(store)[40]?.push == suspended.encoded())
        let loaded = try store.loaded(partition, store.device(Self.token))
        #expect(loaded.items.map(\.push) == [Array(value.bytes.dropFirst(8))] && loaded.items[0].due == 9)
        #expect(loaded.state?.learnedMilliseconds == 7)
        #expect(try storedToken(store, sealing) == Self.token)
        #expect(throws: SealedValueError.unknownKey("b")) { try storedToken(store, cipher) }
        let waiting = try store.suspended(partition, topic: "com.example.app")
        #expect(waiting.entries.map(\.entry.key.offset) == [40])
    }

    /// Only the latest value of an item needs its key.
    @Test func latestValueOfAnItemDecides() {
        var locked = LockedRecords(hasher: IdentityHasher(key0: 1, key1: 2), most: 2)
        func note(_ offset: Int64, at place: Int64, _ fault: SealedValueError?) {
            let record = ChangelogRecord.push(offset, due: 1)
            record.key.withUnsafeBytes { locked.note($0, offset: place, fault) }
        }
        note(1, at: 10, nil)
        #expect(locked.first == nil)
        note(1, at: 11, .unknownKey("a"))
        note(2, at: 12, .otherKey("b"))
        #expect(locked.first == .init(offset: 11, fault: .unknownKey("a")) && locked.count == 2)
        // Written again, under another key that is missing as well.
        note(1, at: 13, .unknownKey("c"))
        #expect(locked.first == .init(offset: 12, fault: .otherKey("b")) && !locked.isFull)
        note(3, at: 14, .unknownKey("a"))
        #expect(locked.isFull)
        for offset: Int64 in 1...3 { note(offset, at: 20 + offset, nil) }
        #expect(locked.first == nil && locked.count == 0 && !locked.isFull)
        locked.note(nil, offset: 30, .unknownKey("a"))
        #expect(locked.count == 0)
    }
}

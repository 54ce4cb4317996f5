import SluiceModel
import Testing

@testable import StoreEncryption

/// Encrypted values, as the store keeps them.
struct ValueCipherTests {
    static func key(_ name: String, _ byte: UInt8) -> StoreKey {
        [UInt8](repeating: byte, count: 32).withUnsafeBytes { StoreKey(name: name, $0)! }
    }

    private let place = ValuePlace.item(partition: 7, offset: 1 << 40)

    private func sealed(
        _ plain: [UInt8], _ cipher: ValueCipher, suspended: UInt32? = nil
    ) throws -> [UInt8] {
        var writer = ByteWriter()
        try plain.withUnsafeBytes { plain in
            try cipher.seal(plain, at: place, suspended: suspended, into: &writer)
        }
        return Array(writer.bytes)
    }

    private func opened(
        _ sealed: [UInt8], _ cipher: ValueCipher, at place: ValuePlace? = nil
    ) -> Result<[UInt8], SealedValueError> {
        var writer = ByteWriter()
        writer.append(9)
        return sealed.withUnsafeBytes { bytes in
            do throws(SealedValueError) {
                try cipher.open(bytes, at: place ?? self.place, into: &writer)
                return .success(Array(writer.bytes.dropFirst()))
            } catch {
                #expect(writer.count == 1, "a failure leaves the writer as it was")
                return .failure(error)
            }
        }
    }

    @Test(arguments: [1, 2, 15, 16, 17, 300, 5000])
    func valuesRoundTrip(count: Int) throws {
        let key = Self.key("2026-a", 1)
        let cipher = try ValueCipher(StoreKeyring(primary: key))
        var generator = SeededGenerator(seed: UInt64(count))
        let plain = (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) }
        for suspended in [nil, UInt32(0xDEAD_BEEF)] {
            let sealed = try sealed(plain, cipher, suspended: suspended)
            #expect(
                sealed.count == count + SealedValue.overhead(of: key, isSuspended: suspended != nil))
            #expect(opened(sealed, cipher) == .success(plain))
            sealed.withUnsafeBytes {
                #expect(SealedValue.isSealed($0))
                #expect(SealedValue.suspendedTopic(of: $0) == suspended)
                #expect(SealedValue.key(of: $0)?.name == "2026-a")
            }
        }
        #expect(cipher.sealed == 2)
    }

    /// No part of a value can be changed, its head included.
    @Test func changedValuesAreRefused() throws {
        let cipher = try ValueCipher(StoreKeyring(primary: Self.key("a", 1)))
        let sealed = try sealed(Array("a push".utf8), cipher, suspended: 5)
        for index in sealed.indices {
            for bit in 0..<8 {
                var changed = sealed
                changed[index] ^= 1 << bit
                #expect(throws: SealedValueError.self, "bit \(bit) of byte \(index)") {
                    try opened(changed, cipher).get()
                }
            }
        }
        for count in sealed.indices {
            #expect(throws: SealedValueError.self) { try opened(Array(sealed[..<count]), cipher).get() }
        }
        #expect(throws: SealedValueError.notAuthentic(key: "a")) { try opened(sealed + [0], cipher).get() }
        #expect(opened(sealed, cipher) == .success(Array("a push".utf8)))
    }

    @Test func valuesBelongToTheirPlace() throws {
        let cipher = try ValueCipher(StoreKeyring(primary: Self.key("a", 1)))
        let sealed = try sealed([1, 2, 3], cipher)
        let others: [ValuePlace] = [
            .item(partition: 8, offset: 1 << 40), .item(partition: 7, offset: 1 << 40 + 1),
            .item(partition: 7, offset: -1), .device(partition: 7, DeviceKey(high: 1 << 40, low: 0)),
        ]
        for other in others {
            #expect(opened(sealed, cipher, at: other) == .failure(.notAuthentic(key: "a")))
        }
    }

    @Test func oldKeysDecryptAndTheFirstEncrypts() throws {
        let (a, b) = (Self.key("a", 1), Self.key("b", 2))
        let before = try ValueCipher(StoreKeyring(primary: a))
        let after = try ValueCipher(StoreKeyring(primary: b, others: [a]))
        let (old, new) = (try sealed([1], before), try sealed([2], after))
        #expect(opened(old, after) == .success([1]))
        #expect(opened(new, after) == .success([2]))
        #expect(opened(new, before) == .failure(.unknownKey("b")))
        let wrong = try ValueCipher(StoreKeyring(primary: Self.key("a", 3)))
        #expect(opened(old, wrong) == .failure(.otherKey("a")))
        old.withUnsafeBytes {
            #expect(SealedValue.fault(of: $0, with: nil) == .noKeys(needed: "a"))
            #expect(SealedValue.fault(of: $0, with: StoreKeyring(primary: b, others: [a])) == nil)
        }
    }

    /// More values than random bytes are fetched for at once.
    @Test func noncesAreDistinct() throws {
        let cipher = try ValueCipher(StoreKeyring(primary: Self.key("a", 1)))
        let start = 10 + 1
        let nonces = try (0..<1000).map { _ in Array(try sealed([7], cipher)[start..<start + 24]) }
        #expect(Set(nonces).count == 1000)
    }

    @Test func keysThatLeaveTheFileAreKept() throws {
        let (a, b, c) = (Self.key("a", 1), Self.key("b", 2), Self.key("c", 3))
        let (keyring, kept) = try StoreKeyring(primary: c, others: [b])
            .following(StoreKeyring(primary: b, others: [a]))
        #expect(keyring.keys.map(\.name) == ["c", "b", "a"] && kept == ["a"])
        #expect(!keyring.isSame(as: StoreKeyring(primary: c, others: [b])))
        #expect(throws: ChangedStoreKey(name: "a")) {
            try StoreKeyring(primary: Self.key("a", 9)).following(StoreKeyring(primary: a))
        }
    }
}

import COpenSSL

/// A key of the store's values. The key itself never leaves the module.
// Sendable: the bytes are constant from init to deinit.
public final class StoreKey: @unchecked Sendable {
    /// Name in the key file: 1 to 16 ASCII letters, digits or hyphens.
    public let name: String
    /// Derived from the key by HMAC-SHA-256, and the same in each process. The check tells keys of one name apart, and
    /// reveals nothing of the key.
    public let check: UInt64
    /// The name's bytes.
    let nameBytes: [UInt8]
    /// ``count`` bytes, erased and freed in deinit.
    private let bytes: UnsafeMutableRawPointer

    /// Bytes of a key.
    public static let count = 32
    /// Most bytes of a name.
    public static let longestName = 16

    /// Returns nil for a name or a number of bytes that no key has, and when OpenSSL has no memory.
    public init?(name: String, _ key: UnsafeRawBufferPointer) {
        let nameBytes = Array(name.utf8)
        guard key.count == Self.count, nameBytes.withUnsafeBytes(Self.isName),
            let check = Self.check(of: key)
        else { return nil }
        self.name = name
        self.nameBytes = nameBytes
        self.check = check
        bytes = .allocate(byteCount: Self.count, alignment: 8)
        bytes.copyMemory(from: key.baseAddress!, byteCount: Self.count)
    }

    deinit {
        OPENSSL_cleanse(bytes, Self.count)
        bytes.deallocate()
    }

    static func isName(_ bytes: UnsafeRawBufferPointer) -> Bool {
        (1...longestName).contains(bytes.count)
            && bytes.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                    UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "-"):
                    true
                default: false
                }
            }
    }

    private static func check(of key: UnsafeRawBufferPointer) -> UInt64? {
        let label = Array("sluice store key check".utf8)
        var digest = [UInt8](repeating: 0, count: 32)
        var count: UInt32 = 0
        guard
            HMAC(
                EVP_sha256(), key.baseAddress, Int32(key.count), label, label.count, &digest, &count) != nil,
            count == 32
        else {
            ERR_clear_error()
            return nil
        }
        return digest.withUnsafeBytes { UInt64(bigEndian: $0.loadUnaligned(as: UInt64.self)) }
    }

    func withBytes<Result>(_ body: (UnsafePointer<UInt8>) -> Result) -> Result {
        body(UnsafeRawPointer(bytes).assumingMemoryBound(to: UInt8.self))
    }
}

/// Keys of the store's values. All of them decrypt.
public struct StoreKeyring: Sendable {
    /// Key that encrypts.
    public let primary: StoreKey
    /// Keys that decrypt only.
    public let others: [StoreKey]
    /// False when new values are written in clear, and the keys only decrypt older ones.
    public let encrypts: Bool

    public init(primary: StoreKey, others: [StoreKey] = [], encrypts: Bool = true) {
        self.primary = primary
        self.others = others
        self.encrypts = encrypts
    }

    /// These keys, of which none encrypts.
    public var decrypting: StoreKeyring { StoreKeyring(primary: primary, others: others, encrypts: false) }

    /// All keys, the one that encrypts first.
    public var keys: [StoreKey] { [primary] + others }

    /// Returns the key of this name; nil when there is none.
    public func key(named name: String) -> StoreKey? { keys.first { $0.name == name } }

    /// Returns whether both have the same keys in the same order.
    public func isSame(as other: StoreKeyring) -> Bool {
        let (left, right) = (keys, other.keys)
        return left.count == right.count
            && zip(left, right).allSatisfy { $0.name == $1.name && $0.check == $1.check }
    }

    /// Returns these keys, and behind them the keys before that this keyring lacks, because values may need those.
    /// - Returns: the keyring, and the names of the keys that were added.
    /// - Throws: the name of a key whose bytes have changed. A worker with both keys could not tell its values apart.
    public func following(
        _ before: StoreKeyring
    ) throws(ChangedStoreKey) -> (keyring: StoreKeyring, kept: [String]) {
        var kept: [StoreKey] = []
        for key in before.keys {
            guard let same = self.key(named: key.name) else {
                kept.append(key)
                continue
            }
            guard same.check == key.check else { throw ChangedStoreKey(name: key.name) }
        }
        return (
            StoreKeyring(primary: primary, others: others + kept, encrypts: encrypts), kept.map(\.name)
        )
    }
}

/// A key has other bytes than the key of the same name before.
public struct ChangedStoreKey: Error, Hashable, Sendable, CustomStringConvertible {
    /// Name of the key.
    public var name: String

    public var description: String {
        "key \"\(name)\" has other bytes than before: restore its bytes, and give a new key a name of its own"
    }
}

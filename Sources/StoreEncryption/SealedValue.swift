import SluiceModel

/// An encrypted value: an item's ``StoredPush``, or the token of a device's state.
///
/// Integers are big-endian.
///
/// | bytes | |
/// |---|---|
/// | 1 | ``version``, which no ``StoredPush`` begins with |
/// | 1 | length of the key's name (bits 0–4); bit 7: the hash of a topic follows |
/// | 8 | check of the key (``StoreKey/check``) |
/// | 1–16 | name of the key |
/// | 4 | by bit 7: ``StoredPush/topicHash(_:_:)`` of a push that waits with its topic |
/// | 24 | nonce |
/// | the rest | ciphertext, and its tag of 16 bytes |
///
/// The tag covers everything before the nonce as well, and the value's ``ValuePlace``.
public enum SealedValue {
    /// First byte of an encrypted value: 0xE0 and the format.
    public static let version: UInt8 = 0xE1
    /// Format, in decimal digits.
    public static let format = "1"
    /// Bytes of a nonce and of a tag.
    static let nonceCount = 24
    static let tagCount = 16
    /// Most bytes before the nonce.
    static let longestHead = 2 + 8 + StoreKey.longestName + 4
    private static let suspendedBit: UInt8 = 1 << 7

    /// Returns whether a value is encrypted.
    @inline(__always)
    public static func isSealed(_ bytes: UnsafeRawBufferPointer) -> Bool { bytes.first == version }

    /// Returns the number of bytes that a value under a key gains.
    public static func overhead(of key: StoreKey, isSuspended: Bool = false) -> Int {
        10 + key.nameBytes.count + (isSuspended ? 4 : 0) + nonceCount + tagCount
    }

    /// The bytes before the nonce.
    struct Head {
        var check: UInt64
        var name: UnsafeRawBufferPointer
        var suspended: UInt32?
        /// Number of bytes.
        var count: Int

        /// Parses the head of an encrypted value; nil for bytes that aren't complete.
        init?(_ bytes: UnsafeRawBufferPointer) {
            guard bytes.count > 2, isSealed(bytes), bytes[1] & 0x60 == 0 else { return nil }
            let length = Int(bytes[1] & 0x1F)
            let hasTopic = bytes[1] & suspendedBit != 0
            count = 10 + length + (hasTopic ? 4 : 0)
            guard bytes.count > count + nonceCount + tagCount else { return nil }
            check = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 2, as: UInt64.self))
            name = UnsafeRawBufferPointer(rebasing: bytes[10..<10 + length])
            guard StoreKey.isName(name) else { return nil }
            suspended =
                hasTopic
                ? UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: 10 + length, as: UInt32.self)) : nil
        }

        /// Returns whether the value was encrypted with this key.
        @inline(__always)
        func isOf(_ key: StoreKey) -> Bool { key.check == check && name.elementsEqual(key.nameBytes) }

        /// Appends the head of a value.
        static func write(_ key: StoreKey, suspended: UInt32?, into writer: inout ByteWriter) {
            writer.append(version)
            writer.append(UInt8(key.nameBytes.count) | (suspended == nil ? 0 : suspendedBit))
            writer.append(littleEndian: key.check.byteSwapped)
            key.nameBytes.withUnsafeBytes { writer.append($0) }
            if let suspended { writer.append(littleEndian: suspended.byteSwapped) }
        }
    }

    /// Returns ``StoredPush/suspendedTopic(of:)`` of an item's value, encrypted or not.
    public static func suspendedTopic(of bytes: UnsafeRawBufferPointer) -> UInt32? {
        isSealed(bytes) ? Head(bytes)?.suspended : StoredPush.suspendedTopic(of: bytes)
    }

    /// Returns the name and the check of a value's key; nil for a value that isn't encrypted or can't be parsed.
    public static func key(of bytes: UnsafeRawBufferPointer) -> (name: String, check: UInt64)? {
        Head(bytes).map { (String(decoding: $0.name, as: UTF8.self), $0.check) }
    }

    /// Returns the fault for which no value of this key can be read with these keys; nil: the key is there. The value
    /// itself isn't decrypted.
    /// - Parameter keyring: nil: no keys are configured.
    public static func fault(
        of bytes: UnsafeRawBufferPointer, with keyring: StoreKeyring?
    ) -> SealedValueError? {
        guard let head = Head(bytes) else { return .malformed }
        if let keyring {
            if head.isOf(keyring.primary) { return nil }
            for key in keyring.others where head.isOf(key) { return nil }
        }
        let name = String(decoding: head.name, as: UTF8.self)
        guard let keyring else { return .noKeys(needed: name) }
        return keyring.key(named: name) == nil ? .unknownKey(name) : .otherKey(name)
    }
}

/// Place that an encrypted value belongs to. A value that was moved to another place can't be decrypted.
public struct ValuePlace: BitwiseCopyable, Sendable {
    static let count = 21
    let kind: UInt8
    let partition: Int32
    let first: UInt64
    let second: UInt64

    /// An item, by its record.
    public static func item(partition: Int32, offset: Int64) -> ValuePlace {
        ValuePlace(kind: 1, partition: partition, first: UInt64(bitPattern: offset), second: 0)
    }

    /// The token of a device's state in a partition.
    public static func device(partition: Int32, _ device: DeviceKey) -> ValuePlace {
        ValuePlace(kind: 2, partition: partition, first: device.high, second: device.low)
    }

    func write(to target: UnsafeMutableRawPointer) {
        target.storeBytes(of: kind, as: UInt8.self)
        target.storeBytes(of: partition.bigEndian, toByteOffset: 1, as: Int32.self)
        target.storeBytes(of: first.bigEndian, toByteOffset: 5, as: UInt64.self)
        target.storeBytes(of: second.bigEndian, toByteOffset: 13, as: UInt64.self)
    }
}

/// Reason for which an encrypted value can't be read. Names of keys are no secrets.
public enum SealedValueError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The bytes aren't those of an encrypted value.
    case malformed
    /// No keys are configured.
    case noKeys(needed: String)
    /// No key has this name.
    case unknownKey(String)
    /// The key of this name has other bytes than the one that encrypted the value.
    case otherKey(String)
    /// The value was changed, or belongs to another place.
    case notAuthentic(key: String)
    /// OpenSSL failed.
    case failed(CipherFailure)

    /// Whether the key is missing, so that all of the key's values can't be read.
    public var isOfKey: Bool {
        switch self {
        case .noKeys, .unknownKey, .otherKey: true
        case .malformed, .notAuthentic, .failed: false
        }
    }

    public var description: String {
        switch self {
        case .malformed: "an encrypted value is damaged: its head can't be read"
        case .noKeys(let name):
            "a value is encrypted with key \"\(name)\", and no key file is configured: set store.encryption.key-file"
        case .unknownKey(let name):
            "a value is encrypted with key \"\(name)\", which the key file lacks: add the key below the first key"
        case .otherKey(let name):
            "a value is encrypted with another key \"\(name)\" than the key file's: restore that key's bytes, and give "
                + "the new key a name of its own"
        case .notAuthentic(let name):
            "a value under key \"\(name)\" is damaged or belongs to another record: it was changed after its encryption"
        case .failed(let failure): "\(failure)"
        }
    }
}

/// A call of OpenSSL that failed although its arguments were right, as without memory.
public struct CipherFailure: Error, Hashable, Sendable, CustomStringConvertible {
    /// Name of the call.
    public var call: String

    public var description: String {
        "OpenSSL's \(call) failed: check the memory of the machine, and that OpenSSL offers AES-256-GCM"
    }
}

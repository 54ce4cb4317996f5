import SluiceModel

// Keys and values as the database has them: integers big-endian, so that keys sort by number.

/// A device: the key of `devices-<p>`, and the prefix of its items' keys.
struct DeviceKeyBytes: BitwiseCopyable {
    static let count = 16
    private var high: UInt64
    private var low: UInt64

    init(_ device: DeviceKey) {
        high = device.high.bigEndian
        low = device.low.bigEndian
    }

    /// Parses a key; nil unless there are 16 bytes.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count == Self.count else { return nil }
        self = bytes.loadUnaligned(as: Self.self)
    }

    var device: DeviceKey { DeviceKey(high: UInt64(bigEndian: high), low: UInt64(bigEndian: low)) }
}

/// The key of `items-<p>`.
struct ItemKeyBytes: BitwiseCopyable {
    static let count = 24
    private var device: DeviceKeyBytes
    private var offset: UInt64

    init(_ key: ItemKey) {
        device = DeviceKeyBytes(key.device)
        offset = UInt64(bitPattern: key.offset).bigEndian
    }

    /// Parses a key; nil unless there are 24 bytes.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count == Self.count else { return nil }
        self = bytes.loadUnaligned(as: Self.self)
    }

    var key: ItemKey { ItemKey(device: device.device, offset: Int64(bitPattern: UInt64(bigEndian: offset))) }
}

/// The key of `due-<p>`.
struct DueKeyBytes: BitwiseCopyable {
    static let count = 32
    private var due: DueBytes
    private var item: ItemKeyBytes

    init(_ entry: DueEntry) { self.init(due: entry.due, entry.key) }

    init(due: Int64, _ key: ItemKey) {
        self.due = DueBytes(due)
        item = ItemKeyBytes(key)
    }

    /// Parses a key; nil unless there are 32 bytes.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count == Self.count else { return nil }
        self = bytes.loadUnaligned(as: Self.self)
    }

    var entry: DueEntry { DueEntry(due: due.due, key: item.key) }
}

/// A time: the beginning of a key of `due-<p>` and of a value of `items-<p>`.
struct DueBytes: BitwiseCopyable {
    static let count = 8
    private var value: UInt64

    /// A negative time would sort behind all others.
    init(_ due: Int64) { value = UInt64(max(0, due)).bigEndian }

    /// Parses a time; nil unless there are at least 8 bytes.
    init?(prefixOf bytes: UnsafeRawBufferPointer) {
        guard bytes.count >= Self.count else { return nil }
        self = bytes.loadUnaligned(as: Self.self)
    }

    var due: Int64 { Int64(bitPattern: UInt64(bigEndian: value)) }
}

/// The value of `due-<p>` for a push that waits with its topic; empty for all others.
struct SuspendedBytes: BitwiseCopyable {
    static let count = 4
    private var value: UInt32

    init(_ topic: UInt32) { value = topic.bigEndian }

    /// Parses a value; nil unless there are 4 bytes.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count == Self.count else { return nil }
        value = bytes.loadUnaligned(as: UInt32.self)
    }

    /// ``StoredPush/topicHash(_:)`` of the push's topic.
    var topic: UInt32 { UInt32(bigEndian: value) }
}

/// The value of `devices-<p>`, and without a token that of a device in the changelog.
///
/// | version | bytes |
/// |---|---|
/// | 2 | 26: version, presence, learned, expiry, offset |
/// | 3 | the same, and half as many as the device token has digits: the token, so that the changelog can forget it |
/// | 4 | the same as 2, and the token as an encrypted value |
enum DeviceStateBytes {
    static let version: UInt8 = 2
    static let versionWithToken: UInt8 = 3
    static let versionWithSealedToken: UInt8 = 4
    static let count = 26
    /// Bytes of a state without the report's offset.
    private static let version1Count = 18
    /// Flag of ``DeviceState/isAwaited``, in the byte of the presence.
    private static let awaitedBit: UInt8 = 1 << 7

    static func write(_ state: DeviceState, to target: UnsafeMutableRawPointer) {
        target.storeBytes(of: version, as: UInt8.self)
        target.storeBytes(
            of: state.presence | (state.isAwaited ? awaitedBit : 0), toByteOffset: 1, as: UInt8.self)
        target.storeBytes(of: state.learnedMilliseconds.bigEndian, toByteOffset: 2, as: Int64.self)
        target.storeBytes(of: state.expiryMilliseconds.bigEndian, toByteOffset: 10, as: Int64.self)
        target.storeBytes(of: state.learnedOffset.bigEndian, toByteOffset: 18, as: Int64.self)
    }

    /// Returns the bytes of a state with the device's token, whose digits are valid. An odd number of digits is no
    /// token.
    static func count(withToken token: UnsafeRawBufferPointer) -> Int {
        token.count % 2 == 0 ? count + token.count / 2 : count
    }

    /// Adds the token to a written state.
    static func addToken(_ token: UnsafeRawBufferPointer, to target: UnsafeMutableRawPointer) {
        guard token.count % 2 == 0, !token.isEmpty else { return }
        target.storeBytes(of: versionWithToken, as: UInt8.self)
        HexadecimalText.pack(token, into: target + count)
    }

    /// Calls `body` with the token's digits, in lower case; doesn't call it when there is no token.
    static func withToken(_ bytes: UnsafeRawBufferPointer, _ body: (UnsafeRawBufferPointer) -> Void) {
        guard bytes.count > count, bytes[0] == versionWithToken else { return }
        let packed = UnsafeRawBufferPointer(rebasing: bytes[count...])
        withUnsafeTemporaryAllocation(byteCount: packed.count * 2, alignment: 8) { digits in
            HexadecimalText.unpack(packed, upperCase: false, into: digits.baseAddress!)
            body(UnsafeRawBufferPointer(digits))
        }
    }

    /// Parses a state; nil for bytes that aren't a state.
    static func read(_ bytes: UnsafeRawBufferPointer) -> DeviceState? {
        guard bytes.count >= version1Count else { return nil }
        let offset: Int64
        switch (bytes[0], bytes.count) {
        case (1, version1Count): offset = -1
        case (version, count), (versionWithToken...versionWithSealedToken, (count + 1)...):
            offset = Int64(bigEndian: bytes.loadUnaligned(fromByteOffset: 18, as: Int64.self))
        default: return nil
        }
        let learned = Int64(bigEndian: bytes.loadUnaligned(fromByteOffset: 2, as: Int64.self))
        // Sums with this moment must not overflow.
        guard StoredPush.instants.contains(learned) else { return nil }
        return DeviceState(
            presence: bytes[1] & ~awaitedBit, isAwaited: bytes[1] & awaitedBit != 0,
            learnedMilliseconds: learned, learnedOffset: offset,
            expiryMilliseconds: Int64(bigEndian: bytes.loadUnaligned(fromByteOffset: 10, as: Int64.self)))
    }
}

/// Passes the bytes of a key as the C interface needs them.
@inline(__always)
func withKey<Key: BitwiseCopyable, Result, Failure: Error>(
    _ key: Key, _ body: (UnsafePointer<CChar>, Int) throws(Failure) -> Result
) throws(Failure) -> Result {
    try withUnsafePointer(to: key) { (pointer) throws(Failure) in
        try body(
            UnsafeRawPointer(pointer).assumingMemoryBound(to: CChar.self), MemoryLayout<Key>.size)
    }
}

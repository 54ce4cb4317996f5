/// Keyed hashes of what identifies devices and pushes (SipHash-2-4), for tables whose keys come from outside: without
/// the key nobody can choose tokens that collide.
///
/// Equal keys give equal hashes; a process draws its key at random and keeps it.
public struct IdentityHasher: Sendable {
    private let key0: UInt64
    private let key1: UInt64

    public init(key0: UInt64, key1: UInt64) {
        self.key0 = key0
        self.key1 = key1
    }

    /// Of a device token in hexadecimal digits, the same in upper and lower case.
    public func device(_ token: UnsafeRawBufferPointer) -> DeviceKey {
        var hash = SipHash128(key0: key0, key1: key1)
        // The bit by which the cases of a letter differ; all digits have it.
        hash.append(token, setting: 0x2020_2020_2020_2020)
        let (high, low) = hash.finish()
        return DeviceKey(high: high, low: low)
    }

    /// Of a collapse identifier, byte for byte; never 0.
    public func collapseIdentifier(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        var hash = SipHash128(key0: key0, key1: key1)
        hash.append(bytes, setting: 0)
        return max(1, hash.finish().0)
    }

    /// Of an `apns-id`; never 0.
    public func notification(_ id: APNSID) -> UInt64 {
        var hash = SipHash128(key0: key0, key1: key1)
        hash.append(word: id.high)
        hash.append(word: id.low)
        return max(1, hash.finish().0)
    }
}

/// Keyed hashes of identities of devices and pushes (SipHash-2-4), for tables with keys from outside. Without the hash
/// key nobody can choose tokens that collide.
///
/// Equal keys give equal hashes; a process draws its key at random and keeps it.
public struct IdentityHasher: Sendable {
    private let key0: UInt64
    private let key1: UInt64

    public init(key0: UInt64, key1: UInt64) {
        self.key0 = key0
        self.key1 = key1
    }

    /// Hashes a device token in hexadecimal digits; upper and lower case give the same hash.
    public func device(_ token: UnsafeRawBufferPointer) -> DeviceKey {
        var hash = SipHash128(key0: key0, key1: key1)
        // Sets the bit by which the cases of a letter differ; all digits have it.
        hash.append(token, setting: 0x2020_2020_2020_2020)
        let (high, low) = hash.finish()
        return DeviceKey(high: high, low: low)
    }

    /// Hashes a collapse identifier, byte for byte; never 0.
    public func collapseIdentifier(_ bytes: UnsafeRawBufferPointer) -> UInt64 { self.bytes(bytes) }

    /// Hashes any bytes; never 0.
    public func bytes(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        var hash = SipHash128(key0: key0, key1: key1)
        hash.append(bytes, setting: 0)
        return max(1, hash.finishFirst())
    }

    /// Hashes an `apns-id`; never 0.
    public func notification(_ id: APNSID) -> UInt64 {
        var hash = SipHash128(key0: key0, key1: key1)
        hash.append(word: id.high)
        hash.append(word: id.low)
        return max(1, hash.finishFirst())
    }
}

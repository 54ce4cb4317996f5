/// Key of a device token in tables: a keyed 128-bit hash of its text, equal for upper and lower case.
public struct DeviceKey: Hashable, BitwiseCopyable, Sendable {
    /// Upper half of the hash.
    public var high: UInt64
    /// Lower half of the hash, which decides the shard.
    public var low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }
}

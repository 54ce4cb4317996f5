/// Key of a device token in tables: a keyed 128-bit hash of its text, equal for upper and lower case.
public struct DeviceKey: Hashable, BitwiseCopyable, Sendable {
    public var high: UInt64
    public var low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }
}

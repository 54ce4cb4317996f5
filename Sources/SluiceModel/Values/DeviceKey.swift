/// A device token as tables know it: a keyed 128-bit hash of its text, the same in upper and lower case.
public struct DeviceKey: Hashable, BitwiseCopyable, Sendable {
    public var high: UInt64
    public var low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }
}

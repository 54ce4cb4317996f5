/// Devices that were changed lately, in the order of the changes, for those who look only at what has changed. Bounded:
/// the oldest entries leave first.
struct TouchLog: Sendable {
    private var devices: [UInt32] = []
    /// Position of the next entry. Positions go on at a reset.
    private(set) var next: UInt64 = 0
    /// Device of the last entry within this call of the world; nil: none. Its repetition is no news.
    private var last: UInt32?

    static let limit = 1 << 16

    /// Oldest position that is kept.
    var oldest: UInt64 { next - UInt64(min(devices.count, Int(clamping: next))) }

    mutating func append(_ device: UInt32) {
        guard last != device else { return }
        last = device
        if devices.count < Self.limit {
            devices.append(device)
        } else {
            devices[Int(next % UInt64(Self.limit))] = device
        }
        next += 1
    }

    /// Ends a call of the world. Readers may look between two calls.
    mutating func endCall() { last = nil }

    /// Device at a position that is kept.
    subscript(position: UInt64) -> UInt32 { devices[Int(position % UInt64(Self.limit))] }
}

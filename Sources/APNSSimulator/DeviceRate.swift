/// Counts the pushes to each device token in the current second, in a table of fixed size. Tokens that share a place
/// displace one another, so a count can be too low, never too high.
struct DeviceRate: ~Copyable {
    private struct Entry {
        var token: UInt64 = 0
        var second: UInt64 = 0
        var count = 0
    }

    private let entries: UnsafeMutablePointer<Entry>
    private let limit: Int
    private static let size = 1 << 16

    init(limit: Int) {
        self.limit = limit
        entries = .allocate(capacity: Self.size)
        entries.initialize(repeating: Entry(), count: Self.size)
    }

    deinit { entries.deallocate() }

    /// Counts a push; returns false if the push exceeds the limit.
    func admit(_ token: UnsafeRawBufferPointer, second: UInt64) -> Bool {
        var hash: UInt64 = 0xCBF2_9CE4_8422_2325
        for byte in token { hash = (hash ^ UInt64(byte | 0x20)) &* 0x100_0000_01B3 }
        let entry = entries + Int(hash % UInt64(Self.size))
        if entry.pointee.token != hash || entry.pointee.second != second {
            entry.pointee = Entry(token: hash, second: second)
        }
        entry.pointee.count += 1
        return entry.pointee.count <= limit
    }
}

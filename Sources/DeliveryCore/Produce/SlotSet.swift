/// A set of partition slots: a bit for each of the 65,536.
struct SlotSet: ~Copyable {
    private let words: UnsafeMutablePointer<UInt64>

    private static let count = 1024

    init() {
        words = .allocate(capacity: Self.count)
        words.initialize(repeating: 0, count: Self.count)
    }

    deinit { words.deallocate() }

    @inline(__always)
    func contains(_ slot: UInt16) -> Bool { words[Int(slot) / 64] & Self.bit(slot) != 0 }

    mutating func insert(_ slot: UInt16) { words[Int(slot) / 64] |= Self.bit(slot) }

    mutating func remove(_ slot: UInt16) { words[Int(slot) / 64] &= ~Self.bit(slot) }

    @inline(__always)
    private static func bit(_ slot: UInt16) -> UInt64 { 1 << (UInt64(slot) % 64) }
}

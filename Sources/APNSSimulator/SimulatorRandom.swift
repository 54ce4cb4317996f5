import SluiceModel

/// Random choices of one shard (SplitMix64). The same seed and order of requests give the same choices.
struct SimulatorRandom: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
        return mixed ^ mixed >> 31
    }

    /// Returns a number from 0 to below 1.
    mutating func fraction() -> Double { Double(next() >> 11) * 0x1p-53 }

    /// Returns a UUID of version 4 (RFC 9562 §5.4).
    mutating func identifier() -> APNSID {
        APNSID(high: next() & ~0xF000 | 0x4000, low: next() & ~(0b11 << 62) | 0b10 << 62)
    }
}

/// Chooses the good pushes that fail, by shares.
struct FaultMix {
    private let limits: [(upTo: Double, reason: Reason)]

    init(_ faults: [SimulatorOptions.Fault]) {
        var sum = 0.0
        limits = faults.map { fault in
            sum += fault.share
            return (sum, fault.reason)
        }
    }

    func choose(_ random: inout SimulatorRandom) -> Reason {
        guard !limits.isEmpty else { return .absent }
        let number = random.fraction()
        for limit in limits where number < limit.upTo { return limit.reason }
        return .absent
    }
}

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

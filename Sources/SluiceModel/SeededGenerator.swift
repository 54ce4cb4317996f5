/// A small, fast, seeded generator (xoshiro256**, seeded through SplitMix64).
///
/// Every random choice of the machines, the simulator and the tests uses an injected generator, so that a run can be
/// repeated from its seed. Not for secrets.
public struct SeededGenerator: RandomNumberGenerator, Sendable {
    private var s0: UInt64
    private var s1: UInt64
    private var s2: UInt64
    private var s3: UInt64

    /// Creates a generator; equal seeds produce equal sequences. Any seed is valid, including 0.
    public init(seed: UInt64) {
        var mixer = SplitMix(state: seed)
        s0 = mixer.next()
        s1 = mixer.next()
        s2 = mixer.next()
        s3 = mixer.next()
    }

    public mutating func next() -> UInt64 {
        let result = Self.rotated(s1 &* 5, by: 7) &* 9
        let shifted = s1 << 17
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= shifted
        s3 = Self.rotated(s3, by: 45)
        return result
    }

    private static func rotated(_ value: UInt64, by bits: UInt64) -> UInt64 {
        (value << bits) | (value >> (64 - bits))
    }
}

/// SplitMix64: expands a one-word seed to any number of words.
private struct SplitMix {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}

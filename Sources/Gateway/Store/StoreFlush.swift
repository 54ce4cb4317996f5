/// What a shard has written since the barrier before.
struct StoreFlush: Sendable {
    var hasWritten = false
    /// Records of the changelog, all of which have this in their opaque word.
    var produced = 0
    var source = ChangeSource(shard: 0, epoch: 0)
}

/// Who produced a record of the changelog, and between which barriers: rides in the producer's opaque word.
struct ChangeSource: Hashable, Sendable {
    var shard: UInt16
    var epoch: UInt32

    /// Stands where an outcome's word has the slot of its partition: no partition has this one.
    static let slot = UInt16.max
    private static let mark = UInt(slot) << 48

    init(shard: UInt16, epoch: UInt32) {
        self.shard = shard
        self.epoch = epoch
    }

    /// Nil for the word of an outcome.
    init?(opaque: UInt) {
        guard opaque & Self.mark == Self.mark else { return nil }
        shard = UInt16(truncatingIfNeeded: opaque >> 32)
        epoch = UInt32(truncatingIfNeeded: opaque)
    }

    var opaque: UInt { Self.mark | UInt(shard) << 32 | UInt(epoch) }
}

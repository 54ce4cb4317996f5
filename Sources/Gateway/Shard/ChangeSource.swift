import DeliveryCore

/// Source of a changelog record: its shard, and the epoch between two barriers. The producer's opaque word carries it.
struct ChangeSource: Hashable, Sendable {
    var shard: UInt16
    var epoch: UInt32

    /// Value in place of the partition slot of an outcome's word. No partition has this slot.
    static let slot = UInt16.max
    private static let mark = UInt(slot) << 48

    init(_ epoch: ChangeEpoch) {
        shard = epoch.shard
        self.epoch = epoch.epoch
    }

    /// Nil for the word of an outcome.
    init?(opaque: UInt) {
        guard opaque & Self.mark == Self.mark else { return nil }
        shard = UInt16(truncatingIfNeeded: opaque >> 32)
        epoch = UInt32(truncatingIfNeeded: opaque)
    }

    var opaque: UInt { Self.mark | UInt(shard) << 32 | UInt(epoch) }
}

import DeliveryCore

/// Who produced a record of the changelog, and between which barriers: rides in the producer's opaque word.
struct ChangeSource: Hashable, Sendable {
    var shard: UInt16
    var epoch: UInt32

    /// Stands where an outcome's word has the slot of its partition: no partition has this one.
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

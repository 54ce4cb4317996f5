import DeliveryCore
import Kafka

/// The record of an outcome, packed into the producer's opaque word, which the delivery report returns.
struct OutcomeSource {
    var partitionSlot: UInt16
    var offset: Int64
    /// Whether the store has the item, or is about to have it. The item must then be removed there.
    var isStored = false
    /// Whether the offset is complete already, because the store has the item.
    var isOffsetDone = false

    /// Offsets that fit beside the slot and the two bits.
    static let offsets: ClosedRange<Int64> = 0...Int64(doneBit - 1)

    private static let slotShift: UInt = 48
    private static let storedBit: UInt = 1 << 47
    private static let doneBit: UInt = 1 << 46

    init(record: ConsumedRecord, partitionSlot: UInt16) {
        self.partitionSlot = partitionSlot
        offset = record.offset
    }

    init(_ facts: OutcomeFacts) {
        partitionSlot = facts.place.partitionSlot
        offset = facts.place.recordOffset
        isStored = facts.isStored
        isOffsetDone = facts.isOffsetDone
    }

    init(opaque: UInt) {
        partitionSlot = UInt16(truncatingIfNeeded: opaque >> Self.slotShift)
        isStored = opaque & Self.storedBit != 0
        isOffsetDone = opaque & Self.doneBit != 0
        offset = Int64(opaque & (Self.doneBit - 1))
    }

    var place: RecordPlace { RecordPlace(partitionSlot: partitionSlot, offset: offset) }
    var outcome: OutcomePlace { OutcomePlace(place, isOffsetDone: isOffsetDone) }

    var opaque: UInt {
        UInt(partitionSlot) << Self.slotShift | (isStored ? Self.storedBit : 0)
            | (isOffsetDone ? Self.doneBit : 0) | UInt(offset)
    }
}

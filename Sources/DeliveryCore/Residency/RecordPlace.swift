/// Record of the jobs topic that an item or event comes from, by the slot of its partition.
///
/// A partition whose log began anew can still have items of its earlier log. A bias separates their offsets: it
/// makes them lower than all offsets of the present log, because the earlier log came before.
public struct RecordPlace: Hashable, BitwiseCopyable, Sendable {
    /// Slot of the record's partition.
    public var partitionSlot: UInt16
    /// Offset, 0 or more in the present log; less than 0 in an earlier log.
    public var offset: Int64

    public init(partitionSlot: UInt16, offset: Int64) {
        self.partitionSlot = partitionSlot
        self.offset = offset
    }

    /// Highest offset of a record that has room for the bias.
    private static let bias: Int64 = 1 << 60

    /// Offset in the record's own log, as in Kafka, the store and outcomes.
    public var recordOffset: Int64 { isOfEarlierLog ? offset &+ Self.bias : offset }

    /// True when the record belongs to an earlier log of the partition.
    public var isOfEarlierLog: Bool { offset < 0 }

    /// Record of the same offset in the partition's earlier log.
    public var inEarlierLog: RecordPlace {
        isOfEarlierLog ? self : RecordPlace(partitionSlot: partitionSlot, offset: offset &- Self.bias)
    }
}

/// The record of the jobs topic that something comes from, by the slot of its partition.
///
/// A partition whose log began anew can still have items of its earlier log. Their offsets are told apart by a bias that
/// makes them lower than all offsets of the present log: they came before it.
public struct RecordPlace: Hashable, BitwiseCopyable, Sendable {
    public var partitionSlot: UInt16
    /// In the record's own log 0 or more; of an earlier log less than 0.
    public var offset: Int64

    public init(partitionSlot: UInt16, offset: Int64) {
        self.partitionSlot = partitionSlot
        self.offset = offset
    }

    /// Highest offset of a record that has room for the bias.
    private static let bias: Int64 = 1 << 60

    /// The offset as Kafka, the store and outcomes know it.
    public var recordOffset: Int64 { isOfEarlierLog ? offset &+ Self.bias : offset }

    public var isOfEarlierLog: Bool { offset < 0 }

    /// The record of the same offset in the partition's log before this one.
    public var inEarlierLog: RecordPlace {
        isOfEarlierLog ? self : RecordPlace(partitionSlot: partitionSlot, offset: offset &- Self.bias)
    }
}

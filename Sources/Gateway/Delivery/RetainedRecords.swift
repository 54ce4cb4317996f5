/// What was produced in the open transaction: should it be aborted, all of it is produced again. Kept in memory that is
/// used again and again.
struct RetainedRecords {
    struct Entry {
        /// Index in the writer's topics.
        var topic: Int
        var partition: Int32
        var key: Range<Int>
        /// Nil: no value.
        var value: Range<Int>?
        var opaque: UInt
        /// Of the jobs' partition.
        var partitionSlot: UInt16
    }

    private(set) var entries: [Entry] = []
    private var bytes: [UInt8] = []

    mutating func append(
        topic: Int, partition: Int32, key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?,
        opaque: UInt, partitionSlot: UInt16
    ) {
        let start = bytes.count
        bytes.append(contentsOf: key)
        let middle = bytes.count
        if let value { bytes.append(contentsOf: value) }
        entries.append(
            Entry(
                topic: topic, partition: partition, key: start..<middle,
                value: value.map { _ in middle..<bytes.count }, opaque: opaque, partitionSlot: partitionSlot))
    }

    func key(_ entry: Entry) -> [UInt8] { Array(bytes[entry.key]) }

    func value(_ entry: Entry) -> [UInt8]? { entry.value.map { Array(bytes[$0]) } }

    mutating func removeAll() {
        entries.removeAll(keepingCapacity: true)
        bytes.removeAll(keepingCapacity: true)
    }
}

import CRocksDB
import SluiceModel

/// A batch's changes of due entries. They are written in the order of their keys: each then finds its place in the
/// memtable from where the one before it went, instead of from the top.
struct DueChanges {
    private struct Change: BitwiseCopyable {
        var due: UInt64
        var device: DeviceKey
        var offset: Int64
        var partition: Int32
        var isPut: Bool
        /// Of two changes of one key the later one counts.
        var number: UInt32

        var key: ItemKey { ItemKey(device: device, offset: offset) }

        @inline(__always)
        static func precedes(_ left: Change, _ right: Change) -> Bool {
            if left.partition != right.partition { return left.partition < right.partition }
            if left.due != right.due { return left.due < right.due }
            if left.device.high != right.device.high { return left.device.high < right.device.high }
            if left.device.low != right.device.low { return left.device.low < right.device.low }
            let (offset, other) = (UInt64(bitPattern: left.offset), UInt64(bitPattern: right.offset))
            return offset != other ? offset < other : left.number < right.number
        }

        @inline(__always)
        func hasKey(of other: Change) -> Bool {
            partition == other.partition && due == other.due && device == other.device
                && offset == other.offset
        }
    }

    private var changes: [Change] = []
    private var partitions: [StorePartition] = []

    mutating func add(_ partition: StorePartition, due: Int64, _ key: ItemKey, isPut: Bool) {
        changes.append(
            Change(
                due: UInt64(max(0, due)), device: key.device, offset: key.offset,
                partition: place(of: partition),
                isPut: isPut, number: UInt32(truncatingIfNeeded: changes.count)))
    }

    /// Most batches are of few partitions, and a partition's changes often come together.
    private mutating func place(of partition: StorePartition) -> Int32 {
        for place in partitions.indices.reversed() where partitions[place] === partition {
            return Int32(place)
        }
        partitions.append(partition)
        return Int32(partitions.count - 1)
    }

    mutating func write(to batch: OpaquePointer) {
        changes.sort(by: Change.precedes)
        for index in changes.indices {
            let change = changes[index]
            if index + 1 < changes.count, changes[index + 1].hasKey(of: change) { continue }
            let handle = partitions[Int(change.partition)].due.handle
            withKey(DueKeyBytes(due: Int64(bitPattern: change.due), change.key)) { key, count in
                if change.isPut {
                    rocksdb_writebatch_put_cf(batch, handle, key, count, nil, 0)
                } else {
                    rocksdb_writebatch_delete_cf(batch, handle, key, count)
                }
            }
        }
    }

    mutating func removeAll() {
        changes.removeAll(keepingCapacity: true)
        partitions.removeAll(keepingCapacity: true)
    }
}

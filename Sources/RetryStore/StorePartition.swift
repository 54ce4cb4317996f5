/// A partition of the jobs topic in the store, with handles of its column families. The database stays open, and its
/// directory in use, until the last partition is released.
public final class StorePartition: Sendable {
    /// Partition number in the jobs topic.
    public let number: Int32

    /// Items: DeviceKey, offset → due, stored push.
    let items: ColumnFamily
    /// Due entries, a single one for each item: due, DeviceKey, offset → the topic's hash if the push is suspended,
    /// else nothing.
    let due: ColumnFamily
    /// Device states: DeviceKey → state.
    let devices: ColumnFamily
    let nextDueCache = NextDueCache()

    init(number: Int32, items: ColumnFamily, due: ColumnFamily, devices: ColumnFamily) {
        self.number = number
        self.items = items
        self.due = due
        self.devices = devices
    }

    var families: [ColumnFamily] { [items, due, devices] }

    enum Kind: String, CaseIterable {
        case items, due, devices
    }

    /// The name of a column family of a partition.
    struct Family {
        var kind: Kind
        var partition: Int32

        init(_ kind: Kind, _ partition: Int32) {
            self.kind = kind
            self.partition = partition
        }

        /// Parses a name; nil for a name of no partition's column family.
        init?(_ name: String) {
            guard let hyphen = name.firstIndex(of: "-"), let kind = Kind(rawValue: String(name[..<hyphen])),
                let partition = Int32(name[name.index(after: hyphen)...]), partition >= 0
            else { return nil }
            self.init(kind, partition)
        }

        var name: String { "\(kind.rawValue)-\(partition)" }
    }
}

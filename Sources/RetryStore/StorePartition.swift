/// A partition of the jobs topic in the store: handles of its column families, alive as long as it is. The database
/// stays open, and its directory in use, until the last one is gone.
public final class StorePartition: Sendable {
    /// Of the jobs topic.
    public let number: Int32

    /// DeviceKey, offset → due, stored push.
    let items: ColumnFamily
    /// Due, DeviceKey, offset → nothing. One entry for each item.
    let due: ColumnFamily
    /// DeviceKey → state.
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

        /// Nil for a name that isn't one.
        init?(_ name: String) {
            guard let hyphen = name.firstIndex(of: "-"), let kind = Kind(rawValue: String(name[..<hyphen])),
                let partition = Int32(name[name.index(after: hyphen)...]), partition >= 0
            else { return nil }
            self.init(kind, partition)
        }

        var name: String { "\(kind.rawValue)-\(partition)" }
    }
}

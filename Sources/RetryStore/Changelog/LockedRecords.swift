import SluiceModel
import StoreEncryption

/// Items of a partition of the changelog whose latest value can't be read, because its key is missing. Older values of
/// an item that has ended, or that was written again, need no key: the topic keeps them until it is compacted.
public struct LockedRecords: Sendable {
    /// A value that can't be read.
    public struct Record: Equatable, Sendable {
        /// Offset of the record in the changelog.
        public var offset: Int64
        public var fault: SealedValueError
    }

    private let hasher: IdentityHasher
    private let most: Int
    private var records: [ItemKey: Record] = [:]

    /// - Parameters:
    ///   - hasher: the store's.
    ///   - most: number of items beyond which ``isFull`` is true.
    public init(hasher: IdentityHasher, most: Int = 100_000) {
        self.hasher = hasher
        self.most = most
    }

    /// Number of the items.
    public var count: Int { records.count }
    /// Whether more items can't be read than are worth remembering.
    public var isFull: Bool { records.count > most }
    /// The first of the records; nil: all items can be read.
    public var first: Record? { records.values.min { $0.offset < $1.offset } }

    /// Notes the next record.
    /// - Parameters:
    ///   - key: the record's key.
    ///   - offset: the record's offset in the changelog.
    ///   - fault: fault of the record's value; nil: the value can be read, or the record removes the item.
    public mutating func note(_ key: UnsafeRawBufferPointer?, offset: Int64, _ fault: SealedValueError?) {
        guard fault != nil || !records.isEmpty, let key,
            case .item(let item, let token)? = ChangelogKey(key)
        else { return }
        let itemKey = ItemKey(device: hasher.device(token), offset: item)
        records[itemKey] = fault.map { Record(offset: offset, fault: $0) }
    }
}

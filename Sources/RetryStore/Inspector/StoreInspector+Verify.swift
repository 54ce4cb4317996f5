import CRocksDB
import SluiceModel
import StoreEncryption

/// An inconsistency in a store.
public struct StoreProblem: Hashable, Sendable, CustomStringConvertible {
    /// Kind of the inconsistency; times are in milliseconds since the epoch.
    public enum Kind: Hashable, Sendable {
        /// An item has no due entry of its time, so no scan would ever find the item.
        case itemWithoutDue(Int64)
        /// A due entry belongs to no item.
        case dueWithoutItem(Int64)
        /// A due entry's item has another time.
        case dueOfOtherTime(Int64, item: Int64)
        /// An item's bytes are no push.
        case push(StoredPushError)
        /// A push can be read, but this part exceeds a limit of this version.
        case unsendable(StoredPushError.Part)
        /// An encrypted value can't be read.
        case sealed(SealedValueError)
        /// An item's push belongs to another record or device than its key.
        case otherPush
        /// The mark of a record can't be read.
        case mark
        /// An entry's key or value has a length that can't be.
        case shape(columnFamily: String)
        /// A device's state can't be read.
        case deviceState
        /// The column families of the partition aren't complete.
        case incompletePartition
        /// A column family can't be read to its end.
        case unreadable(String)
    }

    /// Number of the partition; nil: of a column family that belongs to no known partition.
    public var partition: Int32?
    /// Key of the item; nil: the problem has no item, or its key isn't known.
    public var key: ItemKey?
    public var kind: Kind

    public var description: String {
        let place =
            "partition \(partition.map { "\($0)" } ?? "?")" + (key.map { ", offset \($0.offset)" } ?? "")
        switch kind {
        case .itemWithoutDue(let due): return "\(place): an item that is due at \(due) has no due entry"
        case .dueWithoutItem(let due): return "\(place): a due entry at \(due) belongs to no item"
        case .dueOfOtherTime(let due, let item):
            return "\(place): a due entry at \(due) belongs to an item that is due at \(item)"
        case .push(let error): return "\(place): \(error)"
        case .unsendable(let part):
            return
                "\(place): a push's \(part.rawValue) exceeds a limit of this version, so the push can't be sent"
        case .sealed(let error): return "\(place): \(error)"
        case .otherPush: return "\(place): an item holds the push of another record or device"
        case .mark: return "\(place): the mark of a record can't be read"
        case .shape(let name): return "\(place): an entry of \(name) has an invalid length"
        case .deviceState: return "\(place): the state of a device can't be read"
        case .incompletePartition: return "\(place): some of its column families are missing"
        case .unreadable(let text): return "\(place): \(text)"
        }
    }
}

/// Result of ``StoreInspector/verify(problemLimit:)``.
public struct StoreReport: Sendable {
    /// Items of all partitions.
    public var items = 0
    /// Marks of records whose pushes are or were under other device tokens.
    public var marks = 0
    /// Entries of the due indexes.
    public var dueEntries = 0
    /// Devices with a state.
    public var deviceStates = 0
    /// Bytes of all items' pushes.
    public var pushBytes = 0
    /// Encrypted values that were not checked, because the inspector has no keys.
    public var locked = 0
    /// First problems found, up to the limit.
    public var problems: [StoreProblem] = []
    /// Number of all problems, those beyond the limit included.
    public var problemCount = 0

    /// Whether the store has no problem.
    public var isSound: Bool { problemCount == 0 }
}

extension StoreInspector {
    /// Reads the whole store and checks its consistency. Each item must have exactly one due entry, of its time, and
    /// each due entry an item. Each push must be readable and belong to its key.
    /// - Parameter problemLimit: most problems to report one by one.
    public func verify(problemLimit: Int = 100) -> StoreReport {
        var check = StoreCheck(
            hasher: reader.hasher, cipher: reader.cipher, problemLimit: problemLimit)
        for family in opened.remains {
            check.report(.incompletePartition, StorePartition.Family(family.name)?.partition)
        }
        for number in reader.partitions {
            guard let partition = opened.partitions[number] else { continue }
            check.check(partition)
        }
        return check.report
    }
}

private struct StoreCheck {
    let hasher: IdentityHasher
    let cipher: ValueCipher?
    let problemLimit: Int
    private(set) var report = StoreReport()

    init(hasher: IdentityHasher, cipher: ValueCipher?, problemLimit: Int) {
        self.hasher = hasher
        self.cipher = cipher
        self.problemLimit = problemLimit
    }

    mutating func report(_ kind: StoreProblem.Kind, _ partition: Int32?, _ key: ItemKey? = nil) {
        report.problemCount += 1
        if report.problems.count < problemLimit {
            report.problems.append(StoreProblem(partition: partition, key: key, kind: kind))
        }
    }

    mutating func check(_ partition: StorePartition) {
        var matched = 0
        forEach(partition.items, partition.number) { check, iterator throws(RetryStoreError) in
            if try check.checkItem(iterator, partition) { matched += 1 }
        }
        var dues = 0
        forEach(partition.due, partition.number) { check, iterator throws(RetryStoreError) in
            guard DueKeyBytes(iterator.key) != nil else {
                check.report(.shape(columnFamily: partition.due.name), partition.number)
                return
            }
            dues += 1
        }
        report.dueEntries += dues
        // Each matched item has an entry of its own. Equal counts therefore account for all entries.
        if dues != matched {
            forEach(partition.due, partition.number) { check, iterator throws(RetryStoreError) in
                try check.checkDue(iterator, partition)
            }
        }
        forEach(partition.devices, partition.number) { check, iterator throws(RetryStoreError) in
            check.report.deviceStates += 1
            if DeviceKeyBytes(iterator.key) == nil {
                check.report(.shape(columnFamily: partition.devices.name), partition.number)
            } else if DeviceStateBytes.read(iterator.value) == nil {
                check.report(.deviceState, partition.number)
            } else if let token = DeviceStateBytes.sealedToken(iterator.value),
                let device = DeviceKeyBytes(iterator.key)?.device
            {
                check.open(token, .device(partition: partition.number, device), partition.number) { _, _ in }
            }
        }
    }

    /// Checks an item, and returns whether it has its due entry.
    private mutating func checkItem(
        _ iterator: StoreIterator, _ partition: StorePartition
    ) throws(RetryStoreError) -> Bool {
        let value = iterator.value
        if let key = ItemKeyBytes(iterator.key)?.key, RelocationMarkBytes.isKey(key) {
            report.marks += 1
            if RelocationMarkBytes.read(key, value) == nil { report(.mark, partition.number, key) }
            return false
        }
        guard let key = ItemKeyBytes(iterator.key)?.key, let due = DueBytes(prefixOf: value)?.due else {
            report(.shape(columnFamily: partition.items.name), partition.number)
            return false
        }
        report.items += 1
        let push = UnsafeRawBufferPointer(rebasing: value[DueBytes.count...])
        report.pushBytes += push.count
        if SealedValue.isSealed(push) {
            open(push, .item(partition: partition.number, offset: key.offset), partition.number, key) {
                $0.checkPush($1, key, partition.number)
            }
        } else {
            checkPush(push, key, partition.number)
        }
        guard try partition.due.withValue(of: DueKeyBytes(due: due, key), { _ in true }) != nil else {
            report(.itemWithoutDue(due), partition.number, key)
            return false
        }
        return true
    }

    /// Passes the plain bytes of an encrypted value to `body`, or reports the fault.
    private mutating func open(
        _ sealed: UnsafeRawBufferPointer, _ place: ValuePlace, _ partition: Int32, _ key: ItemKey? = nil,
        _ body: (inout StoreCheck, UnsafeRawBufferPointer) -> Void
    ) {
        guard let cipher else {
            report.locked += 1
            return
        }
        var plain = ByteWriter(minimumCapacity: sealed.count)
        do throws(SealedValueError) {
            try cipher.open(sealed, at: place, into: &plain)
            body(&self, plain.bytes)
        } catch {
            report(.sealed(error), partition, key)
        }
    }

    private mutating func checkPush(_ bytes: UnsafeRawBufferPointer, _ key: ItemKey, _ partition: Int32) {
        withUnsafeTemporaryAllocation(byteCount: StoredPush.longestToken, alignment: 1) { text in
            do throws(StoredPushError) {
                let stored = try StoredPush(decoding: bytes, tokenText: text)
                guard stored.partition == partition, stored.offset == key.offset,
                    hasher.device(stored.push.deviceToken) == key.device
                else {
                    report(.otherPush, partition, key)
                    return
                }
                if let part = stored.unsendablePart { report(.unsendable(part), partition, key) }
            } catch {
                report(.push(error), partition, key)
            }
        }
    }

    private mutating func checkDue(
        _ iterator: StoreIterator, _ partition: StorePartition
    ) throws(RetryStoreError) {
        guard let entry = DueKeyBytes(iterator.key)?.entry else { return }
        let item = try partition.items.withValue(of: ItemKeyBytes(entry.key)) { DueBytes(prefixOf: $0)?.due }
        switch item {
        case nil: report(.dueWithoutItem(entry.due), partition.number, entry.key)
        // Reported already, as an entry of the items that isn't an item.
        case .some(nil): break
        case .some(let due?):
            if due != entry.due {
                report(.dueOfOtherTime(entry.due, item: due), partition.number, entry.key)
            }
        }
    }

    /// Passes all entries to `body`, and reports a failure before the end of the column family.
    private mutating func forEach(
        _ family: ColumnFamily, _ partition: Int32,
        _ body: (inout StoreCheck, StoreIterator) throws(RetryStoreError) -> Void
    ) {
        let iterator = StoreIterator(family, .total, isOnce: true)
        iterator.seekToFirst()
        do throws(RetryStoreError) {
            while iterator.isValid {
                try body(&self, iterator)
                iterator.next()
            }
            try iterator.check()
        } catch {
            report(.unreadable(error.description), partition)
        }
    }
}

import DeliveryCore
import SluiceModel

/// A durable store of items, due times, presences and marks.
///
/// The store keeps items by the partition and offset of their record and by device token. The due times are the next
/// moments at which items have to be looked at. The marks name records whose items are under another token.
///
/// All workers share the store, as if each partition returned to the disk where it was before. Writes that aren't
/// synced yet can be undone, newest first.
struct StoreModel {
    struct Entry {
        var job: Int
        var token: Int
        var due: Int64
        var progress: ItemProgress
        /// The auditor's view of the item.
        var copy: Copy
        /// Error of the worker's clock at the moment of the write, in milliseconds.
        var clockError: Int64
    }

    /// Key of a due entry; the due entries are in the order of their keys.
    struct Due: Comparable {
        var due: Int64
        var token: Int
        var job: Int

        static func < (one: Due, other: Due) -> Bool {
            (one.due, one.token, one.job) < (other.due, other.token, other.job)
        }
    }

    /// A write.
    enum Write {
        /// Puts an item in the place of the key that the item had.
        case put(Entry, replacing: StoredKey?)
        case remove(job: Int, StoredKey)
        case presence(KnownPresence, token: Int)
        /// Marks a record whose item is under another token than the record names.
        case mark(job: Int)
        case unmark(job: Int)
    }

    /// State before a write.
    private enum Change {
        case item(job: Int, Entry?)
        case due(Due, isThere: Bool)
        case presence(token: Int, KnownPresence?)
        case mark(job: Int, isThere: Bool)
    }

    private let tokens: Int
    /// By partition and token.
    private var bins: [[Entry]]
    private var presences: [KnownPresence?]
    private(set) var dues: [[Due]]
    private(set) var marks: [[Int]]
    /// By job: the token under which the store has the item, -1 for none.
    private var tokenOf: [Int] = []
    private var unsynced: [[(batch: Int, change: Change)]]
    private(set) var count = 0
    private(set) var batches = 0

    init(partitions: Int, tokens: Int) {
        self.tokens = tokens
        bins = [[Entry]](repeating: [], count: partitions * tokens)
        presences = [KnownPresence?](repeating: nil, count: partitions * tokens)
        dues = [[Due]](repeating: [], count: partitions)
        marks = [[Int]](repeating: [], count: partitions)
        unsynced = [[(batch: Int, change: Change)]](repeating: [], count: partitions)
    }

    func entries(_ partition: Int, _ token: Int) -> [Entry] { bins[partition * tokens + token] }
    func presence(_ partition: Int, _ token: Int) -> KnownPresence? { presences[partition * tokens + token] }
    func token(of job: Int) -> Int { job < tokenOf.count ? tokenOf[job] : -1 }

    /// Returns whether the item would survive a power loss.
    func isDurable(_ job: Int, _ partition: Int) -> Bool {
        for (_, change) in unsynced[partition] {
            if case .item(job, let before) = change { return before != nil }
        }
        return token(of: job) >= 0
    }

    // MARK: Writes

    mutating func beginBatch() { batches += 1 }

    mutating func write(_ write: Write, _ partition: Int) {
        switch write {
        case .put(let entry, let replacing):
            if let key = replacing, key.token != entry.token { removeItem(entry.job, key.token, partition) }
            if let key = replacing, key != StoredKey(token: entry.token, due: entry.due) {
                removeDue(key, entry.job, partition)
            }
            putItem(entry, partition)
            let due = Due(due: entry.due, token: entry.token, job: entry.job)
            if !dues[partition].contains(due) {
                note(.due(due, isThere: false), partition)
                dues[partition].append(due)
            }
        case .remove(let job, let key):
            removeItem(job, key.token, partition)
            removeDue(key, job, partition)
        case .presence(let known, let token):
            note(.presence(token: token, presences[partition * tokens + token]), partition)
            presences[partition * tokens + token] = known
        case .mark(let job):
            guard !marks[partition].contains(job) else { return }
            note(.mark(job: job, isThere: false), partition)
            marks[partition].append(job)
        case .unmark(let job):
            guard marks[partition].contains(job) else { return }
            note(.mark(job: job, isThere: true), partition)
            marks[partition].removeAll { $0 == job }
        }
    }

    /// Updates the auditor's view of an item that leaves memory.
    mutating func see(_ copy: Copy, _ partition: Int) {
        let bin = partition * tokens + copy.address
        for index in bins[bin].indices where bins[bin][index].job == copy.job {
            bins[bin][index].copy = copy
        }
    }

    private mutating func note(_ change: Change, _ partition: Int) {
        unsynced[partition].append((batches, change))
    }

    private mutating func putItem(_ entry: Entry, _ partition: Int) {
        let bin = partition * tokens + entry.token
        let index = bins[bin].firstIndex { $0.job == entry.job }
        note(.item(job: entry.job, index.map { bins[bin][$0] }), partition)
        if let index {
            bins[bin][index] = entry
        } else {
            bins[bin].append(entry)
            count += 1
        }
        place(entry.job, entry.token)
    }

    private mutating func removeItem(_ job: Int, _ token: Int, _ partition: Int) {
        let bin = partition * tokens + token
        guard let index = bins[bin].firstIndex(where: { $0.job == job }) else { return }
        note(.item(job: job, bins[bin][index]), partition)
        bins[bin].remove(at: index)
        count -= 1
        place(job, -1)
    }

    private mutating func removeDue(_ key: StoredKey, _ job: Int, _ partition: Int) {
        let due = Due(due: key.due, token: key.token, job: job)
        guard let index = dues[partition].firstIndex(of: due) else { return }
        note(.due(due, isThere: true), partition)
        dues[partition].swapAt(index, dues[partition].count - 1)
        dues[partition].removeLast()
    }

    private mutating func place(_ job: Int, _ token: Int) {
        while tokenOf.count <= job { tokenOf.append(-1) }
        tokenOf[job] = token
    }

    // MARK: Durability

    mutating func sync(_ partition: Int) { unsynced[partition].removeAll(keepingCapacity: true) }

    /// Returns the numbers of the batches with unsynced writes to these partitions, in ascending order.
    func unsyncedBatches(_ partitions: [Int]) -> [Int] {
        Set(partitions.flatMap { unsynced[$0].map(\.batch) }).sorted()
    }

    /// Undoes the unsynced writes from this batch on.
    mutating func losePower(_ partition: Int, from batch: Int) {
        while let last = unsynced[partition].last, last.batch >= batch {
            unsynced[partition].removeLast()
            switch last.change {
            case .item(let job, let before):
                if tokenOf[job] >= 0 {
                    bins[partition * tokens + tokenOf[job]].removeAll { $0.job == job }
                    count -= 1
                }
                if let before {
                    bins[partition * tokens + before.token].append(before)
                    count += 1
                }
                place(job, before?.token ?? -1)
            case .due(let due, let isThere):
                dues[partition].removeAll { $0 == due }
                if isThere { dues[partition].append(due) }
            case .presence(let token, let before): presences[partition * tokens + token] = before
            case .mark(let job, let isThere):
                marks[partition].removeAll { $0 == job }
                if isThere { marks[partition].append(job) }
            }
        }
        unsynced[partition].removeAll(keepingCapacity: true)
    }
}

/// A key under which the store has an item.
struct StoredKey: Equatable {
    var token: Int
    var due: Int64
}

/// Batch that a shard hands to the store.
struct StoreBatch {
    struct Load {
        var token: Int
        var partition: Int
        var hasItems: Bool
    }

    var shard: Int
    var writes: [(partition: Int, write: StoreModel.Write)] = []
    var loads: [Load] = []
    /// Items that move to other shards, after the store has them under their new tokens.
    var migrations: [ShardStore.Migration] = []
    /// Requests that the machine expects to finish with the batch.
    var requests = StoreRequests()

    var isEmpty: Bool { writes.isEmpty && loads.isEmpty }
}

/// An answer of the store to a worker's shards.
enum StoreAnswer {
    /// The batch is done, with the items and the presence that each load has found.
    case done(StoreBatch, loaded: [(items: [StoreModel.Entry], presence: KnownPresence?)])
    /// Whether the store fails; false when it works again.
    case isFailing(Bool)
}

import DeliveryCore
import SluiceModel

/// An item, as a store or the changelog has it.
struct FleetItem {
    var job: Int
    var due: Int64
    var progress: ItemProgress
}

/// The key of an item: its device token, and the offset of its record.
struct FleetItemKey: Hashable {
    var token: Int
    var offset: Int64
}

/// Write to a part of a store, or a record of the changelog.
enum FleetChange {
    case put(FleetItemKey, FleetItem, replacingDue: Int64?)
    /// Without `due` it is looked up, as a restorer does.
    case remove(FleetItemKey, due: Int64?)
    case presence(token: Int, KnownPresence)
    case forget(token: Int)
    case mark(offset: Int64, APNSID)
    case unmark(offset: Int64)

    /// The key of the changelog's record.
    var key: Int {
        switch self {
        case .put(let key, _, _), .remove(let key, _): 1 << 60 | key.token << 40 | Int(key.offset)
        case .presence(let token, _), .forget(let token): 2 << 60 | token
        case .mark(let offset, _), .unmark(let offset): 3 << 60 | Int(offset)
        }
    }

    var isTombstone: Bool {
        switch self {
        case .remove, .forget, .unmark: true
        case .put, .presence, .mark: false
        }
    }
}

/// A partition's part of a store.
final class FleetPart {
    let partition: Int32
    private(set) var items: [FleetItemKey: FleetItem] = [:]
    private(set) var dues: Set<DueItem> = []
    private(set) var presences: [Int: KnownPresence] = [:]
    private(set) var marks: [Int64: APNSID] = [:]

    /// State before a write.
    private enum Undo {
        case item(FleetItemKey, FleetItem?)
        case due(DueItem, isThere: Bool)
        case presence(Int, KnownPresence?)
        case mark(Int64, APNSID?)
    }

    /// States before the writes that a power loss could take back, in their order.
    private var unsynced: [(batch: Int, undo: Undo)] = []

    init(_ partition: Int32) { self.partition = partition }

    /// Where the device is found in the store's indexes.
    func perform(_ change: FleetChange, batch: Int, _ keys: [DeviceKey]) {
        switch change {
        case .put(let key, let item, let replacingDue):
            if let due = replacingDue, due != item.due {
                setDue(DueItem(due: due, device: keys[key.token], offset: key.offset), false, batch)
            }
            if replacingDue == nil, let old = items[key], old.due != item.due {
                // A restorer looks up what it replaces.
                setDue(DueItem(due: old.due, device: keys[key.token], offset: key.offset), false, batch)
            }
            unsynced.append((batch, .item(key, items[key])))
            items[key] = item
            setDue(DueItem(due: item.due, device: keys[key.token], offset: key.offset), true, batch)
        case .remove(let key, let due):
            let old = items[key]
            unsynced.append((batch, .item(key, old)))
            items[key] = nil
            guard let due = due ?? old?.due else { return }
            setDue(DueItem(due: due, device: keys[key.token], offset: key.offset), false, batch)
        case .presence(let token, let known):
            unsynced.append((batch, .presence(token, presences[token])))
            presences[token] = known
        case .forget(let token):
            unsynced.append((batch, .presence(token, presences[token])))
            presences[token] = nil
        case .mark(let offset, let id):
            unsynced.append((batch, .mark(offset, marks[offset])))
            marks[offset] = id
        case .unmark(let offset):
            unsynced.append((batch, .mark(offset, marks[offset])))
            marks[offset] = nil
        }
    }

    private func setDue(_ due: DueItem, _ isThere: Bool, _ batch: Int) {
        unsynced.append((batch, .due(due, isThere: dues.contains(due))))
        if isThere { dues.insert(due) } else { dues.remove(due) }
    }

    func sync() { unsynced.removeAll(keepingCapacity: true) }

    /// Numbers of the batches that aren't on the disk for sure.
    var unsyncedBatches: [Int] { unsynced.map(\.batch) }

    /// Loses the writes from this batch on.
    func losePower(from batch: Int) {
        while let last = unsynced.last, last.batch >= batch {
            unsynced.removeLast()
            switch last.undo {
            case .item(let key, let before): items[key] = before
            case .due(let due, let isThere): if isThere { dues.insert(due) } else { dues.remove(due) }
            case .presence(let token, let before): presences[token] = before
            case .mark(let offset, let before): marks[offset] = before
            }
        }
        unsynced = []
    }

    /// Returns whether a power loss would leave the job's item there, under any token.
    func isDurable(_ job: Int) -> Bool {
        var seen: Set<FleetItemKey> = []
        for (_, undo) in unsynced {
            guard case .item(let key, let before) = undo, seen.insert(key).inserted else { continue }
            if before?.job == job { return true }
        }
        return items.contains { $0.value.job == job && !seen.contains($0.key) }
    }

    /// An entry that no item needs any more; nil: there is none.
    var leftover: String? {
        if let due = dues.first(where: { due in !items.contains { $0.key.offset == due.offset } }) {
            return "the moment of offset \(due.offset)"
        }
        return marks.isEmpty || !items.isEmpty ? nil : "\(marks.count) marks"
    }

    /// Items of a device, in the order of their offsets.
    /// Topic of a due entry; nil: its item doesn't wait with its topic.
    func suspendedTopic(of entry: DueItem, _ world: FleetWorld) -> UInt32? {
        guard let token = world.token(of: entry.device),
            let item = items[FleetItemKey(token: token, offset: entry.offset)],
            item.due == entry.due, item.progress.wait == .suspended
        else { return nil }
        return UInt32(world.topic(of: world.jobs[item.job].token))
    }

    func items(of token: Int) -> [(offset: Int64, item: FleetItem)] {
        var found: [(offset: Int64, item: FleetItem)] = []
        for (key, item) in items where key.token == token { found.append((key.offset, item)) }
        found.sort { $0.offset < $1.offset }
        return found
    }
}

/// The disk of a host, with the store of the worker there.
final class FleetDisk {
    /// A place in the changelog that a copy was left at.
    struct Position {
        var offset: Int64
        var reachedMilliseconds: Int64
    }

    private(set) var parts: [Int32: FleetPart] = [:]
    private(set) var positions: [Int32: Position] = [:]
    private(set) var batches = 0
    /// True while the disk fails all reads and writes: full, or broken.
    var isFailing = false

    func beginBatch() -> Int {
        batches += 1
        return batches
    }

    func open(_ partition: Int32) -> FleetPart {
        if let part = parts[partition] { return part }
        let part = FleetPart(partition)
        parts[partition] = part
        return part
    }

    /// Gives copies with their positions, or empty ones; no position is known any more.
    func openCopies(_ partitions: [Int32], reachedAfter: Int64, notAfter: Int64) -> [Int32: Int64] {
        var kept: [Int32: Int64] = [:]
        for partition in partitions {
            if let position = positions.removeValue(forKey: partition), parts[partition] != nil,
                position.reachedMilliseconds > reachedAfter, position.reachedMilliseconds <= notAfter
            {
                kept[partition] = position.offset
            } else {
                parts[partition] = FleetPart(partition)
            }
        }
        return kept
    }

    func checkpoint(_ part: FleetPart, _ position: Position) {
        guard parts[part.partition] === part else { return }
        part.sync()
        positions[part.partition] = position
    }

    func drop(except kept: Set<Int32>, reachedAfter: Int64) {
        for partition in parts.keys where !kept.contains(partition) {
            if let position = positions[partition], position.reachedMilliseconds > reachedAfter { continue }
            parts[partition] = nil
            positions[partition] = nil
        }
    }

    func sync() { for part in parts.values { part.sync() } }

    /// Loses unsynced writes from a drawn batch on.
    func losePower(_ below: (Int) -> Int) {
        let batches = Set(parts.values.flatMap(\.unsyncedBatches)).sorted()
        guard !batches.isEmpty else { return }
        let first = batches[below(batches.count)]
        for part in parts.values { part.losePower(from: first) }
    }

    func isDurable(_ job: Int, _ partition: Int) -> Bool { parts[Int32(partition)]?.isDurable(job) ?? false }
}

/// Batch that a shard hands to the store.
struct FleetBatch {
    var writes: [(part: FleetPart, change: FleetChange)] = []
    var loads: [(part: FleetPart, token: Int, withItems: Bool)] = []
    /// Items that go to other shards, which the store has under their new tokens.
    var migrations: [ShardProcess.Migration] = []
    /// Loads that are reported to the residency when the batch is done.
    var requests = StoreRequests()

    var isEmpty: Bool { writes.isEmpty && loads.isEmpty }
}

/// Result of a load.
struct FleetLoaded {
    var presence: KnownPresence?
    var items: [(offset: Int64, item: FleetItem)]
}

/// Offsets of a partition below this one are committed.
final class FleetCommitted {
    private(set) var offset: Int64

    init(_ offset: Int64) { self.offset = offset }

    func advance(to offset: Int64) { self.offset = max(self.offset, offset) }
}

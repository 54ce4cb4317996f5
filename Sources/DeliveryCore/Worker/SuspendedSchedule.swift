/// Decides when the worker looks in the store for pushes that wait with their topic. They wait because APNs refuses the
/// topic, because the topic's credential has no connection, or because their tenant has used its share of the worker. No
/// clock returns such pushes before they expire.
///
/// A shard reports when it suspends a topic, and when the topic's pushes resume. A stopped topic costs only that entry,
/// for any number of pushes. Looks begin when a topic resumes, when a shard wants some pushes of a topic, and when a partition begins.
/// A partition begins with a look because nobody knows what the worker before has suspended. Entries of topics that are
/// stopped by then are read once. A want of some pushes takes those of the first partition that has any, and looks on there
/// while it lacks many. The next look begins with the next partition.
///
/// Items whose records are still to be read may not return yet. A record that an earlier worker has completed doesn't bring
/// its item along, so the partition is looked through again once these records are read.
///
/// A single look is under way at a time. No look begins while shards haven't taken what the last look found, because
/// returning pushes must not delay other loads.
public struct SuspendedSchedule: Sendable {
    /// Look through a part of a partition's due entries.
    public struct Look: Sendable, Equatable {
        /// Slot of the partition.
        public var slot: UInt16
        /// Hash of the topic; nil: any topic.
        public var topic: UInt32?
        /// Topics whose entries are skipped, and don't count for the limit.
        public var stopped: Set<UInt32>
        /// Last entry that was seen; nil: from the beginning.
        public var after: DueItem?
        /// Entries to find, at most.
        public var limit: Int
        fileprivate var want: UInt64
    }

    /// A push that waits with its topic.
    public struct Entry: Hashable, BitwiseCopyable, Sendable {
        /// Entry of the push in the due index.
        public var item: DueItem
        /// Hash of the push's topic.
        public var topic: UInt32

        public init(item: DueItem, topic: UInt32) {
            self.item = item
            self.topic = topic
        }
    }

    private struct Want: Sendable {
        var number: UInt64
        var topic: UInt32?
        /// Shards that receive what is found.
        var shards: Set<Int>
        var after: DueItem?
        /// Pushes that are enough; nil: all.
        var count: Int?
        var hasBegun = false
        /// True when a part of the pushes was found.
        var isRest = false

        /// Returns true when the shard wants some pushes of the topic.
        func isCounted(_ topic: UInt32?, _ shards: Set<Int>) -> Bool {
            count != nil && self.topic == topic && self.shards == shards
        }
    }

    /// Topic of a shard.
    private struct Place: Hashable {
        var topic: UInt32
        var shard: Int
    }

    private struct Partition: Sendable {
        var slot: UInt16
        var wants: [Want] = []
        /// Highest offset of an entry whose record is still to be read; nil: there is none.
        var ahead: Int64?
        var isEnding = false
        /// Entry at which a shard's last want of some pushes ended, so that the next one finds others.
        var ends: [Place: DueItem] = [:]
    }

    /// Entries of one look, at most.
    public static let mostEntries = 1024
    /// Entries of a look for a few pushes, at least.
    private static let leastEntries = 64
    /// Nanoseconds to wait after the store has failed.
    private static let pause: UInt64 = 1_000_000_000

    private let shards: Int
    private var partitions: [Partition] = []
    /// Topics that each shard has suspended, by shard.
    private var stopped: [Set<UInt32>]
    /// Look that hasn't ended; nil: no look is under way.
    private var looking: Look?
    /// Shards that haven't taken what the last look found, by the partition's slot.
    private var untaken: [UInt16: Int] = [:]
    private var turn = 0
    private var nextNumber: UInt64 = 0
    private var notBefore: UInt64 = 0

    public init(shards: Int) {
        self.shards = shards
        stopped = .init(repeating: [], count: shards)
    }

    /// True when nothing is looked for.
    public var isIdle: Bool { looking == nil && partitions.allSatisfy(\.wants.isEmpty) }

    // MARK: Partitions

    mutating func addPartition(_ slot: UInt16) {
        removePartition(slot)
        var partition = Partition(slot: slot)
        partition.wants = [want(nil, Set(0..<shards))]
        partitions.append(partition)
    }

    /// Ends the looks through a partition that the group revokes.
    mutating func revoke(_ slot: UInt16) {
        if let index = index(slot) { partitions[index].isEnding = true }
    }

    /// Partitions with entries whose records are still to be read, and the highest offset of these.
    var ahead: [(slot: UInt16, offset: Int64)] {
        partitions.compactMap { partition in partition.ahead.map { (partition.slot, $0) } }
    }

    /// Has a partition looked through again, because the records of ``ahead`` were read.
    mutating func readAhead(_ slot: UInt16) {
        guard let index = index(slot) else { return }
        partitions[index].ahead = nil
        let want = want(nil, Set(0..<shards))
        partitions[index].wants.append(want)
    }

    mutating func removePartition(_ slot: UInt16) {
        partitions.removeAll { $0.slot == slot }
        untaken[slot] = nil
        if looking?.slot == slot { looking = nil }
    }

    private func index(_ slot: UInt16) -> Int? { partitions.firstIndex { $0.slot == slot } }

    private mutating func want(_ topic: UInt32?, _ shards: Set<Int>) -> Want {
        nextNumber += 1
        return Want(number: nextNumber, topic: topic, shards: shards)
    }

    // MARK: Topics

    /// Notes that a shard's pushes of a topic wait in the store from now on.
    mutating func suspended(_ topic: UInt32, shard: Int) {
        guard stopped.indices.contains(shard) else { return }
        stopped[shard].insert(topic)
        for index in partitions.indices {
            for place in partitions[index].wants.indices where partitions[index].wants[place].topic == topic {
                partitions[index].wants[place].shards.remove(shard)
            }
            partitions[index].wants.removeAll(where: \.shards.isEmpty)
        }
    }

    /// Notes that a shard's pushes of a topic resume, and has them looked for.
    mutating func resumed(_ topic: UInt32, shard: Int) {
        guard stopped.indices.contains(shard) else { return }
        stopped[shard].remove(topic)
        removeCounted(topic, [shard])
        for index in partitions.indices {
            // A look that hasn't begun finds all that was suspended by now.
            let place = partitions[index].wants.firstIndex {
                !$0.hasBegun && $0.count == nil && ($0.topic == topic || $0.topic == nil)
            }
            if let place {
                partitions[index].wants[place].shards.insert(shard)
            } else {
                let want = want(topic, [shard])
                partitions[index].wants.append(want)
            }
        }
    }

    /// Notes that a shard wants some pushes of a topic that it has suspended.
    mutating func pushesWanted(_ topic: UInt32, count: Int, shard: Int) {
        guard stopped.indices.contains(shard),
            !partitions.contains(where: {
                !$0.isEnding && $0.wants.contains { $0.isRest && $0.isCounted(topic, [shard]) }
            })
        else { return }
        for index in partitions.indices
        where !partitions[index].wants.contains(where: { $0.isCounted(topic, [shard]) }) {
            var want = want(topic, [shard])
            want.count = max(1, min(count, Self.mostEntries))
            want.after = partitions[index].ends[Place(topic: topic, shard: shard)]
            partitions[index].wants.append(want)
        }
    }

    // MARK: Looks

    /// Begins the next look; nil: no look can begin at this moment.
    mutating func next(at now: UInt64) -> Look? {
        guard looking == nil, untaken.isEmpty, now >= notBefore else { return nil }
        for step in partitions.indices {
            let index = (turn + step) % partitions.count
            guard !partitions[index].isEnding,
                let place = partitions[index].wants.firstIndex(where: { $0.count != nil })
                    ?? partitions[index].wants.indices.first
            else { continue }
            turn = index + 1
            partitions[index].wants[place].hasBegun = true
            let want = partitions[index].wants[place]
            let look = Look(
                slot: partitions[index].slot, topic: want.topic,
                stopped: want.topic == nil ? stoppedEverywhere(want.shards) : [], after: want.after,
                limit: want.count.map { max(Self.leastEntries, $0) } ?? Self.mostEntries, want: want.number)
            looking = look
            return look
        }
        return nil
    }

    /// Takes the result of a look.
    /// - Parameters:
    ///   - found: the entries that were found; nil: the store failed.
    ///   - cursor: the last entry that was seen, whether it was found or not.
    ///   - isEnd: the partition has no more entries.
    ///   - mayReturn: whether the item of an offset may return now; otherwise its record is still to be read.
    /// - Returns: items for the shards.
    mutating func found(
        _ look: Look, _ found: [Entry]?, cursor: DueItem?, isEnd: Bool, at now: UInt64,
        mayReturn: (Int64) -> Bool
    ) -> [(shard: Int, items: [DueItem])] {
        guard looking == look else { return [] }
        looking = nil
        guard let found else {
            notBefore = now + Self.pause
            return []
        }
        guard let index = index(look.slot),
            let place = partitions[index].wants.firstIndex(where: { $0.number == look.want })
        else { return [] }
        let want = partitions[index].wants[place]
        var parts = [[DueItem]](repeating: [], count: shards)
        var last = cursor
        var count = 0
        for entry in found {
            guard mayReturn(entry.item.offset) else {
                partitions[index].ahead = max(partitions[index].ahead ?? .min, entry.item.offset)
                continue
            }
            let shard = shardIndex(ofHash: entry.item.device.low, shards: shards)
            guard want.shards.contains(shard), want.count != nil || !stopped[shard].contains(entry.topic)
            else {
                continue
            }
            parts[shard].append(entry.item)
            count += 1
            guard count == want.count else { continue }
            last = entry.item
            break
        }
        partitions[index].wants[place].after = last
        if let most = want.count, let topic = want.topic, let shard = want.shards.first {
            partitions[index].ends[Place(topic: topic, shard: shard)] = isEnd && count < most ? nil : last
        }
        if let most = want.count, count > 0 {
            removeCounted(want.topic, want.shards)
            if !isEnd, most - count >= Self.leastEntries {
                // Most of the entries may be those of other shards.
                var rest = want
                (rest.count, rest.after, rest.isRest) = (most - count, last, true)
                partitions[index].wants.append(rest)
            }
        } else if isEnd {
            partitions[index].wants.remove(at: place)
        }
        let handed = parts.enumerated().filter { !$0.element.isEmpty }.map { ($0.offset, $0.element) }
        if !handed.isEmpty { untaken[look.slot] = handed.count }
        return handed
    }

    /// Returns the topics that all of these shards have suspended. A look would find and leave all entries of such
    /// topics.
    private func stoppedEverywhere(_ shards: Set<Int>) -> Set<UInt32> {
        guard let first = shards.first else { return [] }
        return shards.reduce(stopped[first]) { $0.intersection(stopped[$1]) }
    }

    /// Ends a want of some pushes in all partitions, because the pushes of one partition are enough.
    private mutating func removeCounted(_ topic: UInt32?, _ shards: Set<Int>) {
        for index in partitions.indices {
            partitions[index].wants.removeAll { $0.isCounted(topic, shards) }
        }
    }

    /// Notes that a shard can take more.
    mutating func consumed(_ slot: UInt16) {
        guard let left = untaken[slot] else { return }
        untaken[slot] = left > 1 ? left - 1 : nil
    }
}

/// When the worker looks in the store for pushes that wait with their topic, because APNs refuses the topic or its
/// credential has no connection. No clock brings such pushes back before they expire.
///
/// A shard reports when it parks a topic, and when the topic's pushes go on. A topic of any number of pushes costs that entry
/// alone while it is stopped. Looks begin when a topic resumes, when a shard wants a probe, and when a partition begins,
/// because nobody knows then what the worker before has parked. Entries of topics that are stopped by then are read once.
/// A probe takes a few pushes of the first partition that has any, each time of another one.
///
/// A single look is under way at a time, and none while shards haven't taken what the last one found: pushes that come back must
/// not hold up what else is loaded.
public struct ParkedSchedule: Sendable {
    /// Look through a part of a partition's due entries.
    public struct Look: Sendable, Equatable {
        public var slot: UInt16
        /// Hash of the topic; nil: any.
        public var topic: UInt32?
        /// Topics whose entries are read over, and don't count for the limit.
        public var stopped: Set<UInt32>
        /// The last entry that was seen; nil: from the beginning.
        public var after: DueItem?
        /// Entries to find at most.
        public var limit: Int
        fileprivate var want: UInt64
    }

    /// A push that waits with its topic.
    public struct Entry: Hashable, BitwiseCopyable, Sendable {
        public var item: DueItem
        /// Hash of its topic.
        public var topic: UInt32

        public init(item: DueItem, topic: UInt32) {
            self.item = item
            self.topic = topic
        }
    }

    private struct Want: Sendable {
        var number: UInt64
        var topic: UInt32?
        /// Shards that get what is found.
        var shards: Set<Int>
        var after: DueItem?
        /// A few pushes are enough.
        var isProbe = false
        var hasBegun = false
    }

    private struct Partition: Sendable {
        var slot: UInt16
        var wants: [Want] = []
        var isEnding = false
        /// Where the last probe of a topic was found, so that each probe is another push.
        var probed: [UInt32: DueItem] = [:]
    }

    /// Entries of one look.
    public static let mostEntries = 1024
    private static let probeEntries = 64
    /// Pushes that a probe brings to memory.
    private static let probes = 4
    /// Nanoseconds to wait after the store has failed.
    private static let pause: UInt64 = 1_000_000_000

    private let shards: Int
    private var partitions: [Partition] = []
    /// Topics that each shard has parked.
    private var stopped: [Set<UInt32>]
    /// A look that hasn't ended.
    private var looking: Look?
    /// Shards that haven't taken what the last look found, by partition.
    private var untaken: [UInt16: Int] = [:]
    private var turn = 0
    private var nextNumber: UInt64 = 0
    private var notBefore: UInt64 = 0

    public init(shards: Int) {
        self.shards = shards
        stopped = .init(repeating: [], count: shards)
    }

    /// Nothing is looked for.
    public var isIdle: Bool { looking == nil && partitions.allSatisfy(\.wants.isEmpty) }

    // MARK: Partitions

    mutating func begin(_ slot: UInt16) {
        end(slot)
        var partition = Partition(slot: slot)
        partition.wants = [want(nil, Set(0..<shards))]
        partitions.append(partition)
    }

    /// The group takes the partition away.
    mutating func revoke(_ slot: UInt16) {
        if let index = index(slot) { partitions[index].isEnding = true }
    }

    mutating func end(_ slot: UInt16) {
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

    /// A shard's pushes of a topic wait in the store from here on.
    mutating func parked(_ topic: UInt32, shard: Int) {
        guard stopped.indices.contains(shard) else { return }
        stopped[shard].insert(topic)
        for index in partitions.indices {
            for place in partitions[index].wants.indices where partitions[index].wants[place].topic == topic {
                partitions[index].wants[place].shards.remove(shard)
            }
            partitions[index].wants.removeAll(where: \.shards.isEmpty)
        }
    }

    /// A shard's pushes of a topic go on.
    mutating func resumed(_ topic: UInt32, shard: Int) {
        guard stopped.indices.contains(shard) else { return }
        stopped[shard].remove(topic)
        removeProbes(of: topic, [shard])
        for index in partitions.indices {
            // A look that hasn't begun meets all that was parked by now.
            let place = partitions[index].wants.firstIndex {
                !$0.hasBegun && !$0.isProbe && ($0.topic == topic || $0.topic == nil)
            }
            if let place {
                partitions[index].wants[place].shards.insert(shard)
            } else {
                let want = want(topic, [shard])
                partitions[index].wants.append(want)
            }
        }
    }

    /// A shard looks for pushes of a stopped topic to try.
    mutating func probeWanted(_ topic: UInt32, shard: Int) {
        guard stopped.indices.contains(shard) else { return }
        for index in partitions.indices
        where !partitions[index].wants.contains(where: {
            $0.isProbe && $0.topic == topic && $0.shards == [shard]
        }) {
            var want = want(topic, [shard])
            want.isProbe = true
            want.after = partitions[index].probed[topic]
            partitions[index].wants.append(want)
        }
    }

    // MARK: Looks

    /// Begins the next look; nil: there is none to begin at this moment.
    mutating func next(at now: UInt64) -> Look? {
        guard looking == nil, untaken.isEmpty, now >= notBefore else { return nil }
        for step in partitions.indices {
            let index = (turn + step) % partitions.count
            guard !partitions[index].isEnding,
                let place = partitions[index].wants.firstIndex(where: \.isProbe)
                    ?? partitions[index].wants.indices.first
            else { continue }
            turn = index + 1
            partitions[index].wants[place].hasBegun = true
            let want = partitions[index].wants[place]
            let look = Look(
                slot: partitions[index].slot, topic: want.topic,
                stopped: want.topic == nil ? stoppedEverywhere(want.shards) : [], after: want.after,
                limit: want.isProbe ? Self.probeEntries : Self.mostEntries, want: want.number)
            looking = look
            return look
        }
        return nil
    }

    /// A look has ended.
    /// - Parameters:
    ///   - found: nil: the store failed.
    ///   - cursor: the last entry that was seen, whether it was found or not.
    ///   - isEnd: the partition has no more entries.
    ///   - mayReturn: whether the item of an offset may come back now; another comes from Kafka.
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
        for entry in found where mayReturn(entry.item.offset) {
            let shard = shardIndex(ofHash: entry.item.device.low, shards: shards)
            guard want.shards.contains(shard), want.isProbe || !stopped[shard].contains(entry.topic) else {
                continue
            }
            parts[shard].append(entry.item)
            count += 1
            guard want.isProbe, count == Self.probes else { continue }
            last = entry.item
            break
        }
        partitions[index].wants[place].after = last
        if want.isProbe, let topic = want.topic {
            partitions[index].probed[topic] = isEnd && count < Self.probes ? nil : last
        }
        if want.isProbe, count > 0 {
            removeProbes(of: want.topic, want.shards)
        } else if isEnd {
            partitions[index].wants.remove(at: place)
        }
        let handed = parts.enumerated().filter { !$0.element.isEmpty }.map { ($0.offset, $0.element) }
        if !handed.isEmpty { untaken[look.slot] = handed.count }
        return handed
    }

    /// Topics that all of these shards have parked. Entries of them would be found and left, however many there are.
    private func stoppedEverywhere(_ shards: Set<Int>) -> Set<UInt32> {
        guard let first = shards.first else { return [] }
        return shards.reduce(stopped[first]) { $0.intersection(stopped[$1]) }
    }

    /// A probe ends with what one partition has brought: the others aren't looked through for it.
    private mutating func removeProbes(of topic: UInt32?, _ shards: Set<Int>) {
        for index in partitions.indices {
            partitions[index].wants.removeAll { $0.isProbe && $0.topic == topic && $0.shards == shards }
        }
    }

    /// A shard takes more.
    mutating func taken(_ slot: UInt16) {
        guard let left = untaken[slot] else { return }
        untaken[slot] = left > 1 ? left - 1 : nil
    }
}

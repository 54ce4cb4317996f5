import SluiceModel

/// Decides when the worker looks in the store for expired presences of devices. The store and the changelog then forget
/// these presences. Otherwise both would grow with each device token that was ever reported.
///
/// Each partition is looked through once in an interval, in parts. A single look is under way at a time. No look begins
/// while shards haven't taken what the last look found.
public struct ExpirySchedule: Sendable {
    /// Look at a part of a partition's presences.
    public struct Look: Sendable, Equatable {
        /// Slot of the partition.
        public var slot: UInt16
        /// Last device that was seen; nil: from the beginning.
        public var after: DeviceKey?
        /// Milliseconds since the epoch. Presences that expire at this time or before count.
        public var through: Int64
        fileprivate var number: UInt64
    }

    private struct Partition: Sendable {
        var slot: UInt16
        var after: DeviceKey?
        /// Time of the next look, in nanoseconds of the monotonic clock.
        var nextLook: UInt64
        var isEnding = false
    }

    /// Devices that one look finds, at most.
    public static let mostDevices = 256

    private let shards: Int
    /// Nanoseconds between the end of one pass through a partition and the next pass.
    private let interval: UInt64
    private var partitions: [Partition] = []
    private var looking: Look?
    /// Shards that haven't taken what the last look found, and the partition's slot; nil: all have.
    private var untaken: (slot: UInt16, shards: Int)?
    private var notBefore: UInt64 = 0
    private var nextNumber: UInt64 = 0

    /// Nanoseconds between two looks.
    private static let pause: UInt64 = 100_000_000

    /// Nanoseconds until a partition is looked at again after the store has failed.
    private static let patience: UInt64 = 60_000_000_000

    /// - Parameter interval: nanoseconds between two passes; 0: there are none, because there is no store.
    public init(shards: Int, interval: UInt64) {
        self.shards = shards
        self.interval = interval
    }

    /// True when no look is under way, and shards have taken what the last look found.
    public var isIdle: Bool { looking == nil && untaken == nil }

    /// Begins a partition. The first pass is soon, so that workers that are replaced every hour make a pass, too.
    mutating func addPartition(_ slot: UInt16, at now: UInt64) {
        removePartition(slot)
        guard interval > 0 else { return }
        partitions.append(Partition(slot: slot, nextLook: now + interval / 144))
    }

    /// Ends the looks through a partition that the group revokes.
    mutating func revoke(_ slot: UInt16) {
        if let index = index(slot) { partitions[index].isEnding = true }
    }

    mutating func removePartition(_ slot: UInt16) {
        partitions.removeAll { $0.slot == slot }
        if looking?.slot == slot { looking = nil }
        if untaken?.slot == slot { untaken = nil }
    }

    private func index(_ slot: UInt16) -> Int? { partitions.firstIndex { $0.slot == slot } }

    /// Begins the next look; nil: no look can begin at this moment.
    mutating func next(at time: DeliveryTime) -> Look? {
        let now = time.monotonicNanoseconds
        guard looking == nil, untaken == nil, now >= notBefore,
            let index = partitions.firstIndex(where: { !$0.isEnding && now >= $0.nextLook })
        else { return nil }
        nextNumber += 1
        let look = Look(
            slot: partitions[index].slot, after: partitions[index].after, through: time.wallMilliseconds,
            number: nextNumber)
        looking = look
        return look
    }

    /// Takes the result of a look.
    /// - Returns: devices for the shards.
    mutating func found(
        _ look: Look, _ devices: [DeviceKey]?, last: DeviceKey?, isEnd: Bool, at now: UInt64
    ) -> [(shard: Int, devices: [DeviceKey])] {
        guard looking == look else { return [] }
        looking = nil
        notBefore = now + Self.pause
        guard let index = index(look.slot) else { return [] }
        guard let devices else {
            partitions[index].nextLook = now + Self.patience
            return []
        }
        partitions[index].after = isEnd ? nil : last
        if isEnd { partitions[index].nextLook = now + interval }
        guard !partitions[index].isEnding else { return [] }
        var parts = [[DeviceKey]](repeating: [], count: shards)
        for device in devices { parts[shardIndex(ofHash: device.low, shards: shards)].append(device) }
        let handed = parts.enumerated().filter { !$0.element.isEmpty }.map { ($0.offset, $0.element) }
        if !handed.isEmpty { untaken = (look.slot, handed.count) }
        return handed
    }

    /// Notes that a shard can take more.
    mutating func consumed(_ slot: UInt16) {
        guard let left = untaken, left.slot == slot else { return }
        untaken = left.shards > 1 ? (slot, left.shards - 1) : nil
    }
}

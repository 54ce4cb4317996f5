/// Decides when the worker looks for due items, in which partitions, and where each look begins.
///
/// A partition has one look under way at most. No look begins while shards haven't taken what the partition's last look
/// found. A look continues where the last look ended, unless the wall clock went back since.
public struct DueSchedule: Sendable {
    /// A look at the due index of a partition.
    public struct Look: Sendable, Equatable {
        /// Slot of the partition.
        public var slot: UInt16
        /// Last entry that was seen; nil: from the beginning.
        public var after: DueItem?
        /// Milliseconds since the epoch up to which items are due.
        public var through: Int64
    }

    private struct Partition: Sendable {
        var slot: UInt16
        var cursor: DueItem?
        /// Time through which the last look went, in milliseconds since the epoch by the clock of then.
        var lookedThrough = Int64.min
        /// Number of looks under way, and of shards that haven't taken what the last look found.
        var underWay = 0
        /// Due items of records that are still to be read.
        var ahead: [DueItem] = []
        var isEnding = false
    }

    /// Milliseconds by which items return before they are due.
    static let lead: Int64 = 2_000
    /// Nanoseconds between two looks.
    static let interval: UInt64 = 1_000_000_000
    /// Entries of one look, at most. They are only keys: as many items are loaded as there is room for.
    public static let mostEntries = 8192

    private var partitions: [Partition] = []
    private var nextLook: UInt64 = 0
    /// Slots of partitions whose items could not be looked through.
    private var failedScans: [UInt16] = []

    public init() {}

    mutating func addPartition(_ slot: UInt16) {
        removePartition(slot)
        partitions.append(Partition(slot: slot))
    }

    /// Ends the looks through a partition that the group revokes.
    mutating func revoke(_ slot: UInt16) {
        if let index = index(slot) { partitions[index].isEnding = true }
    }

    mutating func removePartition(_ slot: UInt16) {
        partitions.removeAll { $0.slot == slot }
        failedScans.removeAll { $0 == slot }
    }

    private func index(_ slot: UInt16) -> Int? { partitions.firstIndex { $0.slot == slot } }

    /// - Returns: looks to begin now, and partitions whose items are to be looked through once more.
    mutating func tick(at now: DeliveryTime) -> (looks: [Look], scans: [UInt16]) {
        guard now.monotonicNanoseconds >= nextLook else { return ([], []) }
        nextLook = now.monotonicNanoseconds + Self.interval
        let scans = failedScans
        failedScans = []
        let through = now.wallMilliseconds + Self.lead
        var looks: [Look] = []
        for index in partitions.indices where partitions[index].underWay == 0 && !partitions[index].isEnding {
            partitions[index].underWay = 1
            // When the clock went back, items that were put since are behind the cursor.
            let isBack = through < partitions[index].lookedThrough
            partitions[index].lookedThrough = through
            if isBack { partitions[index].cursor = nil }
            looks.append(
                Look(slot: partitions[index].slot, after: partitions[index].cursor, through: through))
        }
        return (looks, scans)
    }

    /// Takes the result of a look.
    /// - Parameters:
    ///   - found: the entries in their order; nil: the store failed.
    ///   - isEnd: there is nothing more until the end of the look's window.
    ///   - mayReturn: whether the item of an offset may return now.
    /// - Returns: items for the shards.
    mutating func found(
        _ slot: UInt16, _ found: [DueItem]?, isEnd: Bool, mayReturn: (Int64) -> Bool
    ) -> [DueItem] {
        guard let index = index(slot), partitions[index].underWay > 0 else { return [] }
        partitions[index].underWay -= 1
        guard let found else { return [] }
        if let last = found.last { partitions[index].cursor = last }
        if !isEnd { nextLook = 0 }
        guard !partitions[index].ahead.isEmpty || !found.isEmpty else { return [] }
        let items = partitions[index].ahead + found
        partitions[index].ahead = items.filter { !mayReturn($0.offset) }
        return items.filter { mayReturn($0.offset) }
    }

    /// Notes that a shard receives a part of what was found.
    mutating func handed(_ slot: UInt16) {
        if let index = index(slot) { partitions[index].underWay += 1 }
    }

    /// Notes that a shard can take more.
    mutating func consumed(_ slot: UInt16) {
        if let index = index(slot), partitions[index].underWay > 0 { partitions[index].underWay -= 1 }
    }

    /// Notes that a partition could not be looked through, and has the scan repeated.
    mutating func scanFailed(_ slot: UInt16) {
        if index(slot) != nil, !failedScans.contains(slot) { failedScans.append(slot) }
    }
}

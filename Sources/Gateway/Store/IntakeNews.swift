import SluiceModel

/// What a shard has to tell the intake at the end of a turn.
struct IntakeNews: Sendable {
    struct Completion: Sendable {
        var place: ShardStore.Place
        /// The record was handed out although the store had it: it is a job no more.
        var isRepeated: Bool
    }

    struct Removed: Sendable {
        var place: ShardStore.Place
        var device: DeviceKey
    }

    /// Offsets that are complete as the store has their records.
    var completed: [Completion] = []
    /// Records that were complete before, and have had their effect once more.
    var replayed: [ShardStore.Place] = []
    /// Jobs that are gone whose offsets were complete before, by the slots of their partitions.
    var freed: [UInt16: Int] = [:]
    /// Items that have left the store.
    var removed: [Removed] = []

    var isEmpty: Bool { completed.isEmpty && replayed.isEmpty && freed.isEmpty && removed.isEmpty }
}

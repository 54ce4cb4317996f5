import SluiceModel

/// Modes of keeping what has to wait for long.
public enum StoreMode: UInt8, Sendable, CaseIterable {
    /// In memory alone.
    case none
    /// In a store on this machine's disk.
    case local
    /// In a store, with a changelog topic from which other workers restore.
    case changelog
    /// Like `changelog`, with changes, outcomes and offsets in one Kafka transaction.
    case transactions

    /// True when items that wait for long are written to disk.
    public var hasStore: Bool { self != .none }
    /// True when the store's changes are written to a changelog topic.
    public var hasChangelog: Bool { self == .changelog || self == .transactions }
}

/// An entry of the store's due index.
public struct DueItem: Hashable, BitwiseCopyable, Sendable {
    /// Time at which the item has to be looked at, in milliseconds since the epoch.
    public var due: Int64
    /// Device of the item.
    public var device: DeviceKey
    /// Offset of the job's record.
    public var offset: Int64

    public init(due: Int64, device: DeviceKey, offset: Int64) {
        self.due = due
        self.device = device
        self.offset = offset
    }
}

/// Changelog records of one shard between two barriers.
public struct ChangeEpoch: Hashable, BitwiseCopyable, Sendable {
    /// Number of the shard.
    public var shard: UInt16
    /// Number of the epoch; each barrier begins the next.
    public var epoch: UInt32

    public init(shard: UInt16, epoch: UInt32) {
        self.shard = shard
        self.epoch = epoch
    }
}

/// An order of the worker to a shard. A shard carries out its requests in the order in which they were made.
public enum ShardRequest: Sendable, Equatable {
    /// A partition begins. All of its records up to `readThrough` were handed out before. Items that the store has
    /// above `readThrough`, from offset `earlierFrom` on, are of an earlier log of the topic. `earlierFrom` `.max`:
    /// there are none.
    case begin(slot: UInt16, partition: Int32, readThrough: Int64, earlierFrom: Int64, committed: Int64)
    /// Nothing of the partition that begins next in this slot is sent before ``caughtUp(slot:)``.
    case catchUp(slot: UInt16)
    /// The partition's uncommitted records were handed out before, as far as there is room.
    case caughtUp(slot: UInt16)
    /// Gives back the jobs that aren't in flight; ``ShardReport/abandoned(_:)`` of each partition follows.
    case abandon(slots: [UInt16], isLost: Bool)
    /// ``ShardReport/settled(slot:)`` follows when nothing of the partition is in flight or awaits its removal. All
    /// that was written so far is then produced, or committed where there are transactions.
    case settle(slot: UInt16)
    /// Ends the partitions' traffic to the store and from the store.
    case end(slots: [UInt16])
    /// ``ShardReport/released(slot:)`` follows when nothing of the ended partition is in memory any more.
    case release(slot: UInt16)
    /// Puts waiting jobs of the records below `offset` into the store.
    case relieve(slot: UInt16, below: Int64)
    /// The worker is nearly full. A shard that keeps to its part has at most this many pushes in memory. Its tenants share
    /// those to keep. `tenants`: numbers of the tenants that have pushes on any shard.
    case makeRoom(pushes: Int, keeping: Int, tenants: Set<UInt32>)
    /// Items are due; ``ShardReport/dueTaken(slot:)`` follows when the shard can take more.
    case due(slot: UInt16, [DueItem], readThrough: Int64)
    /// Items that waited with their topics may return; ``ShardReport/suspendedTaken(slot:)`` follows when the shard can
    /// take more.
    case suspended(slot: UInt16, [DueItem], readThrough: Int64)
    /// Stored presences of these devices have expired; ``ShardReport/expiredTaken(slot:)`` follows when the shard can
    /// take more.
    case expired(slot: UInt16, [DeviceKey])
    /// The outcomes of these items are safe: the store may forget the items.
    case remove([EndedItem])
    /// The partition's log began anew: its marks (relocation markers) belong to other records.
    case forgetMarks(slot: UInt16)
    /// Hands over everything for the store; ``ShardReport/flushed(_:)`` follows.
    case flush
    /// Stops producing; ``ShardReport/frozen(number:produced:)`` follows.
    case freeze(number: UInt64, atOnce: Bool)
    /// The next transaction is open. Nil `repeating`: the transaction before was committed. Otherwise the transaction
    /// before was aborted, and its records of these slots are produced again; those that were refused with more cuts.
    case thaw(number: UInt64, repeating: Set<UInt16>?, refused: [RefusedRecord])
    /// The store fails, or works again.
    case storeFails(Bool)
    /// Something has changed outside: the shard looks for work.
    case wake
    /// ``ShardReport/passed(_:)`` follows.
    case pass(UInt64)
    /// Copies the records that were held at the last request of this kind, so that the consumer's memory becomes free;
    /// ``ShardReport/leftResponses(_:)`` follows.
    case leaveResponses
    /// Sends nothing new; ``ShardReport/drained(_:)`` and then ``ShardReport/settledAll`` follow.
    case drain
    /// Closes connections and ends; ``ShardReport/finished(_:)`` follows.
    case finish
}

/// A report of a shard to the worker. Reports of one shard arrive in the order in which they were made.
public enum ShardReport: Sendable, Equatable {
    /// The jobs of a partition that weren't in flight were given back.
    case abandoned(SlotCount)
    /// The partition is settled, see ``ShardRequest/settle(slot:)``.
    case settled(slot: UInt16)
    /// The drain is complete: no job is in memory.
    case settledAll
    /// A job that was in flight failed and isn't retried here, or its outcome will never be produced.
    case gaveBack(slot: UInt16)
    /// Work that has ended in one turn.
    case progress(ShardProgress)
    /// Pushes of the partition are sent before its records from `readTo` to `end` are taken in, because their devices aren't
    /// loaded.
    case catchUpCut(slot: UInt16, readTo: Int64, end: Int64)
    /// The shard has taken the due items and can take more.
    case dueTaken(slot: UInt16)
    /// The shard has taken the returning items and can take more.
    case suspendedTaken(slot: UInt16)
    /// The shard has taken the expired presences and can take more.
    case expiredTaken(slot: UInt16)
    /// The shard's pushes of the topic with this hash wait, and no clock ends their wait.
    case topicSuspended(UInt32)
    /// The shard's pushes of the topic resume.
    case topicResumed(UInt32)
    /// This many suspended pushes of the topic are wanted back: to find out whether APNs accepts them, or because it is the
    /// turn of parked pushes.
    case pushesWanted(UInt32, count: Int)
    /// The tenant of this number has pushes on the shard, or has none any more. Reported while the worker is nearly full.
    case tenant(UInt32, isActive: Bool)
    /// Everything for the store is handed over.
    case flushed(ShardFlush)
    /// `produced`: records in all transactions so far.
    case frozen(number: UInt64, produced: Int)
    /// The producer takes no record of the open transaction of this number.
    case refused(number: UInt64)
    /// The producer takes the outcome or dead letter of this record in no form.
    case neverFits(OutcomePlace, topic: String, KafkaFault)
    /// Changes of the store were dropped, because their partition is lost.
    case droppedChange(ChangeEpoch)
    /// Nothing of a partition that has ended is in memory.
    case released(slot: UInt16)
    /// The shard has reached the ``ShardRequest/pass(_:)`` of this number.
    case passed(UInt64)
    /// The shard's records of before the last ``ShardRequest/leaveResponses`` have memory of their own. Contains records
    /// that became much smaller.
    case leftResponses([ShrunkRecord])
    /// Sending of new pushes has stopped; contains the number of jobs given back.
    case drained(Int)
    /// The shard couldn't make a change for the store, although its machine counts on it: offsets that the shard reports
    /// after this may depend on it. The text is for people.
    case lostChange(String)
    /// The connections are closed, and the shard has ended.
    case finished(ShardEnding)
}

/// A shard's last report.
public struct ShardEnding: Hashable, BitwiseCopyable, Sendable {
    /// Writes since the last flush.
    public var flush: ShardFlush
    /// Records produced in all transactions.
    public var produced: Int
    /// Changes of the store that were not produced.
    public var changesLeft: Int
    /// The open transaction lacks a part of what belongs into it.
    public var isTorn: Bool

    public init(flush: ShardFlush, produced: Int, changesLeft: Int, isTorn: Bool) {
        self.flush = flush
        self.produced = produced
        self.changesLeft = changesLeft
        self.isTorn = isTorn
    }
}

/// Record that takes less room than it did.
public struct ShrunkRecord: Hashable, BitwiseCopyable, Sendable {
    public var place: RecordPlace
    /// Bytes that became free.
    public var bytes: Int

    public init(place: RecordPlace, bytes: Int) {
        self.place = place
        self.bytes = bytes
    }
}

/// Number of jobs of a partition.
public struct SlotCount: Hashable, BitwiseCopyable, Sendable {
    /// Slot of the partition.
    public var slot: UInt16
    /// Number of jobs, 0 or more.
    public var count: Int

    public init(slot: UInt16, count: Int) {
        self.slot = slot
        self.count = count
    }
}

/// Writes of a shard since its last flush.
public struct ShardFlush: Hashable, BitwiseCopyable, Sendable {
    /// True when the store was handed a change.
    public var hasWritten: Bool
    /// Changelog records produced, all of which carry `epoch`.
    public var produced: Int
    /// Shard and number of the epoch that the flush ends.
    public var epoch: ChangeEpoch

    public init(hasWritten: Bool = false, produced: Int = 0, epoch: ChangeEpoch) {
        self.hasWritten = hasWritten
        self.produced = produced
        self.epoch = epoch
    }
}

/// Work of a shard that has ended in one turn.
public struct ShardProgress: Sendable, Equatable {
    /// A record whose offset is complete.
    public struct Completion: Hashable, BitwiseCopyable, Sendable {
        /// Partition slot and offset of the record.
        public var place: RecordPlace
        /// True: the record was handed out although the store had its item. The record is no longer a job.
        public var isRepeated: Bool

        public init(place: RecordPlace, isRepeated: Bool) {
            self.place = place
            self.isRepeated = isRepeated
        }
    }

    /// An item that has left the store.
    public struct Removal: Hashable, BitwiseCopyable, Sendable {
        /// Record of the item.
        public var place: RecordPlace
        /// Device of the item's outcome.
        public var device: DeviceKey

        public init(place: RecordPlace, device: DeviceKey) {
            self.place = place
            self.device = device
        }
    }

    /// Offsets that are complete because the store has their items.
    public var completed: [Completion] = []
    /// Records that were complete before, and have had their effect once more.
    public var replayed: [RecordPlace] = []
    /// Jobs that are gone and whose offsets were complete before, by slot.
    public var freed: [UInt16: Int] = [:]
    /// Items that have left the store.
    public var removed: [Removal] = []

    public init() {}

    public var isEmpty: Bool { completed.isEmpty && replayed.isEmpty && freed.isEmpty && removed.isEmpty }
}

/// Returns the shard that owns the devices of a hash. The hash is the lower half of a device's key.
public func shardIndex(ofHash hash: UInt64, shards: Int) -> Int {
    shards > 1 ? Int(truncatingIfNeeded: (hash >> 32) % UInt64(shards)) : 0
}

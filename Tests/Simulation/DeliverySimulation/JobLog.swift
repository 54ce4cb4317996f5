import DeliveryCore
import SluiceModel

/// What a record of the jobs topic is.
enum RecordKind: UInt8 {
    case push, cancel, online, offline, receipt, tokenChanged, unregistered
}

/// One record of the jobs topic, and what the auditor knows of it.
struct Record {
    var kind: RecordKind
    var partition: Int
    var offset: Int64
    /// The device token that is its key.
    var token: Int
    /// The push; of a receipt the push whose `apns-id` it names, of a token change the new token.
    var subject: Int
    /// When a device event happened, on the devices' own clock.
    var occurred: Int64 = 0
    var reportTime: ReportTime { ReportTime(milliseconds: occurred, offset: offset) }

    /// Whether a record reports something newer, or the same, judged without the core's own comparison.
    func isAsNew(as other: ReportTime) -> Bool { (occurred, offset) >= (other.milliseconds, other.offset) }
    /// Of a cancel: what it names.
    var target = CancelTarget.notificationKey(0)

    /// An outcome of it is in Kafka.
    var isWritten = false
    var lastKind: OutcomeKind?
    /// The assignment in which its last outcome was given.
    var outcomeEpoch = -1
    /// The assignment in which a worker has completed its offset last.
    var completeEpoch = -1
    /// The commit that said last that it is complete.
    var commitSerial = -1
    /// The last commit that Kafka took says that it is complete.
    var isCommitted = false
    /// The assignment in which a worker took it last.
    var takenEpoch = -1
}

/// A push as its service made it.
struct Job {
    var record: Int
    var token: Int
    var topic: Int
    /// 0 without a collapse identifier.
    var collapse: Int
    /// Number of its `apns-id`.
    var apns: Int
    var facts: PushFacts
    var bytes: Int
    /// The token change that moved it last, -1 when none did.
    var movedBy = -1
    /// It was given an outcome since its record was taken last. From the store it may come back all the same.
    var hasEnded = false
    /// What it has superseded, and in which assignments.
    var superseded: [(job: Int, epoch: Int)] = []
    /// The shard that has to remove it from the store, and the device of its outcome there.
    var endedIn = 0
    var endedFor: UInt64 = 0
    /// The assignment in which it is in memory, -1 when it isn't.
    var liveEpoch = -1
    var timesSeen = 0
}

/// The jobs topic: partitions, offsets, and what the group has committed.
struct JobLog {
    struct Committed {
        var offset: Int64 = 0
        var metadata = ""
        /// The first record at or above the offset.
        var index = 0
    }

    var records: [Record] = []
    /// Record numbers by partition, in the order of their offsets.
    var partitions: [[Int]]
    var nextOffset: [Int64]
    var committed: [Committed]

    init(partitions count: Int) {
        partitions = [[Int]](repeating: [], count: count)
        nextOffset = [Int64](repeating: 0, count: count)
        committed = [Committed](repeating: Committed(), count: count)
    }

    /// Appends a record; `gap` offsets are left out before it, as compaction and transaction markers do.
    mutating func append(_ record: Record, gap: Int) -> Int {
        var record = record
        record.offset = nextOffset[record.partition] + Int64(gap)
        nextOffset[record.partition] = record.offset + 1
        records.append(record)
        partitions[record.partition].append(records.count - 1)
        return records.count - 1
    }
}

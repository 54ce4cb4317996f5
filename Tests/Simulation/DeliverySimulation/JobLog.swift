import DeliveryCore
import SluiceModel

/// Kind of a record of the jobs topic.
enum RecordKind: UInt8 {
    case push, cancel, online, offline, receipt, tokenChanged, unregistered
}

/// A record of the jobs topic, and the auditor's view of it.
struct Record {
    var kind: RecordKind
    var partition: Int
    var offset: Int64
    /// The device token that is the record's key.
    var token: Int
    /// The push; for a receipt the push whose `apns-id` it names, for a token change the new token.
    var subject: Int
    /// Time of a device event, in milliseconds on the devices' own clock.
    var occurred: Int64 = 0
    var reportTime: ReportTime { ReportTime(milliseconds: occurred, offset: offset) }

    /// Returns whether a record is at least as new as another report, judged without the core's own comparison.
    func isAsNew(as other: ReportTime) -> Bool { (occurred, offset) >= (other.milliseconds, other.offset) }
    /// Pushes that a cancel names.
    var target = CancelTarget.notificationKey(0)

    /// Whether Kafka has an outcome of the record.
    var isWritten = false
    var lastKind: OutcomeKind?
    /// The assignment of the last outcome, -1 for none.
    var outcomeEpoch = -1
    /// The assignment in which a worker has completed the offset last, -1 for none.
    var completeEpoch = -1
    /// The last commit that reported the record complete, -1 for none.
    var commitSerial = -1
    /// Whether the last commit that Kafka took reports the record complete.
    var isCommitted = false
    /// The assignment in which a worker read the record last, -1 for none.
    var takenEpoch = -1
}

/// A push as its service produced it.
struct Job {
    var record: Int
    var token: Int
    var topic: Int
    /// Number of the collapse identifier, 0 for none.
    var collapse: Int
    /// Number of the `apns-id`.
    var apns: Int
    var facts: PushFacts
    var bytes: Int
    /// The token change that moved the push last, -1 for none.
    var movedBy = -1
    /// Whether the push got an outcome since its record was last read. The store may restore the push all the same.
    var hasEnded = false
    /// Pushes that this push has superseded, and the assignments.
    var superseded: [(job: Int, epoch: Int)] = []
    /// The shard that has to remove the push from the store, and the device of its outcome there.
    var endedIn = 0
    var endedFor: UInt64 = 0
    /// The assignment in which the push is in memory, -1 when it isn't.
    var liveEpoch = -1
    var timesSeen = 0
}

/// The jobs topic: partitions, offsets, and the group's commits.
struct JobLog {
    struct Committed {
        var offset: Int64 = 0
        var metadata = ""
        /// Index of the first record at or above the offset.
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

    /// Appends a record after a gap of offsets, as compaction and transaction markers leave.
    mutating func append(_ record: Record, gap: Int) -> Int {
        var record = record
        record.offset = nextOffset[record.partition] + Int64(gap)
        nextOffset[record.partition] = record.offset + 1
        records.append(record)
        partitions[record.partition].append(records.count - 1)
        return records.count - 1
    }
}

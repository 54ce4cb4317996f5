import Kafka
import SluiceModel

/// Copy of a consumed record.
struct RecordCopy: Sendable {
    /// Copy of a header. Kafka's names may be any bytes, and a job is produced with the same.
    struct Header: Sendable {
        let nameBytes: [UInt8]
        /// Nil: a null.
        var value: [UInt8]?

        /// The name as text, repaired where it isn't UTF-8.
        var name: String { String(decoding: nameBytes, as: UTF8.self) }

        init(nameBytes: [UInt8], value: [UInt8]?) {
            self.nameBytes = nameBytes
            self.value = value
        }

        init(name: String, value: [UInt8]?) { self.init(nameBytes: Array(name.utf8), value: value) }
    }

    /// Bytes of the key; nil: the record has none.
    var key: [UInt8]?
    /// Bytes of the value; nil: a null.
    var value: [UInt8]?
    /// Headers in order.
    var headers: [Header]
    var partition: Int32
    var offset: Int64
    /// Timestamp in milliseconds since the epoch; -1: none.
    var timestampMilliseconds: Int64

    init(
        key: [UInt8]?, value: [UInt8]?, headers: [(name: String, value: [UInt8]?)], partition: Int32 = 0,
        offset: Int64 = 0, timestampMilliseconds: Int64 = -1
    ) {
        self.key = key
        self.value = value
        self.headers = headers.map { Header(name: $0.name, value: $0.value) }
        self.partition = partition
        self.offset = offset
        self.timestampMilliseconds = timestampMilliseconds
    }

    init(_ record: ConsumedRecord) {
        key = record.key.map { Array($0) }
        value = record.value.map { Array($0) }
        var headers: [Header] = []
        record.forEachHeader { name, value in
            headers.append(Header(nameBytes: Array(name), value: value.map { Array($0) }))
        }
        self.headers = headers
        partition = record.partition
        offset = record.offset
        timestampMilliseconds = record.timestampMilliseconds
    }

    /// Headers with their names as text.
    var namedHeaders: [(name: String, value: [UInt8]?)] { headers.map { ($0.name, $0.value) } }

    /// Bytes of the record without Kafka's own.
    var byteCount: Int {
        headers.reduce((key?.count ?? 0) + (value?.count ?? 0)) {
            $0 + $1.nameBytes.count + ($1.value?.count ?? 0)
        }
    }
}

/// A job to produce again.
struct RedriveItem: Sendable {
    /// Place of the dead letter or outcome.
    var place: RecordAddress
    /// Place of the job's record.
    var source: RecordAddress
    /// Properties of the job at its source.
    var identity: RedriveIdentity
    /// Group in the counts.
    var group: RedriveTally.Group
    /// Topic to produce to.
    var destination: String
    /// Partition to produce to; -1 leaves the choice to the partitioner.
    var partition: Int32
    /// The record: key, value, and headers with the mark.
    var record: RecordCopy
    /// Number of times that the job was redriven, this one included.
    var count: Int

    /// - Parameters:
    ///   - record: dead letter, or the record at the source.
    ///   - destination: nil: the topic of the source.
    ///   - renewsLife: whether a time to live counts anew, and not from the job's first production.
    ///   - partitions: number of a topic's partitions; nil where the topic doesn't exist.
    /// - Returns: nil where the destination doesn't exist.
    /// - Throws: what `partitions` throws.
    init?(
        _ record: RecordCopy, of facts: RedriveFacts, destination: String?, renewsLife: Bool = false,
        partitions: (String) throws(CommandFailure) -> Int?
    ) throws(CommandFailure) {
        place = facts.place
        identity = facts.identity
        source = facts.source
        group = RedriveTally.Group(facts)
        let topic = destination ?? facts.source.topic
        self.destination = topic
        // The partition of the first time keeps the order of the device's jobs, however their producer partitions.
        guard let partitionCount = topic == facts.source.topic ? try partitions(topic) : 0 else { return nil }
        partition = Int(facts.source.partition) < partitionCount ? facts.source.partition : -1
        self.record = record
        let name = RedrivenMark.headerName.description
        let before = record.headers.last { $0.name == name }?.value.flatMap {
            RedrivenMark(text: String(decoding: $0, as: UTF8.self))
        }
        count = min(1_000_000, (before?.count ?? 0) + 1)
        self.record.headers.removeAll { header in
            header.name == name || header.nameBytes.withUnsafeBytes { DeadLetter.isOwnHeader($0) }
        }
        let timestamp =
            facts.sourceTimestampMilliseconds ?? (facts.needsSource ? record.timestampMilliseconds : -1)
        let first = before?.firstMilliseconds ?? (timestamp < 0 ? nil : timestamp)
        let mark = RedrivenMark(
            place: facts.place, count: count, firstMilliseconds: renewsLife ? nil : first)
        self.record.headers.append(RecordCopy.Header(name: name, value: Array(mark.text.utf8)))
    }
}

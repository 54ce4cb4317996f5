/// The log of one partition.
final class KafkaLog {
    struct Entry {
        var offset: Int64
        var payload: Int
        var key: Int
        var appendedAt: UInt64
        /// Time after which a cleaner removes the tombstone or marker; 0 before the first cleaning.
        var horizon: UInt64 = 0
        /// Transaction of the entry; -1 without one.
        var transaction: Int32
        var kind: UInt8
        var isTombstone: Bool
        /// A transaction's marker, which no reader sees.
        var isMarker = false
    }

    let topic: KafkaModel.Topic
    let partition: Int
    var entries: [Entry] = []
    /// First offset that readers may request.
    var start: Int64 = 0
    /// Offset of the next record.
    var end: Int64 = 0
    /// Number of times that the topic was recreated.
    var incarnation = 0
    /// Number that grows when entries are removed, which makes earlier indices invalid.
    var layout: Int32 = 0
    /// The leader can't be reached.
    var isAway = false
    /// Open transactions in the order of their first offsets.
    var open: [(transaction: Int32, first: Int64)] = []
    /// The first entry that isn't below the last stable offset.
    var stableCount = 0
    /// Clients that have read everything and wait for records.
    var waiters: [ClientID] = []
    /// Transactions whose markers wait for the leader.
    var waitingMarkers: [Int32] = []
    /// Batches under way that their clients have given up.
    var late: [Entry] = []

    init(_ topic: KafkaModel.Topic, _ partition: Int) {
        self.topic = topic
        self.partition = partition
    }

    /// The first offset of the oldest open transaction.
    var lastStable: Int64 { open.isEmpty ? end : open[0].first }

    /// Returns the first entry at the offset or above.
    func index(of offset: Int64) -> Int {
        var low = 0
        var high = entries.count
        while low < high {
            let middle = (low + high) >> 1
            if entries[middle].offset < offset { low = middle + 1 } else { high = middle }
        }
        return low
    }

    func append(_ entry: Entry) {
        if entry.transaction >= 0, !entry.isMarker,
            !open.contains(where: { $0.transaction == entry.transaction })
        {
            open.append((entry.transaction, entry.offset))
        }
        entries.append(entry)
        end = entry.offset + 1
    }

    func removeFirst(_ count: Int) {
        guard count > 0 else { return }
        entries.removeFirst(count)
        stableCount -= count
        layout &+= 1
    }
}

extension KafkaModel {
    // MARK: Appending

    /// Appends a record of another program, after a gap of empty offsets.
    @discardableResult
    func append(_ record: Record, to topic: Topic, _ partition: Int, gap: Int = 0) -> Int64 {
        let log = log(topic, partition)
        log.end += Int64(gap)
        let offset = log.end
        log.append(entry(record, offset, -1))
        showStable(log)
        return offset
    }

    func entry(_ record: Record, _ offset: Int64, _ transaction: Int32) -> KafkaLog.Entry {
        KafkaLog.Entry(
            offset: offset, payload: record.payload, key: record.key, appendedAt: now,
            transaction: transaction, kind: record.kind, isTombstone: record.isTombstone)
    }

    /// Shows observers what has become stable, and wakes readers.
    func showStable(_ log: KafkaLog) {
        let stable = log.lastStable
        var index = log.stableCount
        let place = place(log.topic, log.partition)
        while index < log.entries.count, log.entries[index].offset < stable {
            let entry = log.entries[index]
            index += 1
            guard !entry.isMarker, !isAborted(entry) else { continue }
            show(
                VisibleRecord(
                    time: now, topic: log.topic, partition: log.partition, incarnation: log.incarnation,
                    offset: entry.offset, payload: entry.payload, key: entry.key, kind: entry.kind,
                    isTombstone: entry.isTombstone), place)
        }
        log.stableCount = index
        if !log.waiters.isEmpty, !log.isAway { wakeReaders(log) }
    }

    @inline(__always)
    func isAborted(_ entry: KafkaLog.Entry) -> Bool {
        entry.transaction >= 0 && transactions[Int(entry.transaction)].decision == .abort
    }

    func writeMarker(_ transaction: Int32, _ log: KafkaLog) {
        log.append(
            KafkaLog.Entry(
                offset: log.end, payload: -1, key: -1, appendedAt: now, transaction: transaction, kind: 0,
                isTombstone: false, isMarker: true))
        log.open.removeAll { $0.transaction == transaction }
        showStable(log)
    }

    // MARK: Cleaning

    /// Moves the log's start, no further than the last stable offset.
    func retain(_ topic: Topic, _ partition: Int, from offset: Int64) {
        let log = log(topic, partition)
        let start = min(offset, log.lastStable)
        guard start > log.start else { return }
        log.start = start
        log.removeFirst(log.index(of: start))
    }

    /// Takes the log's end, as an election of a leader that lacks records does.
    func loseTail(_ topic: Topic, _ partition: Int, from offset: Int64) {
        let log = log(topic, partition)
        guard offset >= log.start, offset < log.end else { return }
        log.entries.removeSubrange(log.index(of: offset)...)
        log.end = offset
        log.stableCount = min(log.stableCount, log.entries.count)
        log.layout &+= 1
        if !log.waiters.isEmpty, !log.isAway { wakeReaders(log) }
    }

    /// Runs a cleaner up to an offset, or a drawn one; the newest record of each key stays.
    func compact(_ topic: Topic, _ partition: Int, below offset: Int64? = nil) {
        let log = log(topic, partition)
        let bound = min(offset ?? log.start + Int64(draw.below(Int(log.end - log.start) + 1)), log.lastStable)
        let count = log.index(of: bound)
        guard count > 0 else { return }
        var newest: [Int: Int64] = [:]
        for entry in log.entries[..<count] where !entry.isMarker && !isAborted(entry) {
            newest[entry.key] = entry.offset
        }
        let horizon = now + configuration.deleteRetention
        var kept: [KafkaLog.Entry] = []
        kept.reserveCapacity(log.entries.count)
        for var entry in log.entries[..<count] {
            if entry.isMarker || entry.isTombstone {
                if entry.horizon == 0 { entry.horizon = horizon } else if entry.horizon <= now { continue }
            }
            if !entry.isMarker {
                guard !isAborted(entry), newest[entry.key] == entry.offset else { continue }
            }
            kept.append(entry)
        }
        let removed = count - kept.count
        kept.append(contentsOf: log.entries[count...])
        log.entries = kept
        log.stableCount -= removed
        log.layout &+= 1
    }

    // MARK: Topics

    /// Deletes and recreates a topic. Offsets begin at 0, and open transactions have no records in it.
    /// - Parameter keepsOffsets: the group's offsets outlive the jobs topic, because a commit can arrive late.
    func makeAnew(_ topic: Topic, partitions: Int? = nil, keepsOffsets: Bool = false) {
        for partition in 0..<partitionCount(topic) {
            let log = log(topic, partition)
            log.entries = []
            log.start = 0
            log.end = 0
            log.incarnation += 1
            log.layout &+= 1
            log.open = []
            log.stableCount = 0
            log.late = []
            let unmarked = log.waitingMarkers
            log.waitingMarkers = []
            for transaction in unmarked { markerDone(Int(transaction)) }
            forgetPlace(place(topic, partition))
            if topic == .jobs, !keepsOffsets, group.offsets[partition].offset >= 0 {
                setOffset(OffsetCommit(partition: partition, offset: -1), .outside)
            }
            if !log.waiters.isEmpty, !log.isAway { wakeReaders(log) }
        }
        partitionCounts[topic.rawValue] = partitions ?? partitionCounts[topic.rawValue]
        if topic == .jobs { partitionsChanged() }
    }

    /// Adds partitions. The group learns of new jobs partitions when a member checks their number.
    func grow(_ topic: Topic, to partitions: Int) {
        guard partitions > partitionCounts[topic.rawValue], partitions <= Self.stride else { return }
        partitionCounts[topic.rawValue] = partitions
        if topic == .jobs { partitionsChanged() }
    }

    // MARK: Looking in

    func firstOffset(_ topic: Topic, _ partition: Int) -> Int64 { log(topic, partition).start }
    func endOffset(_ topic: Topic, _ partition: Int) -> Int64 { log(topic, partition).end }
    /// Returns the first offset of a record that was appended after a time in nanoseconds.
    func firstOffset(_ topic: Topic, _ partition: Int, after time: UInt64) -> Int64? {
        log(topic, partition).entries.first { $0.appendedAt > time && !$0.isMarker }?.offset
    }

    func lastStableOffset(_ topic: Topic, _ partition: Int) -> Int64 { log(topic, partition).lastStable }

    /// The observers' feed of one partition.
    func feed(of topic: Topic, _ partition: Int) -> [VisibleRecord] {
        feedOf[place(topic, partition)].map { feed[Int($0)] }
    }

    func feedCount(of topic: Topic, _ partition: Int) -> Int { feedOf[place(topic, partition)].count }

    func feedRecord(of topic: Topic, _ partition: Int, _ index: Int) -> VisibleRecord {
        feed[Int(feedOf[place(topic, partition)][index])]
    }
}

import CRdkafka
import EventLoop

/// The world outside of the workers.
extension KafkaCluster {
    /// A record of a log.
    public struct Record: Sendable {
        /// What becomes of the record.
        public enum State: Sendable {
            case committed, open, aborted
        }

        public let partition: Int32
        public let offset: Int64
        public let key: [UInt8]?
        public let value: [UInt8]?
        public let headers: [(name: String, value: [UInt8]?)]
        /// Milliseconds since 1970.
        public let timestamp: Int64
        public let state: State
        /// Process that has produced the record; nil for another program.
        public let process: SimulatedProcess?
    }

    // MARK: Other programs

    /// Appends a record of another program, at once.
    /// - Returns: the record's offset.
    @discardableResult
    public func produce(
        to topic: String, _ partition: Int32, key: [UInt8]?, value: [UInt8]?,
        headers: [(name: String, value: [UInt8]?)] = [], timestamp: Int64? = nil
    ) -> Int64 {
        guard let log = log(TopicPartition(topic, partition)) else {
            preconditionFailure("there is no partition \(topic)[\(partition)]")
        }
        let number = store(
            StoredRecord(
                key: key, value: value, headers: headers, timestamp: timestamp ?? wallClockMilliseconds(),
                opaque: nil))
        return call { model.append(modelRecord(number), to: log.topic, log.partition) }
    }

    /// Returns the records of a partition's log from an offset on, in the order of their offsets.
    public func records(of topic: String, _ partition: Int32, from offset: Int64 = 0) -> [Record] {
        guard let log = log(TopicPartition(topic, partition)) else { return [] }
        let first = log.entries.lastIndex { $0.offset < offset }.map { $0 + 1 } ?? log.entries.startIndex
        return log.entries[first...].filter { !$0.isMarker }.map { entry in
            let record = records[entry.payload]
            let state: Record.State =
                if entry.transaction < 0 { .committed } else {
                    switch model.transactions[Int(entry.transaction)].decision {
                    case .open: .open
                    case .commit: entry.offset < log.lastStable ? .committed : .open
                    case .abort: .aborted
                    }
                }
            return Record(
                partition: partition, offset: entry.offset, key: record.key, value: record.value,
                headers: record.headers, timestamp: record.timestamp, state: state,
                process: record.process)
        }
    }

    /// Returns the records of a topic that a reader of committed records sees, partition by partition.
    public func committedRecords(of topic: String) -> [Record] {
        (0..<Int32(self.topic(topic)?.partitions ?? 0)).flatMap { partition in
            records(of: topic, partition).filter { $0.state == .committed }
        }
    }

    /// Number of a topic's partitions; 0 without the topic.
    public func partitionCount(of topic: String) -> Int32 { Int32(self.topic(topic)?.partitions ?? 0) }

    /// Returns the first offset of a partition's log, and its end.
    public func ends(of topic: String, _ partition: Int32) -> Watermarks? {
        log(TopicPartition(topic, partition)).map { Watermarks(low: $0.start, high: $0.end) }
    }

    /// Returns the group's committed offset of a jobs partition; nil: there is none.
    public func committedOffset(_ partition: Int32) -> (offset: Int64, metadata: String)? {
        let found = model.committedOffset(Int(partition))
        return found.offset < 0 ? nil : (found.offset, found.metadata)
    }

    /// Number of the group's members, as its coordinator knows them.
    public var memberCount: Int { model.group.members.count }

    // MARK: Operators

    /// Sets the group's offset while no member has the partition; -1 deletes it.
    public func resetOffset(_ partition: Int32, to offset: Int64) -> Bool {
        call { model.resetOffset(Int(partition), to: offset) }
    }

    /// Removes a log's records below an offset, as retention does.
    public func retain(_ topic: String, _ partition: Int32, from offset: Int64) {
        guard let log = log(TopicPartition(topic, partition)) else { return }
        call { model.retain(log.topic, log.partition, from: offset) }
    }

    /// Takes a log's end, as an election of a leader that lacks records does.
    public func loseTail(_ topic: String, _ partition: Int32, from offset: Int64) {
        guard let log = log(TopicPartition(topic, partition)) else { return }
        call { model.loseTail(log.topic, log.partition, from: offset) }
    }

    /// Deletes a topic and creates it again.
    /// - Parameter keepsOffsets: whether the group's offsets outlive the jobs topic, because a commit arrives late.
    public func recreate(_ topic: String, keepsOffsets: Bool = false) {
        guard let found = self.topic(topic) else { return }
        call { model.makeAnew(found.space, keepsOffsets: keepsOffsets) }
    }

    /// Runs a log's cleaner, up to a drawn offset if none is given.
    public func compact(_ topic: String, _ partition: Int32, below offset: Int64? = nil) {
        guard let log = log(TopicPartition(topic, partition)) else { return }
        call { model.compact(log.topic, log.partition, below: offset) }
    }

    // MARK: Faults

    /// Makes the leader of a partition unreachable, or reachable again.
    public func setLeader(_ topic: String, _ partition: Int32, isAway: Bool) {
        guard let log = log(TopicPartition(topic, partition)) else { return }
        call { model.setLeader(log.topic, log.partition, isAway: isAway) }
    }

    /// Makes the group's coordinator unreachable. Answers under way are lost.
    public func setGroupCoordinator(isAway: Bool) { call { model.setGroupCoordinator(isAway: isAway) } }

    /// Makes the group's coordinator forget all members, for the time after it is back.
    public func forgetMembers() {
        model.group.kept = (model.group.kept.generation, [], 0)
    }

    /// Makes the coordinator of transactions unreachable. Answers under way are lost.
    public func setTransactionCoordinator(isAway: Bool) {
        call { model.setTransactionCoordinator(isAway: isAway) }
    }

    /// Whether all requests and answers are slow.
    public var isSlow: Bool {
        get { model.isSlow }
        set { model.isSlow = newValue }
    }

    /// Refuses records of a topic, because a right is missing. Topics but jobs, outcomes and changelog share it.
    public func setForbidden(_ topic: String, _ isForbidden: Bool) {
        guard let found = self.topic(topic) else { return }
        model.setUnauthorised(found.space, isForbidden)
    }

    /// A kind of clients.
    public enum ClientKind: Sendable {
        case consumer, producer
    }

    /// Raises an error in clients of a process.
    /// - Parameter isFatal: whether the clients can't be used any more.
    public func raise(
        _ code: Int32, _ reason: String, isFatal: Bool, in kind: ClientKind, of process: SimulatedProcess?
    ) {
        call {
            for client in clients where client.process === process && client.isConsumer == (kind == .consumer)
            {
                client.raise(rd_kafka_resp_err_t(rawValue: code), reason, isFatal: isFatal)
            }
        }
    }

    /// Cuts a process off from all brokers until a time. The process goes on.
    public func cutOff(_ process: SimulatedProcess, until time: UInt64) {
        cutOffs.append((process, time))
        setCutOff(process)
        scheduler.schedule(at: time) { [self] in
            cutOffs.removeAll { $0.until <= scheduler.now }
            setCutOff(process)
        }
    }

    private func setCutOff(_ process: SimulatedProcess) {
        call {
            for client in clients where client.process === process {
                model.setCutOff(client.id, isCutOff(process))
            }
        }
    }

    func isCutOff(_ process: SimulatedProcess?) -> Bool { cutOffs.contains { $0.process === process } }

    /// Suspends a process until a time: nothing leaves or reaches it.
    public func suspend(_ process: SimulatedProcess, until time: UInt64) {
        process.suspend(until: time)
        let stopped = clients.filter { $0.process === process }
        call {
            for client in stopped {
                client.suspendedUntil = max(client.suspendedUntil, time)
                model.stop(client.id)
            }
        }
        scheduler.schedule(at: time) { [self] in
            call {
                for client in stopped where client.suspendedUntil <= scheduler.now { model.resume(client.id) }
            }
        }
    }
}

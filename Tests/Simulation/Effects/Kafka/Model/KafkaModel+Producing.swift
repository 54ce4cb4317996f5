import DequeModule

/// A producer's queue for one partition. Records at its head have been sent already.
struct PartitionQueue {
    struct Pending {
        var record: KafkaModel.Record
        var opaque: Int
        var deadline: UInt64
        var offset: Int64 = -1
        var failure: KafkaModel.Failure?
    }

    enum State: UInt8 {
        case idle
        /// A batch is under way to the leader.
        case sending
        /// The answer to a batch is under way.
        case acknowledging
        /// The leader is unreachable; the batch at the head was lost, or not sent.
        case blocked
        /// The leader became unreachable after it had appended the batch at the head, which is sent again.
        case unanswered
        /// The coordinator of transactions doesn't know the partition yet.
        case unregistered
    }

    var records = Deque<Pending>()
    var state = State.idle
    /// Number that voids earlier timers.
    var epoch: Int32 = 0
    /// Records at the head that the broker has accepted or refused, and whose answer is under way.
    var judged = 0
    /// Records at the head that may have been under way when the leader became unreachable.
    var sent = 0
    var hasExpiry = false
}

/// The plain side of a client's producer.
struct KafkaProducerState {
    var exists = false
    /// Number of records without a report.
    var queued = 0
    /// Bytes up to which records share a batch.
    var batchBytes = Int.max
    /// Nanoseconds after which a record is given up; nil: as configured.
    var deliveryTimeout: UInt64?
}

extension KafkaModel {
    // MARK: Calls

    /// Gives a client an idempotent producer, or a transactional one.
    func makeProducer(_ id: ClientID, transactionalID: Int? = nil) {
        let client = clients[id]
        client.producer.exists = true
        guard let transactionalID else { return }
        client.transactional = KafkaTransactionalClient(identifier: transactionalID)
        while identifiers.count <= transactionalID { identifiers.append(KafkaTransactionalID()) }
    }

    /// Queues a record. Each partition keeps the order of the calls.
    func produce(
        _ id: ClientID, _ record: Record, to topic: Topic, _ partition: Int, opaque: Int
    ) -> ProduceAnswer {
        let client = clients[id]
        guard client.producer.exists, !client.isDead else { return .failed(.misuse) }
        if client.transactional != nil {
            if case .failed(let failure) = client.transactional!.phase { return .failed(failure) }
            guard client.transactional!.acceptsRecords else { return .noTransaction }
        }
        guard partition < partitionCounts[topic.rawValue] else { return .failed(.unknownPartition) }
        guard record.size != .tooLargeForClient else { return .failed(.tooLarge) }
        guard client.producer.queued < configuration.queueLimit else { return .queueFull }
        client.producer.queued += 1
        let place = place(topic, partition)
        client.queues[place].records.append(
            .init(
                record: record, opaque: opaque,
                deadline: now + (client.producer.deliveryTimeout ?? configuration.deliveryTimeout)))
        if client.queues[place].state == .idle { startQueue(client, place, after: configuration.linger) }
        return .queued
    }

    /// Records of a client without a report.
    func queued(_ id: ClientID) -> Int { clients[id].producer.queued }

    /// Returns the records whose reports the client hasn't taken; other events count too.
    func unreported(_ id: ClientID) -> Int { clients[id].producer.queued + clients[id].events.count }

    /// Drops records that weren't sent, with a failed report each.
    func purge(_ id: ClientID) {
        let client = clients[id]
        for place in client.queues.indices where !client.queues[place].records.isEmpty {
            purge(client, place)
        }
    }

    // MARK: Queues

    func startQueue(_ client: Client, _ place: Int, after pause: UInt64) {
        if client.transactional != nil, !client.transactional!.isRegistered(place) {
            client.queues[place].state = .unregistered
            watchExpiry(client, place)
            return register(client, place)
        }
        client.queues[place].state = .sending
        client.queues[place].epoch &+= 1
        timers.add(
            .batchArrives, at: now + pause + drawDelay(), client: client.id, place: place,
            epoch: client.queues[place].epoch)
    }

    /// Returns the number of records in the next batch.
    private func batchCount(_ client: Client, _ place: Int) -> Int {
        let most = min(client.queues[place].records.count, configuration.batchLimit)
        guard client.producer.batchBytes != .max else { return most }
        var bytes = 0
        for index in 0..<most {
            bytes += client.queues[place].records[index].record.bytes
            if index > 0, bytes > client.producer.batchBytes { return index }
        }
        return most
    }

    private func isTooLarge(_ client: Client, _ place: Int, _ count: Int) -> Bool {
        let bytes = client.queues[place].records.prefix(count).reduce(0) { $0 + $1.record.bytes }
        return largestBatches[place].map { $0 < bytes } ?? false
    }

    /// A batch reaches the leader, unless the leader is unreachable.
    func batchArrives(_ client: Client, _ place: Int, _ epoch: Int32) {
        guard client.queues[place].state == .sending, client.queues[place].epoch == epoch else { return }
        let log = logs[place]
        let count = batchCount(client, place)
        guard count > 0 else {
            client.queues[place].state = .idle
            return
        }
        guard !log.isAway, log.partition < partitionCount(log.topic) else {
            client.queues[place].state = .blocked
            client.queues[place].sent = max(client.queues[place].sent, count)
            watchExpiry(client, place)
            return
        }
        let transaction = transactionOfBatch(client, place)
        // A batch is taken or refused as a whole.
        let isTooLarge =
            client.queues[place].records.prefix(count).contains { $0.record.size != .normal }
            || (!largestBatches.isEmpty && isTooLarge(client, place, count))
        let refusal: Failure? =
            refusesWrites(log.topic)
            ? .notAuthorised : transaction == nil ? .fenced : isTooLarge ? .tooLarge : nil
        for index in 0..<count {
            let record = client.queues[place].records[index].record
            guard let transaction, refusal == nil else {
                client.queues[place].records[index].failure = refusal
                continue
            }
            client.queues[place].records[index].offset = log.end
            log.append(entry(record, log.end, transaction))
        }
        showStable(log)
        client.queues[place].judged = count
        client.queues[place].sent = 0
        guard !client.isDead else {
            client.queues[place].state = .idle
            return
        }
        client.queues[place].state = .acknowledging
        timers.add(
            .batchAcknowledged, at: now + drawDelay(), client: client.id, place: place,
            epoch: client.queues[place].epoch)
    }

    func batchAcknowledged(_ client: Client, _ place: Int, _ epoch: Int32) {
        guard client.queues[place].state == .acknowledging, client.queues[place].epoch == epoch else {
            return
        }
        let count = client.queues[place].judged
        client.queues[place].judged = 0
        client.queues[place].state = .idle
        for _ in 0..<count {
            guard let pending = client.queues[place].records.popFirst() else { break }
            report(client, place, pending, pending.failure, isKnownUnwritten: pending.failure != nil)
        }
        // The reports may have ended the transaction, and emptied the queue.
        if client.queues[place].state == .idle, !client.queues[place].records.isEmpty {
            startQueue(client, place, after: 0)
        }
    }

    private func report(
        _ client: Client, _ place: Int, _ pending: PartitionQueue.Pending, _ failure: Failure?,
        isKnownUnwritten: Bool
    ) {
        let log = logs[place]
        client.producer.queued -= 1
        client.events.append(
            .report(
                Report(
                    opaque: pending.opaque, topic: log.topic, partition: log.partition,
                    offset: failure == nil ? pending.offset : -1, failure: failure,
                    isKnownUnwritten: isKnownUnwritten)))
        if client.transactional != nil { reported(client, failure) }
    }

    // MARK: Giving up

    /// Schedules the time at which the records at the head are given up.
    func watchExpiry(_ client: Client, _ place: Int) {
        guard !client.queues[place].hasExpiry, let first = client.queues[place].records.first else { return }
        client.queues[place].hasExpiry = true
        timers.add(.expireRecords, at: max(first.deadline, now), client: client.id, place: place)
    }

    func expireRecords(_ client: Client, _ place: Int) {
        client.queues[place].hasExpiry = false
        let state = client.queues[place].state
        // The others reach their leader.
        guard state == .blocked || state == .unanswered || state == .unregistered else { return }
        var index = 0
        let sent = client.queues[place].sent
        let judged = client.queues[place].judged
        // The next batch is appended late as a whole, or not at all.
        let isLate =
            client.transactional == nil && state == .blocked && logs[place].isAway
            && draw.chance(configuration.lateAppendPerMille)
        while let first = client.queues[place].records.first, first.deadline <= now {
            _ = client.queues[place].records.popFirst()
            let wasSent = index < sent || index < judged
            if isLate, index < sent, first.record.size == .normal {
                logs[place].late.append(entry(first.record, -1, -1))
            }
            index += 1
            report(client, place, first, .timedOut, isKnownUnwritten: !wasSent)
        }
        client.queues[place].sent = max(0, sent - index)
        client.queues[place].judged = max(0, judged - index)
        if state == .unanswered, client.queues[place].judged == 0 { client.queues[place].state = .blocked }
        guard client.queues[place].records.isEmpty else { return watchExpiry(client, place) }
        client.queues[place].state = .idle
        client.queues[place].sent = 0
    }

    /// Removes the records of a queue that no broker has accepted or refused.
    func purge(_ client: Client, _ place: Int, _ failure: Failure = .purged) {
        let judged = client.queues[place].judged
        let sent = client.queues[place].sent
        let purged = client.queues[place].records.takeLast(client.queues[place].records.count - judged)
        client.queues[place].sent = 0
        switch client.queues[place].state {
        case .sending, .blocked, .unregistered:
            client.queues[place].state = .idle
            client.queues[place].epoch &+= 1
        case .idle, .acknowledging, .unanswered: break
        }
        for (index, pending) in purged.enumerated() {
            report(client, place, pending, failure, isKnownUnwritten: index >= sent)
        }
    }

    // MARK: Leaders

    /// Makes the leader of a partition unreachable, or reachable again.
    func setLeader(_ topic: Topic, _ partition: Int, isAway: Bool) {
        let log = log(topic, partition)
        guard log.isAway != isAway else { return }
        log.isAway = isAway
        if isAway { leaderGone(log) } else { leaderBack(log) }
    }

    private func leaderGone(_ log: KafkaLog) {
        let place = place(log.topic, log.partition)
        for client in clients where client.producer.exists && !client.isDead {
            if client.queues[place].state == .acknowledging { loseAnswer(client, place) }
        }
    }

    private func loseAnswer(_ client: Client, _ place: Int) {
        client.queues[place].state = .unanswered
        client.queues[place].epoch &+= 1
        watchExpiry(client, place)
    }

    /// A batch on its way to or from a client without network, or the answer to the batch, is lost.
    func loseBatch(_ client: Client, _ place: Int, _ epoch: Int32) {
        guard client.queues[place].epoch == epoch, !client.isDead else { return }
        switch client.queues[place].state {
        case .sending:
            client.queues[place].state = .blocked
            client.queues[place].sent = max(client.queues[place].sent, batchCount(client, place))
            watchExpiry(client, place)
        case .acknowledging: loseAnswer(client, place)
        case .idle, .blocked, .unanswered, .unregistered: break
        }
    }

    private func leaderBack(_ log: KafkaLog) {
        let place = place(log.topic, log.partition)
        for var entry in log.late {
            entry.offset = log.end
            entry.appendedAt = now
            log.append(entry)
        }
        log.late = []
        for transaction in log.waitingMarkers {
            writeMarker(transaction, log)
            markerDone(Int(transaction))
        }
        log.waitingMarkers = []
        showStable(log)
        for client in clients where client.producer.exists && client.isRunning { resumeQueue(client, place) }
    }

    func resumeQueue(_ client: Client, _ place: Int) {
        switch client.queues[place].state {
        case .blocked: startQueue(client, place, after: 0)
        case .unanswered:
            client.queues[place].state = .acknowledging
            timers.add(
                .batchAcknowledged, at: now + drawDelay() + drawDelay(), client: client.id, place: place,
                epoch: client.queues[place].epoch)
        case .idle, .sending, .acknowledging, .unregistered: break
        }
    }
}

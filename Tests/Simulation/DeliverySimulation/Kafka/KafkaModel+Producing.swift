/// A producer's queue for one partition. Records at its head have been sent already.
struct KafkaLane {
    struct Pending {
        var record: KafkaModel.Record
        var opaque: Int
        var deadline: UInt64
        var offset: Int64 = -1
        var failure: KafkaModel.Failure?
    }

    enum State: UInt8 {
        case idle
        /// A batch is on its way.
        case sending
        /// A batch is on its way back.
        case acknowledging
        /// The leader is away; the batch at the head was sent in vain, or not at all.
        case blocked
        /// The leader went away after it had appended the batch at the head: it is sent again.
        case unanswered
        /// The coordinator of transactions doesn't know the partition yet.
        case unregistered
    }

    var queue = KafkaQueue<Pending>()
    var state = State.idle
    /// Voids timers of before.
    var epoch: Int32 = 0
    /// Records at the head that the broker has judged, and whose answer isn't here.
    var judged = 0
    /// Records at the head that may have been on the way when the leader went.
    var sent = 0
    var hasExpiry = false
}

/// The plain side of a client's producer.
struct KafkaProducerState {
    var exists = false
    /// Records without a report.
    var queued = 0
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

    /// Queues a record. Per partition the order of the calls is kept.
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
        client.lanes[place].queue.append(
            .init(record: record, opaque: opaque, deadline: now + configuration.deliveryTimeout))
        if client.lanes[place].state == .idle { startLane(client, place, after: configuration.linger) }
        return .queued
    }

    /// Records of a client without a report.
    func queued(_ id: ClientID) -> Int { clients[id].producer.queued }

    /// Gives up what wasn't sent; reports say so.
    func purge(_ id: ClientID) {
        let client = clients[id]
        for place in client.lanes.indices where !client.lanes[place].queue.isEmpty { purge(client, place) }
    }

    // MARK: Lanes

    func startLane(_ client: Client, _ place: Int, after pause: UInt64) {
        if client.transactional != nil, !client.transactional!.isRegistered(place) {
            client.lanes[place].state = .unregistered
            watchExpiry(client, place)
            return register(client, place)
        }
        client.lanes[place].state = .sending
        client.lanes[place].epoch &+= 1
        timers.add(
            .batchArrives, at: now + pause + way(), client: client.id, place: place,
            epoch: client.lanes[place].epoch)
    }

    /// A batch reaches the leader, unless that is away.
    func batchArrives(_ client: Client, _ place: Int, _ epoch: Int32) {
        guard client.lanes[place].state == .sending, client.lanes[place].epoch == epoch else { return }
        let log = logs[place]
        let count = min(client.lanes[place].queue.count, configuration.batchLimit)
        guard count > 0 else {
            client.lanes[place].state = .idle
            return
        }
        guard !log.isAway, log.partition < partitionCount(log.topic) else {
            client.lanes[place].state = .blocked
            client.lanes[place].sent = max(client.lanes[place].sent, count)
            watchExpiry(client, place)
            return
        }
        let transaction = transactionOfBatch(client, place)
        let refusal: Failure? =
            refusesWrites(log.topic) ? .notAuthorised : transaction == nil ? .fenced : nil
        for index in 0..<count {
            let record = client.lanes[place].queue[index].record
            guard let transaction, refusal == nil, record.size == .normal else {
                client.lanes[place].queue[index].failure = refusal ?? .tooLarge
                continue
            }
            client.lanes[place].queue[index].offset = log.end
            log.append(entry(record, log.end, transaction))
        }
        showStable(log)
        client.lanes[place].judged = count
        client.lanes[place].sent = 0
        guard !client.isDead else {
            client.lanes[place].state = .idle
            return
        }
        client.lanes[place].state = .acknowledging
        timers.add(
            .batchAcknowledged, at: now + way(), client: client.id, place: place,
            epoch: client.lanes[place].epoch)
    }

    func batchAcknowledged(_ client: Client, _ place: Int, _ epoch: Int32) {
        guard client.lanes[place].state == .acknowledging, client.lanes[place].epoch == epoch else { return }
        let count = client.lanes[place].judged
        client.lanes[place].judged = 0
        client.lanes[place].state = .idle
        for _ in 0..<count {
            guard let pending = client.lanes[place].queue.popFirst() else { break }
            report(client, place, pending, pending.failure, isKnownUnwritten: pending.failure != nil)
        }
        // The reports may have ended the transaction, and emptied the queue.
        if client.lanes[place].state == .idle, !client.lanes[place].queue.isEmpty {
            startLane(client, place, after: 0)
        }
    }

    private func report(
        _ client: Client, _ place: Int, _ pending: KafkaLane.Pending, _ failure: Failure?,
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

    /// Has the records at the head given up when their time is over.
    func watchExpiry(_ client: Client, _ place: Int) {
        guard !client.lanes[place].hasExpiry, let first = client.lanes[place].queue.first else { return }
        client.lanes[place].hasExpiry = true
        timers.add(.expireRecords, at: max(first.deadline, now), client: client.id, place: place)
    }

    func expireRecords(_ client: Client, _ place: Int) {
        client.lanes[place].hasExpiry = false
        let state = client.lanes[place].state
        // The others have a leader.
        guard state == .blocked || state == .unanswered || state == .unregistered else { return }
        var index = 0
        let sent = client.lanes[place].sent
        let judged = client.lanes[place].judged
        // The next batch is appended late as a whole, or not at all.
        let isLate =
            client.transactional == nil && state == .blocked
            && draw.chance(configuration.lateAppendPerMille)
        while let first = client.lanes[place].queue.first, first.deadline <= now {
            _ = client.lanes[place].queue.popFirst()
            let wasSent = index < sent || index < judged
            if isLate, index < sent, first.record.size == .normal {
                logs[place].late.append(entry(first.record, -1, -1))
            }
            index += 1
            report(client, place, first, .timedOut, isKnownUnwritten: !wasSent)
        }
        client.lanes[place].sent = max(0, sent - index)
        client.lanes[place].judged = max(0, judged - index)
        if state == .unanswered, client.lanes[place].judged == 0 { client.lanes[place].state = .blocked }
        guard client.lanes[place].queue.isEmpty else { return watchExpiry(client, place) }
        client.lanes[place].state = .idle
        client.lanes[place].sent = 0
    }

    /// Takes out of a lane what no broker has judged.
    func purge(_ client: Client, _ place: Int, _ failure: Failure = .purged) {
        let judged = client.lanes[place].judged
        let sent = client.lanes[place].sent
        let purged = client.lanes[place].queue.removeLast(client.lanes[place].queue.count - judged)
        client.lanes[place].sent = 0
        switch client.lanes[place].state {
        case .sending, .blocked, .unregistered:
            client.lanes[place].state = .idle
            client.lanes[place].epoch &+= 1
        case .idle, .acknowledging, .unanswered: break
        }
        for (index, pending) in purged.enumerated() {
            report(client, place, pending, failure, isKnownUnwritten: index >= sent)
        }
    }

    // MARK: Leaders

    /// The leader of a partition can't be reached, or can be again.
    func setLeader(_ topic: Topic, _ partition: Int, isAway: Bool) {
        let log = log(topic, partition)
        guard log.isAway != isAway else { return }
        log.isAway = isAway
        if isAway { leaderGone(log) } else { leaderBack(log) }
    }

    private func leaderGone(_ log: KafkaLog) {
        let place = place(log.topic, log.partition)
        for client in clients where client.producer.exists && !client.isDead {
            guard client.lanes[place].state == .acknowledging else { continue }
            client.lanes[place].state = .unanswered
            client.lanes[place].epoch &+= 1
            watchExpiry(client, place)
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
        for client in clients where client.producer.exists && client.isRunning { resumeLane(client, place) }
    }

    func resumeLane(_ client: Client, _ place: Int) {
        switch client.lanes[place].state {
        case .blocked: startLane(client, place, after: 0)
        case .unanswered:
            client.lanes[place].state = .acknowledging
            timers.add(
                .batchAcknowledged, at: now + way() + way(), client: client.id, place: place,
                epoch: client.lanes[place].epoch)
        case .idle, .sending, .acknowledging, .unregistered: break
        }
    }
}

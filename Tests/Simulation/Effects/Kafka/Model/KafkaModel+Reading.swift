/// A client's reading of one partition.
struct KafkaReading {
    var isActive = false
    var isPaused = false
    /// True while a fetch is under way, or waits in the log for records.
    var isFetching = false
    var isGroup = false
    var isolation = KafkaModel.Isolation.committed
    var policy = KafkaModel.ResetPolicy.earliest
    /// The next offset to hand out.
    var position: Int64 = 0
    /// Offset up to which records are fetched.
    var limit: Int64 = 0
    /// Number that voids earlier fetches.
    var epoch: Int32 = 0
    /// Index of the entry at the position; valid while the log's layout is unchanged.
    var index = 0
    var layout: Int32 = -1
    var incarnation = 0
    /// Number of times that the reset policy has moved the reader.
    var resets = 0
}

extension KafkaModel {
    // MARK: Readers without a group

    /// Begins to read, without a group.
    /// - Parameter offset: where to begin; nil: the policy decides.
    func read(
        _ client: ClientID, _ topic: Topic, _ partition: Int, from offset: Int64?,
        isolation: Isolation = .committed, policy: ResetPolicy = .earliest
    ) {
        begin(client, place(topic, partition), offset, isolation, policy, isGroup: false)
    }

    func stopReading(_ client: ClientID, _ topic: Topic, _ partition: Int) {
        end(clients[client], place(topic, partition))
    }

    /// Continues at another offset.
    func seek(_ client: ClientID, _ topic: Topic, _ partition: Int, to offset: Int64) {
        let place = place(topic, partition)
        let reading = clients[client].readings[place]
        guard reading.isActive else { return }
        begin(client, place, offset, reading.isolation, reading.policy, isGroup: reading.isGroup)
        clients[client].readings[place].isPaused = reading.isPaused
    }

    /// Returns the reader's position, which only the client knows.
    func position(_ client: ClientID, _ topic: Topic, _ partition: Int) -> Int64? {
        let reading = clients[client].readings[place(topic, partition)]
        return reading.isActive ? reading.position : nil
    }

    func pause(_ client: ClientID, _ topic: Topic, _ partition: Int) {
        clients[client].readings[place(topic, partition)].isPaused = true
    }

    func resume(_ client: ClientID, _ topic: Topic, _ partition: Int) {
        clients[client].readings[place(topic, partition)].isPaused = false
    }

    /// Asks for the ends of a log. `Event.listed` answers.
    func listOffsets(
        _ client: ClientID, _ topic: Topic, _ partition: Int, isolation: Isolation = .committed
    ) -> Int {
        let reference = nextReference()
        timers.add(
            .listed, at: now + drawDelay() + drawDelay(), client: client, place: place(topic, partition),
            epoch: isolation == .committed ? 1 : 0, subject: reference)
        return reference
    }

    func answerList(_ client: Client, _ timer: KafkaTimers.Timer) {
        let log = logs[Int(timer.place)]
        let exists = log.partition < partitionCount(log.topic)
        client.events.append(
            .listed(
                reference: timer.subject, first: log.start, end: timer.epoch == 1 ? log.lastStable : log.end,
                log.isAway ? .leaderAway : exists ? nil : .unknownPartition))
    }

    // MARK: Records

    /// Returns fetched records, one partition at a time; none while a rebalance event waits for its answer.
    /// - Returns: the number of records.
    @discardableResult
    func poll(_ id: ClientID, atMost most: Int, _ body: (borrowing ReadRecord) -> Void) -> Int {
        let client = clients[id]
        client.polledAt = now
        guard client.isRunning, client.pending == .none, !client.reading.isEmpty else { return 0 }
        var count = 0
        let turns = client.reading.count
        for turn in 0..<turns where count < most {
            let place = client.reading[(client.nextReading + turn) % turns]
            count += take(client, place, most - count, body)
        }
        client.nextReading = (client.nextReading + 1) % turns
        return count
    }

    /// Whether `poll` has a record to hand out.
    func hasRecords(_ id: ClientID) -> Bool {
        let client = clients[id]
        guard client.isRunning, client.pending == .none else { return false }
        return client.reading.contains {
            !client.readings[$0].isPaused && client.readings[$0].position < client.readings[$0].limit
        }
    }

    private func take(
        _ client: Client, _ place: Int, _ most: Int, _ body: (borrowing ReadRecord) -> Void
    ) -> Int {
        guard !client.readings[place].isPaused else { return 0 }
        guard client.readings[place].position < client.readings[place].limit else {
            if !client.readings[place].isFetching { fetch(client, place) }
            return 0
        }
        var reading = client.readings[place]
        let log = logs[place]
        var count = 0
        if reading.position < reading.limit {
            if reading.layout != log.layout {
                // Records fetched before the topic was deleted are dropped with it.
                reading.index = log.index(of: reading.position)
                reading.layout = log.layout
            }
            let wantsCommitted = reading.isolation == .committed
            while count < most, reading.position < reading.limit {
                guard reading.index < log.entries.count else {
                    reading.position = min(reading.limit, max(reading.position, log.end))
                    reading.limit = reading.position
                    break
                }
                let entry = log.entries[reading.index]
                guard entry.offset < reading.limit else {
                    reading.position = reading.limit
                    break
                }
                reading.index += 1
                reading.position = entry.offset + 1
                guard !entry.isMarker, !(wantsCommitted && isAborted(entry)) else { continue }
                count += 1
                body(
                    ReadRecord(
                        topic: log.topic, partition: log.partition, offset: entry.offset,
                        payload: entry.payload, key: entry.key, kind: entry.kind,
                        isTombstone: entry.isTombstone, appendedAt: entry.appendedAt))
            }
        }
        client.readings[place] = reading
        if reading.position >= reading.limit, !reading.isFetching { fetch(client, place) }
        return count
    }

    // MARK: Fetches

    func begin(
        _ id: ClientID, _ place: Int, _ offset: Int64?, _ isolation: Isolation, _ policy: ResetPolicy,
        isGroup: Bool
    ) {
        let client = clients[id]
        let log = logs[place]
        let epoch = client.readings[place].epoch &+ 1
        if !client.readings[place].isActive { client.reading.append(place) }
        let first = offset ?? (policy == .latest ? end(log, isolation) : log.start)
        client.readings[place] = KafkaReading(
            isActive: true, isGroup: isGroup, isolation: isolation, policy: policy, position: first,
            limit: first, epoch: epoch, incarnation: log.incarnation)
        log.waiters.removeAll { $0 == id }
        fetch(client, place)
    }

    func end(_ client: Client, _ place: Int) {
        guard client.readings[place].isActive else { return }
        client.readings[place].isActive = false
        client.readings[place].epoch &+= 1
        client.reading.removeAll { $0 == place }
        client.nextReading = 0
        logs[place].waiters.removeAll { $0 == client.id }
    }

    private func end(_ log: KafkaLog, _ isolation: Isolation) -> Int64 {
        isolation == .committed ? log.lastStable : log.end
    }

    /// Returns whether the client has read everything that it may see.
    private func waits(_ reading: KafkaReading, _ log: KafkaLog) -> Bool {
        reading.position >= end(log, reading.isolation) && reading.position <= log.end
    }

    private func fetch(_ client: Client, _ place: Int) {
        let log = logs[place]
        client.readings[place].isFetching = true
        let reading = client.readings[place]
        if log.isAway || waits(reading, log) {
            log.waiters.append(client.id)
        } else {
            timers.add(
                .fetchDone, at: now + drawDelay() + drawDelay(), client: client.id, place: place,
                epoch: reading.epoch)
        }
    }

    func wakeReaders(_ log: KafkaLog) {
        let place = place(log.topic, log.partition)
        var index = 0
        while index < log.waiters.count {
            let id = log.waiters[index]
            let reading = clients[id].readings[place]
            guard !waits(reading, log) else {
                index += 1
                continue
            }
            log.waiters.swapAt(index, log.waiters.count - 1)
            log.waiters.removeLast()
            timers.add(.fetchDone, at: now + drawDelay(), client: id, place: place, epoch: reading.epoch)
        }
    }

    func fetchDone(_ client: Client, _ place: Int, _ epoch: Int32) {
        guard client.readings[place].epoch == epoch, client.readings[place].isActive else { return }
        let log = logs[place]
        client.readings[place].isFetching = false
        guard !log.isAway else { return fetch(client, place) }
        let reading = client.readings[place]
        client.readings[place].incarnation = log.incarnation
        let end = end(log, reading.isolation)
        // A position is compared with the high watermark.
        if reading.position < log.start || reading.position > log.end {
            return outOfRange(client, place, log)
        }
        guard reading.position < end else { return fetch(client, place) }
        if reading.layout != log.layout {
            client.readings[place].index = log.index(of: reading.position)
            client.readings[place].layout = log.layout
        }
        let last = client.readings[place].index + configuration.fetchLimit
        client.readings[place].limit =
            last < log.entries.count && log.entries[last].offset < end ? log.entries[last].offset : end
    }

    private func outOfRange(_ client: Client, _ place: Int, _ log: KafkaLog) {
        let reading = client.readings[place]
        switch reading.policy {
        case .earliest: client.readings[place].position = log.start
        case .latest: client.readings[place].position = end(log, reading.isolation)
        case .none:
            client.events.append(.outOfRange(log.topic, log.partition, reading.position))
            return self.end(client, place)
        }
        client.readings[place].limit = client.readings[place].position
        client.readings[place].layout = -1
        client.readings[place].resets += 1
        fetch(client, place)
    }
}

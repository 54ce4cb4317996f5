import DequeModule

/// Kafka's brokers and its clients (3.6; librdkafka 2), simulated: a world for workers, which knows nothing of them.
///
/// All choices come from one seed, and time is an argument. Calls return at once; things follow when `advance` reaches
/// their time. A client is a process: at most one member of the group, one producer, and readers of any partitions.
///
/// | call | what follows |
/// |---|---|
/// | `advance(to:)`, `nextEventTime` | everything due happens, in its order |
/// | `nextEvent(client)`, `hasEvents(client)` | the client's events, in their order |
/// | `addClient()` | – |
/// | `join(client, instance:)` | `assigned`, `revoked`, `lost`, `instanceFenced` |
/// | `assign(client, offsets)` | answers `assigned`; reading begins |
/// | `unassign(client)` | answers `revoked` and `lost`; the rebalance continues |
/// | `leave(client)` | the group shares anew; no event follows |
/// | `membership(client)` | `nil` for no member; taken for `sendOffsets` |
/// | `commit(client, offsets)` | `committed` |
/// | `fetchCommitted(client, partitions)` | `fetchedCommitted` |
/// | `read`, `stopReading`, `seek`, `pause`, `resume` | readers, in or without a group |
/// | `poll(client, atMost:)` | hands records out |
/// | `listOffsets(client, …)` | `listed` |
/// | `makeProducer(client, transactionalID:)` | – |
/// | `produce(client, record, …)` | `report`, where it was queued |
/// | `initialize`, `begin`, `sendOffsets` | `step`; `producerFailed` precedes a fatal one |
/// | `commitTransaction`, `abortTransaction` | the same |
/// | `append(record, to:)` | a record of another program, at once |
///
/// | fault | |
/// |---|---|
/// | `setLeader(_, isAway:)` | of one partition: no fetch, no report, no marker |
/// | `setGroupCoordinator(isAway:)` | answers are lost; a rebalance under way is forgotten |
/// | `setTransactionCoordinator(isAway:)` | steps wait, and end as retriable |
/// | `isSlow`, `setUnauthorised` | long delays; refused writes |
/// | `stop(client)`, `resume(client)`, `setCutOff(client, _)` | SIGSTOP and SIGCONT; no network |
/// | `crash(client)`, `close(client)` | SIGKILL; an end that leaves the group and loses nothing that was sent |
/// | `resetOffset`, `makeAnew`, `grow`, `compact`, `retain` | operators, cleaners, retention |
///
/// Observers read `feed` (records by the moment a committed reader could see them) and `commits`.
final class KafkaModel {
    /// A process.
    final class Client {
        let id: ClientID
        var events = Deque<Event>()
        var isDead = false
        var isStopped = false
        var isRunning: Bool { !isDead && !isStopped }
        /// Whether no broker can be reached. The process goes on.
        var isCutOff = false
        /// Timers that fell due while the process was stopped or cut off.
        var deferred: [KafkaTimers.Timer] = []
        var polledAt: UInt64 = 0

        // MARK: Reading

        /// Readers by place.
        var readings: [KafkaReading]
        /// Places of the active readers.
        var reading: [Int] = []
        var nextReading = 0

        // MARK: Producing

        var producer = KafkaProducerState()
        var queues: [PartitionQueue]
        var transactional: KafkaTransactionalClient?

        // MARK: The group

        var consumer = KafkaConsumerState()
        var link = KafkaGroupLink()
        /// Number of requests to join that the client has sent.
        var joins = 0
        /// Number of answers to heartbeats that have reached the client.
        var heartbeats = 0
        /// A rebalance event that waits for its answer. Nothing is polled meanwhile.
        var pending: KafkaConsumerState.Pending { consumer.pending }

        init(_ id: ClientID, places: Int) {
            self.id = id
            readings = [KafkaReading](repeating: KafkaReading(), count: places)
            queues = [PartitionQueue](repeating: PartitionQueue(), count: places)
        }
    }

    /// Highest number of partitions of a topic.
    static let stride = 64

    let configuration: Configuration
    var draw: Draw
    private(set) var now: UInt64
    var timers = KafkaTimers()
    var clients: [Client] = []

    /// Logs by place: topic and partition.
    let logs: [KafkaLog]
    var partitionCounts: [Int]
    /// Bytes of the largest batch by place; a missing place has no limit.
    var largestBatches: [Int: Int] = [:]
    /// In the order of becoming visible.
    private(set) var feed: [VisibleRecord] = []
    var feedOf: [[Int32]]
    var commits: [CommittedChange] = []

    var identifiers: [KafkaTransactionalID] = []
    var transactions: [KafkaTransaction] = []
    /// Whether the coordinator of transactions is unreachable; the number grows each time it becomes so.
    var isTransactionCoordinatorAway = false
    var transactionCoordinatorEpoch = 0

    let group = KafkaGroup()

    /// Whether the network is slow.
    var isSlow = false
    private var unauthorised: Set<Topic> = []
    private var references = 0

    init(seed: UInt64, configuration: Configuration = Configuration(), now: UInt64 = 1_000_000_000) {
        self.configuration = configuration
        self.now = now
        draw = Draw(seed: seed)
        logs = (0..<Topic.allCases.count * Self.stride).map {
            KafkaLog(Topic.allCases[$0 / Self.stride], $0 % Self.stride)
        }
        partitionCounts = [
            configuration.partitions, configuration.outcomePartitions, configuration.deadLetterPartitions,
            configuration.partitions,
        ]
        feedOf = [[Int32]](repeating: [], count: logs.count)
    }

    // MARK: Time

    var nextEventTime: UInt64? { timers.firstTime }

    /// Processes all events up to a time.
    func advance(to time: UInt64) {
        while let timer = timers.popDue(time) {
            now = max(now, timer.time)
            happen(timer)
        }
        now = max(now, time)
    }

    private func happen(_ timer: KafkaTimers.Timer) {
        if timer.client >= 0, timer.kind.isOfNetwork, clients[Int(timer.client)].isCutOff {
            let client = clients[Int(timer.client)]
            switch timer.kind {
            case .batchArrives, .batchAcknowledged: return loseBatch(client, Int(timer.place), timer.epoch)
            default: return client.deferred.append(timer)
            }
        }
        if timer.client >= 0, timer.kind.isOfClient {
            let client = clients[Int(timer.client)]
            if client.isDead { return }
            if client.isStopped { return client.deferred.append(timer) }
            return happen(timer, to: client)
        }
        switch timer.kind {
        case .batchArrives:
            let client = clients[Int(timer.client)]
            // The request may or may not have left the process.
            if client.isStopped, draw.chance(500) { return client.deferred.append(timer) }
            batchArrives(client, Int(timer.place), timer.epoch)
        case .groupRequest: groupRequest(clients[Int(timer.client)], timer.epoch)
        case .groupDeadline: groupDeadline(timer.epoch)
        case .memberExpires: memberExpires(timer.subject)
        case .stepArrives: stepArrives(clients[Int(timer.client)], timer)
        case .registerArrives: registerArrives(clients[Int(timer.client)], timer)
        case .marker: marker(timer)
        case .offsetsMarker: offsetsMarker(timer)
        case .transactionExpires: transactionExpires(timer.subject)
        default: break
        }
    }

    private func happen(_ timer: KafkaTimers.Timer, to client: Client) {
        switch timer.kind {
        case .batchAcknowledged: batchAcknowledged(client, Int(timer.place), timer.epoch)
        case .expireRecords: expireRecords(client, Int(timer.place))
        case .fetchDone: fetchDone(client, Int(timer.place), timer.epoch)
        case .groupAnswer: groupAnswer(client, timer.epoch)
        case .heartbeat: heartbeat(client, timer.epoch)
        case .stepAnswered: stepAnswered(client, timer)
        case .stepTimedOut: stepTimedOut(client, timer.epoch)
        case .registered: registered(client, timer)
        case .listed: answerList(client, timer)
        case .rejoin: rejoin(client, timer.epoch)
        case .sendSync: sendSync(client, timer.epoch)
        case .batchArrives: batchArrives(client, Int(timer.place), timer.epoch)
        case .stepArrives: stepArrives(client, timer)
        case .registerArrives: registerArrives(client, timer)
        default: break
        }
    }

    /// Returns the nanoseconds that a request or an answer is under way.
    @inline(__always)
    func drawDelay() -> UInt64 {
        let slow = configuration.slowDelay
        if isSlow { return drawn(slow) }
        // Request and answer together take less than workers wait for their last commit.
        if draw.chance(configuration.slowPerMille) { return drawn(slow.lowerBound...slow.upperBound / 4) }
        return drawn(configuration.delay)
    }

    @inline(__always)
    func drawn(_ range: ClosedRange<UInt64>) -> UInt64 {
        let width = range.upperBound - range.lowerBound
        guard width > 0 else { return range.lowerBound }
        return range.lowerBound + draw.generator.next() % (width + 1)
    }

    // MARK: Places

    @inline(__always)
    func place(_ topic: Topic, _ partition: Int) -> Int { topic.rawValue * Self.stride + partition }

    @inline(__always)
    func log(_ topic: Topic, _ partition: Int) -> KafkaLog { logs[place(topic, partition)] }

    func partitionCount(_ topic: Topic) -> Int { partitionCounts[topic.rawValue] }

    @inline(__always)
    func show(_ record: VisibleRecord, _ place: Int) {
        feedOf[place].append(Int32(feed.count))
        feed.append(record)
    }

    func nextReference() -> Int {
        references += 1
        return references
    }

    // MARK: Clients

    func addClient() -> ClientID {
        let client = Client(clients.count, places: logs.count)
        client.polledAt = now
        clients.append(client)
        return client.id
    }

    func nextEvent(_ id: ClientID) -> Event? {
        let client = clients[id]
        guard client.isRunning else { return nil }
        client.polledAt = now
        return client.events.popFirst()
    }

    func hasEvents(_ id: ClientID) -> Bool { clients[id].isRunning && !clients[id].events.isEmpty }

    /// SIGSTOP: nothing leaves or reaches the process.
    func stop(_ id: ClientID) { clients[id].isStopped = true }

    /// SIGCONT: everything that arrived meanwhile reaches the process now.
    func resume(_ id: ClientID) {
        let client = clients[id]
        guard client.isStopped else { return }
        client.isStopped = false
        resumeWork(client)
    }

    /// Everything on its way to or from the client waits until the network is back. Records time out meanwhile.
    func setCutOff(_ id: ClientID, _ isCutOff: Bool) {
        clients[id].isCutOff = isCutOff
        if !isCutOff, clients[id].isRunning { resumeWork(clients[id]) }
    }

    private func resumeWork(_ client: Client) {
        let deferred = client.deferred
        client.deferred = []
        for timer in deferred {
            timers.add(
                timer.kind, at: now, client: client.id, place: Int(timer.place), epoch: timer.epoch,
                subject: timer.subject)
        }
        guard client.producer.exists else { return }
        for place in client.queues.indices where !logs[place].isAway && !client.queues[place].records.isEmpty
        {
            resumeQueue(client, place)
        }
    }

    /// SIGKILL: records that hadn't left are lost. Requests under way may still arrive.
    func crash(_ id: ClientID) {
        let client = clients[id]
        guard !client.isDead else { return }
        client.isDead = true
        client.isCutOff = false
        client.deferred = []
        client.events.removeAll()
        client.link.held.removeAll()
        for place in client.reading { end(client, place) }
        if client.transactional != nil, draw.chance(500) {
            client.transactional!.stepEpoch &+= 1
            client.transactional!.registerEpoch &+= 1
        }
        for place in client.queues.indices where !client.queues[place].records.isEmpty {
            if client.queues[place].state != .sending || draw.chance(500) { client.queues[place].epoch &+= 1 }
        }
        client.consumer.owned = []
    }

    /// Orderly end: the client leaves the group. Records without a report are lost, as with a crash.
    func close(_ id: ClientID) {
        if clients[id].consumer.exists { leave(id) }
        crash(id)
    }

    // MARK: Rights

    func setUnauthorised(_ topic: Topic, _ isUnauthorised: Bool) {
        if isUnauthorised { unauthorised.insert(topic) } else { unauthorised.remove(topic) }
    }

    func refusesWrites(_ topic: Topic) -> Bool { !unauthorised.isEmpty && unauthorised.contains(topic) }
}

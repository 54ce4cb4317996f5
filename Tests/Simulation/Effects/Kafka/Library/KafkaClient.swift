import CRdkafka
import DequeModule
import EventLoop

/// A client of librdkafka's twin: one of the model's clients, with the queue that its owner polls.
final class KafkaClient {
    /// An element of a queue.
    enum Operation {
        /// A message, and the model's place of its partition.
        case message(Message.Pointer, place: Int)
        case rebalance(rd_kafka_resp_err_t, PartitionSet)
        case committed(Commit, KafkaModel.Failure?)
        case error(rd_kafka_resp_err_t, String)
        case fatalError
        case partitionError(rd_kafka_resp_err_t, TopicPartition, offset: Int64)
        case log(Int32, String, String)
    }

    typealias CommitCallback =
        @convention(c) (
            OpaquePointer?, rd_kafka_resp_err_t, UnsafeMutablePointer<rd_kafka_topic_partition_list_t>?,
            UnsafeMutableRawPointer?
        ) -> Void

    /// A commit under way.
    struct Commit {
        let queue: KafkaQueue
        let offsets: [(partition: TopicPartition, offset: Int64)]
        let callback: CommitCallback
        let opaque: UnsafeMutableRawPointer?
    }

    /// An answer that a blocked caller waits for.
    enum Answer {
        case committed([KafkaModel.CommittedOffset], KafkaModel.Failure?)
        case listed(first: Int64, end: Int64, KafkaModel.Failure?)
    }

    /// Way out of the group.
    enum Departure {
        case none, wanted, revoking, done
    }

    let world: KafkaCluster
    let id: ClientID
    let settings: ClientSettings
    let isConsumer: Bool
    let process: SimulatedProcess?
    private let watchesEnds: Bool
    private(set) var isDead = false
    var suspendedUntil: UInt64 = 0
    var operations = Deque<Operation>()
    /// Descriptor that is signalled when the queue is no longer empty; -1: none.
    var descriptor: Int32 = -1
    private var wasEmpty = true
    var fatalError: (code: rd_kafka_resp_err_t, reason: String)?
    private var handles: [TopicHandle] = []
    var commits: [Int: Commit] = [:]
    var answers: [Int: Answer] = [:]

    // MARK: Consumers

    var requestSent: (callback: RequestCallback, opaque: UnsafeMutableRawPointer?)?
    var responseReceived: (callback: ResponseCallback, opaque: UnsafeMutableRawPointer?)?
    private var seenJoins = 0
    private var seenHeartbeats = 0
    var subscribes = false
    /// Whether the owner knows of the group's event that awaits an answer.
    var isEventServed = false
    var departure = Departure.none
    /// Nanoseconds at which the owner has given up partitions that it doesn't read now.
    var left: [Int32: UInt64] = [:]
    /// Partitions that don't exist, to be read once they do.
    var missing: [(partition: TopicPartition, start: StartOffset)] = []
    /// By place: reading and position whose end was reported, and the reader's resets that were.
    private var ends: [Int: (epoch: Int32, position: Int64)] = [:]
    private var resets: [Int: (epoch: Int32, count: Int)] = [:]

    // MARK: Producers

    /// Descriptor that is signalled when a step has ended; -1: none.
    var stepDescriptor: Int32 = -1
    var stepResult: (KafkaModel.TransactionStep, KafkaModel.StepResult)?
    /// Error of the last record that was lost.
    var lostRecord = RD_KAFKA_RESP_ERR__MSG_TIMED_OUT

    init(_ world: KafkaCluster, _ settings: ClientSettings, isConsumer: Bool) {
        self.world = world
        self.settings = settings
        self.isConsumer = isConsumer
        process = world.scheduler.process
        watchesEnds = settings["enable.partition.eof"] == "true"
        id = world.call { world.model.addClient() }
        if world.isCutOff(process) { world.model.setCutOff(id, true) }
        world.clients.append(self)
        if !isConsumer { makeProducer() }
        if process?.isAlive == false { end() } else { process?.atDeath { [weak self] in self?.end() } }
    }

    var model: KafkaModel { world.model }
    var state: KafkaModel.Client { world.model.clients[id] }

    var readsCommitted: Bool { settings["isolation.level"] != "read_uncommitted" }

    func handle(_ topic: String) -> TopicHandle {
        if let known = handles.first(where: { $0.name == topic }) { return known }
        handles.append(TopicHandle(topic, self))
        return handles[handles.count - 1]
    }

    // MARK: End

    /// The client is destroyed, or its process was killed: what it hasn't sent is lost.
    func end() {
        guard !isDead else { return }
        isDead = true
        world.call { model.crash(id) }
        world.clients.removeAll { $0 === self }
        for case .message(let message, _) in operations { Message.destroy(message) }
        operations = []
        (descriptor, stepDescriptor) = (-1, -1)
    }

    // MARK: News

    /// Takes over what the model has for the client.
    func takeNews() {
        guard !isDead, state.isRunning else { return }
        while let event = state.events.popFirst() { receive(event) }
        while seenJoins < state.joins {
            seenJoins += 1
            note(request: 11)
        }
        if seenHeartbeats != state.heartbeats {
            seenHeartbeats = state.heartbeats
            if let (callback, opaque) = responseReceived {
                _ = callback(borrowed(self), 0, nil, 1, 12, 0, 0, 0, 0, RD_KAFKA_RESP_ERR_NO_ERROR, opaque)
            }
        }
        if isConsumer {
            depart()
            findMissing()
            watchEnds()
        }
        signal()
    }

    /// - Parameter request: number of the request in Kafka's protocol.
    private func note(request: Int16) {
        if let (callback, opaque) = requestSent {
            _ = callback(borrowed(self), 0, nil, 1, request, 0, 0, 0, opaque)
        }
    }

    private func receive(_ event: KafkaModel.Event) {
        switch event {
        case .assigned(let set): rebalance(RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS, set)
        case .revoked(let set), .lost(let set): rebalance(RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS, set)
        case .instanceFenced:
            raise(RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID, "another member has the name", isFatal: true)
        case .report(let report): operations.append(.message(message(of: report), place: -1))
        case .step(let step, let result):
            stepResult = (step, result)
            if stepDescriptor >= 0 { world.scheduler.setReadiness(.read, of: stepDescriptor) }
        case .producerFailed(let failure):
            raise(failure.code, "another producer has the transactional identifier", isFatal: true)
        case .committed(let reference, let failure):
            guard let commit = commits.removeValue(forKey: reference) else { return }
            if commit.queue.isMain {
                operations.append(.committed(commit, failure))
            } else {
                commit.queue.operations.append(.committed(commit, failure))
            }
        case .fetchedCommitted(let reference, let offsets, let failure):
            answers[reference] = .committed(offsets, failure)
        case .listed(let reference, let first, let end, let failure):
            answers[reference] = .listed(first: first, end: end, failure)
        case .outOfRange(let topic, let partition, let offset):
            operations.append(
                .partitionError(
                    RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET, world.partition(topic, partition), offset: offset))
        }
    }

    /// Reports an error to the owner.
    func raise(_ code: rd_kafka_resp_err_t, _ reason: String, isFatal: Bool) {
        guard isFatal else { return operations.append(.error(code, reason)) }
        guard fatalError == nil else { return }
        fatalError = (code, reason)
        operations.append(.fatalError)
        if !isConsumer { model.purge(id) }
    }

    private func rebalance(_ code: rd_kafka_resp_err_t, _ set: PartitionSet) {
        // Records fetched ahead are fetched again after the rebalance.
        dropMessages { _ in true }
        isEventServed = false
        operations.append(.rebalance(code, set))
    }

    // MARK: The queue

    /// Whether the owner has something to poll.
    var hasWork: Bool { !operations.isEmpty || (isConsumer && model.hasRecords(id)) }

    /// Elements of the queue, records fetched ahead included.
    var length: Int {
        state.reading.reduce(operations.count) {
            $0 + Int(max(0, state.readings[$1].limit - state.readings[$1].position))
        }
    }

    /// Signals the owner when the queue has turned from empty to not empty.
    private func signal() {
        guard wasEmpty, descriptor >= 0, hasWork else { return }
        wasEmpty = false
        world.scheduler.setReadiness(.read, of: descriptor)
    }

    /// Takes the next element of the queue.
    func next() -> Operation? {
        if operations.isEmpty { refill() }
        defer { wasEmpty = !hasWork }
        return operations.popFirst()
    }

    /// Brings the model to the present for a poll.
    func touch() {
        if model.now < world.scheduler.now { world.pump() }
        state.polledAt = model.now
    }

    /// Takes the records that were fetched: one response for each partition.
    private func refill() {
        guard isConsumer, !isDead else { return }
        for place in state.reading {
            let reading = state.readings[place]
            guard resets[place]?.epoch != reading.epoch || resets[place]!.count < reading.resets else {
                continue
            }
            resets[place] = (reading.epoch, reading.resets)
            guard reading.resets > 0 else { continue }
            let partition = partition(at: place)
            let text = "\(partition.topic) [\(partition.partition)]: offset reset (at \(reading.position))"
            operations.append(.log(4, "OFFSET", text))
        }
        var taken: [(place: Int, record: Int, offset: Int64)] = []
        world.call {
            model.poll(id, atMost: .max) { record in
                taken.append((model.place(record.topic, record.partition), record.payload, record.offset))
            }
        }
        var index = 0
        while index < taken.count {
            let place = taken[index].place
            let response = taken[index...].prefix { $0.place == place }
            index += response.count
            let bytes = response.reduce(0) {
                let record = world.records[$1.record]
                return $0 + record.contentBytes + Message.overhead + 4 * record.headers.count
            }
            let memory = MessageMemory(world, bytes: bytes, isResponse: true)
            let partition = partition(at: place)
            let topic = handle(partition.topic)
            var position = 0
            for (_, record, offset) in response {
                operations.append(
                    .message(
                        Message.make(
                            record, topic, partition.partition, offset, in: memory, at: &position,
                            isConsumed: true), place: place))
            }
        }
    }

    func partition(at place: Int) -> TopicPartition {
        world.partition(model.logs[place].topic, model.logs[place].partition)
    }

    /// Drops queued records of these places; those that are still read are fetched again.
    func dropMessages(_ isDropped: (Int) -> Bool) {
        var firsts: [(place: Int, offset: Int64)] = []
        operations.removeAll { operation in
            guard case .message(let message, let place) = operation, place >= 0, isDropped(place) else {
                return false
            }
            if !firsts.contains(where: { $0.place == place }) {
                firsts.append((place, message.pointee.message.offset))
            }
            Message.destroy(message)
            return true
        }
        if !hasWork { wasEmpty = true }
        for (place, offset) in firsts {
            model.seek(id, model.logs[place].topic, model.logs[place].partition, to: offset)
        }
    }

    // MARK: Ends of logs

    /// Reports each reader that has met the end of its log, once for each position.
    private func watchEnds() {
        guard watchesEnds else { return }
        for place in state.reading {
            let reading = state.readings[place]
            guard isAtEnd(place) else { continue }
            if let known = ends[place], known == (reading.epoch, reading.position) { continue }
            ends[place] = (reading.epoch, reading.position)
            // The leader holds back its answer for a while.
            let wait = UInt64(settings.number("fetch.wait.max.ms") ?? 500) * 1_000_000
            world.scheduler.schedule(after: wait) { [weak self] in
                self?.reportEnd(place, reading.epoch, reading.position)
            }
        }
    }

    private func isAtEnd(_ place: Int) -> Bool {
        let (reading, log) = (state.readings[place], model.logs[place])
        let end = reading.isolation == .committed ? log.lastStable : log.end
        return reading.isActive && !reading.isPaused && reading.position >= reading.limit && !log.isAway
            && (end...log.end).contains(reading.position)
    }

    private func reportEnd(_ place: Int, _ epoch: Int32, _ position: Int64) {
        guard let known = ends[place], known == (epoch, position) else { return }
        guard !isDead, state.isRunning, state.readings[place].epoch == epoch,
            state.readings[place].position == position, isAtEnd(place)
        else {
            // The end may be met again at the same position: a suspended process goes on, a leader comes back.
            ends[place] = nil
            return
        }
        operations.append(
            .partitionError(RD_KAFKA_RESP_ERR__PARTITION_EOF, partition(at: place), offset: position))
        signal()
    }
}

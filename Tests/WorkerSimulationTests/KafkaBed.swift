import SimulatedEventLoop
import SimulatedKafka
import Testing

/// Kafka of a simulation with the usual topics, and what its clients report.
final class KafkaBed {
    let scheduler: Scheduler
    let kafka: KafkaCluster
    /// Events of all clients, in their order.
    private(set) var trace: [String] = []
    /// Values that members have read.
    fileprivate(set) var read: Set<String> = []
    fileprivate var members: [KafkaMember] = []

    static let jobs = "sluice.jobs"
    static let outcomes = "sluice.outcomes"
    static let changelog = "sluice.changelog"
    static let second: UInt64 = 1_000_000_000

    /// Runs a simulation.
    static func run(
        seed: UInt64 = 1, partitions: Int = 4, _ settings: KafkaCluster.Settings = .init(),
        _ body: (KafkaBed) throws -> Void
    ) rethrows {
        let scheduler = Scheduler(seed: seed)
        try scheduler.run {
            let bed = KafkaBed(scheduler, partitions, settings)
            defer {
                for member in bed.members { member.end() }
                scheduler.end()
            }
            try body(bed)
        }
    }

    private init(_ scheduler: Scheduler, _ partitions: Int, _ settings: KafkaCluster.Settings) {
        self.scheduler = scheduler
        kafka = KafkaCluster(scheduler, settings)
        kafka.createTopic(Self.jobs, partitions: partitions)
        kafka.createTopic(Self.outcomes, partitions: 3)
        kafka.createTopic(Self.changelog, partitions: partitions)
    }

    func note(_ line: String) { trace.append("\(scheduler.now) \(line)") }

    func run(seconds: Double) { scheduler.run(until: scheduler.now + UInt64(seconds * 1e9)) }

    /// Runs until a condition holds, for this time at most.
    func run(seconds: Double = 60, until isDone: () -> Bool) -> Bool {
        scheduler.block(until: scheduler.now + UInt64(seconds * 1e9), isDone)
    }

    /// Appends jobs with the values 0, 1, … to the partitions in turn.
    func produceJobs(_ numbers: Range<Int>, partitions: Int = 4) {
        for number in numbers {
            kafka.produce(
                to: Self.jobs, Int32(number % partitions), key: Array("device-\(number % 7)".utf8),
                value: Array("\(number)".utf8), headers: [("n", Array("\(number)".utf8)), ("nothing", nil)])
        }
    }

    static let properties = KafkaProperties([
        ("bootstrap.servers", "kafka:9092"), ("group.id", "workers"), ("session.timeout.ms", "10000"),
        ("heartbeat.interval.ms", "500"),
    ])

    /// Produces records with the opaque words 0, 1, ….
    static func produce(
        _ producer: KafkaProducer, _ topic: KafkaTopic, _ values: [[UInt8]], partition: Int32 = 0
    ) -> [String] {
        values.enumerated().map { opaque, value in
            let result = value.withUnsafeBytes {
                producer.produce(topic, key: nil, value: $0, opaque: UInt(opaque), partition: partition)
            }
            return switch result {
            case .queued: "queued"
            case .queueFull: "full"
            case .noTransaction: "no transaction"
            case .failed(let error): error.name
            }
        }
    }
}

/// A member of the group with a process and a loop of its own. Reads from the committed offsets on.
// Sendable: as `Scheduler`.
final class KafkaMember: @unchecked Sendable {
    let process: SimulatedProcess
    private unowned let bed: KafkaBed
    private let loop: EventLoop
    private(set) var consumer: KafkaConsumer!
    private var wakeup: Wakeup!
    private let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 100)
    /// Kinds of the events, with their partitions.
    private(set) var events: [String] = []
    private(set) var results: [UInt64: KafkaError?] = [:]
    private(set) var values: [String] = []
    /// Next offsets by partition.
    private(set) var next: [Int32: Int64] = [:]
    /// Whether revocations are answered at once.
    var answersRevocations = true
    private(set) var revoked: [TopicPartition] = []
    private(set) var fatal: KafkaError?

    init(_ bed: KafkaBed, _ name: String, instance: String? = nil) throws {
        self.bed = bed
        process = SimulatedProcess(name)
        var properties = KafkaBed.properties
        properties["group.instance.id"] = instance
        loop = try process.run { try EventLoop(name: name) }
        try process.run {
            consumer = try KafkaConsumer(properties: properties, topics: [KafkaBed.jobs]) { [weak self] in
                self?.handle($0)
            }
            wakeup = try loop.makeWakeup { [unowned self] in poll() }
            consumer.notify(fileDescriptor: wakeup.signalDescriptor)
            loop.start()
        }
        bed.members.append(self)
    }

    deinit { buffer.deallocate() }

    /// Partitions that the member reads.
    var owned: [Int32] { process.isAlive && consumer != nil ? consumer.assignment.map(\.partition) : [] }

    private func poll() {
        guard let consumer else { return }
        let count = consumer.poll(into: buffer)
        for record in buffer[..<count] {
            values.append(record.value.map { String(decoding: $0, as: UTF8.self) } ?? "nil")
            next[record.partition] = record.offset + 1
            bed.read.insert(values.last!)
            bed.note("\(process.name) record \(record.partition) \(record.offset) \(values.last!)")
            record.destroy()
        }
        if count == buffer.count { wakeup.signal() }
    }

    private func handle(_ event: KafkaConsumerEvent) {
        func text(_ kind: String, _ partitions: [TopicPartition]) -> String {
            "\(kind) \(partitions.map { String($0.partition) }.joined(separator: ","))"
        }
        switch event {
        case .assigned(let partitions):
            note(text("assigned", partitions))
            for each in partitions { next[each.partition] = nil }
            #expect(throws: Never.self) {
                try consumer.assign(partitions.map { TopicPartitionOffset($0, .committed) })
            }
        case .revoked(let partitions):
            note(text("revoked", partitions))
            revoked = partitions
            if answersRevocations { answerRevocation() }
        case .lost(let partitions):
            note(text("lost", partitions))
            revoked = partitions
            answerRevocation()
        case .committed(let result):
            note("committed \(result.error?.name ?? "")")
            results[result.reference] = .some(result.error)
        case .error(let error):
            note("error \(error.name)")
            if error.isFatal { fatal = error }
        default: break
        }
    }

    private func note(_ line: String) {
        events.append(line)
        bed.note("\(process.name) \(line)")
    }

    func answerRevocation() {
        #expect(throws: Never.self) { try consumer.unassign(revoked) }
        revoked = []
    }

    /// Commits what was read.
    func commit() throws -> UInt64 {
        let offsets = next.sorted { $0.key < $1.key }
            .map { OffsetCommit(topic: KafkaBed.jobs, partition: $0.key, offset: $0.value, metadata: "m") }
        return try process.run { try consumer.commit(offsets) }
    }

    /// Leaves the group.
    func close() -> Bool { loop.runBlocking { [self] in consumer.close() } }

    fileprivate func end() {
        process.kill()
        consumer = nil
    }
}

import Glibc
import Kafka
import SluiceModel

/// A producer at a constant rate and the reader of the outcomes, on one thread.
struct SoakLoad {
    struct Result {
        var audit: SoakAudit
        /// Jobs handed to the producer while it produced.
        var produced = 0
        var seconds = 0.0
        /// Outcomes per second in the second half of the production.
        var outcomesPerSecond = 0.0
        /// Time in which production waited because too many jobs had no outcome.
        var heldBackSeconds = 0.0
        var drainSeconds = 0.0
    }

    private let options: SoakCommand
    private let producer: KafkaProducer
    private let topic: KafkaTopic
    private let consumer: KafkaConsumer
    private let faults = Faults()
    private var random: SeededGenerator
    private var result: Result
    private let tokens: [[UInt8]]
    private let payload = Array(
        #"{"aps":{"alert":{"title":"Soak","body":"A text of ordinary length for a notification"},"sound":"default","badge":3}}"#
            .utf8)
    private static let devices = 100_000

    /// Errors that a consumer reports.
    private final class Faults {
        var first: KafkaError?
    }

    init(_ options: SoakCommand) throws {
        self.options = options
        var random = SeededGenerator(seed: options.seed)
        let digits = Array("0123456789abcdef".utf8)
        tokens = (0..<Self.devices).map { _ in (0..<64).map { _ in digits[Int(random.next() & 15)] } }
        result = Result(audit: SoakAudit(run: UInt64(time(nil)) << 16 | UInt64(getpid() & 0xFFFF)))
        self.random = random
        var properties = KafkaProperties(bootstrapServers: options.bootstrapServers)
        properties["linger.ms"] = "5"
        producer = try KafkaProducer(properties: properties)
        topic = try producer.topic("sluice.jobs")
        properties = KafkaProperties(bootstrapServers: options.bootstrapServers)
        properties["group.id"] = "soak-audit"
        properties["fetch.wait.max.ms"] = "20"
        let faults = faults
        consumer = try KafkaConsumer(properties: properties, topics: []) { event in
            if case .partitionError(_, let error) = event { faults.first = faults.first ?? error }
        }
        // Outcomes of earlier runs have another run number, and count as unknown.
        try consumer.assign(
            (0..<Int32(options.partitions)).map {
                TopicPartitionOffset(topic: "sluice.outcomes", partition: $0, start: .beginning)
            })
    }

    /// Produces, waits for the last outcomes, and returns what was counted.
    mutating func run() throws -> Result {
        let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 2_000)
        defer { buffer.deallocate() }
        let begin = Self.now()
        let end = begin + Double(options.seconds)
        var last = begin
        var halfway: (time: Double, finished: Int)?
        while true {
            let now = Self.now()
            guard now < end else { break }
            if halfway == nil, now >= begin + Double(options.seconds) / 2 {
                halfway = (now, result.audit.finished)
            }
            let due = options.rate == 0 ? .max : Int((now - begin) * Double(options.rate))
            let room = options.window - result.audit.open
            let wanted = due - result.produced
            if options.rate > 0, room < wanted, room <= 0 { result.heldBackSeconds += now - last }
            last = now
            for _ in 0..<max(0, min(wanted, room, 500)) { try produce() }
            try serve(buffer, milliseconds: 1)
        }
        result.seconds = Self.now() - begin
        if let halfway {
            result.outcomesPerSecond =
                Double(result.audit.finished - halfway.finished) / max(1e-3, Self.now() - halfway.time)
        }
        let drained = Self.now()
        takeReports(milliseconds: 0)
        while result.audit.open > 0, Self.now() < drained + Double(options.drain) {
            try serve(buffer, milliseconds: 20)
        }
        result.drainSeconds = Self.now() - drained
        // Repeated outcomes follow soon if at all.
        let quiet = Self.now() + 3
        while Self.now() < quiet { try serve(buffer, milliseconds: 20) }
        producer.close()
        consumer.close()
        return result
    }

    /// Takes delivery reports and outcomes.
    private mutating func serve(
        _ buffer: UnsafeMutableBufferPointer<ConsumedRecord>, milliseconds: Int32
    ) throws {
        takeReports(milliseconds: 0)
        let count = consumer.poll(into: buffer, timeoutMilliseconds: milliseconds)
        for index in 0..<count {
            let outcome = buffer[index].value.flatMap { OutcomeSummary(json: $0) }
            let (percent, hold) = (options.heldPercent, Int64(options.holdSeconds) * 1_000)
            result.audit.add(outcome) { $0 % 100 < percent ? hold : 0 }
            buffer[index].destroy()
        }
        if let error = faults.first { throw error }
    }

    private mutating func takeReports(milliseconds: Int32) {
        var refused: [Int] = []
        producer.pollDeliveryReports(timeoutMilliseconds: milliseconds) { report in
            if !report.isDelivered { refused.append(Int(report.opaque)) }
        }
        for number in refused { result.audit.refuse(number) }
    }

    private mutating func produce() throws {
        let number = result.produced
        let identifier = result.audit.add()
        result.produced += 1
        let token = tokens[Int(random.next() % UInt64(Self.devices))]
        var headers: [(name: String, value: [UInt8]?)] = [
            ("apns-topic", Array("com.example.soak".utf8)), ("apns-push-type", Array("alert".utf8)),
            ("apns-priority", Array(number % 4 == 0 ? "5".utf8 : "10".utf8)),
            ("apns-id", Array("\(identifier)".utf8)),
        ]
        if number % 100 < options.heldPercent {
            let due = Self.wallMilliseconds() + Int64(options.holdSeconds) * 1_000
            headers.append(("deliver-at", Array("\(due)".utf8)))
        }
        while true {
            let outcome = token.withUnsafeBytes { token in
                payload.withUnsafeBytes { payload in
                    producer.produce(
                        topic, key: token, value: payload, headers: headers, opaque: UInt(number))
                }
            }
            switch outcome {
            case .queued: return
            case .queueFull, .noTransaction: takeReports(milliseconds: 10)
            case .failed(let error): throw error
            }
        }
    }

    private static func now() -> Double {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    private static func wallMilliseconds() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
    }
}

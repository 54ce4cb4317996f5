import ArgumentParser
import EventLoop
import Glibc
import Kafka
import SluiceModel
import StreamScheduling

/// Measures the time from a job's intended moment to the reading of its outcome, with a worker in another process.
struct LatencyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "latency",
        abstract: "Produce jobs at a constant rate and read their outcomes; prints one line of JSON.",
        discussion: "A job's time begins when its turn in the schedule comes, even if it is produced later.")

    @Option(help: "Bootstrap servers.") var bootstrapServers: String
    @Option(help: "Names of the topics begin with this.") var topicPrefix = "sluice"
    @Option(help: "Jobs per second.") var rate = 10_000
    @Option(help: "Seconds of the measurement.") var seconds = 5
    @Option(help: "Seconds at the same rate before it.") var warmUp = 3
    @Option(help: "Payload bytes.") var payload = 250
    @Option(help: "Milliseconds for which the producer gathers records of a batch.") var linger = 2.0
    @Option(help: "Partitions of the outcomes topic.") var partitions = 24

    func validate() throws {
        guard (1...1_000_000).contains(rate), (1...3_600).contains(seconds), (0...3_600).contains(warmUp),
            payload >= 0, (0...1_000).contains(linger), (1...1_000).contains(partitions)
        else { throw ValidationError("an option is out of its range") }
    }

    func run() throws {
        var load = try LatencyLoad(self)
        let result = try load.run()
        var line = JSONLine()
        line.add("jobs", Int(result.latencies.count))
        line.add("late_jobs_ms", result.latestMilliseconds)
        line.add("p50_ms", Double(result.latencies.percentile(50)) / 1e6)
        line.add("p99_ms", Double(result.latencies.percentile(99)) / 1e6)
        line.add("p999_ms", Double(result.latencies.percentile(99.9)) / 1e6)
        line.add("longest_ms", Double(result.latencies.max) / 1e6)
        for (name, part) in zip(LatencyLoad.parts, result.parts) {
            line.add("\(name)_p50_ms", Double(part.percentile(50)) / 1e6)
            line.add("\(name)_p99_ms", Double(part.percentile(99)) / 1e6)
        }
        line.print()
    }
}

/// A producer with a fixed schedule and the reader of the outcomes, on one thread.
struct LatencyLoad {
    struct Result {
        let latencies = LatencyHistogram()
        /// Parts of the time, in the order of ``LatencyLoad/parts``. Outcomes have whole milliseconds.
        let parts = LatencyLoad.parts.map { _ in LatencyHistogram() }
        /// Longest time by which a job was produced after its turn.
        var latestMilliseconds = 0.0
    }

    /// Ends of a job's parts: handed to the producer, polled by the worker, its outcome made, its outcome read.
    static let parts = ["produced", "polled", "finished", "read"]
    /// Number of outcomes among which the parts of a single job's time are read.
    private static let sampling = 64

    /// Errors that a consumer reports.
    private final class Faults {
        var first: KafkaError?
    }

    private let options: LatencyCommand
    private let producer: KafkaProducer
    private let topic: KafkaTopic
    private let consumer: KafkaConsumer
    private let faults = Faults()
    /// Number of this run, in the upper half of each `apns-id`.
    private let runNumber = UInt64(time(nil)) << 16 | UInt64(getpid() & 0xFFFF)
    private var random = SeededGenerator(seed: 12)
    private let payload: [UInt8]
    private var produced = 0
    private var finished = 0
    private var hasOutcome: [Bool]
    /// Time at which the first job of the schedule is due, in nanoseconds.
    private var begin: UInt64 = 0
    private var result = Result()

    init(_ options: LatencyCommand) throws {
        self.options = options
        let start = #"{"aps":{"alert":{"title":"Benchmark","body":""#
        payload = Array(
            (start + String(repeating: "x", count: max(0, options.payload - start.utf8.count - 4)) + "\"}}}")
                .utf8)
        hasOutcome = Array(repeating: false, count: options.rate * (options.warmUp + options.seconds) + 1)
        var properties = KafkaProperties(bootstrapServers: options.bootstrapServers)
        properties["linger.ms"] = "\(options.linger)"
        producer = try KafkaProducer(properties: properties)
        topic = try producer.topic(options.topicPrefix + ".jobs")
        properties = KafkaProperties(bootstrapServers: options.bootstrapServers)
        properties["group.id"] = "latency"
        // A fetch of the embedded cluster that finds nothing waits for the whole time.
        properties["fetch.wait.max.ms"] = "1"
        let faults = faults
        consumer = try KafkaConsumer(properties: properties, topics: []) { event in
            if case .partitionError(_, let error) = event { faults.first = faults.first ?? error }
        }
        try consumer.assign(
            (0..<Int32(options.partitions)).map {
                TopicPartitionOffset(
                    topic: options.topicPrefix + ".outcomes", partition: $0, start: .beginning)
            })
    }

    mutating func run() throws -> Result {
        let buffer = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 2_000)
        defer { buffer.deallocate() }
        // The worker needs seconds for its first assignment. Its first outcome ends them.
        begin = .max
        try produce()
        try waitForAll(buffer, seconds: 60)
        begin = MonotonicTime.read().nanoseconds
        let total = hasOutcome.count
        while produced < total {
            let now = MonotonicTime.read().nanoseconds
            while produced < total, due(produced) <= now {
                if produced > options.rate * options.warmUp {
                    result.latestMilliseconds = max(
                        result.latestMilliseconds, Double(now - due(produced)) / 1e6)
                }
                try produce()
            }
            try serve(buffer)
            usleep(100)
        }
        try waitForAll(buffer, seconds: 30)
        producer.close()
        consumer.close()
        return result
    }

    /// Intended moment of a job. Job 0 precedes the schedule.
    private func due(_ number: Int) -> UInt64 {
        begin + UInt64(Double(number - 1) * 1e9 / Double(options.rate))
    }

    private mutating func waitForAll(
        _ buffer: UnsafeMutableBufferPointer<ConsumedRecord>, seconds: UInt64
    ) throws {
        let deadline = MonotonicTime.read().nanoseconds + seconds * 1_000_000_000
        while finished < produced {
            try serve(buffer)
            usleep(100)
            guard MonotonicTime.read().nanoseconds < deadline else {
                throw LoadError(
                    description:
                        "\(produced - finished) of \(produced) jobs have no outcome after \(seconds) s")
            }
        }
    }

    /// Takes delivery reports and outcomes.
    private mutating func serve(_ buffer: UnsafeMutableBufferPointer<ConsumedRecord>) throws {
        var isRefused = false
        producer.pollDeliveryReports { report in isRefused = isRefused || !report.isDelivered }
        if isRefused { throw LoadError(description: "Kafka refused a job") }
        let count = consumer.poll(into: buffer, timeoutMilliseconds: 0)
        let now = MonotonicTime.read().nanoseconds
        for index in 0..<count {
            if let identifier = buffer[index].value.flatMap(Self.identifier), identifier.high == runNumber,
                let number = Int(exactly: identifier.low), hasOutcome.indices.contains(number),
                !hasOutcome[number]
            {
                hasOutcome[number] = true
                finished += 1
                if number > options.rate * options.warmUp {
                    result.latencies.record(nanoseconds: now - min(now, due(number)))
                    if number % Self.sampling == 0, let document = buffer[index].value {
                        addParts(OutcomeSummary(json: document), due: due(number), now: now)
                    }
                }
            }
            buffer[index].destroy()
        }
        if let error = faults.first { throw error }
    }

    private func addParts(_ outcome: OutcomeSummary?, due: UInt64, now: UInt64) {
        guard let outcome else { return }
        // From the monotonic clock to the clock of the outcome's times.
        let ahead = Self.wallNanoseconds() - Int64(MonotonicTime.read().nanoseconds)
        let times =
            [Int64(due) + ahead]
            + [outcome.createdMilliseconds, outcome.polledMilliseconds, outcome.finishedMilliseconds].map {
                $0 * 1_000_000
            } + [Int64(now) + ahead]
        for (part, (start, end)) in zip(result.parts, zip(times, times.dropFirst())) {
            part.record(nanoseconds: UInt64(max(0, end - start)))
        }
    }

    private static func wallNanoseconds() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }

    /// The `apns-id` of an outcome. Reading the whole document would take a third of the core's time.
    private static func identifier(_ outcome: UnsafeRawBufferPointer) -> APNSID? {
        let name: StaticString = #""apns-id":""#
        let length = name.utf8CodeUnitCount + APNSID.textLength
        guard let start = outcome.baseAddress, outcome.count >= length else { return nil }
        for offset in 0...(outcome.count - length)
        where outcome[offset + 1] == UInt8(ascii: "a")
            && memcmp(start + offset, name.utf8Start, name.utf8CodeUnitCount) == 0
        {
            return APNSID(
                canonical: .init(rebasing: outcome[(offset + name.utf8CodeUnitCount)..<(offset + length)]))
        }
        return nil
    }

    private mutating func produce() throws {
        let number = produced
        let digits = Array("0123456789abcdef".utf8)
        let token = withUnsafeTemporaryAllocation(byteCount: 64, alignment: 8) { text in
            for word in 0..<4 {
                var bits = random.next()
                for place in 0..<16 {
                    text[word * 16 + place] = digits[Int(bits & 15)]
                    bits >>= 4
                }
            }
            return Array(text)
        }
        let headers: [(name: String, value: [UInt8]?)] = [
            ("apns-topic", Array("com.example.app\(number % 4)".utf8)),
            ("apns-push-type", Array("alert".utf8)),
            ("apns-priority", Array("10".utf8)), ("apns-expiration", Array("1900000000".utf8)),
            ("apns-collapse-id", Array("score-\(number % 1000)".utf8)),
            ("apns-id", Array("\(APNSID(high: runNumber, low: UInt64(number)))".utf8)),
        ]
        produced += 1
        while true {
            let outcome = token.withUnsafeBytes { token in
                payload.withUnsafeBytes { payload in
                    producer.produce(
                        topic, key: token, value: payload, headers: headers, opaque: UInt(number))
                }
            }
            switch outcome {
            case .queued: return
            case .queueFull, .noTransaction: producer.pollDeliveryReports(timeoutMilliseconds: 10) { _ in }
            case .failed(let error): throw error
            }
        }
    }
}

import ArgumentParser
import Configuration
import Glibc
import Kafka
import SluiceModel

/// Jobs of a gateway's run, with the fields of a real sender and distinct device tokens.
struct Backlog: ParsableArguments {
    @Option(help: "Jobs.") var jobs = 100_000
    @Option(help: "Payload bytes.") var payload = 250
    @Option(help: "So many of a hundred jobs go through the store.") var storedPercent = 0
    @Flag(inversion: .prefixedNo, help: "Jobs are in packed mode.") var packed = true
    @Option(help: "The jobs are of the topics com.example.app<n> to app3.") var firstApp = 0

    func validate() throws {
        guard jobs > 0, payload >= 0, (0...100).contains(storedPercent), (0...3).contains(firstApp) else {
            throw ValidationError(
                "--jobs must be at least 1, --payload at least 0, --stored-percent 0 to 100, --first-app 0 to 3"
            )
        }
    }

    /// Seconds from the worker's start until stored jobs are due; long enough for the jobs to leave memory.
    private static let delaySeconds: Int64 = 16

    /// Options of the command that produces these jobs.
    var arguments: [String] {
        [
            "--jobs", "\(jobs)", "--payload", "\(payload)", "--stored-percent", "\(storedPercent)",
            "--first-app", "\(firstApp)", packed ? "--packed" : "--no-packed",
        ]
    }

    /// Hands all jobs to the producer. Throws if one is refused.
    func produce(_ producer: KafkaProducer, topic name: String) throws {
        let topic = try producer.topic(name)
        var random = SeededGenerator(seed: 11)
        let start = #"{"aps":{"alert":{"title":"Benchmark","body":""#
        let payload = Array(
            (start + String(repeating: "x", count: max(0, payload - start.utf8.count - 4)) + "\"}}}").utf8)
        let digits = Array("0123456789abcdef".utf8)
        let dueMilliseconds = (Int64(time(nil)) + 10 + Self.delaySeconds) * 1000
        for number in 0..<jobs {
            let token = (0..<64).map { _ in digits[Int(random.next() & 15)] }
            let identifier = APNSID(high: random.next(), low: random.next())
            var headers: [(name: String, value: [UInt8])] = [
                ("apns-topic", Array("com.example.app\(firstApp + number % (4 - firstApp))".utf8)),
                ("apns-push-type", Array("alert".utf8)),
                ("apns-priority", Array("10".utf8)), ("apns-expiration", Array("1900000000".utf8)),
                ("apns-collapse-id", Array("score-\(number % 1000)".utf8)),
                ("apns-id", Array("\(identifier)".utf8)),
            ]
            if number % 100 < storedPercent {
                headers.append(("deliver-at", Array("\(dueMilliseconds)".utf8)))
            }
            var value = payload
            if packed {
                value = try JobEncoder.packed(.init(key: [], value: payload, headers: headers)).value
                headers = []
            }
            while true {
                let result = token.withUnsafeBytes { token in
                    value.withUnsafeBytes { value in
                        producer.produce(
                            topic, key: token, value: value, headers: headers.map { ($0.name, $0.value) },
                            opaque: 0)
                    }
                }
                if case .queued = result { break }
                if case .failed(let error) = result { throw error }
                producer.pollDeliveryReports(timeoutMilliseconds: 10) { _ in }
            }
            if number % 1000 == 0 { producer.pollDeliveryReports { _ in } }
        }
    }
}

/// Topics of a run. On real brokers each run has its own.
struct BenchmarkTopics: ParsableArguments {
    @Option(help: "Names of the topics begin with this.") var topicPrefix = "sluice"
    @Option(help: "Create the topics with so many partitions and one replica; needs real brokers.")
    var createPartitions: Int?

    func validate() throws {
        guard (1...10_000).contains(createPartitions ?? 1) else {
            throw ValidationError("--create-partitions must be 1 to 10000")
        }
    }

    var jobs: String { topicPrefix + ".jobs" }

    var arguments: [String] {
        ["--topic-prefix", topicPrefix]
            + (createPartitions.map { ["--create-partitions", "\($0)"] } ?? [])
    }

    func apply(to kafka: inout Configuration.Kafka) {
        kafka.topics = .init(
            jobs: jobs, outcomes: topicPrefix + ".outcomes", deadLetters: topicPrefix + ".dead-letters",
            changelog: topicPrefix + ".changelog")
        guard let createPartitions else { return }
        kafka.groupID = topicPrefix
        kafka.createTopics = .init(partitions: createPartitions, replicationFactor: 1)
    }
}

struct BacklogCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "backlog", abstract: "Produce the jobs of `gateway`; prints one line of JSON.")

    @Option(help: "Bootstrap servers.") var bootstrapServers: String
    @OptionGroup var topics: BenchmarkTopics
    @OptionGroup var backlog: Backlog
    @Flag(help: "Keep all jobs until standard input ends, and send them at once then.") var hold = false

    func run() throws {
        var properties = KafkaProperties(bootstrapServers: bootstrapServers)
        if hold {
            properties["linger.ms"] = "250000"
            properties["queue.buffering.max.messages"] = "\(backlog.jobs + 1)"
            properties["queue.buffering.max.kbytes"] = "1048576"
            properties["batch.num.messages"] = "1000000"
            properties["batch.size"] = "4000000"
            properties["message.max.bytes"] = "4000000"
        }
        if let partitions = topics.createPartitions {
            try KafkaAdmin(properties: KafkaProperties(bootstrapServers: bootstrapServers))
                .createTopics([NewTopic(topics.jobs, partitions: partitions, replicationFactor: 1)])
        }
        let producer = try KafkaProducer(properties: properties)
        try backlog.produce(producer, topic: topics.jobs)
        if hold {
            var byte: UInt8 = 0
            while read(0, &byte, 1) > 0 {}
        }
        try producer.flush(timeoutMilliseconds: 60_000)
        producer.close()
        print(#"{"jobs":\#(backlog.jobs)}"#)
    }
}

/// A process that runs `backlog`, so that the figures of this process have no part of the production.
struct BacklogProcess {
    private let process: pid_t
    /// Written end of its standard input.
    private let input: Int32

    /// - Parameter isHeld: whether the jobs are sent by ``finish()`` only.
    init(_ backlog: Backlog, _ topics: BenchmarkTopics, bootstrapServers: String, isHeld: Bool) throws {
        var path = [CChar](repeating: 0, count: Int(PATH_MAX))
        // `/proc/self/exe` itself is valgrind's under valgrind; its target isn't.
        guard readlink("/proc/self/exe", &path, path.count - 1) > 0 else {
            throw LoadError(description: "the program's path can't be read: errno \(errno)")
        }
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else {
            throw LoadError(description: "no pipe for the backlog's process: errno \(errno)")
        }
        // The other process must not inherit the written end: its input would never end.
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[0], 0)
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0)
        let words =
            ["sluice-bench", "backlog", "--bootstrap-servers", bootstrapServers] + topics.arguments
            + backlog.arguments
            + (isHeld ? ["--hold"] : [])
        var arguments = words.map { strdup($0) } + [nil]
        defer { for argument in arguments { free(argument) } }
        var process: pid_t = 0
        let result = posix_spawn(&process, path, &actions, nil, &arguments, environ)
        close(ends[0])
        guard result == 0 else {
            close(ends[1])
            throw LoadError(description: "the backlog's process can't be started: errno \(result)")
        }
        self.process = process
        input = ends[1]
    }

    /// Lets it send what it holds, and waits until Kafka has all jobs. Throws if it failed. Call it once.
    func finish() throws {
        close(input)
        var status: Int32 = 0
        while waitpid(process, &status, 0) < 0 {
            guard errno == EINTR else { throw LoadError(description: "waitpid: errno \(errno)") }
        }
        guard status == 0 else { throw LoadError(description: "the backlog's process failed: \(status)") }
    }
}

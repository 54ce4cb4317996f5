import ArgumentParser
import Configuration
import Kafka

/// Options with which the tools reach a cluster.
struct KafkaOptions: ParsableArguments {
    @Option(
        name: [.customShort("b"), .long],
        help: ArgumentHelp("Brokers to connect to first; they name the others.", valueName: "host:port,…"))
    var bootstrapServers = "127.0.0.1:9092"

    @Option(name: [.customShort("X"), .long], help: PropertyOption.help)
    var property: [String] = []

    func validate() throws { try PropertyOption.validate(property) }

    /// Cluster that these options name.
    var cluster: KafkaCluster {
        // `validate` has read each file.
        (try? KafkaCluster(
            bootstrapServers: bootstrapServers, more: property.compactMap(PropertyOption.split)))
            ?? KafkaCluster(bootstrapServers: bootstrapServers)
    }
}

/// Values of `-X`.
enum PropertyOption {
    static let help = ArgumentHelp(
        "A librdkafka property, such as security.protocol=SASL_SSL. NAME-file=PATH reads the value of NAME from a "
            + "file, which the list of processes doesn't show. Repeat for more properties.",
        valueName: "name=value")

    static func validate(_ pairs: [String]) throws {
        for pair in pairs {
            guard let (name, value) = split(pair) else {
                throw ValidationError("-X \(pair): expected name=value")
            }
            if name.hasSuffix("-file"), case .failure(let fault) = SecretFile.read(value) {
                throw ValidationError("-X \(name): \(fault.text)")
            }
        }
    }

    static func split(_ pair: String) -> (name: String, value: String)? {
        guard let sign = pair.firstIndex(of: "=") else { return nil }
        return (String(pair[..<sign]), String(pair[pair.index(after: sign)...]))
    }
}

/// Options with which a tool reaches the cluster of a worker's configuration. Options override the configuration.
struct ConfiguredKafkaOptions: ParsableArguments {
    @Option(
        name: [.customShort("c"), .long],
        help: ArgumentHelp(
            "The worker's configuration: brokers, properties, topics and apps; SLUICE_ variables override it.",
            valueName: "path"))
    var config: String?

    @Option(
        name: [.customShort("b"), .long],
        help: ArgumentHelp(
            "Brokers to connect to first (default: the configuration's, else 127.0.0.1:9092).",
            valueName: "host:port,…"))
    var bootstrapServers: String?

    @Option(name: [.customShort("X"), .long], help: PropertyOption.help)
    var property: [String] = []

    func validate() throws { try PropertyOption.validate(property) }

    /// Reads the configuration; nil when the command line names none.
    func loadConfigured() throws -> Configuration? {
        guard let config else { return nil }
        return try loadConfiguration(config, .settings).configuration
    }

    /// Returns the cluster of the configuration and these options.
    /// - Throws: for a file of a property that can't be read.
    func cluster(_ kafka: Configuration.Kafka?) throws(CommandFailure) -> KafkaCluster {
        try KafkaCluster(
            bootstrapServers: bootstrapServers ?? kafka?.bootstrapServers ?? "127.0.0.1:9092",
            more: (kafka?.properties ?? []).map { ($0.name, $0.value) }
                + property.compactMap(PropertyOption.split))
    }
}

/// A cluster as tools see it.
struct KafkaCluster {
    let bootstrapServers: String
    var properties: KafkaProperties
    /// Longest wait for an answer about a topic or a group; a query's own limit may be shorter.
    var patience = Duration.seconds(60)

    init(bootstrapServers: String) {
        self.bootstrapServers = bootstrapServers
        properties = KafkaProperties(bootstrapServers: bootstrapServers)
        // A tool reports its errors itself.
        properties["log_level"] = "0"
    }

    /// - Parameter more: librdkafka's properties; `NAME-file` reads the value of NAME from a file.
    /// - Throws: for a file that can't be read.
    init(bootstrapServers: String, more: [(name: String, value: String)]) throws(CommandFailure) {
        self.init(bootstrapServers: bootstrapServers)
        for (name, value) in more {
            guard name.hasSuffix("-file") else {
                properties[name] = value
                continue
            }
            switch SecretFile.read(value) {
            case .success(let secret): properties[String(name.dropLast(5))] = secret
            case .failure(let fault): throw CommandFailure(.configuration, "\(name): \(fault.text)")
            }
        }
    }

    /// Returns a query's limit in milliseconds, at least 1 and at most the patience.
    func limit(_ milliseconds: Int32) -> Int32 {
        max(1, min(milliseconds, Int32(clamping: Int64(patience / .milliseconds(1)))))
    }

    /// Makes sure that a topic exists before anything depends on it.
    /// - Returns: the topic's number of partitions.
    func partitionCount(of topic: String) throws(CommandFailure) -> Int {
        guard let count = try existingPartitionCount(of: topic) else {
            throw CommandFailure(
                .unavailable, "there is no topic \(topic) on \(bootstrapServers); create it first")
        }
        return count
    }

    /// Returns a topic's number of partitions; nil when the topic doesn't exist.
    func existingPartitionCount(of topic: String) throws(CommandFailure) -> Int? {
        do throws(KafkaError) {
            return try KafkaAdmin(properties: properties)
                .partitionCount(of: topic, timeoutMilliseconds: limit(5_000))
        } catch {
            let failure = CommandFailure(kafka: error)
            if failure.status == .configuration { throw failure }
            throw CommandFailure(
                .unavailable, "can't look up topic \(topic) at \(bootstrapServers): \(error)")
        }
    }
}

extension CommandFailure {
    /// Converts an error of Kafka. A wrong property is the command line's fault; otherwise something can't be reached.
    init(kafka error: KafkaError) {
        let isOurs = error.name == "_INVALID_ARG"
        self.init(isOurs ? .configuration : .unavailable, "Kafka: \(error)")
    }
}

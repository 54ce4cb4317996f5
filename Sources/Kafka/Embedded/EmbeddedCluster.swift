import CRdkafka

/// A Kafka cluster inside this process, for development and tests. Uses librdkafka's mock cluster. All data is in memory
/// and ends with the object.
///
/// Limits (librdkafka 2.0.2, from this module's tests and the mock's source):
/// - **Old versions** of the protocol's requests only. Clients of librdkafka (kcat, confluent-kafka) and kafka-python 2 can
///   use the brokers' addresses. kafka-python 3 needs the fixed port, where a ``BootstrapForwarder`` mends what the mock
///   garbles. Other clients were not tried.
/// - **Small.** A partition keeps 5 MB and 100,000 batches. Records that a producer sends in one request for the
///   partition count as one batch. The oldest batches beyond that are dropped, read or not. A consumer that has not
///   read them gets `OFFSET_OUT_OF_RANGE` and starts over where `auto.offset.reset` points. Size the number of
///   partitions and pace producers accordingly.
/// - **No administration.** Clients cannot create, change, delete or describe topics; the owner passes topics here. Any
///   other topic is created with 4 partitions when a client names it, even to ask whether it exists. So a mistyped name
///   is no error here.
/// - **Slow to wake.** A fetch that finds nothing waits `fetch.wait.max.ms` (librdkafka's default: 500 ms) even if a
///   record arrives meanwhile. Set a low value where latency matters. A fetch returns one batch per partition.
/// - **Groups work**: classic protocol, several members, cooperative and eager, committed offsets with metadata. But
///   the first member of a group waits 3 s for others. A rebalance can take up to the session timeout less 1 s. While
///   members join, commits are refused with `REBALANCE_IN_PROGRESS`. Kafka accepts them from the members of the
///   generation that ends. The mock does not check whether the committing member has the partition.
/// - **Transactions only in form.** All requests are answered: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn,
///   TxnOffsetCommit, EndTxn. Requests with a wrong coordinator, producer or epoch are refused. A transactional
///   producer's sequence numbers are checked. But records are in the log when they are produced. Committed readers see
///   open and aborted records at once. There are no transaction markers, and the last stable offset is the high
///   watermark. Offsets sent in a transaction are dropped: the group's committed offsets stay unchanged. A second
///   producer of the same transactional identifier gets its own identity, and the first is not fenced. The generation
///   of a group's member is not checked.
/// - **No promises.** No replication, persistence, access control, TLS or SASL, and no log compaction or retention by
///   time. Sequence numbers of idempotent producers without transactions are not checked.
/// - The cluster listens on 127.0.0.1 only. Every user of this machine can connect.
///
/// The object owns the handles: the mock cluster is freed before the client instance that carries it.
public final class EmbeddedCluster: Sendable {
    /// Addresses for `bootstrap.servers`: the fixed address if a port was requested, else the brokers' addresses.
    public let bootstrapServers: String
    /// Addresses of the brokers, on ports that the system chose.
    public let brokerAddresses: String

    // nonisolated(unsafe): librdkafka's mock calls are thread-safe (each is an operation queued to the mock's
    // thread); set once, freed in deinit.
    nonisolated(unsafe) private let client: OpaquePointer
    // nonisolated(unsafe): as above. Freed before `client`.
    nonisolated(unsafe) private let cluster: OpaquePointer
    private let forwarder: BootstrapForwarder?

    /// Starts the brokers.
    /// - Parameters:
    ///   - brokers: 1…16.
    ///   - topics: Each with at least one partition.
    ///   - port: Fixed port of 127.0.0.1 that reaches the cluster. 0: a port that the system chooses; nil: no such port.
    /// - Throws: when a topic is refused, or the port is in use.
    public init(
        brokers: Int = 1, topics: [(name: String, partitions: Int)] = [], port: UInt16? = nil
    ) throws(KafkaError) {
        guard (1...16).contains(brokers) else {
            throw .invalid("embedded cluster: 1 to 16 brokers, not \(brokers)")
        }
        var properties = KafkaProperties()
        properties["client.id"] = "sluice-embedded"
        // The instance only carries the mock cluster; it has no brokers of its own.
        properties["bootstrap.servers"] = "127.0.0.1:9"
        properties["log_level"] = "2"
        let configuration = try ClientConfiguration(.embedded, properties)
        let client = try configuration.create()
        guard let cluster = rd_kafka_mock_cluster_new(client, Int32(brokers)) else {
            rd_kafka_destroy(client)
            throw .system("embedded cluster: cannot start \(brokers) brokers on 127.0.0.1")
        }
        do throws(KafkaError) {
            for topic in topics { try Self.create(topic.name, topic.partitions, brokers, in: cluster) }
            brokerAddresses = String(cString: rd_kafka_mock_cluster_bootstraps(cluster))
            forwarder =
                if let port {
                    try BootstrapForwarder(port: port, target: Self.firstPort(of: brokerAddresses))
                } else {
                    nil
                }
        } catch {
            rd_kafka_mock_cluster_destroy(cluster)
            rd_kafka_destroy(client)
            throw error
        }
        bootstrapServers = forwarder.map { "127.0.0.1:\($0.port)" } ?? brokerAddresses
        self.client = client
        self.cluster = cluster
    }

    deinit {
        forwarder?.stop()
        rd_kafka_mock_cluster_destroy(cluster)
        rd_kafka_destroy(client)
    }

    /// Adds a topic while the cluster runs.
    public func createTopic(_ name: String, partitions: Int) throws(KafkaError) {
        try Self.create(name, partitions, 1, in: cluster)
    }

    private static func create(
        _ name: String, _ partitions: Int, _ brokers: Int, in cluster: OpaquePointer
    ) throws(KafkaError) {
        guard partitions > 0, partitions <= 10_000, !name.isEmpty else {
            throw .invalid("embedded cluster: topic \"\(name)\" needs a name and 1 to 10000 partitions")
        }
        let code = rd_kafka_mock_topic_create(cluster, name, Int32(partitions), Int32(min(3, brokers)))
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
            throw KafkaError(code, "embedded cluster: create topic \"\(name)\"")
        }
    }

    private static func firstPort(of addresses: String) throws(KafkaError) -> UInt16 {
        let first = addresses.split(separator: ",").first ?? ""
        guard let port = first.split(separator: ":").last.flatMap({ UInt16($0) }) else {
            throw .system("embedded cluster: its address \"\(first)\" has no port")
        }
        return port
    }

    // MARK: Faults, for tests

    /// Cuts all connections and refuses new ones, or accepts them again. `broker` counts from 1; `nil` means all.
    public func setDown(_ down: Bool, broker: Int? = nil) {
        let identifier = broker.map { Int32($0) } ?? -1
        _ =
            down
            ? rd_kafka_mock_broker_set_down(cluster, identifier)
            : rd_kafka_mock_broker_set_up(cluster, identifier)
    }

    /// Delays every answer by this time. `broker` counts from 1; `nil` means all.
    public func setRoundTripTime(milliseconds: Int32, broker: Int? = nil) {
        _ = rd_kafka_mock_broker_set_rtt(cluster, broker.map { Int32($0) } ?? -1, milliseconds)
    }

    /// Removes the leader of a partition, or sets the leader again.
    /// - Parameter broker: Leader, counted from 1; nil: none.
    public func setLeader(_ broker: Int?, topic: String, partition: Int32) {
        _ = rd_kafka_mock_partition_set_leader(cluster, topic, partition, broker.map { Int32($0) } ?? -1)
    }

    /// Answers the next requests of this kind with these error codes of the Kafka protocol, one code per request.
    public func fail(_ request: Request, with codes: [Int32]) {
        let errors = codes.map { rd_kafka_resp_err_t(rawValue: $0) }
        rd_kafka_mock_push_request_errors_array(cluster, request.rawValue, errors.count, errors)
    }

    /// Requests that can be made to fail, by their number (Kafka protocol, API keys).
    public enum Request: Int16, Sendable {
        case produce = 0
        case fetch = 1
        case listOffsets = 2
        case offsetCommit = 8
        case findCoordinator = 10
        case joinGroup = 11
        case heartbeat = 12
        case initProducerID = 22
        case addPartitionsToTransaction = 24
        case addOffsetsToTransaction = 25
        case endTransaction = 26
        case transactionOffsetCommit = 28
    }
}

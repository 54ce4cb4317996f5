import CRdkafka

/// A Kafka cluster inside this process, for development and tests: librdkafka's mock cluster, which speaks
/// the Kafka protocol to any client on this machine. Everything is in memory and gone with it.
///
/// What it is not (librdkafka 2.0.2, from this module's tests and the mock's source):
/// - **Small.** A partition keeps 5 MB and 100,000 batches (what a producer sends in one request for the
///   partition counts once). The oldest batches are dropped beyond that, read or not: a consumer that has not
///   read them gets `OFFSET_OUT_OF_RANGE` and starts over where `auto.offset.reset` says. Size the number of
///   partitions and pace producers accordingly.
/// - **No administration.** Topics cannot be created, changed, deleted or described by clients; they are given here. A
///   topic that is not given comes into being with 4 partitions when any client names it, be it to ask
///   whether it exists: a mistyped name is no error here.
/// - **Slow to wake.** A fetch that finds nothing waits `fetch.wait.max.ms` (librdkafka's default: 500 ms)
///   even if a record arrives meanwhile; set it low where latency matters. A fetch returns one batch per
///   partition.
/// - **Groups work** (classic protocol, several members, cooperative and eager, committed offsets with
///   metadata), but the first member of a group waits 3 s for others, and a rebalance can take up to the
///   session timeout less 1 s. While members join, commits are refused with `REBALANCE_IN_PROGRESS` (Kafka
///   takes them from the members of the generation that ends); who commits is not checked against who has the
///   partition.
/// - **Transactions only in form.** All requests are answered (InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn,
///   TxnOffsetCommit, EndTxn), and refused to a coordinator, producer or epoch that is not the right one; a
///   transactional producer's sequence numbers are checked. But records are in the log when they are produced:
///   committed readers see open and aborted ones at once, there are no transaction markers, and the last stable
///   offset is the high watermark. Offsets sent in a transaction are thrown away: the group's committed offsets stay
///   as they were. A second producer of the same transactional identifier gets an identity of its own and the first
///   is not locked out. The generation of a group's member is not looked at.
/// - **No promises.** No replication, no persistence, no access control, no TLS or SASL, no log compaction
///   and no retention by time; of idempotent producers without transactions sequence numbers are not checked.
/// - It listens on 127.0.0.1 only. Every user of this machine can connect.
///
/// The handles are owned by this object: the mock cluster is freed before the client instance that carries
/// it.
public final class EmbeddedCluster: Sendable {
    /// What clients take as `bootstrap.servers`: the fixed address if a port was asked for, else the
    /// brokers'.
    public let bootstrapServers: String
    /// The brokers' own addresses, on ports the system chose.
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
    ///   - topics: each with at least one partition.
    ///   - port: where the cluster can be reached under a fixed port of 127.0.0.1. 0: no fixed port.
    /// - Throws: when a topic is refused, or the port is taken.
    public init(
        brokers: Int = 1, topics: [(name: String, partitions: Int)] = [], port: UInt16 = 0
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
                port == 0
                ? nil : try BootstrapForwarder(port: port, target: Self.firstPort(of: brokerAddresses))
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

    /// Cuts all connections and refuses new ones, or accepts them again. `broker` counts from 1; `nil` is
    /// all.
    public func setDown(_ down: Bool, broker: Int? = nil) {
        let identifier = broker.map { Int32($0) } ?? -1
        _ =
            down
            ? rd_kafka_mock_broker_set_down(cluster, identifier)
            : rd_kafka_mock_broker_set_up(cluster, identifier)
    }

    /// Delays every answer by this much. `broker` counts from 1; `nil` is all.
    public func setRoundTripTime(milliseconds: Int32, broker: Int? = nil) {
        _ = rd_kafka_mock_broker_set_rtt(cluster, broker.map { Int32($0) } ?? -1, milliseconds)
    }

    /// Takes the leader of a partition away, or gives the partition one again.
    /// - Parameter broker: counts from 1; nil: none.
    public func setLeader(_ broker: Int?, topic: String, partition: Int32) {
        _ = rd_kafka_mock_partition_set_leader(cluster, topic, partition, broker.map { Int32($0) } ?? -1)
    }

    /// Answers the next requests of this kind with these error codes of the Kafka protocol, one each.
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
        case initProducerID = 22
        case addPartitionsToTransaction = 24
        case addOffsetsToTransaction = 25
        case endTransaction = 26
        case transactionOffsetCommit = 28
    }
}

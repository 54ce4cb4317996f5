import CRdkafka
import Synchronization

/// Requests of a consumer to its group, as the client's threads send them. librdkafka reports a rebalance only at its
/// end, and a commit must not follow the request that begins it (``KafkaConsumer/holdsCommits``).
final class JoinWatch: Sendable {
    /// Requests and answers that the client's threads have seen.
    struct Traffic: Equatable {
        /// JoinGroup requests that were sent.
        var joins: UInt64 = 0
        /// Time of the last JoinGroup request, in nanoseconds of the monotonic clock; 0 before the first.
        var joinedAt: UInt64 = 0
        /// Time of the last answer to a heartbeat or to a request for metadata, in nanoseconds of the monotonic clock; 0
        /// before the first. Either answer can make the client join again.
        var answeredAt: UInt64 = 0
    }

    private let joins = Atomic<UInt64>(0)
    private let joinedAt = Atomic<UInt64>(0)
    private let answeredAt = Atomic<UInt64>(0)

    var traffic: Traffic {
        Traffic(
            joins: joins.load(ordering: .acquiring), joinedAt: joinedAt.load(ordering: .acquiring),
            answeredAt: answeredAt.load(ordering: .acquiring))
    }

    /// Numbers of requests (Kafka protocol, API keys).
    private static let metadata: Int16 = 3
    private static let joinGroup: Int16 = 11
    private static let heartbeat: Int16 = 12

    /// Watches the client that is made of this configuration. The watch must outlive the client.
    func install(in configuration: OpaquePointer) {
        rd_kafka_conf_interceptor_add_on_new(
            configuration, "sluice",
            { client, _, watch, _, _ in
                rd_kafka_interceptor_add_on_request_sent(
                    client, "sluice",
                    { _, _, _, _, request, _, _, _, watch in
                        if request == JoinWatch.joinGroup { JoinWatch.of(watch)?.sentJoin() }
                        return RD_KAFKA_RESP_ERR_NO_ERROR
                    }, watch)
                rd_kafka_interceptor_add_on_response_received(
                    client, "sluice",
                    { _, _, _, _, request, _, _, _, _, _, watch in
                        if request == JoinWatch.heartbeat || request == JoinWatch.metadata {
                            JoinWatch.of(watch)?.answeredAt.store(MonotonicDeadline.now, ordering: .releasing)
                        }
                        return RD_KAFKA_RESP_ERR_NO_ERROR
                    }, watch)
                return RD_KAFKA_RESP_ERR_NO_ERROR
            }, Unmanaged.passUnretained(self).toOpaque())
    }

    private func sentJoin() {
        joinedAt.store(MonotonicDeadline.now, ordering: .releasing)
        joins.add(1, ordering: .releasing)
    }

    private static func of(_ watch: UnsafeMutableRawPointer?) -> JoinWatch? {
        watch.map { Unmanaged<JoinWatch>.fromOpaque($0).takeUnretainedValue() }
    }
}

/// Decides whether a commit may be sent to the group.
struct CommitHold {
    /// JoinGroup requests whose rebalance event has arrived.
    private var settledJoins: UInt64 = 0
    /// Time of the owner's last answer to a rebalance event, in nanoseconds; 0 before the first.
    private var settledAt: UInt64 = 0
    /// Requests that were sent when a revocation was answered, and the time until which the next one is expected, in
    /// nanoseconds; nil: none is expected.
    private var expectation: (joins: UInt64, until: UInt64)?

    /// Longest time in practice, in nanoseconds, that the client needs to join. The time begins with an answer of a broker,
    /// or of the owner to a rebalance event. At most a quarter of the heartbeat interval, so that commits get through.
    let reaction: UInt64
    /// Nanoseconds from the answer to a revocation to the request that follows from it, at most in practice.
    static let longestWait: UInt64 = 5_000_000_000
    /// Longest time in practice, in nanoseconds, by which librdkafka delays a request to join after the one before.
    /// librdkafka leaves a second between the two (`rkcg_join_intvl`), and looks at its clock at least once a second.
    static let joinInterval: UInt64 = 2_000_000_000

    /// - Parameter heartbeatMilliseconds: time between two heartbeats.
    init(heartbeatMilliseconds: UInt64 = 3_000) {
        reaction = min(50_000_000, heartbeatMilliseconds * 250_000)
    }

    /// Notes a rebalance event.
    mutating func rebalanced(joins: UInt64) {
        settledJoins = joins
    }

    /// Notes the owner's answer to a rebalance event.
    mutating func answered(at now: UInt64) {
        settledAt = now
    }

    /// Notes that a cooperative member has given partitions back. The member joins once more, because the group assigns
    /// the partitions to another member only then.
    mutating func revoked(joins: UInt64, at now: UInt64) {
        expectation = (joins, now + Self.longestWait)
    }

    /// - Parameter isEventOpen: whether a rebalance event awaits the owner's answer. librdkafka doesn't join meanwhile.
    func isOn(_ traffic: JoinWatch.Traffic, isEventOpen: Bool = false, at now: UInt64) -> Bool {
        if traffic.joins != settledJoins { return true }
        if isEventOpen { return false }
        if let expectation, expectation.joins == traffic.joins, now < expectation.until { return true }
        if now &- max(traffic.answeredAt, settledAt) < reaction { return true }
        // The answer may have been that the group rebalances.
        return traffic.answeredAt > settledAt && now < traffic.joinedAt + Self.joinInterval
    }
}

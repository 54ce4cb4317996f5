import CRdkafka
import Synchronization

/// Requests of a consumer to its group, as the client's threads send them. librdkafka reports a rebalance only at its
/// end, and a commit must not follow the request that begins it (``KafkaConsumer/holdsCommits``).
final class JoinWatch: Sendable {
    private let sent = Atomic<UInt64>(0)
    private let heartbeatAnswered = Atomic<UInt64>(0)

    /// Number of JoinGroup requests that were sent.
    var joins: UInt64 { sent.load(ordering: .acquiring) }
    /// Time of the last answer to a heartbeat, in nanoseconds of the monotonic clock; 0 before the first.
    var heartbeatAnsweredAt: UInt64 { heartbeatAnswered.load(ordering: .acquiring) }

    /// Numbers of requests (Kafka protocol, API keys).
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
                        if request == JoinWatch.joinGroup {
                            JoinWatch.of(watch)?.sent.add(1, ordering: .releasing)
                        }
                        return RD_KAFKA_RESP_ERR_NO_ERROR
                    }, watch)
                rd_kafka_interceptor_add_on_response_received(
                    client, "sluice",
                    { _, _, _, _, request, _, _, _, _, _, watch in
                        if request == JoinWatch.heartbeat {
                            JoinWatch.of(watch)?.heartbeatAnswered.store(
                                MonotonicDeadline.now, ordering: .releasing)
                        }
                        return RD_KAFKA_RESP_ERR_NO_ERROR
                    }, watch)
                return RD_KAFKA_RESP_ERR_NO_ERROR
            }, Unmanaged.passUnretained(self).toOpaque())
    }

    private static func of(_ watch: UnsafeMutableRawPointer?) -> JoinWatch? {
        watch.map { Unmanaged<JoinWatch>.fromOpaque($0).takeUnretainedValue() }
    }
}

/// Decides whether a commit may be sent to the group.
struct CommitHold {
    /// JoinGroup requests whose rebalance event has arrived.
    private var settledJoins: UInt64 = 0
    /// Requests that were sent when a revocation was answered, and the time until which the next one is expected, in
    /// nanoseconds; nil: none is expected.
    private var expectation: (joins: UInt64, until: UInt64)?

    /// Nanoseconds from the answer to a heartbeat to the request that follows from it, at most in practice. At most a
    /// quarter of the time between two heartbeats, so that commits get through.
    let reaction: UInt64
    /// Nanoseconds from the answer to a revocation to the request that follows from it, at most in practice.
    static let longestWait: UInt64 = 5_000_000_000

    /// - Parameter heartbeatMilliseconds: time between two heartbeats.
    init(heartbeatMilliseconds: UInt64 = 3_000) {
        reaction = min(50_000_000, heartbeatMilliseconds * 250_000)
    }

    /// Notes a rebalance event. librdkafka sends no request to join while an event has no answer.
    mutating func rebalanced(joins: UInt64) {
        settledJoins = joins
    }

    /// Notes that a cooperative member has given partitions back. The member joins once more, because the group assigns
    /// the partitions to another member only then.
    mutating func revoked(joins: UInt64, at now: UInt64) {
        expectation = (joins, now + Self.longestWait)
    }

    func isOn(joins: UInt64, heartbeatAnsweredAt: UInt64, at now: UInt64) -> Bool {
        if joins != settledJoins { return true }
        if let expectation, expectation.joins == joins, now < expectation.until { return true }
        return now &- heartbeatAnsweredAt < reaction
    }
}

import Gateway
import HTTP2
import Metrics
import SluiceModel

/// Metrics of the connections to APNs and of credentials, each with its credential and environment.
extension WorkerMetrics {
    /// Credentials in the order of their names.
    private static func figures(_ totals: ShardCounters) -> [CredentialFigures] {
        totals.credentials.values.sorted { $0.report.name < $1.report.name }
    }

    private static func labels(_ figures: CredentialFigures) -> [MetricFamily.Label] {
        [
            .init("credential", figures.report.name),
            .init("environment", figures.report.environment.rawValue),
        ]
    }

    private static func samples(
        _ totals: ShardCounters, _ value: (CredentialFigures) -> Int?
    ) -> [MetricFamily.Sample] {
        figures(totals).compactMap { figures in
            value(figures).map { .init(labels(figures), .integer($0)) }
        }
    }

    /// Returns a sample for each credential and each value of a further label.
    private static func samples(
        _ totals: ShardCounters, by label: String, _ values: (PoolFigures) -> [(String, MetricFamily.Value)]
    ) -> [MetricFamily.Sample] {
        figures(totals).flatMap { figures in
            values(figures.pools).map { .init(labels(figures) + [.init(label, $0)], $1) }
        }
    }

    private static let priorities = Priority.allCases.map { "\($0.headerValue)" }

    static func addConnections(_ totals: ShardCounters, to metrics: inout MetricFamilies) {
        metrics.histogram(
            "push_latency_seconds", "Times from the sending of a request to APNs' answer.", -13...6,
            samples(totals, by: "priority") { pools in
                zip(priorities, pools.latencies).map { ($0, .histogram($1)) }
            })
        metrics.counter(
            "apns_answers", "Answers of APNs by the first digit of their status.",
            samples(totals, by: "status") { pools in
                [
                    ("2xx", .integer(Int(clamping: pools.counters.answers2xx))),
                    ("4xx", .integer(Int(clamping: pools.counters.answers4xx))),
                    ("5xx", .integer(Int(clamping: pools.counters.answers5xx))),
                    ("other", .integer(Int(clamping: pools.counters.answersOther))),
                ]
            })
        metrics.counter(
            "apns_errors", "Answers other than 2xx, by APNs' reason.",
            samples(totals, by: "reason") { pools in
                Reason.allCases.filter { pools.reasons[Int($0.rawValue)] > 0 }.map {
                    ("\($0.name)", .integer(pools.reasons[Int($0.rawValue)]))
                }
            })
        metrics.gauge(
            "queue_depth", "Pushes that wait for a stream.",
            samples(totals, by: "priority") { zip(priorities, $0.depths).map { ($0, .integer($1)) } })
        metrics.gauge(
            "queue_oldest_age_seconds", "Age of the push that waits longest for a stream; 0 when none waits.",
            samples(totals, by: "priority") { zip(priorities, $0.oldestAges).map { ($0, .number($1)) } })
        metrics.gauge(
            "apns_connections", "Connections to APNs by state; active and reserve ones accept requests.",
            samples(totals, by: "state") { pools in
                zip(PoolFigures.states, pools.connections).map { ($0.rawValue, .integer($1)) }
            })
        metrics.gauge(
            "apns_connections_target", "Connections that the pools aim at.", samples(totals, \.pools.target))
        metrics.gauge(
            "apns_streams_in_use", "Requests in flight on active and reserve connections.",
            samples(totals, \.pools.streamsInUse))
        metrics.gauge(
            "apns_streams_free",
            "Further requests that active and reserve connections accept, by their limits of streams.",
            samples(totals, \.pools.streamsFree))
        metrics.counter(
            "apns_connections_opened", "Connections that opened.", samples(totals, \.pools.counters.opened))
        metrics.counter(
            "apns_connections_failed", "Attempts that did not end in an open connection.",
            samples(totals, \.pools.counters.openingsFailed))
        metrics.counter(
            "apns_connections_closed", "Open connections that ended, by the side or fault that ended them.",
            samples(totals, by: "cause") { pools in
                [
                    ("network", .integer(pools.counters.endedByNetwork)),
                    ("settings", .integer(pools.counters.endedBySettings)),
                    ("protocol", .integer(pools.counters.endedByProtocolBreach)),
                    ("server", .integer(pools.counters.endedByServer)),
                    ("worker", .integer(pools.counters.endedByUs)),
                ]
            })
        metrics.counter(
            "apns_connections_stuck",
            "Connections replaced because APNs left them no stream or window while pushes waited.",
            samples(totals, \.pools.counters.stuck))
        metrics.counter(
            "apns_stream_errors", "Requests that APNs reset or refused, or answered in breach of HTTP/2.",
            samples(totals, \.pools.counters.streamErrors))
        metrics.gauge(
            "apns_circuit_open",
            "Pools whose circuit is open or half open, because APNs fails; one pool for each shard.",
            samples(totals, \.pools.circuitsOpen))
        metrics.counter(
            "apns_circuits_opened", "Times that a pool's circuit opened because APNs failed.",
            samples(totals, \.pools.counters.circuitOpened))
        metrics.gauge(
            "apns_pools_stopped", "Pools that send nothing because APNs refuses their credential.",
            samples(totals, \.pools.stopped))
        metrics.gauge(
            "apns_pools_overloaded",
            "Pools that send only alerts or single probes, because APNs asks for a pause (503 with Retry-After).",
            samples(totals, \.pools.overloaded))
        metrics.counter(
            "apns_sent_bytes", "Bytes sent to APNs, without TLS' own.",
            samples(totals) { Int(clamping: $0.pools.counters.bytesSent) })
        metrics.counter(
            "apns_received_bytes", "Bytes received from APNs, without TLS' own.",
            samples(totals) { Int(clamping: $0.pools.counters.bytesReceived) })
    }

    static func addCredentials(_ totals: ShardCounters, to metrics: inout MetricFamilies) {
        metrics.gauge(
            "credential_expiry_timestamp_seconds",
            "Last second of a certificate's validity, in seconds since the epoch.",
            samples(totals) { $0.report.expires.map(Int.init) })
        metrics.gauge(
            "credential_key_modified_timestamp_seconds",
            "Time at which the key's file was last modified, in seconds since the epoch.",
            samples(totals) { $0.report.keyModified.map(Int.init) })
        metrics.gauge(
            "credential_faulty",
            "1 while the credential's files are faulty, and the one before stays in use.",
            samples(totals) { $0.report.fault == nil ? 0 : 1 })
        metrics.counter(
            "credential_renewals", "Changed keys and certificates that were taken over.",
            samples(totals, \.report.renewals))
        metrics.counter(
            "credential_renewal_failures", "Changed keys and certificates that were faulty.",
            samples(totals, \.report.renewalFailures))
        metrics.counter(
            "credential_refusals",
            "Keys and certificates that APNs refused, and in whose place another serves.",
            samples(totals, \.report.refusals))
        metrics.counter(
            "credential_rests", "Rests of a key because APNs counted too many provider tokens.",
            samples(totals, \.report.rests))
        metrics.gauge(
            "credential_resting", "Pools whose key rests.", samples(totals, \.pools.resting))
        metrics.gauge(
            "provider_token_issued_timestamp_seconds",
            "Time of issue of the oldest provider token in use, in seconds since the epoch.",
            samples(totals) { $0.pools.tokenIssued.map(Int.init) })
    }
}

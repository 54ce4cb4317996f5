import Gateway

/// Metrics of credentials, each with its environment.
extension WorkerMetrics {
    static func add(_ credentials: [CredentialFigures], to metrics: inout MetricsText) {
        func samples(_ value: (CredentialFigures) -> Int?) -> [MetricsText.Sample] {
            credentials.compactMap { figures in
                value(figures).map { value in
                    (
                        [
                            ("credential", figures.report.name),
                            ("environment", figures.report.environment.rawValue),
                        ],
                        value
                    )
                }
            }
        }
        metrics.gauge(
            "credential_connections", "Open connections to APNs, by credential.", samples(\.openConnections))
        metrics.gauge(
            "credential_waiting", "Pushes that wait for a stream, by credential.", samples(\.waiting))
        metrics.gauge("credential_in_flight", "Pushes in flight to APNs, by credential.", samples(\.inFlight))
        metrics.gauge(
            "credential_pools_closed",
            "Pools that send nothing: their circuit isn't closed, or APNs refuses their credential.",
            samples(\.closedPools))
        metrics.gauge(
            "credential_expiry_timestamp_seconds",
            "Last second of a certificate's validity, in seconds since the epoch.",
            samples { $0.report.expires.map(Int.init) })
        metrics.gauge(
            "credential_key_modified_timestamp_seconds",
            "Time at which the key's file was last modified, in seconds since the epoch.",
            samples { $0.report.keyModified.map(Int.init) })
        metrics.gauge(
            "credential_faulty",
            "1 while the credential's files are faulty, and the one before stays in use.",
            samples { $0.report.fault == nil ? 0 : 1 })
        metrics.counter(
            "credential_renewals", "Changed keys and certificates that were taken over.",
            samples(\.report.renewals))
        metrics.counter(
            "credential_renewal_failures", "Changed keys and certificates that were faulty.",
            samples(\.report.renewalFailures))
        metrics.counter(
            "credential_refusals",
            "Keys and certificates that APNs refused, and in whose place another serves.",
            samples(\.report.refusals))
        metrics.counter(
            "credential_rests", "Rests of a key because APNs counted too many provider tokens.",
            samples(\.report.rests))
    }
}

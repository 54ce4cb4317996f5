import Gateway
import HTTP2
import Logging
import SluiceModel

extension PoolReport {
    /// Logs a line on the pool, and on debug level a line on each of its connections.
    func log(to logger: Logger) {
        logger.info("pool statistics", metadata: metadata)
        guard logger.logLevel <= .debug else { return }
        for connection in pool.connections {
            logger.debug("connection statistics", metadata: metadata(of: connection))
        }
    }

    private var metadata: Logger.Metadata {
        var metadata: Logger.Metadata = [
            "credential": "\(credential)", "environment": "\(environment.rawValue)", "shard": "\(shard)",
            "circuit": "\(pool.circuit)",
            "connections": "\(pool.openConnections)", "target-connections": "\(pool.targetConnections)",
            "in-flight": "\(pool.inFlight)", "waiting": "\(pool.waiting)",
        ]
        if let share = pool.streamShare { metadata["streams-allowed"] = "\(share)" }
        if let reason = pool.stopReason { metadata["stopped"] = "\(reason)" }
        for queue in pool.queues where queue.depth > 0 {
            metadata["waiting-\(queue.priority.rawValue)"] = "\(queue.depth)"
            metadata["oldest-\(queue.priority.rawValue)-ms"] =
                "\((queue.oldestAgeNanoseconds ?? 0) / 1_000_000)"
        }
        for latency in latencies where latency.count > 0 {
            let name = "latency-\(latency.priority.rawValue)"
            metadata["\(name)-p50-ms"] = "\(rounded(latency.median))"
            metadata["\(name)-p99-ms"] = "\(rounded(latency.percentile99))"
        }
        for app in apps where app.waiting > 0 {
            metadata["app-\(app.name)-waiting"] = "\(app.waiting)"
        }
        for reason in Reason.allCases where reasons[Int(reason.rawValue)] > 0 {
            metadata["reason-\(reason.name)"] = "\(reasons[Int(reason.rawValue)])"
        }
        let counters = pool.counters
        if let code = counters.lastGoAway {
            let reason = GoAwayReason(counters.lastGoAwayReason)
            metadata["last-goaway"] = "\(HTTP2ErrorCode(rawValue: code)) \(reason)"
        }
        for (name, count) in [
            ("opened", counters.opened), ("openings-failed", counters.openingsFailed),
            ("goaways", counters.goAways), ("not-processed", counters.notProcessed),
            ("unknown", counters.unknown), ("circuit-opened", counters.circuitOpened),
            ("stream-errors", counters.streamErrors), ("stuck", counters.stuck),
        ] where count > 0 {
            metadata[name] = "\(count)"
        }
        return metadata
    }

    private func metadata(of connection: PoolSnapshot.Connection) -> Logger.Metadata {
        let statistics = connection.statistics
        return [
            "credential": "\(credential)", "environment": "\(environment.rawValue)", "shard": "\(shard)",
            "connection": "\(connection.number)",
            "state": "\(connection.state)", "address": "\(connection.address)",
            "in-flight": "\(statistics.inFlight)", "stream-limit": "\(statistics.streamLimit)",
            "requests": "\(statistics.requests)", "bytes-sent": "\(statistics.bytesSent)",
            "bytes-received": "\(statistics.bytesReceived)", "writes": "\(statistics.writes)",
            "answers-2xx": "\(statistics.answers2xx)", "answers-4xx": "\(statistics.answers4xx)",
            "answers-5xx": "\(statistics.answers5xx)", "resets": "\(statistics.resetsReceived)",
            "round-trip-ms": "\(rounded(Double(statistics.roundTrip.smoothed) / 1e6))",
            "handshake-ms": "\(rounded(Double(statistics.handshakeNanoseconds) / 1e6))",
        ]
    }

    private func rounded(_ milliseconds: Double) -> Double { (milliseconds * 10).rounded() / 10 }
}

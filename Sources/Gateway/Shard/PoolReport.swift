import Configuration
import DeliveryCore
import HTTP2
import SluiceModel
import StreamScheduling

/// State of one pool for operators: one credential on one shard.
public struct PoolReport: Sendable {
    /// Latencies of one class, from the queue to the answer, since the start. Milliseconds.
    public struct Latency: Sendable {
        public var priority: Priority
        /// Number of answers.
        public var count: UInt64
        /// Median in milliseconds; 0 without an answer.
        public var median: Double
        /// 99th percentile in milliseconds; 0 without an answer.
        public var percentile99: Double
        /// Longest time in milliseconds; 0 without an answer.
        public var maximum: Double

        init(_ priority: Priority, _ histogram: LatencyHistogram) {
            self.priority = priority
            count = histogram.count
            median = Double(histogram.percentile(50)) / 1e6
            percentile99 = Double(histogram.percentile(99)) / 1e6
            maximum = Double(histogram.max) / 1e6
        }
    }

    /// An app's share of the pool.
    public struct App: Sendable {
        public var name: String
        /// Pushes of the app in flight to APNs.
        public var inFlight: Int
        /// Waiting pushes by class.
        public var depths: [(priority: Priority, depth: Int)]
        /// Age of the push that waits longest, in milliseconds; nil when none waits.
        public var oldestAge: Double?

        /// Waiting pushes of all classes.
        public var waiting: Int { depths.reduce(0) { $0 + $1.depth } }
    }

    /// Name of the credential.
    public var credential: String
    /// Environment of the credential.
    public var environment: Configuration.APNS.Environment
    /// Number of the shard.
    public var shard: Int
    public var pool: PoolSnapshot
    /// Latencies of each class, in the order of ``Priority/allCases``.
    public var latencies: [Latency]
    /// Shares of the pool's apps.
    public var apps: [App]
    /// Answers other than 200, by ``Reason/rawValue``.
    public var reasons: [Int]
}

extension Shard {
    /// The state of each pool at this moment. Loop's thread.
    func poolReports() -> [PoolReport] {
        let now = loop.now.nanoseconds
        return pools.enumerated().map { index, pool in
            let numbers = Set(plan.routes.values.filter { $0.pools.contains(UInt16(index)) }.map(\.app))
                .sorted()
            return PoolReport(
                credential: pool.name, environment: pool.environment, shard: plan.index,
                pool: pool.connections.snapshot(),
                latencies: Priority.allCases.map { PoolReport.Latency($0, pool.connections.latency($0)) },
                apps: numbers.map { number in
                    let app = UInt32(number)
                    let ages = Priority.allCases.compactMap {
                        pool.connections.scheduler.oldestAge(app: app, $0, now: now)
                    }
                    return PoolReport.App(
                        name: plan.appNames[Int(number)],
                        inFlight: pool.connections.scheduler.inFlight(app: app),
                        depths: Priority.allCases.map {
                            ($0, pool.connections.scheduler.depth(app: app, $0))
                        },
                        oldestAge: ages.max().map { Double($0) / 1e6 })
                }, reasons: pool.reasons)
        }
    }
}

import Foundation

/// Part of librdkafka's statistics that the metrics show:
/// https://github.com/confluentinc/librdkafka/blob/master/STATISTICS.md
struct KafkaStatistics: Equatable {
    struct Broker: Equatable {
        /// Host and port, without the broker's number.
        var name: String
        var isUp: Bool
        /// 99th percentile of the round trip in seconds; nil without a request in the interval.
        var roundTrip: Double?
        /// Longest throttling in seconds; nil when the document has none.
        var throttle: Double?
    }

    /// Brokers with a number, in the order of their names; the first ``mostBrokers``.
    var brokers: [Broker] = []
    /// Messages in the queues; nil when the document has none.
    var messages: Int?
    /// Bytes in the queues; nil when the document has none.
    var bytes: Int?

    static let mostBrokers = 64

    /// Reads a document. Parts that are not as expected are left out.
    init(_ text: String) {
        guard
            let document = try? JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
        else { return }
        let found = (document["brokers"] as? [String: Any] ?? [:]).values.compactMap { $0 as? [String: Any] }
        brokers = found.compactMap(Self.broker).sorted { $0.name < $1.name }
        brokers = Array(brokers.prefix(Self.mostBrokers))
        if document["type"] as? String == "producer" {
            messages = document["msg_cnt"] as? Int
            bytes = document["msg_size"] as? Int
        } else {
            let topics = (document["topics"] as? [String: Any] ?? [:]).values.compactMap {
                $0 as? [String: Any]
            }
            let partitions = topics.flatMap { ($0["partitions"] as? [String: Any] ?? [:]).values }
                .compactMap { $0 as? [String: Any] }
            messages = partitions.reduce(0) { $0 + ($1["fetchq_cnt"] as? Int ?? 0) }
            bytes = partitions.reduce(0) { $0 + ($1["fetchq_size"] as? Int ?? 0) }
        }
    }

    private static func broker(_ document: [String: Any]) -> Broker? {
        // Brokers without a number are addresses of the setting, and the coordinator under another name.
        guard let number = document["nodeid"] as? Int, number >= 0,
            let name = document["nodename"] as? String,
            !name.isEmpty, document["source"] as? String != "logical"
        else { return nil }
        let rtt = document["rtt"] as? [String: Any]
        let hasRequests = (rtt?["cnt"] as? Int ?? 0) > 0
        let throttle = (document["throttle"] as? [String: Any])?["max"] as? Int
        return Broker(
            name: name, isUp: document["state"] as? String == "UP",
            roundTrip: hasRequests ? (rtt?["p99"] as? Int).map { Double($0) / 1e6 } : nil,
            throttle: throttle.map { Double($0) / 1e3 })
    }
}

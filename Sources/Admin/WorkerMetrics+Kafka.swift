import DeliveryCore
import Gateway
import Metrics

/// Metrics of partitions, commits and Kafka's clients.
extension WorkerMetrics {
    private static let pauses: [(IntakeGate.Reason, String)] = [
        (.limit, "limit"), (.share, "share"), (.window, "window"), (.store, "store"),
        (.allPaused, "paused"), (.refused, "refused"),
    ]

    static func addKafka(_ intake: IntakeSnapshot, to metrics: inout MetricFamilies) {
        func samples(_ value: (PartitionReport) -> MetricFamily.Value) -> [MetricFamily.Sample] {
            intake.partitions.map { .init(["topic": $0.topic, "partition": "\($0.partition)"], value($0)) }
        }
        let topics = Dictionary(
            intake.partitions.map { ($0.partition, $0.topic) }, uniquingKeysWith: { first, _ in first })
        func lags(_ value: (PartitionLag) -> MetricFamily.Value?) -> [MetricFamily.Sample] {
            intake.lags.compactMap { lag in
                value(lag).map {
                    .init(["topic": topics[lag.partition] ?? "", "partition": "\(lag.partition)"], $0)
                }
            }
        }
        metrics.gauge(
            "kafka_lag_records", "Records of a partition that were not polled yet, as of the last fetch.",
            lags { lag in lag.records.map { .integer(Int($0)) } })
        metrics.gauge(
            "kafka_uncommitted_records", "Records of a partition at or behind the committed offset.",
            lags { lag in lag.uncommitted.map { .integer(Int($0)) } })
        metrics.gauge(
            "kafka_lag_seconds",
            "Time for which records have waited to be polled, at most; 0 while none waits.",
            lags { .number($0.seconds) })
        metrics.gauge(
            "head_of_line_seconds",
            "Age of the oldest unfinished job that holds a partition's watermark back.",
            samples { .number($0.headOfLineAge / .seconds(1)) })
        metrics.gauge(
            "partitions_assigned", "Partitions of the jobs topic that are assigned to this worker.",
            intake.partitions.count)
        metrics.gauge(
            "partitions_paused",
            "Assigned partitions that are not being read, by cause; a partition may have several.",
            pauses.map { reason, name in
                .init(
                    ["cause": name],
                    .integer(intake.partitions.count { $0.pauseReasons.contains(reason) }))
            })
        let counters = intake.counters
        metrics.counter("limit_pauses", "Pauses at the limit of jobs or bytes in flight.", counters.pauses)
        metrics.counter(
            "partition_pauses", "Pauses of a single partition because its jobs were held for long.",
            counters.partitionPauses)
        metrics.gauge(
            "partitions_unexplained",
            "Assigned partitions that are not read, because the group's offset lies beyond the log's end and nothing shows why.",
            intake.unexplained.count)
        metrics.counter(
            "lost_tails", "Partitions whose logs had lost their ends when reading began.", counters.lostTails)
        metrics.counter("rebalances", "Assignments and revocations of the group.", counters.rebalances)
        metrics.counter(
            "commits", "Commits of offsets, or transactions that were committed.", counters.commits)
        metrics.counter(
            "commit_errors", "Commits that failed, or transactions that were aborted.", counters.commitErrors)
        metrics.gauge(
            "pushes_held", "1 while no push is begun because no commit succeeds.",
            intake.arePushesHeld ? 1 : 0)
        metrics.gauge(
            "uncommitted_pushes", "Outcomes and dead letters that are made and not committed, about.",
            intake.uncommittedPushes)
        metrics.gauge(
            "uncommitted_pushes_limit", "Pushes that may be begun and not committed now.", intake.pushWindow)
        if let transactions = intake.transactions {
            metrics.counter("transactions_begun", "Transactions begun.", transactions.begun)
            metrics.counter("transactions_aborted", "Transactions aborted.", transactions.aborted)
        }
        metrics.counter("kafka_errors", "Errors that the Kafka consumer reported.", counters.kafkaErrors)
        addClients(
            intake.statistics.sorted { $0.key < $1.key }.map { ($0, KafkaStatistics($1)) }, to: &metrics)
    }

    private static func addClients(
        _ clients: [(name: String, statistics: KafkaStatistics)], to metrics: inout MetricFamilies
    ) {
        func brokers(_ value: (KafkaStatistics.Broker) -> Double?) -> [MetricFamily.Sample] {
            clients.flatMap { client, statistics in
                statistics.brokers.compactMap { broker in
                    value(broker).map {
                        .init(["client": client, "broker": broker.name], .number($0))
                    }
                }
            }
        }
        metrics.gauge(
            "kafka_broker_connected", "1 while a client is connected to a broker.",
            brokers { $0.isUp ? 1 : 0 })
        metrics.gauge(
            "kafka_broker_round_trip_seconds",
            "99th percentile of a broker's latency in the last ten seconds.",
            brokers(\.roundTrip))
        metrics.gauge(
            "kafka_broker_throttle_seconds",
            "Longest time in the last ten seconds for which a broker throttled a client.",
            brokers(\.throttle))
        func sizes(_ value: (KafkaStatistics) -> Int?) -> [MetricFamily.Sample] {
            clients.compactMap { client, statistics in
                value(statistics).map { .init(["client": client], .integer($0)) }
            }
        }
        metrics.gauge(
            "kafka_queue_messages",
            "Messages in a client's queues: records to produce, or records fetched ahead.",
            sizes(\.messages))
        metrics.gauge("kafka_queue_bytes", "Bytes of the messages in a client's queues.", sizes(\.bytes))
    }
}

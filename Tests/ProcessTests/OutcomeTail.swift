import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport

/// Reads outcomes and keeps them.
final class OutcomeTail {
    private let reader: TopicReader
    private var decoded = 0
    private(set) var outcomes: [OutcomeSummary] = []
    /// Number of records that aren't outcomes.
    private(set) var unreadable = 0

    init(_ kafka: TestKafka, partitions: Int) throws {
        reader = try TopicReader(kafka, "outcomes", partitions: partitions)
    }

    func poll() {
        reader.poll()
        for record in reader.records[decoded...] {
            if let outcome = record.value.flatMap({ OutcomeSummary(json: $0) }) {
                outcomes.append(outcome)
            } else {
                unreadable += 1
            }
        }
        decoded = reader.records.count
    }

    /// Places of the jobs that have an outcome.
    var jobs: Set<TopicPartitionOffset> {
        Set(
            outcomes.map {
                TopicPartitionOffset(
                    topic: $0.sourceTopic, partition: $0.partition, start: .offset($0.offset))
            })
    }

    /// Waits until this many jobs have an outcome.
    func wait(for count: Int, of worker: WorkerProcess, timeout: Duration = .seconds(120)) throws {
        try worker.waits(for: "\(count) jobs have an outcome", timeout: timeout) {
            poll()
            return outcomes.count >= count && jobs.count >= count
        }
    }
}

import DeliveryCore
import Kafka
import SluiceModel
import Synchronization

/// Path from shards, producers and the changelog's reader to the intake, which is made after them. Any thread.
final class IntakePort: Sendable {
    private struct Weak {
        weak var intake: Intake?
    }
    private let target = Mutex(Weak())

    /// Called once, before any thread starts.
    func connect(to intake: Intake) { target.withLock { $0.intake = intake } }

    func report(_ shard: Int, _ report: ShardReport) { intake?.report(shard, report) }

    /// Has the counts of pushes read, because a shard waits for its allowance.
    func pushesCounted() {
        guard let intake else { return }
        intake.loop.execute { intake.pollReports() }
    }

    func receive(_ news: ChangelogRestorer.Report) {
        guard let intake else { return }
        intake.loop.execute { intake.receive(news) }
    }

    func fail(_ reason: String, _ error: KafkaError) {
        guard let intake else { return }
        intake.loop.execute { intake.fail(.other(reason), error) }
    }

    /// Ends the worker, because no retry mends the fault.
    func fail(_ reason: String) {
        guard let intake else { return }
        intake.loop.execute { intake.fail(.other(reason)) }
    }

    /// Logs an error of the producer that it gets over by itself.
    func warn(ofProducer error: KafkaError) {
        guard let intake else { return }
        intake.loop.execute { intake.warn(ofProducer: error) }
    }

    /// Passes a producer's statistics on.
    func note(statistics: String) {
        guard let intake else { return }
        intake.loop.execute { intake.note(statistics: statistics, of: "producer") }
    }

    private var intake: Intake? { target.withLock { $0.intake } }
}

/// Path from a shard to the worker's other shards, by their indices. Any thread.
final class ShardPeers: Sendable {
    private struct Weak {
        weak var shard: Shard?
    }
    private let shards = Mutex<[Weak]>([])

    /// Called once, before any thread starts.
    func connect(to shards: [Shard]) { self.shards.withLock { $0 = shards.map { Weak(shard: $0) } } }

    /// Hands an item to the shard of its device's new token.
    func handOver(_ migration: Migration, to index: Int) {
        guard let shard = shard(index) else { return migration.job.release() }
        shard.loop.execute { shard.importItem(migration) }
    }

    /// Lets the shard take over departures of the device.
    func released(_ device: DeviceKey, at index: Int) {
        guard let shard = shard(index) else { return }
        shard.loop.execute { shard.resume(device) }
    }

    private func shard(_ index: Int) -> Shard? {
        shards.withLock { $0.indices.contains(index) ? $0[index].shard : nil }
    }
}

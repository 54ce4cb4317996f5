import Configuration
import Gateway
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// Ends whose deadline comes before Kafka or APNs has answered.
@Suite struct DeadlineTests {
    private func store(
        _ bed: WorkerBed, _ name: String, transactions: Configuration.Store.Switch
    ) -> Configuration.Store {
        .init(
            directory: bed.directory.file(name), after: .seconds(1), changelog: .on,
            transactions: transactions)
    }

    /// A worker has held pushes on its disk, and Kafka takes nothing for the changelog until the worker has left.
    @Test func offsetsWhoseChangesAreNotInTheChangelogAreNotCommitted() throws {
        let bed = try WorkerBed(embedsKafka: true)
        let kafka = bed.kafka.embedded!
        var random = SeededRandom(seed: 961)
        let devices = (0..<20).map { _ in random.hexadecimal(bytes: 32) }
        let first = try bed.worker {
            $0.store = store(bed, "first", transactions: .off)
            $0.delivery.drainDeadline = .seconds(3)
        }
        try bed.produce(try devices.map { try event("offline", of: $0) })
        try bed.waitForOutcomes(20)
        try eventually("all is committed", timeout: .seconds(60)) { try bed.committed() == 20 }
        for partition in 0..<Int32(WorkerBed.partitions) {
            kafka.setLeader(nil, topic: bed.kafka.topic("changelog"), partition: partition)
        }
        try bed.produce(devices.map { held("x", to: $0) })
        try eventually("all have been read", timeout: .seconds(60)) {
            first.snapshot().intake.records == 40
        }
        _ = bed.stop(first)
        #expect(try bed.committed() == 20)

        for partition in 0..<Int32(WorkerBed.partitions) {
            kafka.setLeader(1, topic: bed.kafka.topic("changelog"), partition: partition)
        }
        let second = try bed.worker { $0.store = store(bed, "second", transactions: .off) }
        try bed.produce(try devices.map { try event("online", of: $0) })
        let outcomes = try bed.waitForOutcomes(60)
        #expect(Set(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken)) == Set(devices))
        #expect(bed.stop(second).failure == nil)
        bed.simulator.stop()
    }

    /// APNs hasn't answered when the deadline of a revocation comes, and answers later.
    @Test(.enabled(if: TestKafka.realBrokers != nil, "the embedded cluster forgets offsets of transactions"))
    func aRevocationAtItsDeadlineLeavesOneOutcomeForEachJob() throws {
        let bed = try WorkerBed { $0.latency = .seconds(5) }
        func change(_ name: String) -> (inout Configuration) -> Void {
            { [self] in
                $0.store = store(bed, name, transactions: .on)
                $0.delivery.drainDeadline = .seconds(2)
                $0.apns.requestTimeout = .seconds(60)
            }
        }
        let first = try bed.worker(change("first"))
        try bed.produce(30, seed: 962)
        try bed.waitForOutcomes(30)
        let second = try bed.worker(change("second"))
        var sent = 30
        try eventually("the second has a partition", timeout: .seconds(60)) {
            // Some are on their streams whenever the group takes partitions away.
            try bed.produce(10, seed: UInt64(1_000 + sent))
            sent += 10
            return second.snapshot().assignedPartitions > 0
        }
        try bed.waitForOutcomes(sent)
        try eventually("the workers have answered all", timeout: .seconds(60)) {
            bed.outcomes.poll()
            return first.snapshot().outstanding + second.snapshot().outstanding == 0
        }
        #expect(first.snapshot().intake.commitErrors > 0, "what was open is aborted")
        #expect(WorkerBed.places(bed.readOutcomes()).count == sent)
        #expect(bed.stop(first).failure == nil)
        #expect(bed.stop(second).failure == nil)
        #expect(bed.readOutcomes().count == sent)
        #expect(try bed.committed() == Int64(sent))
        bed.simulator.stop()
    }

    /// No broker answers from before the drain until after its deadline.
    @Test(
        .enabled(
            if: TestKafka.realBrokers != nil && TestKafka.brokerCommand != nil,
            "SLUICE_TEST_BROKER_COMMAND pauses the brokers of SLUICE_TEST_BOOTSTRAP_SERVERS"))
    func aDrainAtItsDeadlineLeavesOneOutcomeForEachJob() throws {
        let bed = try WorkerBed { $0.latency = .milliseconds(500) }
        let command = try #require(TestKafka.brokerCommand)
        func brokers(_ verb: String) throws {
            for broker in 1...3 { _ = try ChildProcess.run(command, [verb, "\(broker)"]) }
        }
        let log = LogRecorder()
        let first = try bed.worker(log: log) {
            $0.store = store(bed, "first", transactions: .on)
            $0.delivery.drainDeadline = .seconds(2)
            $0.delivery.commitInterval = .seconds(5)
        }
        try bed.produce(30, seed: 963)
        try bed.waitForOutcomes(30)
        try bed.produce(100, seed: 964)
        try eventually("they are on their streams", timeout: .seconds(60)) {
            first.snapshot().shards.inFlight == 100
        }
        try brokers("pause")
        try eventually("they are answered", timeout: .seconds(60)) {
            first.snapshot().shards.count(of: .accepted) == 130
        }
        first.requestStop()
        try eventually("the deadline", timeout: .seconds(60)) {
            log.messages.count(containing: "the drain deadline has passed") == 1
        }
        try brokers("resume")
        _ = first.waitUntilStopped()

        let second = try bed.worker { $0.store = store(bed, "second", transactions: .on) }
        try eventually("all is committed", timeout: .seconds(120)) { try bed.committed() == 130 }
        try bed.waitForOutcomes(130)
        #expect(WorkerBed.places(bed.readOutcomes()).count == 130)
        #expect(bed.readOutcomes().count == 130)
        #expect(bed.stop(second).failure == nil)
        bed.simulator.stop()
    }
}

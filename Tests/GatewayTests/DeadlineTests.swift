import Configuration
import Gateway
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// Drains and revocations whose deadline passes before Kafka or APNs has answered.
@Suite struct DeadlineTests {
    private func store(
        _ bed: WorkerBed, _ name: String, transactions: Configuration.Store.Switch
    ) -> Configuration.Store {
        .init(
            directory: bed.directory.file(name), after: .seconds(1), changelog: .on,
            transactions: transactions)
    }

    /// A worker has stored held pushes, and Kafka accepts no changelog records until the worker has ended.
    @Test func offsetsAreNotCommittedWhileTheChangelogIsUnavailable() throws {
        try withBed(embedsKafka: true) { bed in
            let kafka = bed.kafka.embedded!
            var random = SeededGenerator(seed: 961)
            let devices = (0..<20).map { _ in random.hexadecimal(bytes: 32) }
            let first = try bed.worker {
                $0.store = store(bed, "first", transactions: .off)
                $0.delivery.drainDeadline = .seconds(3)
            }
            try bed.produce(try devices.map { try event("offline", of: $0) })
            try bed.waitForOutcomes(20)
            try eventually("all offsets are committed", timeout: .seconds(60)) { try bed.committed() == 20 }
            for partition in 0..<Int32(WorkerBed.partitions) {
                kafka.setLeader(nil, topic: bed.kafka.topic("changelog"), partition: partition)
            }
            try bed.produce(devices.map { held("x", to: $0) })
            try eventually("all records are read", timeout: .seconds(60)) {
                first.snapshot().counters.records == 40
            }
            bed.stop(first, mayFail: true)
            #expect(try bed.committed() == 20)

            for partition in 0..<Int32(WorkerBed.partitions) {
                kafka.setLeader(1, topic: bed.kafka.topic("changelog"), partition: partition)
            }
            try bed.worker { $0.store = store(bed, "second", transactions: .off) }
            try bed.produce(try devices.map { try event("online", of: $0) })
            let outcomes = try bed.waitForOutcomes(60)
            #expect(Set(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken)) == Set(devices))
        }
    }

    /// APNs answers after the deadline of a revocation.
    @Test(.enabled(if: TestKafka.realBrokers != nil, "the embedded cluster forgets offsets of transactions"))
    func revocationPastItsDeadlineLeavesOneOutcomePerJob() throws {
        try withBed(simulator: { $0.latency = .seconds(5) }) { bed in
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
            try eventually("the second worker has a partition", timeout: .seconds(60)) {
                // Keeps pushes on streams at the time when the group revokes partitions.
                try bed.produce(10, seed: UInt64(1_000 + sent))
                sent += 10
                return second.snapshot().assignedPartitions > 0
            }
            try bed.waitForOutcomes(sent)
            try eventually("no job is outstanding", timeout: .seconds(60)) {
                bed.outcomes.poll()
                return first.snapshot().outstanding + second.snapshot().outstanding == 0
            }
            #expect(first.snapshot().counters.commitErrors > 0, "the open transaction is aborted")
            #expect(WorkerBed.places(bed.readOutcomes()).count == sent)
            bed.stop(first)
            bed.stop(second)
            #expect(bed.readOutcomes().count == sent)
            #expect(try bed.committed() == Int64(sent))
        }
    }

    /// The brokers are paused from before the drain until after its deadline.
    @Test(
        .enabled(
            if: TestKafka.realBrokers != nil && TestKafka.brokerCommand != nil,
            "SLUICE_TEST_BROKER_COMMAND pauses the brokers of SLUICE_TEST_BOOTSTRAP_SERVERS"))
    func drainPastItsDeadlineLeavesOneOutcomePerJob() throws {
        try withBed(simulator: { $0.latency = .milliseconds(500) }) { bed in
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
            try eventually("all pushes are in flight", timeout: .seconds(60)) {
                first.snapshot().totals.inFlight == 100
            }
            try brokers("pause")
            try eventually("all pushes are answered", timeout: .seconds(60)) {
                first.snapshot().totals.count(of: .accepted) == 130
            }
            first.requestStop()
            try eventually("the drain deadline passes", timeout: .seconds(60)) {
                log.messages.count(containing: "the drain deadline has passed") == 1
            }
            try brokers("resume")
            bed.waitUntilStopped(first, mayFail: true)

            try bed.worker { $0.store = store(bed, "second", transactions: .on) }
            try eventually("all offsets are committed", timeout: .seconds(120)) { try bed.committed() == 130 }
            try bed.waitForOutcomes(130)
            #expect(WorkerBed.places(bed.readOutcomes()).count == 130)
            #expect(bed.readOutcomes().count == 130)
        }
    }
}

import Configuration
import EventLoop
import Foundation
import Gateway
import Kafka
import KafkaTestSupport
import Logging
import SluiceModel
import Synchronization
import TestSupport
import Testing

/// Workers that fail, and those that take their places. Failures are injected into an embedded cluster.
struct WorkerSupervisorTests {
    /// Kafka protocol, error codes.
    private enum Code {
        static let messageTooLarge: Int32 = 10
        static let offsetMetadataTooLarge: Int32 = 12
        static let topicAuthorizationFailed: Int32 = 29
        static let invalidProducerEpoch: Int32 = 47
        static let transactionalIDAuthorizationFailed: Int32 = 53
    }

    /// A supervisor that runs on a thread of its own.
    private final class Run: Sendable {
        private struct State {
            var workers: [Worker] = []
            var ended = 0
            var result: Result<WorkerResult, any Error>?
        }

        let supervisor: WorkerSupervisor
        private let state: Box

        private final class Box: Sendable {
            let state = Mutex(State())
        }

        init(_ configuration: Configuration) {
            let box = Box()
            state = box
            let supervisor = WorkerSupervisor(
                configuration: configuration,
                logger: Logger(label: "worker", factory: { _ in SwiftLogNoOpLogHandler() })
            ) { worker in
                box.state.withLock { $0.workers.append(worker) }
            } ended: { _ in
                box.state.withLock { $0.ended += 1 }
            }
            self.supervisor = supervisor
            Thread.detachNewThread {
                let result = Result { try supervisor.run() }
                box.state.withLock { $0.result = result }
            }
        }

        /// How many workers have begun.
        var begun: Int { state.state.withLock { $0.workers.count } }
        /// How many workers have ended.
        var ended: Int { state.state.withLock { $0.ended } }
        var hasEnded: Bool { state.state.withLock { $0.result != nil } }
        var newest: Worker? { state.state.withLock { $0.workers.last } }

        func wait() throws -> WorkerResult {
            try eventually("the supervisor has ended", timeout: .seconds(60)) { hasEnded }
            return try state.state.withLock { try $0.result!.get() }
        }
    }

    private func run(_ bed: WorkerBed, transactions: Configuration.Store.Switch = .on) -> Run {
        Run(
            bed.configuration {
                $0.delivery.drainDeadline = .seconds(3)
                $0.store = .init(
                    directory: bed.directory.file("store"), after: .seconds(1), changelog: .on,
                    transactions: transactions)
            })
    }

    @Test func aWorkerThatIsLockedOutHasASuccessor() throws {
        let bed = try WorkerBed(embedsKafka: true)
        let run = run(bed)
        try bed.produce(200, seed: 41)
        try bed.waitForOutcomes(200)
        for round in 1...2 {
            // Whatever the transaction is at: the end of the next one is refused.
            bed.kafka.embedded!.fail(.endTransaction, with: [Code.invalidProducerEpoch])
            try bed.produce(200, seed: 41 + UInt64(round))
            try eventually("a successor", timeout: .seconds(60)) { run.begun == 1 + round }
            try eventually("an outcome of each job", timeout: .seconds(60)) {
                bed.outcomes.poll()
                return WorkerBed.places(bed.readOutcomes()).count == 200 * (1 + round)
            }
            #expect(run.ended == round, "the former one has ended before")
            #expect(run.newest!.snapshot().intake.restarts == round)
        }
        run.supervisor.requestStop()
        let result = try run.wait()
        #expect(result.failure == nil)
        #expect(result.totals.outstanding == 0)
        #expect(run.begun == 3)
        bed.simulator.stop()
    }

    @Test func whatARestartCantMendEndsTheProcess() throws {
        let bed = try WorkerBed(embedsKafka: true)
        bed.kafka.embedded!.fail(
            .initProducerID, with: Array(repeating: Code.transactionalIDAuthorizationFailed, count: 50))
        let run = run(bed)
        let failure = try #require(try run.wait().failure)
        #expect(!failure.startsOver)
        #expect(failure.reason.contains("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"), "\(failure.reason)")
        #expect(run.begun == 1)
        bed.simulator.stop()
    }

    @Test(arguments: [Configuration.Store.Switch.on, .off])
    func brokersThatTakeLessMetadataAreNamed(transactions: Configuration.Store.Switch) throws {
        let bed = try WorkerBed(embedsKafka: true)
        for request in [EmbeddedCluster.Request.offsetCommit, .transactionOffsetCommit] {
            bed.kafka.embedded!.fail(request, with: Array(repeating: Code.offsetMetadataTooLarge, count: 50))
        }
        let run = run(bed, transactions: transactions)
        try bed.produce(50, seed: 47)
        let failure = try #require(try run.wait().failure)
        #expect(!failure.startsOver)
        #expect(failure.reason.contains("offset.metadata.max.bytes"), "\(failure.reason)")
        #expect(run.begun == 1)
        bed.simulator.stop()
    }

    /// Several of them are in one transaction.
    @Test func deadLettersThatAreTooLargeGoWithoutTheirValues() throws {
        let bed = try WorkerBed(embedsKafka: true)
        try bed.kafka.produce(
            to: "jobs", (0..<6).map { NewRecord(key: "key \($0)", value: "no job") })
        // The next requests to produce are the worker's.
        bed.kafka.embedded!.fail(.produce, with: [Code.messageTooLarge])
        let run = run(bed)
        try eventually("the dead letters", timeout: .seconds(60)) {
            bed.deadLetters.poll()
            return bed.deadLetters.records.count { $0.value == nil } >= 6
        }
        // The embedded cluster has no markers: what was aborted is read as well.
        let letters = bed.deadLetters.records.filter { $0.value == nil }
        #expect(letters.allSatisfy { $0.header(DeadLetter.valueOmittedHeader) == "MSG_SIZE_TOO_LARGE" })
        // Later ones have their values again, once a transaction is committed.
        let commits = run.newest!.snapshot().intake.commits
        try bed.produce(20, seed: 51)
        try bed.waitForOutcomes(20)
        try eventually("a commit", timeout: .seconds(60)) {
            run.newest!.snapshot().intake.commits > commits
        }
        try bed.kafka.produce(to: "jobs", [NewRecord(key: "last", value: "no job either")])
        try eventually("a dead letter with its value", timeout: .seconds(60)) {
            bed.deadLetters.poll()
            return bed.deadLetters.records.contains { $0.value == Array("no job either".utf8) }
        }
        run.supervisor.requestStop()
        #expect(try run.wait().failure == nil)
        #expect(run.begun == 1)
        bed.simulator.stop()
    }

    @Test func aRecordThatKafkaRefusesForGoodEndsTheProcess() throws {
        let bed = try WorkerBed(embedsKafka: true)
        try bed.produce(20, seed: 52)
        bed.kafka.embedded!.fail(
            .produce, with: Array(repeating: Code.topicAuthorizationFailed, count: 50))
        let run = run(bed)
        let failure = try #require(try run.wait().failure)
        #expect(!failure.startsOver)
        #expect(failure.reason.contains("TOPIC_AUTHORIZATION_FAILED"), "\(failure.reason)")
        #expect(failure.reason.contains(bed.kafka.topic("outcomes")), "\(failure.reason)")
        bed.simulator.stop()
    }

    /// A partition of the changelog without a leader holds up its partition of the jobs, and no other.
    @Test func aPartitionOfTheChangelogWithoutALeaderDelaysItsPartitionAlone() throws {
        let bed = try WorkerBed(embedsKafka: true)
        let kafka = bed.kafka.embedded!
        kafka.setLeader(nil, topic: bed.kafka.topic("changelog"), partition: 1)
        let run = run(bed)
        try bed.produce(60, seed: 53)
        try eventually("the others are read", timeout: .seconds(60)) {
            run.newest?.snapshot().shards.count(of: .accepted) ?? 0 > 0
        }
        try eventually("the partition is asked for", timeout: .seconds(60)) {
            (run.newest?.snapshot().intake.kafkaErrors ?? 0) >= 3
        }
        #expect(run.newest!.snapshot().assignedPartitions == 2)
        bed.outcomes.poll()
        #expect(bed.readOutcomes().allSatisfy { $0.partition != 1 })
        kafka.setLeader(1, topic: bed.kafka.topic("changelog"), partition: 1)
        try bed.waitForOutcomes(60)
        #expect(run.newest!.snapshot().assignedPartitions == 3)
        run.supervisor.requestStop()
        #expect(try run.wait().failure == nil)
        #expect(run.begun == 1)
        bed.simulator.stop()
    }

    /// The jobs topic has grown. The embedded cluster has no topic administration: nobody extends the changelog.
    @Test func aChangelogThatIsTooSmallDelaysTheNewPartitionsAlone() throws {
        let bed = try WorkerBed(embedsKafka: true, changelogPartitions: 2)
        let run = run(bed)
        try bed.produce(60, seed: 54)
        try eventually("two partitions are read", timeout: .seconds(60)) {
            run.newest?.snapshot().shards.count(of: .accepted) ?? 0 > 0
                && run.newest!.snapshot().intake.kafkaErrors >= 2
        }
        #expect(run.newest!.snapshot().assignedPartitions == 2)
        run.supervisor.requestStop()
        #expect(try run.wait().failure == nil)
        #expect(run.begun == 1)
        bed.simulator.stop()
    }

    @Test func aStopBetweenTwoWorkersIsNoFailure() throws {
        let bed = try WorkerBed(embedsKafka: true)
        let run = run(bed)
        try bed.produce(50, seed: 48)
        try bed.waitForOutcomes(50)
        // No worker gets far enough to be well.
        bed.kafka.embedded!.fail(
            .endTransaction, with: Array(repeating: Code.invalidProducerEpoch, count: 50))
        try bed.produce(50, seed: 49)
        try eventually("three workers have failed", timeout: .seconds(60)) { run.ended >= 3 }
        run.supervisor.requestStop()
        let result = try run.wait()
        #expect(result.failure == nil)
        #expect(run.begun == run.ended)
        bed.simulator.stop()
    }
}

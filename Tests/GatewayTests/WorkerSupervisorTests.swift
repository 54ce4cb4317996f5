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

/// Workers that fail, and their successors. An embedded cluster injects the failures.
struct WorkerSupervisorTests {
    /// Error codes of Kafka's protocol.
    private enum Code {
        static let messageTooLarge: Int32 = 10
        static let offsetMetadataTooLarge: Int32 = 12
        static let topicAuthorizationFailed: Int32 = 29
        static let invalidProducerEpoch: Int32 = 47
        static let transactionalIDAuthorizationFailed: Int32 = 53
        static let fencedInstanceID: Int32 = 82
    }

    /// A supervisor on its own thread.
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

        /// - Parameter mostKeptClients: no limit by default, because clients of other tests count.
        init(_ configuration: Configuration, mostKeptClients: Int = .max) {
            let box = Box()
            state = box
            let supervisor = WorkerSupervisor(
                configuration: configuration,
                logger: Logger(label: "worker", factory: { _ in SwiftLogNoOpLogHandler() }),
                mostKeptClients: mostKeptClients
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

        /// Number of workers that have started.
        var begun: Int { state.state.withLock { $0.workers.count } }
        /// Number of workers that have ended.
        var ended: Int { state.state.withLock { $0.ended } }
        var hasEnded: Bool { state.state.withLock { $0.result != nil } }
        var newest: Worker? { state.state.withLock { $0.workers.last } }

        func wait() throws -> WorkerResult {
            try eventually("the supervisor has ended", timeout: .seconds(60)) { hasEnded }
            return try state.state.withLock { try $0.result!.get() }
        }

        /// Stops a supervisor that has not ended, and waits for a minute at most.
        func end() {
            guard !hasEnded else { return }
            supervisor.requestStop()
            _ = try? wait()
        }
    }

    private func run(
        _ bed: WorkerBed, transactions: Configuration.Store.Switch = .on, mostKeptClients: Int = .max,
        _ change: (inout Configuration) -> Void = { _ in }
    ) -> Run {
        let run = Run(
            bed.configuration {
                $0.delivery.drainDeadline = .seconds(3)
                $0.store = .init(
                    directory: bed.directory.file("store"), after: .seconds(1), changelog: .on,
                    transactions: transactions)
                change(&$0)
            }, mostKeptClients: mostKeptClients)
        bed.atEnd { run.end() }
        return run
    }

    @Test func fencedWorkerIsReplacedByASuccessor() throws {
        try withBed(embedsKafka: true) { bed in
            let run = run(bed)
            try bed.produce(200, seed: 41)
            try bed.waitForOutcomes(200)
            for round in 1...2 {
                // Kafka refuses the next end of a transaction.
                bed.kafka.embedded!.fail(.endTransaction, with: [Code.invalidProducerEpoch])
                try bed.produce(200, seed: 41 + UInt64(round))
                try eventually("a successor has started", timeout: .seconds(60)) { run.begun == 1 + round }
                try eventually("each job has an outcome", timeout: .seconds(60)) {
                    bed.outcomes.poll()
                    return WorkerBed.places(bed.readOutcomes()).count == 200 * (1 + round)
                }
                #expect(run.ended == round, "the former worker has ended")
                #expect(run.newest!.snapshot().counters.restarts == round)
            }
            run.supervisor.requestStop()
            let result = try run.wait()
            #expect(result.failure == nil)
            #expect(result.snapshot.outstanding == 0)
            #expect(run.begun == 3)
        }
    }

    /// No client is too many here, so the process would end at once.
    @Test func aProcessWithTooManyKeptClientsEnds() throws {
        try withBed(embedsKafka: true) { bed in
            let run = run(bed, mostKeptClients: -1)
            bed.kafka.embedded!.fail(.endTransaction, with: [Code.invalidProducerEpoch])
            try bed.produce(50, seed: 48)
            let failure = try #require(try run.wait().failure)
            #expect(!failure.startsOver && run.begun == 1)
            #expect(failure.reason.contains("could not be closed: restart it"), "\(failure.reason)")
        }
    }

    @Test func failedAuthorizationEndsTheSupervisorWithoutRestart() throws {
        try withBed(embedsKafka: true) { bed in
            bed.kafka.embedded!.fail(
                .initProducerID, with: Array(repeating: Code.transactionalIDAuthorizationFailed, count: 50))
            let run = run(bed)
            let failure = try #require(try run.wait().failure)
            #expect(!failure.startsOver)
            #expect(failure.reason.contains("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"), "\(failure.reason)")
            #expect(run.begun == 1)
        }
    }

    @Test(arguments: [Configuration.Store.Switch.on, .off])
    func tooLargeCommitMetadataNamesTheBrokerSetting(transactions: Configuration.Store.Switch) throws {
        try withBed(embedsKafka: true) { bed in
            for request in [EmbeddedCluster.Request.offsetCommit, .transactionOffsetCommit] {
                bed.kafka.embedded!.fail(
                    request, with: Array(repeating: Code.offsetMetadataTooLarge, count: 50))
            }
            let run = run(bed, transactions: transactions)
            try bed.produce(50, seed: 47)
            let failure = try #require(try run.wait().failure)
            #expect(!failure.startsOver)
            #expect(failure.reason.contains("offset.metadata.max.bytes"), "\(failure.reason)")
            #expect(run.begun == 1)
        }
    }

    /// A batch of a transaction has several such dead letters, and the batches of other partitions keep their values.
    @Test func oversizedDeadLettersOfATransactionOmitTheirValues() throws {
        try withBed(embedsKafka: true) { bed in
            try bed.kafka.produce(
                to: "jobs", (0..<6).map { NewRecord(key: "key \($0)", value: "no job") })
            // The next requests to produce are the worker's.
            bed.kafka.embedded!.fail(.produce, with: [Code.messageTooLarge])
            let run = run(bed)
            try eventually(
                "there are dead letters without values, and one of each record", timeout: .seconds(60)
            ) {
                bed.deadLetters.poll()
                let letters = bed.deadLetters.records
                return letters.contains { $0.value == nil } && Set(letters.map(\.keyText)).count == 6
            }
            // The embedded cluster has no transaction markers, so readers see aborted records too.
            let letters = bed.deadLetters.records.filter { $0.value == nil }
            #expect(Set(letters.map(\.partition)).count == 1, "one batch was refused")
            #expect(letters.allSatisfy { $0.header(DeadLetter.valueOmittedHeader) == "MSG_SIZE_TOO_LARGE" })
            // Dead letters have their values again after a transaction is committed.
            let commits = run.newest!.snapshot().counters.commits
            try bed.produce(20, seed: 51)
            try bed.waitForOutcomes(20)
            try eventually("a transaction is committed", timeout: .seconds(60)) {
                run.newest!.snapshot().counters.commits > commits
            }
            try bed.kafka.produce(to: "jobs", [NewRecord(key: "last", value: "no job either")])
            try eventually("there is a dead letter with its value", timeout: .seconds(60)) {
                bed.deadLetters.poll()
                return bed.deadLetters.records.contains { $0.value == Array("no job either".utf8) }
            }
            run.supervisor.requestStop()
            #expect(try run.wait().failure == nil)
            #expect(run.begun == 1)
        }
    }

    @Test func permanentlyRefusedRecordEndsTheSupervisor() throws {
        try withBed(embedsKafka: true) { bed in
            try bed.produce(20, seed: 52)
            bed.kafka.embedded!.fail(
                .produce, with: Array(repeating: Code.topicAuthorizationFailed, count: 50))
            let run = run(bed)
            let failure = try #require(try run.wait().failure)
            #expect(!failure.startsOver)
            #expect(failure.reason.contains("TOPIC_AUTHORIZATION_FAILED"), "\(failure.reason)")
            #expect(failure.reason.contains(bed.kafka.topic("outcomes")), "\(failure.reason)")
        }
    }

    /// Two workers with one name would fence each other for ever. The broker's answer to a heartbeat or a commit ends the
    /// fenced one.
    @Test(arguments: [EmbeddedCluster.Request.heartbeat, .offsetCommit])
    func workerWhoseNameIsTakenEndsAndNamesTheSetting(request: EmbeddedCluster.Request) throws {
        try withBed(embedsKafka: true) { bed in
            let run = run(bed) {
                $0.kafka.instanceID = "worker-0"
                $0.store = nil
            }
            try bed.produce(20, seed: 55)
            try bed.waitForOutcomes(20)
            bed.kafka.embedded!.fail(request, with: Array(repeating: Code.fencedInstanceID, count: 20))
            try bed.produce(20, seed: 56)
            let failure = try #require(try run.wait().failure)
            #expect(!failure.startsOver && run.begun == 1)
            #expect(failure.reason.contains("kafka.instance-id"), "\(failure.reason)")
            #expect(failure.reason.contains("FENCED_INSTANCE_ID"), "\(failure.reason)")
        }
    }

    /// A changelog partition without a leader delays only its own partition of the jobs.
    @Test func leaderlessChangelogPartitionDelaysOnlyItsOwnJobs() throws {
        try withBed(embedsKafka: true) { bed in
            let kafka = bed.kafka.embedded!
            kafka.setLeader(nil, topic: bed.kafka.topic("changelog"), partition: 1)
            let run = run(bed)
            try bed.produce(60, seed: 53)
            try eventually("the other partitions are read", timeout: .seconds(60)) {
                run.newest?.snapshot().totals.count(of: .accepted) ?? 0 > 0
            }
            try eventually("Kafka reports errors for the partition", timeout: .seconds(60)) {
                (run.newest?.snapshot().counters.kafkaErrors ?? 0) >= 3
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
        }
    }

    /// The jobs topic has grown. The changelog stays as it is, because the embedded cluster can't add partitions.
    @Test func changelogWithTooFewPartitionsDelaysOnlyNewPartitions() throws {
        try withBed(embedsKafka: true, changelogPartitions: 2) { bed in
            let run = run(bed)
            try bed.produce(60, seed: 54)
            try eventually("two partitions are read", timeout: .seconds(60)) {
                run.newest?.snapshot().totals.count(of: .accepted) ?? 0 > 0
                    && run.newest!.snapshot().counters.kafkaErrors >= 2
            }
            #expect(run.newest!.snapshot().assignedPartitions == 2)
            run.supervisor.requestStop()
            #expect(try run.wait().failure == nil)
            #expect(run.begun == 1)
        }
    }

    @Test func stopBetweenTwoWorkersIsNoFailure() throws {
        try withBed(embedsKafka: true) { bed in
            let run = run(bed)
            try bed.produce(50, seed: 48)
            try bed.waitForOutcomes(50)
            // No worker commits a transaction.
            bed.kafka.embedded!.fail(
                .endTransaction, with: Array(repeating: Code.invalidProducerEpoch, count: 50))
            try bed.produce(50, seed: 49)
            try eventually("three workers have failed", timeout: .seconds(60)) { run.ended >= 3 }
            run.supervisor.requestStop()
            let result = try run.wait()
            #expect(result.failure == nil)
            #expect(run.begun == run.ended)
        }
    }
}

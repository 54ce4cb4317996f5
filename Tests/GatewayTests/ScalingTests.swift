import APNSSimulator
import Configuration
import Foundation
import Gateway
import KafkaTestSupport
import TestSupport
import Testing

/// A second worker that joins the group and leaves it, again and again, amid jobs. Each takes partitions over and
/// gives them back in order, so that no push is sent twice.
struct ScalingTests {
    enum Mode: String, CaseIterable {
        case withoutStore, store, transactions
        /// The embedded cluster forgets the offsets of transactions.
        static var possible: [Mode] {
            TestKafka.realBrokers == nil ? [.withoutStore, .store] : allCases
        }
    }

    /// SLUICE_TEST_JOINS sets the number of rounds. A round takes eight seconds on the embedded cluster.
    static var rounds: Int {
        ProcessInfo.processInfo.environment["SLUICE_TEST_JOINS"].flatMap { Int($0) }
            ?? (TestKafka.realBrokers == nil ? 6 : 20)
    }

    @Test(arguments: Mode.possible)
    func workerThatJoinsAndLeavesRepeatsNoPush(mode: Mode) throws {
        try withBed(simulator: { $0.latency = .milliseconds(200) }) { bed in
            let log = LogRecorder()
            var (jobs, stores) = (0, 0)
            func worker() throws -> Worker {
                stores += 1
                return try bed.worker(log: log, logLevel: .warning) {
                    // The embedded cluster makes each rebalance wait for a session less a second, and the first one for
                    // three seconds, which a session must outlast.
                    if TestKafka.realBrokers == nil {
                        $0.kafka.consumerProperties.append(.init(name: "session.timeout.ms", value: "3500"))
                    }
                    $0.kafka.consumerProperties.append(.init(name: "heartbeat.interval.ms", value: "300"))
                    $0.delivery.commitInterval = .milliseconds(20)
                    guard mode != .withoutStore else { return }
                    $0.store = .init(
                        directory: bed.directory.file("store-\(stores)"),
                        transactions: mode == .transactions ? .on : .off)
                }
            }
            let first = try worker()
            func produceUntil(_ what: String, _ condition: () -> Bool) throws {
                try eventually(what, timeout: .seconds(60)) {
                    bed.outcomes.poll()
                    // No more jobs than the worker has soon ended, because the embedded cluster keeps few records.
                    if jobs < bed.outcomes.records.count + 60 {
                        jobs += 10
                        try bed.produce(10, seed: UInt64(jobs))
                    }
                    return condition()
                }
            }
            try produceUntil("the first worker has all partitions") {
                first.snapshot().assignedPartitions == WorkerBed.partitions
            }
            for round in 1...Self.rounds {
                let second = try worker()
                try produceUntil("the second worker has partitions, round \(round)") {
                    let share = second.snapshot().assignedPartitions
                    return share > 0
                        && first.snapshot().assignedPartitions + share == WorkerBed.partitions
                }
                bed.stop(second)
                try produceUntil("the first worker has all partitions again, round \(round)") {
                    first.snapshot().assignedPartitions == WorkerBed.partitions
                }
            }
            try eventually("all jobs have an outcome", timeout: .seconds(60)) {
                bed.outcomes.poll()
                return WorkerBed.places(bed.readOutcomes()).count == jobs
            }
            bed.stop(first)
            bed.outcomes.poll()
            #expect(log.messages.count(containing: "partitions lost") == 0)
            // A transaction in an earlier generation is aborted, which costs no partition and repeats no push.
            if mode != .transactions { #expect(log.messages.count(containing: "ILLEGAL_GENERATION") == 0) }
            // The embedded cluster may begin a rebalance amid a revocation, because a member's request has come behind
            // the leader's. It then refuses the revocation's commit, which brokers take.
            let refused = log.messages.count(containing: "the last commit failed")
            guard TestKafka.realBrokers != nil || refused == 0 else { return }
            #expect(bed.readOutcomes().count == jobs, "each job has one outcome")
            #expect(bed.simulator.summary.accepted == jobs, "no push is sent twice")
        }
    }
}

import Configuration
import DeliveryCore
import Gateway
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// Workers whose outcomes Kafka can't take.
@Suite struct PushWindowWorkerTests {
    private func setLeader(_ broker: Int?, of topic: String, _ bed: WorkerBed) {
        for partition in 0..<Int32(WorkerBed.partitions) {
            bed.kafka.embedded!.setLeader(broker, topic: bed.kafka.topic(topic), partition: partition)
        }
    }

    private func accepted(_ worker: Worker) -> Int { worker.snapshot().totals.count(of: .accepted) }

    /// Three workers push one after the other, stop in an orderly way, and can't write an outcome.
    @Test func restartsRepeatNoMoreThanTheWindow() throws {
        try withBed(embedsKafka: true) { bed in
            setLeader(nil, of: "outcomes", bed)
            try bed.produce(500, seed: 4021) { push, _ in push.duplicates = "avoid" }
            var pushes = 0
            for _ in 0..<3 {
                let worker = try bed.worker(firstPushes: PushWindow.firstSize) {
                    $0.delivery.drainDeadline = .milliseconds(100)
                }
                try eventually("the window is used up", timeout: .seconds(60)) {
                    accepted(worker) == PushWindow.firstSize
                }
                bed.stop(worker, mayFail: true)
                #expect(accepted(worker) == PushWindow.firstSize)
                pushes += accepted(worker)
            }
            setLeader(1, of: "outcomes", bed)
            let last = try bed.worker(firstPushes: PushWindow.firstSize)
            let outcomes = try bed.waitForOutcomes(500)
            #expect(WorkerBed.places(outcomes).count == 500)
            try eventually("everything is committed", timeout: .seconds(60)) { try bed.committed() == 500 }
            #expect(accepted(last) + pushes <= 500 + 3 * PushWindow.firstSize)
        }
    }

    /// A worker whose commits have succeeded stops when they don't any more, isn't ready, and goes on with the next one.
    @Test func workerIsHeldUntilACommitSucceeds() throws {
        try withBed(embedsKafka: true) { bed in
            let log = LogRecorder()
            let worker = try bed.worker(log: log, firstPushes: PushWindow.firstSize) {
                $0.delivery.commitPatience = .seconds(1)
            }
            try bed.produce(200, seed: 4022)
            try bed.waitForOutcomes(200)
            setLeader(nil, of: "outcomes", bed)
            try bed.produce(1, seed: 4023)
            try eventually("the worker is held", timeout: .seconds(60)) {
                worker.snapshot().intake?.arePushesHeld == true
            }
            let before = worker.snapshot().totals.sent
            #expect(before == 201)
            try bed.produce(100, seed: 4024)
            try eventually("the jobs are read", timeout: .seconds(60)) {
                worker.snapshot().counters.records == 301
            }
            #expect(worker.snapshot().totals.sent == before)
            setLeader(1, of: "outcomes", bed)
            try bed.waitForOutcomes(301)
            #expect(worker.snapshot().intake?.arePushesHeld == false)
            #expect(log.messages.count(containing: "no push is begun until a commit succeeds") == 1)
        }
    }
}

import APNSSimulator
import Configuration
import EventLoop
import HTTP2
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// The worker from Kafka to outcome: real Kafka protocol, TLS and HTTP/2.
@Suite struct WorkerTests {
    @Test func everyJobHasOneOutcomeAndItsOffsetIsCommitted() throws {
        let bed = try WorkerBed()
        let worker = try bed.worker { $0.delivery.shards = 2 }
        try bed.produce(2000, seed: 1)
        let outcomes = try bed.waitForOutcomes(2000)
        #expect(outcomes.count == 2000)
        #expect(WorkerBed.places(outcomes).count == 2000)
        #expect(outcomes.allSatisfy { $0.kind == .accepted && $0.attempts == 1 && $0.status == 200 })
        #expect(outcomes.allSatisfy { $0.createdMilliseconds <= $0.finishedMilliseconds })
        // The key is the device token, so that an outcome goes where the job's device goes.
        #expect(
            bed.outcomes.records.allSatisfy { record in
                OutcomeSummary(json: record.value ?? [])?.deviceToken
                    == record.key.map { String(decoding: $0, as: UTF8.self) }
            })
        let result = bed.stop(worker)
        #expect(result.failure == nil)
        #expect(result.totals.outstanding == 0)
        #expect(result.totals.shards.count(of: .accepted) == 2000)
        #expect(try bed.committed() == 2000)
        #expect(bed.simulator.summary.accepted == 2000)
        bed.simulator.stop()
    }

    @Test func aRestartRepeatsNothing() throws {
        let bed = try WorkerBed()
        let first = try bed.worker()
        try bed.produce(500, seed: 2)
        try bed.waitForOutcomes(500)
        #expect(bed.stop(first).failure == nil)
        let second = try bed.worker()
        try bed.produce(100, seed: 3)
        let outcomes = try bed.waitForOutcomes(600)
        let result = bed.stop(second)
        #expect(result.totals.intake.records == 100)
        #expect(outcomes.count == 600)
        #expect(bed.simulator.summary.accepted == 600)
        bed.simulator.stop()
    }

    @Test func transientAnswersAreRetriedAndFinalOnesAreNot() throws {
        let bed = try WorkerBed { options in
            options.faults = [
                .init(reason: .serviceUnavailable, share: 0.15),
                .init(reason: .internalServerError, share: 0.05),
                .init(reason: .tooManyRequests, share: 0.05),
            ]
            options.deviceRules = [
                .init(prefix: "dead", reason: .unregistered), .init(prefix: "bad0", reason: .badDeviceToken),
            ]
        }
        let worker = try bed.worker()
        try bed.produce(1000, seed: 4) { push, number in
            if number % 10 == 3 { push.deviceToken = "dead" + push.deviceToken.dropFirst(4) }
            if number % 10 == 7 { push.deviceToken = "bad0" + push.deviceToken.dropFirst(4) }
        }
        let outcomes = try bed.waitForOutcomes(1000)
        #expect(WorkerBed.places(outcomes).count == 1000)
        #expect(outcomes.count { $0.kind == .accepted } == 800)
        #expect(
            outcomes.count { $0.reason == "Unregistered" && $0.kind == .rejected && $0.deleteToken } == 100)
        #expect(
            outcomes.count {
                $0.reason == "BadDeviceToken" && $0.kind == .rejected && $0.suspectToken && !$0.deleteToken
            } == 100)
        #expect(outcomes.filter { $0.kind == .rejected }.allSatisfy { $0.attempts == 1 })
        #expect(outcomes.contains { $0.attempts > 1 })
        let sent = outcomes.reduce(0) { $0 + $1.attempts }
        #expect(UInt64(sent) == bed.simulator.summary.requests)
        #expect(bed.stop(worker).failure == nil)
        bed.simulator.stop()
    }

    @Test func whatCannotBeSentSaysWhy() throws {
        let bed = try WorkerBed()
        let worker = try bed.worker()
        let now = wallClockSeconds()
        var random = SeededRandom(seed: 5)
        let token = random.hexadecimal(bytes: 32)
        func push(_ change: (inout PushDescription) -> Void) -> EncodedJob {
            var push = PushDescription(
                deviceToken: token, topic: "com.example.news", payload: Array("{}".utf8))
            change(&push)
            return JobEncoder.structured(push)
        }
        try bed.produce([
            push { $0.expiration = now - 100 },
            push { $0.topic = "com.example.unknown" },
            push {
                $0.deliverAtMilliseconds = (now + 3600) * 1000
                $0.expiration = now + 60
            },
            try #require(
                JobEncoder.document(
                    Array(
                        """
                        {"kind":"cancel","device-token":"\(token)","topic":"com.example.news","collapse-id":"x"}
                        """.utf8))),
        ])
        let outcomes = try bed.waitForOutcomes(4).sorted { $0.offset < $1.offset }
        #expect(outcomes.map(\.kind) == [.expired, .undeliverable, .expired, .notFound])
        #expect(outcomes.map(\.cause) == [nil, "no-credential", nil, nil])
        #expect(outcomes.allSatisfy { $0.attempts == 0 })
        #expect(bed.stop(worker).failure == nil)
        #expect(bed.simulator.summary.requests == 0)
        #expect(try bed.committed() == 4)
        bed.simulator.stop()
    }

    @Test func malformedRecordsBecomeDeadLettersAndTheWorkerGoesOn() throws {
        let bed = try WorkerBed()
        let worker = try bed.worker()
        let key = "not a token"
        let value = "{"
        try bed.kafka.produce(
            to: "jobs",
            [
                NewRecord(
                    key: key, value: value, headers: [("apns-topic", "com.example.news"), ("x-trace", nil)]),
                NewRecord(),
            ])
        try bed.produce(10, seed: 6)
        try bed.waitForOutcomes(10)
        try eventually("dead letters") {
            bed.deadLetters.poll()
            return bed.deadLetters.records.count == 2
        }
        let letter = try #require(bed.deadLetters.records.first { $0.key != nil })
        #expect(letter.keyText == key)
        #expect(letter.valueText == value)
        #expect(letter.headers.prefix(2).map(\.name) == ["apns-topic", "x-trace"])
        #expect(letter.header("sluice-error-field") != nil)
        #expect(letter.header("sluice-error-message") != nil)
        #expect(letter.header("sluice-source-topic") == bed.kafka.topic("jobs"))
        #expect(Int(letter.header("sluice-source-offset") ?? "") != nil)
        let result = bed.stop(worker)
        #expect(result.totals.shards.deadLetters == 2)
        #expect(try bed.committed() == 12)
        bed.simulator.stop()
    }

    @Test func aDeadLetterTooLargeForKafkaGoesWithoutItsValue() throws {
        let bed = try WorkerBed()
        let worker = try bed.worker { configuration in
            // The record fits with its own headers, and not with the dead letter's.
            configuration.kafka.producerProperties = [.init(name: "message.max.bytes", value: "2000")]
        }
        let key = String(repeating: "ab", count: 32)
        try bed.kafka.produce(to: "jobs", [NewRecord(key: key, value: String(repeating: "x", count: 1900))])
        try bed.produce(5, seed: 14)
        try bed.waitForOutcomes(5)
        try eventually("a dead letter") {
            bed.deadLetters.poll()
            return bed.deadLetters.records.count == 1
        }
        let letter = bed.deadLetters.records[0]
        #expect(letter.keyText == key)
        #expect(letter.value == nil)
        #expect(letter.header(DeadLetter.valueOmittedHeader) == "MSG_SIZE_TOO_LARGE")
        #expect(letter.header("sluice-error-field") != nil)
        #expect(bed.stop(worker).failure == nil)
        #expect(try bed.committed() == 6)
        bed.simulator.stop()
    }

    @Test func theLimitOfJobsInFlightHolds() throws {
        let bed = try WorkerBed { $0.latency = .milliseconds(20) }
        let worker = try bed.worker { $0.delivery.maxInFlight = 100 }
        try bed.produce(3000, seed: 7)
        var most = 0
        try eventually("3000 outcomes", timeout: .seconds(60)) {
            most = max(most, worker.snapshot().outstanding)
            bed.outcomes.poll()
            return bed.outcomes.records.count >= 3000
        }
        #expect(most <= 100)
        #expect(most > 10)
        #expect(WorkerBed.places(bed.readOutcomes()).count == 3000)
        #expect(bed.stop(worker).failure == nil)
        bed.simulator.stop()
    }

    @Test func aStalledWorkerPausesAndGoesOn() throws {
        let bed = try WorkerBed()
        let worker = try bed.worker { $0.delivery.maxInFlight = 50 }
        // Holds all jobs until the worker has paused, however long that takes: no job ends meanwhile.
        let release = BlockingFlag()
        defer { release.set() }
        worker.shards[0].loop.execute { release.wait() }
        try bed.produce(150, seed: 8)
        try eventually("all partitions are paused") {
            // A snapshot would wait for the shard.
            worker.intake.loop.runBlockingIfRunning { worker.intake.counters.pauses } == 1
        }
        release.set()
        let outcomes = try bed.waitForOutcomes(150)
        #expect(WorkerBed.places(outcomes).count == 150)
        let result = bed.stop(worker)
        #expect(result.totals.intake.records == 150)
        bed.simulator.stop()
    }

    @Test func stoppingFinishesWhatIsInFlightAndLeavesTheRestToKafka() throws {
        let bed = try WorkerBed { options in
            options.latency = .milliseconds(200)
            options.maximumStreams = 20
        }
        let worker = try bed.worker()
        try bed.produce(500, seed: 9)
        try bed.waitForOutcomes(50)
        let result = bed.stop(worker)
        #expect(result.failure == nil)
        #expect(result.totals.shards.abandoned > 0)
        let accepted = bed.simulator.summary.accepted
        // What was sent has its outcome, and nothing was sent twice.
        try bed.waitForOutcomes(Int(accepted))
        #expect(bed.outcomes.records.count == Int(accepted))
        let second = try bed.worker()
        let outcomes = try bed.waitForOutcomes(500)
        #expect(outcomes.count == 500)
        #expect(WorkerBed.places(outcomes).count == 500)
        #expect(bed.stop(second).failure == nil)
        #expect(bed.simulator.summary.accepted == 500)
        bed.simulator.stop()
    }

    @Test func twoWorkersShareThePartitions() throws {
        let bed = try WorkerBed { $0.latency = .milliseconds(5) }
        let first = try bed.worker()
        try bed.produce(500, seed: 10)
        try bed.waitForOutcomes(100)
        let second = try bed.worker()
        try eventually("the second worker has partitions", timeout: .seconds(60)) {
            second.snapshot().assignedPartitions > 0
        }
        try bed.produce(500, seed: 11)
        try bed.waitForOutcomes(1000)
        #expect(
            first.snapshot().assignedPartitions + second.snapshot().assignedPartitions == WorkerBed.partitions
        )
        #expect(bed.stop(second).failure == nil)
        try bed.produce(100, seed: 12)
        try eventually("all jobs have an outcome", timeout: .seconds(60)) {
            bed.outcomes.poll()
            return WorkerBed.places(bed.readOutcomes()).count == 1100
        }
        #expect(bed.stop(first).failure == nil)
        // Orderly hand-overs repeat nothing on Kafka. The embedded cluster refuses commits while members join, and
        // librdkafka then repeats the commit in a generation that has passed, which costs it the assignment.
        if TestKafka.realBrokers != nil {
            #expect(bed.readOutcomes().count == 1100)
            #expect(bed.simulator.summary.accepted == 1100)
        }
        bed.simulator.stop()
    }

    @Test func aKeyThatAPNsDoesNotKnowHoldsTheJobs() throws {
        let bed = try WorkerBed { options in
            options.providerTokens = .keys([
                SimulatorKey(
                    keyID: "ABC123DEFG", teamID: "DEF123GHIJ",
                    key: .text(try! CertificateAuthority(commonName: "another").privateKeyPEM))
            ])
        }
        let worker = try bed.worker()
        try bed.produce(20, seed: 13)
        try eventually("APNs refuses") { bed.simulator.summary.rejected[.invalidProviderToken] ?? 0 > 0 }
        let result = bed.stop(worker)
        #expect(result.failure == nil)
        bed.outcomes.poll()
        #expect(bed.outcomes.records.isEmpty)
        #expect(try bed.committed() == 0)
        bed.simulator.stop()
    }

    @Test func whatTheWorkerCannotStartWithIsNamed() throws {
        let bed = try WorkerBed()
        func message(_ change: (inout Configuration) -> Void) -> String {
            do {
                _ = try bed.worker(change)
                return "started"
            } catch {
                return "\(error)"
            }
        }
        #expect(
            message {
                $0.credentials[0].kind = .token(
                    keyFile: "/nowhere/key.p8", keyID: "ABC123DEFG", teamID: "DEF123GHIJ")
            }.contains("/nowhere/key.p8"))
        #expect(message { $0.apns.caFile = "/nowhere/ca.pem" }.contains("/nowhere/ca.pem"))
        #expect(
            message { $0.kafka.properties = [.init(name: "no.such.property", value: "1")] }
                .contains("no.such.property"))
        bed.simulator.stop()
    }
}

func wallClockSeconds() -> Int64 { wallClockMilliseconds() / 1000 }

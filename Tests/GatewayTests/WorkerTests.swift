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

/// Workers from Kafka to outcome, with the real Kafka protocol, TLS and HTTP/2.
@Suite struct WorkerTests {
    @Test func everyJobGetsOneOutcomeAndACommittedOffset() throws {
        try withBed { bed in
            let worker = try bed.worker { $0.delivery.shards = 2 }
            try bed.produce(2000, seed: 1)
            let outcomes = try bed.waitForOutcomes(2000)
            #expect(outcomes.count == 2000)
            #expect(WorkerBed.places(outcomes).count == 2000)
            #expect(outcomes.allSatisfy { $0.kind == .accepted && $0.attempts == 1 && $0.status == 200 })
            #expect(outcomes.allSatisfy { $0.createdMilliseconds <= $0.finishedMilliseconds })
            // The key is the device token, so that outcomes are partitioned by device.
            #expect(
                bed.outcomes.records.allSatisfy { record in
                    OutcomeSummary(json: record.value ?? [])?.deviceToken
                        == record.key.map { String(decoding: $0, as: UTF8.self) }
                })
            let result = bed.stop(worker)
            #expect(result.snapshot.outstanding == 0)
            #expect(result.snapshot.totals.count(of: .accepted) == 2000)
            #expect(try bed.committed() == 2000)
            #expect(bed.simulator.summary.accepted == 2000)
        }
    }

    @Test func restartAfterOrderlyStopRepeatsNothing() throws {
        try withBed { bed in
            let first = try bed.worker()
            try bed.produce(500, seed: 2)
            try bed.waitForOutcomes(500)
            bed.stop(first)
            let second = try bed.worker()
            try bed.produce(100, seed: 3)
            let outcomes = try bed.waitForOutcomes(600)
            let result = bed.stop(second)
            #expect(result.snapshot.counters.records == 100)
            #expect(outcomes.count == 600)
            #expect(bed.simulator.summary.accepted == 600)
        }
    }

    @Test func transientAnswersAreRetriedAndFinalOnesAreNot() throws {
        try withBed(simulator: { options in
            options.faults = [
                .init(reason: .serviceUnavailable, share: 0.15),
                .init(reason: .internalServerError, share: 0.05),
                .init(reason: .tooManyRequests, share: 0.05),
            ]
            options.deviceRules = [
                .init(prefix: "dead", reason: .unregistered), .init(prefix: "bad0", reason: .badDeviceToken),
            ]
        }) { bed in
            try bed.worker()
            try bed.produce(1000, seed: 4) { push, number in
                if number % 10 == 3 { push.deviceToken = "dead" + push.deviceToken.dropFirst(4) }
                if number % 10 == 7 { push.deviceToken = "bad0" + push.deviceToken.dropFirst(4) }
            }
            let outcomes = try bed.waitForOutcomes(1000)
            #expect(WorkerBed.places(outcomes).count == 1000)
            #expect(outcomes.count { $0.kind == .accepted } == 800)
            #expect(
                outcomes.count { $0.reason == "Unregistered" && $0.kind == .rejected && $0.deleteToken }
                    == 100)
            #expect(
                outcomes.count {
                    $0.reason == "BadDeviceToken" && $0.kind == .rejected && $0.suspectToken
                        && !$0.deleteToken
                } == 100)
            #expect(outcomes.filter { $0.kind == .rejected }.allSatisfy { $0.attempts == 1 })
            #expect(outcomes.contains { $0.attempts > 1 })
            let sent = outcomes.reduce(0) { $0 + $1.attempts }
            #expect(UInt64(sent) == bed.simulator.summary.requests)
        }
    }

    @Test func unsendableJobsEndUnsentWithTheirCause() throws {
        try withBed { bed in
            let worker = try bed.worker()
            let now = wallClockSeconds()
            var random = SeededGenerator(seed: 5)
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
            bed.stop(worker)
            #expect(bed.simulator.summary.requests == 0)
            #expect(try bed.committed() == 4)
        }
    }

    @Test func malformedRecordsBecomeDeadLettersAndWorkContinues() throws {
        try withBed { bed in
            let worker = try bed.worker()
            let key = "not a token"
            let value = "{"
            try bed.kafka.produce(
                to: "jobs",
                [
                    NewRecord(
                        key: key, value: value,
                        headers: [("apns-topic", "com.example.news"), ("x-trace", nil)]),
                    NewRecord(),
                    // Headers of a record in packed mode are read for its dead letter only.
                    NewRecord(
                        key: "packed", value: "apns-topic:com.example.news\nttl\n",
                        headers: [("x-trace", "1")]),
                ])
            try bed.produce(10, seed: 6)
            try bed.waitForOutcomes(10)
            try eventually("there are three dead letters") {
                bed.deadLetters.poll()
                return bed.deadLetters.records.count == 3
            }
            let packed = try #require(bed.deadLetters.records.first { $0.keyText == "packed" })
            #expect(packed.header("x-trace") == "1")
            #expect(packed.header("sluice-error-rule") == "packed-line")
            let letter = try #require(bed.deadLetters.records.first { $0.keyText == key })
            #expect(letter.keyText == key)
            #expect(letter.valueText == value)
            #expect(letter.headers.prefix(2).map(\.name) == ["apns-topic", "x-trace"])
            #expect(letter.header("sluice-error-field") != nil)
            #expect(letter.header("sluice-error-message") != nil)
            #expect(letter.header("sluice-source-topic") == bed.kafka.topic("jobs"))
            #expect(Int(letter.header("sluice-source-offset") ?? "") != nil)
            let result = bed.stop(worker)
            #expect(result.snapshot.totals.deadLetters == 3)
            #expect(try bed.committed() == 13)
        }
    }

    /// Each fetch returns a batch that is larger than the queue. librdkafka 2.0.2 then stops fetching for a second, unless
    /// it is woken. 90 batches would take 90 s, and the wait ends after 60.
    @Test func fetchingGoesOnAsSoonAsAFullQueueIsDrained() throws {
        try withBed { bed in
            let token = String(repeating: "ab", count: 32)
            let text = String(repeating: "x", count: 300)
            for _ in 0..<90 {
                try bed.produce(8, seed: 1) { push, _ in
                    push.deviceToken = token
                    push.payload = Array(#"{"aps":{"alert":"\#(text)"}}"#.utf8)
                }
            }
            let worker = try bed.worker { configuration in
                configuration.kafka.consumerProperties.append(
                    .init(name: "queued.max.messages.kbytes", value: "1"))
            }
            try bed.waitForOutcomes(720)
            bed.stop(worker)
            #expect(try bed.committed() == 720)
        }
    }

    @Test func oversizedDeadLetterOmitsItsValue() throws {
        try withBed { bed in
            let worker = try bed.worker { configuration in
                // The record fits with its own headers, but not with those of a dead letter.
                configuration.kafka.producerProperties = [.init(name: "message.max.bytes", value: "2000")]
            }
            let key = String(repeating: "ab", count: 32)
            try bed.kafka.produce(
                to: "jobs", [NewRecord(key: key, value: String(repeating: "x", count: 1900))])
            try bed.produce(5, seed: 14)
            try bed.waitForOutcomes(5)
            try eventually("there is a dead letter") {
                bed.deadLetters.poll()
                return bed.deadLetters.records.count == 1
            }
            let letter = bed.deadLetters.records[0]
            #expect(letter.keyText == key)
            #expect(letter.value == nil)
            #expect(letter.header(DeadLetter.valueOmittedHeader) == "MSG_SIZE_TOO_LARGE")
            #expect(letter.header("sluice-error-field") != nil)
            bed.stop(worker)
            #expect(try bed.committed() == 6)
        }
    }

    @Test func workerNeverExceedsItsJobLimit() throws {
        try withBed(simulator: { $0.latency = .milliseconds(20) }) { bed in
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
        }
    }

    @Test func stalledWorkerPausesItsPartitionsAndResumes() throws {
        try withBed { bed in
            let worker = try bed.worker { $0.delivery.maxInFlight = 50 }
            // Blocks the shard until the worker has paused, so that no job ends before.
            let release = BlockingFlag()
            defer { release.set() }
            worker.shards[0].loop.execute { release.wait() }
            try bed.produce(150, seed: 8)
            try eventually("all partitions are paused") {
                // A snapshot would wait for the blocked shard.
                worker.intake.loop.runBlockingIfRunning { worker.intake.counters.pauses } == 1
            }
            release.set()
            let outcomes = try bed.waitForOutcomes(150)
            #expect(WorkerBed.places(outcomes).count == 150)
            let result = bed.stop(worker)
            #expect(result.snapshot.counters.records == 150)
        }
    }

    @Test func stopFinishesJobsInFlightAndLeavesTheRest() throws {
        try withBed(simulator: { options in
            options.latency = .milliseconds(200)
            options.maximumStreams = 20
        }) { bed in
            let worker = try bed.worker()
            try bed.produce(500, seed: 9)
            try bed.waitForOutcomes(50)
            let result = bed.stop(worker)
            #expect(result.snapshot.totals.abandoned > 0)
            let accepted = bed.simulator.summary.accepted
            // Each push that was sent has its outcome, and none was sent twice.
            try bed.waitForOutcomes(Int(accepted))
            #expect(bed.outcomes.records.count == Int(accepted))
            let second = try bed.worker()
            let outcomes = try bed.waitForOutcomes(500)
            #expect(outcomes.count == 500)
            #expect(WorkerBed.places(outcomes).count == 500)
            bed.stop(second)
            #expect(bed.simulator.summary.accepted == 500)
        }
    }

    @Test func secondWorkerTakesPartitionsAndNoJobIsLost() throws {
        try withBed(simulator: { $0.latency = .milliseconds(5) }) { bed in
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
                first.snapshot().assignedPartitions + second.snapshot().assignedPartitions
                    == WorkerBed.partitions
            )
            bed.stop(second)
            try bed.produce(100, seed: 12)
            try eventually("all jobs have an outcome", timeout: .seconds(60)) {
                bed.outcomes.poll()
                return WorkerBed.places(bed.readOutcomes()).count == 1100
            }
            bed.stop(first)
            #expect(bed.readOutcomes().count == 1100, "orderly hand-overs repeat nothing")
            #expect(bed.simulator.summary.accepted == 1100)
        }
    }

    @Test func jobsWaitUncommittedWhileAPNsRefusesTheKey() throws {
        try withBed(simulator: { options in
            options.providerTokens = .keys([
                SimulatorKey(
                    keyID: "ABC123DEFG", teamID: "DEF123GHIJ",
                    key: .text(try! CertificateAuthority(commonName: "another").privateKeyPEM))
            ])
        }) { bed in
            let worker = try bed.worker()
            try bed.produce(20, seed: 13)
            try eventually("APNs refuses the key") {
                bed.simulator.summary.rejected[.invalidProviderToken] ?? 0 > 0
            }
            bed.stop(worker)
            bed.outcomes.poll()
            #expect(bed.outcomes.records.isEmpty)
            #expect(try bed.committed() == 0)
        }
    }

    @Test func failedStartNamesTheWrongSetting() throws {
        try withBed { bed in
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
        }
    }
}

func wallClockSeconds() -> Int64 { wallClockMilliseconds() / 1000 }

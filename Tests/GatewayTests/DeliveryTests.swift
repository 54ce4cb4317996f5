import APNSSimulator
import HTTP2
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// Decisions of the delivery machine, as seen from Kafka and APNs.
@Suite struct DeliveryTests {
    @Test func fiveHundredUpdatesOfOneIdentityCostTwoPushes() throws {
        try withBed(simulator: { $0.latency = .seconds(4) }) { bed in
            let worker = try bed.worker { $0.apns.connections = 1 }
            let device = SeededGenerator.hexadecimal(seed: 301)
            try bed.produce([push("0", to: device) { $0.collapseIdentifier = "score" }])
            try eventually("the push is in flight") { worker.snapshot().totals.inFlight == 1 }
            try bed.produce(
                (1...500).map { number in push("\(number)", to: device) { $0.collapseIdentifier = "score" } })
            let outcomes = try bed.waitForOutcomes(501).sorted { $0.offset < $1.offset }
            #expect(outcomes.count { $0.kind == .accepted } == 2)
            #expect(outcomes.first?.kind == .accepted)
            #expect(outcomes.last?.kind == .accepted)
            for (old, new) in zip(outcomes.dropFirst(), outcomes.dropFirst(2)) {
                #expect(old.kind == .superseded)
                #expect(old.supersededBy == new.apnsID)
            }
            #expect(bed.simulator.summary.requests == 2)
            bed.stop(worker)
            #expect(try bed.committed() == 501)
        }
    }

    @Test func coalesceWindowSendsOnlyTheNewestPush() throws {
        try withBed { bed in
            try bed.worker { $0.apps[0].coalesceWindow = .seconds(2) }
            let device = SeededGenerator.hexadecimal(seed: 302)
            try bed.produce(
                (0..<20).map { number in push("\(number)", to: device) { $0.collapseIdentifier = "score" } })
            let outcomes = try bed.waitForOutcomes(20).sorted { $0.offset < $1.offset }
            #expect(outcomes.dropLast().allSatisfy { $0.kind == .superseded && $0.attempts == 0 })
            #expect(outcomes.last?.kind == .accepted)
            #expect(bed.simulator.summary.requests == 1)
        }
    }

    @Test func scheduledPushesWaitAndCanBeCancelled() throws {
        try withBed { bed in
            let worker = try bed.worker()
            let device = SeededGenerator.hexadecimal(seed: 303)
            let now = wallClockSeconds() * 1000
            try bed.produce([
                push("tomorrow", to: device) {
                    $0.deliverAtMilliseconds = now + 86_400_000
                    $0.collapseIdentifier = "x"
                },
                push("in a moment", to: device) { $0.deliverAtMilliseconds = now + 1500 },
            ])
            let first = try #require(try bed.waitForOutcomes(1).first)
            #expect(first.kind == .accepted)
            #expect(try #require(first.firstSentMilliseconds) >= now + 1500)
            #expect(worker.snapshot().totals.count(in: .scheduled) == 1)
            try bed.produce([
                try job(
                    #"{"kind":"cancel","device-token":"\#(device)","topic":"\#(newsTopic)","collapse-id":"x"}"#
                ),
                try job(
                    #"{"kind":"cancel","device-token":"\#(device)","topic":"\#(newsTopic)","collapse-id":"x"}"#
                ),
                try job(
                    #"{"kind":"cancel","device-token":"\#(device)","topic":"com.example.other","collapse-id":"x"}"#
                ),
            ])
            let outcomes = try bed.waitForOutcomes(5)
            #expect(
                outcomes.map(\.kind.rawValue).sorted()
                    == [OutcomeKind.accepted, .cancelled, .cancelled, .notFound, .notFound].map(\.rawValue)
                    .sorted())
            #expect(outcomes.filter { $0.kind == .cancelled }.map(\.count) == [nil, 1])
            bed.stop(worker)
            #expect(bed.simulator.summary.requests == 1)
            #expect(try bed.committed() == 5)
        }
    }

    @Test func pushesForOfflineDeviceAreHeldUntilItReturns() throws {
        try withBed { bed in
            let worker = try bed.worker()
            let device = SeededGenerator.hexadecimal(seed: 304)
            try bed.produce([
                try event("offline", of: device),
                push("held", to: device) { $0.delivery = "hold-while-offline" },
                push("not held", to: device),
            ])
            try bed.waitForOutcomes(2)
            try eventually("one push is held") { worker.snapshot().totals.count(in: .held) == 1 }
            #expect(bed.simulator.summary.requests == 1)
            try bed.produce([try event("online", of: device)])
            let outcomes = try bed.waitForOutcomes(4)
            #expect(outcomes.count { $0.kind == .accepted } == 2)
            #expect(outcomes.filter { $0.kind == .applied }.map(\.count) == [0, 1])
        }
    }

    @Test func receiptConfirmsThePushItNames() throws {
        try withBed { bed in
            let worker = try bed.worker()
            let device = SeededGenerator.hexadecimal(seed: 305)
            let id = "123e4567-e89b-42d3-a456-426614174000"
            try bed.produce([
                push("confirmed", to: device) {
                    $0.delivery = "confirm"
                    $0.apnsID = id
                }
            ])
            try eventually("the push awaits its receipt") {
                worker.snapshot().totals.count(in: .confirming) == 1
            }
            try bed.produce([try event("receipt", of: device, #","apns-id":"\#(id)""#)])
            let outcomes = try bed.waitForOutcomes(2)
            #expect(Set(outcomes.map(\.kind)) == [.confirmed, .applied])
            #expect(outcomes.first { $0.kind == .confirmed }?.status == 200)
        }
    }

    /// Half of the devices move to another shard.
    @Test func heldPushesFollowTheirDeviceToNewToken() throws {
        try withBed { bed in
            let worker = try bed.worker { $0.delivery.shards = 2 }
            var random = SeededGenerator(seed: 306)
            func shard(_ token: String) -> Int {
                var token = token
                let hasher = worker.shards[0].plan.hasher
                return token.withUTF8 { shardIndex(of: hasher.device(UnsafeRawBufferPointer($0)), shards: 2) }
            }
            let devices = (0..<8).map { _ in random.hexadecimal(bytes: 32) }
            // Every other device moves to the other shard.
            let new = devices.enumerated().map { index, device in
                var token = random.hexadecimal(bytes: 32)
                while (shard(token) == shard(device)) != (index % 2 == 0) {
                    token = random.hexadecimal(bytes: 32)
                }
                return token
            }
            try bed.produce(
                try devices.map { try event("offline", of: $0) }
                    + devices.map { push("for \($0)", to: $0) { $0.delivery = "hold-while-offline" } })
            try eventually("all pushes are held") { worker.snapshot().totals.count(in: .held) == 8 }
            try bed.produce(
                try zip(devices, new).map {
                    try event("token-changed", of: $0, #","new-device-token":"\#($1)""#)
                }
            )
            let outcomes = try bed.waitForOutcomes(24)
            #expect(Set(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken)) == Set(new))
            #expect(outcomes.count { $0.kind == .applied && $0.count == 1 } == 8)
            bed.stop(worker)
            #expect(try bed.committed() == 24)
        }
    }

    @Test func unregisteredTokenRejectsItsPendingPushes() throws {
        try withBed(simulator: { $0.deviceRules = [.init(prefix: "dead", reason: .unregistered)] }) { bed in
            let worker = try bed.worker()
            let reported = SeededGenerator.hexadecimal(seed: 307)
            let dead = "dead" + SeededGenerator.hexadecimal(seed: 308).dropFirst(4)
            let later = (wallClockSeconds() + 3600) * 1000
            try bed.produce([
                push("scheduled", to: reported) { $0.deliverAtMilliseconds = later },
                push("scheduled", to: dead) { $0.deliverAtMilliseconds = later },
            ])
            try eventually("both pushes wait") { worker.snapshot().totals.count(in: .scheduled) == 2 }
            try bed.produce([try event("unregistered", of: reported), push("sent", to: dead)])
            let outcomes = try bed.waitForOutcomes(4)
            let rejected = outcomes.filter { $0.kind == .rejected }
            #expect(rejected.count == 3)
            #expect(rejected.allSatisfy { $0.reason == "Unregistered" && $0.deleteToken })
            #expect(rejected.count { $0.cause == "device-unregistered" && $0.attempts == 0 } == 2)
        }
    }

    @Test func deviceLimitLeavesRoomForOtherDevices() throws {
        try withBed { bed in
            try bed.worker {
                $0.delivery.maxPendingPerDevice = 10
                $0.delivery.maxInFlight = 100
            }
            let device = SeededGenerator.hexadecimal(seed: 309)
            let later = (wallClockSeconds() + 3600) * 1000
            try bed.produce(
                (0..<50).map { number in push("\(number)", to: device) { $0.deliverAtMilliseconds = later } })
            try bed.produce(20, seed: 310)
            let outcomes = try bed.waitForOutcomes(60)
            #expect(outcomes.count { $0.cause == "device-limit" } == 40)
            #expect(outcomes.count { $0.kind == .accepted } == 20)
        }
    }

    /// A TLS alert that refuses the client certificate stops the pool, as a GOAWAY with that reason does.
    @Test func refusedClientCertificateStopsThePool() throws {
        let log = LogRecorder()
        try withBed { bed in
            let client = try CertificateAuthority(commonName: "unknown").issueClient(
                commonName: "stranger", userID: "com.example.news", topics: ["com.example.news"])
            try bed.directory.write(client.chainPEM, to: "client.pem")
            try bed.directory.write(client.privateKeyPEM, to: "client.key")
            let worker = try bed.worker(log: log) {
                $0.credentials = [
                    .init(
                        name: "team",
                        kind: .certificate(
                            certificateFile: bed.directory.file("client.pem"),
                            keyFile: bed.directory.file("client.key")))
                ]
            }
            try bed.produce(20, seed: 313)
            try eventually("the pool has stopped") {
                log.messages.count(containing: "APNs refuses this credential") > 0
            }
            try eventually("all pushes wait") { worker.snapshot().outstanding == 20 }
            #expect(log.messages.count(containing: "APNs refuses this credential") == 1)
            #expect(bed.simulator.summary.requests == 0)
        }
    }

    /// No push is lost or retried while APNs disallows the topic.
    @Test func disallowedTopicParksItsPushesAfterOneStop() throws {
        let log = LogRecorder()
        try withBed(simulator: {
            $0.deviceRules = [.init(prefix: "dead", reason: .topicDisallowed)]
        }) { bed in
            let worker = try bed.worker(log: log)
            try bed.produce(200, seed: 311) { push, _ in
                push.deviceToken = "dead" + push.deviceToken.dropFirst(4)
            }
            try eventually("all pushes wait") { worker.snapshot().totals.count(in: .topicCircuitOpen) == 200 }
            let shards = worker.snapshot().totals
            #expect(shards.stops == 1)
            #expect(shards.count(of: .rejected) == 0)
            #expect(log.messages.count(containing: "refuses the credential or topic") == 1)
            bed.stop(worker)
            #expect(bed.simulator.summary.requests <= 200)
        }
    }
}

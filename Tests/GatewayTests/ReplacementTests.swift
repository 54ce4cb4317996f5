import APNSSimulator
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// Pushes that supersede others which the shard still processes.
@Suite struct ReplacementTests {
    private func push(
        _ topic: String, to device: String, _ change: (inout PushDescription) -> Void = { _ in }
    ) -> EncodedJob {
        var push = PushDescription(
            deviceToken: device, topic: topic, payload: Array(#"{"aps":{"alert":"Hello"}}"#.utf8))
        change(&push)
        return JobEncoder.binary(push)
    }

    /// Without a collapse identifier the `apns-id` is the identity, regardless of the topic.
    @Test func waitingPushIsSupersededByOneOfAnotherCredential() throws {
        try withBed(simulator: { $0.latency = .seconds(2) }) { bed in
            let worker = try bed.worker {
                $0.apps[0].maxInFlight = 1
                var other = $0.credentials[0]
                other.name = "other"
                $0.credentials.append(other)
                $0.apps.append(.init(name: "sport", topics: ["com.example.sport"], credentials: ["other"]))
            }
            let device = SeededGenerator.hexadecimal(seed: 401)
            let id = "123e4567-e89b-42d3-a456-426614174000"
            try bed.produce([push("com.example.news", to: device)])
            try eventually("the app has its share in flight") { worker.snapshot().totals.inFlight == 1 }
            try bed.produce([push("com.example.news", to: device) { $0.apnsID = id }])
            try eventually("the next push waits") { worker.snapshot().totals.waiting == 1 }
            try bed.produce([push("com.example.sport", to: device) { $0.apnsID = id }])
            let outcomes = try bed.waitForOutcomes(3).sorted { $0.offset < $1.offset }
            #expect(outcomes.map(\.kind) == [.accepted, .superseded, .accepted])
            #expect(outcomes.last?.topic == "com.example.sport")
            bed.stop(worker)
            #expect(bed.simulator.summary.requests == 2)
        }
    }

    /// The push behind the one in flight waits for its move to a new token, and is superseded before that.
    @Test func successorOfAMovingPushMovesInItsPlace() throws {
        try withBed(simulator: { $0.latency = .seconds(2) }) { bed in
            let worker = try bed.worker { $0.apns.connections = 1 }
            let device = SeededGenerator.hexadecimal(seed: 402)
            let new = SeededGenerator.hexadecimal(seed: 403)
            let update = push("com.example.news", to: device) { $0.collapseIdentifier = "score" }
            try bed.produce([update])
            try eventually("the push is in flight") { worker.snapshot().totals.inFlight == 1 }
            let event =
                #"{"kind":"device","device-token":"\#(device)","event":"token-changed","new-device-token":"\#(new)"}"#
            try bed.produce([update, try #require(JobEncoder.document(Array(event.utf8))), update])
            let outcomes = try bed.waitForOutcomes(4).sorted { $0.offset < $1.offset }
            #expect(outcomes.map(\.kind) == [.accepted, .superseded, .applied, .accepted])
            #expect(outcomes.map(\.deviceToken) == [device, device, device, new])
            #expect(outcomes.map(\.count) == [nil, nil, 2, nil])
        }
    }
}

import APNSSimulator
import Configuration
import Foundation
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// Broadcasts to channels, and pushes that carry a state.
@Suite struct BroadcastTests {
    private func broadcast(
        _ text: String, to channel: String, _ change: (inout BroadcastDescription) -> Void = { _ in }
    ) -> EncodedJob {
        var broadcast = BroadcastDescription(
            channelIdentifier: channel, topic: newsTopic,
            payload: Array(#"{"aps":{"event":"update","content-state":{"n":"\#(text)"}}}"#.utf8))
        broadcast.ttl = 3_600
        change(&broadcast)
        return JobEncoder.binary(broadcast)
    }

    private func id(_ number: Int) -> String {
        "123e4567-e89b-42d3-a456-\(String(repeating: "0", count: 9))\(100 + number)"
    }

    @Test func broadcastsOfAChannelArriveInTheirOrderHoweverManyAnswersAreErrors() throws {
        let directory = try TemporaryDirectory("broadcasts")
        try withBed(simulator: {
            $0.faults = [.init(reason: .internalServerError, share: 0.3)]
            $0.pushLog = .init(path: directory.file("pushes.jsonl"))
        }) { bed in
            let channels = try (0..<3).map { _ in
                try #require(bed.simulator.createChannel(app: newsTopic, storage: .newest))
            }
            let worker = try bed.worker { $0.delivery.shards = 2 }
            for number in 0..<30 {
                try bed.produce([
                    broadcast("\(number)", to: channels[number % 3]) { $0.apnsID = id(number) }
                ])
            }
            let outcomes = try bed.waitForOutcomes(30)
            #expect(outcomes.allSatisfy { $0.kind == .accepted && $0.job == "broadcast" })
            #expect(outcomes.allSatisfy { $0.uniqueID != nil })
            #expect(Set(outcomes.map(\.deviceToken)) == Set(channels))
            bed.stop(worker)
            bed.simulator.stop()
            let text = try #require(directory.read("pushes.jsonl"))
            let lines = text.split(separator: "\n").filter { $0.contains(#""status":200"#) }
            for channel in 0..<3 {
                let numbers = stride(from: channel, to: 30, by: 3)
                let order = lines.compactMap { line in numbers.first { line.contains(id($0)) } }
                #expect(order == Array(numbers))
            }
        }
    }

    @Test func broadcastToAnUnknownChannelIsRejected() throws {
        try withBed { bed in
            let worker = try bed.worker()
            try bed.produce([broadcast("x", to: "dW5rbm93bg==")])
            let outcome = try #require(try bed.waitForOutcomes(1).first)
            #expect(outcome.kind == .rejected && outcome.reason == "ChannelNotRegistered")
            #expect(outcome.headline.contains("broadcast"))
            bed.stop(worker)
        }
    }

    /// Broadcasts don't wait until someone turns the capability on.
    @Test func broadcastOfAnAppWithoutTheCapabilityIsRejected() throws {
        let job = broadcast("x", to: "dW5rbm93bg==")
        let outcomes = try withBed(simulator: { $0.appsWithoutBroadcast = [newsTopic] }) { bed in
            let worker = try bed.worker()
            try bed.produce([job])
            try bed.produce(20, seed: 1950)
            let outcomes = try bed.waitForOutcomes(21)
            #expect(worker.snapshot().totals.stops == 0)
            return outcomes
        }
        #expect(outcomes.count { $0.kind == .accepted } == 20)
        #expect(outcomes.compactMap(\.reason) == ["FeatureNotEnabled"])
    }

    @Test func newerStateReplacesAWaitingOneAndNeverTheEnd() throws {
        try withBed(simulator: { $0.latency = .seconds(2) }) { bed in
            let worker = try bed.worker {
                $0.apps[0].supersede = [.liveActivity]
                $0.apps[0].maxInFlight = 1
            }
            let device = SeededGenerator.hexadecimal(seed: 1951)
            func state(_ event: String) -> EncodedJob {
                push("", to: device) {
                    $0.topic = newsTopic + ".push-type.liveactivity"
                    $0.pushType = "liveactivity"
                    $0.payload = Array(#"{"aps":{"event":"\#(event)"}}"#.utf8)
                }
            }
            try bed.produce([push("first", to: SeededGenerator.hexadecimal(seed: 1952))])
            try eventually("the app has its share in flight") { worker.snapshot().totals.inFlight == 1 }
            try bed.produce(["update", "update", "end", "update"].map(state))
            let outcomes = try bed.waitForOutcomes(5)
            let ofDevice = outcomes.filter { $0.deviceToken == device }.sorted { $0.offset < $1.offset }
            #expect(ofDevice.map(\.kind) == [.superseded, .superseded, .accepted, .superseded])
            bed.stop(worker)
        }
    }
}

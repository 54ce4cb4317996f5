import APNSSimulator
import Configuration
import Gateway
import SluiceModel
import TestSupport
import Testing

@Suite struct RevocationLimitTests {
    /// APNs is slow, the group takes a partition away, and the deadline for its jobs passes: they are still on
    /// their streams when the worker takes new jobs up to its limit.
    @Test func jobsOfAPartitionThatWentAwayStillTakeRoom() throws {
        let bed = try WorkerBed { options in
            options.latency = .seconds(30)
        }
        func change(_ configuration: inout Configuration) {
            configuration.apns.connections = 6
            configuration.apns.requestTimeout = .seconds(120)
            configuration.delivery.maxInFlight = 4000
            configuration.delivery.drainDeadline = .seconds(1)
        }
        let first = try bed.worker(change)
        try bed.produce(6, seed: 80)
        try bed.waitForOutcomes(6)
        try bed.produce(24_000, seed: 81)
        try eventually("streams are full") { first.snapshot().shards.inFlight == 4000 }
        let others = try (0..<2).map { _ in
            try bed.worker { configuration in
                change(&configuration)
                configuration.apns.port = 1
            }
        }
        try eventually("the others have a partition each", timeout: .seconds(60)) {
            others.allSatisfy { $0.snapshot().assignedPartitions == 1 }
        }
        // Takes new jobs up to its limit, while the old ones are on their streams.
        try eventually("the first goes on", timeout: .seconds(60)) {
            first.snapshot().intake.records > 4100
        }
        try eventually("the first is at its limit again", timeout: .seconds(60)) {
            first.snapshot().outstanding >= 3900
        }
        #expect(first.snapshot().shards.inFlight <= 4000)
        for other in others { _ = bed.stop(other) }
        _ = bed.stop(first)
        bed.simulator.stop()
    }
}

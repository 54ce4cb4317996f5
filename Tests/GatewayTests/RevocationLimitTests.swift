import APNSSimulator
import Gateway
import SluiceModel
import TestSupport
import Testing

@Suite struct RevocationLimitTests {
    /// APNs is slow, the group takes a partition away, and the deadline for its jobs passes: they are still on
    /// their streams when the worker takes new jobs up to its limit.
    @Test func jobsOfAPartitionThatWentAwayStillTakeRoom() throws {
        let bed = try WorkerBed { options in
            options.latency = .seconds(22)
        }
        func change(_ configuration: inout Configuration) {
            configuration.apns.connections = 6
            configuration.apns.requestTimeout = .seconds(60)
            configuration.delivery.maxInFlight = 4000
            configuration.delivery.drainDeadline = .seconds(1)
        }
        let first = try bed.worker(change)
        try bed.produce(6, seed: 80)
        try bed.waitForOutcomes(6)
        try bed.produce(12_000, seed: 81)
        try eventually("streams are full") { first.snapshot().shards.inFlight == 4000 }
        let second = try bed.worker { configuration in
            change(&configuration)
            configuration.apns.port = 1
        }
        try eventually("the second has a partition", timeout: .seconds(40)) {
            second.snapshot().assignedPartitions > 0
        }
        try eventually("the first goes on", timeout: .seconds(20)) {
            let snapshot = first.snapshot()
            return snapshot.outstanding >= 4000 || snapshot.shards.outcomes.reduce(0, +) > 1000
        }
        _ = bed.stop(second)
        _ = bed.stop(first)
        bed.simulator.stop()
    }
}

import APNSSimulator
import Configuration
import Gateway
import SluiceModel
import TestSupport
import Testing

@Suite struct RevocationLimitTests {
    /// APNs is slow, and the revocation of a partition exceeds its deadline. Its jobs are still on their streams when
    /// the worker takes new jobs up to its limit.
    @Test func jobsOfRevokedPartitionsCountTowardsTheLimit() throws {
        try withBed(simulator: { options in
            options.latency = .seconds(30)
        }) { bed in
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
            try eventually("streams are full") { first.snapshot().totals.inFlight == 4000 }
            let others = try (0..<2).map { _ in
                try bed.worker { configuration in
                    change(&configuration)
                    configuration.apns.port = 1
                }
            }
            try eventually("the other workers have a partition each", timeout: .seconds(60)) {
                others.allSatisfy { $0.snapshot().assignedPartitions == 1 }
            }
            // The first worker takes new jobs up to its limit, while the old ones are on their streams.
            try eventually("the first worker takes more jobs", timeout: .seconds(60)) {
                first.snapshot().counters.records > 4100
            }
            try eventually("the first worker is at its limit again", timeout: .seconds(60)) {
                first.snapshot().outstanding >= 3900
            }
            #expect(first.snapshot().totals.inFlight <= 4000)
            for worker in others + [first] { bed.stop(worker, mayFail: true) }
        }
    }
}

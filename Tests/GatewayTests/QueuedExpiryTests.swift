import APNSSimulator
import Gateway
import SluiceModel
import TestSupport
import Testing

@Suite struct QueuedExpiryTests {
    /// Jobs that expire in the queue occupy no stream, so later jobs are sent.
    @Test func expiredJobsDoNotUseUpTheStreams() throws {
        try withBed(simulator: { options in
            options.maximumStreams = 4
            options.latency = .seconds(4)
        }) { bed in
            let worker = try bed.worker {
                $0.apns.connections = 1
                $0.apns.requestTimeout = .seconds(20)
            }
            // The first push occupies the only stream that is allowed before authentication.
            try bed.produce(1, seed: 71)
            try eventually("the push is in flight") { worker.snapshot().totals.inFlight == 1 }
            try bed.produce(8, seed: 72) { push, _ in push.ttl = 2 }
            try eventually("the pushes wait") { worker.snapshot().totals.waiting == 8 }
            try bed.produce(1, seed: 73)
            let outcomes = try bed.waitForOutcomes(10)
            #expect(outcomes.count { $0.kind == .expired } == 8)
            #expect(outcomes.count { $0.kind == .accepted } == 2)
        }
    }
}

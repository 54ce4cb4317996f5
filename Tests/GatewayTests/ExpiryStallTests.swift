import APNSSimulator
import Gateway
import SluiceModel
import TestSupport
import Testing

@Suite struct ExpiryStallTests {
    /// Jobs that expire in the queue take no room on a connection: those behind them are sent.
    @Test func expiredJobsDoNotUseUpTheStreams() throws {
        let bed = try WorkerBed { options in
            options.maximumStreams = 4
            options.latency = .seconds(4)
        }
        let worker = try bed.worker {
            $0.apns.connections = 1
            $0.apns.requestTimeout = .seconds(20)
        }
        // The first holds the one stream that there is before authentication.
        try bed.produce(1, seed: 71)
        try eventually("it is in flight") { worker.snapshot().shards.inFlight == 1 }
        try bed.produce(8, seed: 72) { push, _ in push.ttl = 2 }
        try eventually("they wait") { worker.snapshot().shards.waiting == 8 }
        try bed.produce(1, seed: 73)
        let outcomes = try bed.waitForOutcomes(10)
        #expect(outcomes.count { $0.kind == .expired } == 8)
        #expect(outcomes.count { $0.kind == .accepted } == 2)
        #expect(bed.stop(worker).failure == nil)
        bed.simulator.stop()
    }
}

import APNSSimulator
import Configuration
import Gateway
import SluiceModel
import TestSupport
import Testing

@Suite struct PartitionPauseTests {
    /// The delayed jobs of one device are in one partition, and would occupy most of the worker's limit.
    @Test func partitionWithHeldJobsIsPausedAndOthersContinue() throws {
        try withBed { bed in
            let worker = try bed.worker { configuration in
                var app = Configuration.App(name: "slow", topics: ["com.example.slow"], credentials: ["team"])
                app.ratePerSecond = 0.001
                app.burst = 1
                configuration.apps.append(app)
                configuration.delivery.maxInFlight = 40
            }
            try bed.produce(32, seed: 90) { push, _ in
                push.topic = "com.example.slow"
                push.deviceToken = String(repeating: "5a", count: 32)
            }
            try eventually("the slow jobs wait") { worker.snapshot().totals.waiting == 31 }
            var produced = 0
            try eventually("their partition is paused", timeout: .seconds(60)) {
                // The other partitions always have work.
                try bed.produce(10, seed: 91 + UInt64(produced))
                produced += 10
                return worker.partitionReports().contains { $0.pauseReasons == .share }
            }
            let reports = worker.partitionReports()
            #expect(reports.map(\.partition) == [0, 1, 2])
            let paused = try #require(reports.first { !$0.pauseReasons.isEmpty })
            #expect(paused.outstanding >= 31)
            #expect(paused.end - paused.watermark >= 31)
            #expect(paused.outstandingBytes > 31 * 512)
            // The worker pauses a partition only when its oldest job is older than two seconds.
            #expect(paused.headOfLineAge > .seconds(2))
            let others = reports.filter { $0.partition != paused.partition }
            #expect(others.allSatisfy { $0.pauseReasons.isEmpty })
            let ends = others.map(\.end)

            try bed.produce(300, seed: 89)
            try eventually("the other partitions' jobs have outcomes") {
                let now = worker.partitionReports().filter { $0.partition != paused.partition }
                return zip(now, ends).allSatisfy { $0.end > $1 && $0.outstanding == 0 }
            }
            let result = bed.stop(worker)
            #expect(result.snapshot.counters.partitionPauses == 1)
            #expect(result.snapshot.counters.pauses == 0)
            #expect(worker.partitionReports().isEmpty)
        }
    }
}

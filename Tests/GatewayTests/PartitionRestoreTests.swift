import APNSSimulator
import Configuration
import EventLoop
import Gateway
import KafkaTestSupport
import RetryStore
import SluiceModel
import TestSupport
import Testing

/// Workers restore the held pushes of other workers from the changelog.
struct PartitionRestoreTests {
    private func worker(
        _ bed: WorkerBed, _ name: String, transactions: Configuration.Store.Switch = .off
    ) throws -> Worker {
        try bed.worker {
            $0.store = .init(
                directory: bed.directory.file(name), after: .seconds(1), changelog: .on,
                transactions: transactions)
            $0.delivery.shards = 2
        }
    }

    @Test func heldPushesAreRestoredByTheNextWorker() throws {
        try withBed { bed in
            var random = SeededGenerator(seed: 951)
            let devices = (0..<60).map { _ in random.hexadecimal(bytes: 32) }
            let new = (0..<10).map { _ in random.hexadecimal(bytes: 32) }
            let first = try worker(bed, "first")
            try bed.produce(
                try devices.map { try event("offline", of: $0) }
                    + devices.map { device in
                        held("for \(device)", to: device) { $0.collapseIdentifier = "x" }
                    })
            try bed.waitForOutcomes(60)
            try first.waitUntilEvicted(devices: 60)
            // Some pushes are superseded, sent or moved before the first worker ends for good.
            try bed.produce(
                devices[0..<20].map { device in held("newer", to: device) { $0.collapseIdentifier = "x" } })
            try bed.produce(try devices[20..<40].map { try event("online", of: $0) })
            // The events precede the moved pushes, because another partition may be read first.
            try bed.produce(try new.map { try event("offline", of: $0) })
            try bed.waitForOutcomes(60 + 20 + 40 + 10)
            try bed.produce(
                try zip(devices[40..<50], new).map { old, new in
                    try event("token-changed", of: old, #","new-device-token":"\#(new)""#)
                })
            try bed.waitForOutcomes(60 + 20 + 40 + 20)
            bed.stop(first)
            #expect(bed.simulator.summary.requests == 20)

            let second = try worker(bed, "second")
            try eventually("the second worker has it all") { second.snapshot().totals.evictedDevices == 40 }
            try bed.produce(
                try (devices[0..<20] + devices[50...] + new).map { try event("online", of: $0) })
            let outcomes = try bed.waitForOutcomes(140 + 80)
            let accepted = outcomes.filter { $0.kind == .accepted }
            #expect(accepted.count == 60)
            #expect(
                Set(accepted.map(\.deviceToken)) == Set(devices[0..<40] + devices[50...] + new))
            #expect(bed.simulator.summary.requests == 60)
            #expect(second.snapshot().totals.unaccounted == 0)
            bed.stop(second)
            #expect(Set(WorkerBed.places(outcomes)).count == outcomes.count, "each job has one outcome")

            // The first worker's old copy must bring no item back.
            let third = try worker(bed, "first")
            try bed.produce(try devices.map { try event("online", of: $0) })
            let last = try bed.waitForOutcomes(220 + 60)
            #expect(last.count { $0.kind == .accepted } == 60)
            bed.stop(third)
            #expect(bed.simulator.summary.requests == 60)
        }
    }

    /// The embedded cluster accepts transactions but forgets their offsets, so only real brokers check the offsets.
    @Test func transactionsCommitOutcomesAndStoreChangesTogether() throws {
        try withBed { bed in
            let worker = try worker(bed, "store", transactions: .on)
            var random = SeededGenerator(seed: 952)
            let devices = (0..<40).map { _ in random.hexadecimal(bytes: 32) }
            try bed.produce(
                try devices.map { try event("offline", of: $0) }
                    + devices.map { device in
                        held("for \(device)", to: device) { $0.collapseIdentifier = "x" }
                    })
            try bed.waitForOutcomes(40)
            try worker.waitUntilEvicted(devices: 40)
            try bed.produce(300, seed: 953)
            try bed.waitForOutcomes(340)
            try bed.produce(
                devices[0..<20].map { device in held("newer", to: device) { $0.collapseIdentifier = "x" } })
            try bed.produce(try devices.map { try event("online", of: $0) })
            let outcomes = try bed.waitForOutcomes(340 + 20 + 40 + 40)
            #expect(outcomes.count { $0.kind == .accepted } == 340)
            #expect(outcomes.count { $0.kind == .superseded } == 20)
            try eventually("all offsets are committed in several transactions") {
                worker.snapshot().outstanding == 0 && worker.snapshot().counters.commits >= 2
            }
            bed.stop(worker)
            #expect(bed.simulator.summary.requests == 340)
            if TestKafka.realBrokers != nil { #expect(try bed.committed() == 440) }
        }
    }
}

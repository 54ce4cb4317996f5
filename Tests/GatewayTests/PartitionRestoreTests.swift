import APNSSimulator
import Configuration
import EventLoop
import Gateway
import KafkaTestSupport
import RetryStore
import SluiceModel
import TestSupport
import Testing

/// What one worker holds another can take over, by way of the changelog.
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

    @Test func anotherWorkerTakesOverWhatIsHeld() throws {
        let bed = try WorkerBed()
        var random = SeededRandom(seed: 951)
        let devices = (0..<60).map { _ in random.hexadecimal(bytes: 32) }
        let new = (0..<10).map { _ in random.hexadecimal(bytes: 32) }
        let first = try worker(bed, "first")
        try bed.produce(
            try devices.map { try event("offline", of: $0) }
                + devices.map { device in held("for \(device)", to: device) { $0.collapseIdentifier = "x" } })
        try bed.waitForOutcomes(60)
        try first.waitUntilEvicted(devices: 60)
        // Some are superseded, some are sent, some move, before the first worker is gone for good.
        try bed.produce(
            devices[0..<20].map { device in held("newer", to: device) { $0.collapseIdentifier = "x" } })
        try bed.produce(try devices[20..<40].map { try event("online", of: $0) })
        // Before their pushes come: another partition may be read first.
        try bed.produce(try new.map { try event("offline", of: $0) })
        try bed.waitForOutcomes(60 + 20 + 40 + 10)
        try bed.produce(
            try zip(devices[40..<50], new).map { old, new in
                try event("token-changed", of: old, #","new-device-token":"\#(new)""#)
            })
        try bed.waitForOutcomes(60 + 20 + 40 + 20)
        #expect(bed.stop(first).failure == nil)
        #expect(bed.simulator.summary.requests == 20)

        let second = try worker(bed, "second")
        try eventually("the second worker has it all") { second.snapshot().shards.evictedDevices == 40 }
        try bed.produce(
            try (devices[0..<20] + devices[50...] + new).map { try event("online", of: $0) })
        let outcomes = try bed.waitForOutcomes(140 + 80)
        let accepted = outcomes.filter { $0.kind == .accepted }
        #expect(accepted.count == 60)
        #expect(
            Set(accepted.map(\.deviceToken)) == Set(devices[0..<40] + devices[50...] + new))
        #expect(bed.simulator.summary.requests == 60)
        #expect(second.snapshot().shards.unaccounted == 0)
        #expect(bed.stop(second).failure == nil)
        #expect(Set(WorkerBed.places(outcomes)).count == outcomes.count, "one outcome each")

        // The first one comes back, to its old copy: it has nothing to bring back.
        let third = try worker(bed, "first")
        try bed.produce(try devices.map { try event("online", of: $0) })
        let last = try bed.waitForOutcomes(220 + 60)
        #expect(last.count { $0.kind == .accepted } == 60)
        #expect(bed.stop(third).failure == nil)
        #expect(bed.simulator.summary.requests == 60)
        bed.simulator.stop()
    }

    /// The embedded cluster takes transactions and forgets their offsets; a real one is asked for more.
    @Test func outcomesAndChangesAreCommittedTogether() throws {
        let bed = try WorkerBed()
        let worker = try worker(bed, "store", transactions: .on)
        var random = SeededRandom(seed: 952)
        let devices = (0..<40).map { _ in random.hexadecimal(bytes: 32) }
        try bed.produce(
            try devices.map { try event("offline", of: $0) }
                + devices.map { device in held("for \(device)", to: device) { $0.collapseIdentifier = "x" } })
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
        try eventually("all is committed, in more than one transaction") {
            worker.snapshot().outstanding == 0 && worker.snapshot().intake.commits >= 2
        }
        #expect(bed.stop(worker).failure == nil)
        #expect(bed.simulator.summary.requests == 340)
        if TestKafka.realBrokers != nil { #expect(try bed.committed() == 440) }
        bed.simulator.stop()
    }
}

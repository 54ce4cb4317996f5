import APNSSimulator
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// Items that return from the store leave room for records.
struct RestoreRoomTests {
    private func worker(_ bed: WorkerBed, maxInFlight: Int) throws -> Worker {
        try bed.worker {
            $0.store = .init(
                directory: bed.directory.file("store"), after: .seconds(1), changelog: .off)
            $0.delivery.maxInFlight = maxInFlight
            $0.delivery.maxPendingPerDevice = 1024
            $0.delivery.returnRate = 1_000_000
        }
    }

    /// Many more items return at once than a shard has room for, and records arrive meanwhile.
    @Test func recordsAreAdmittedWhileManyItemsReturn() throws {
        try withBed { bed in
            var random = SeededGenerator(seed: 991)
            let devices = (0..<20).map { _ in random.hexadecimal(bytes: 32) }
            let first = try worker(bed, maxInFlight: 40_000)
            try bed.produce(try devices.map { try event("offline", of: $0) })
            try bed.waitForOutcomes(20)
            try bed.produce(
                devices.flatMap { device in (0..<1000).map { held("\($0)", to: device) { $0.priority = 5 } } }
            )
            try eventually("all pushes are stored", timeout: .seconds(60)) {
                first.snapshot().counters.records == 20_020 && first.snapshot().totals.store.puts >= 20_000
            }
            try first.waitUntilEvicted(devices: 20)
            bed.stop(first)

            let second = try worker(bed, maxInFlight: 100)
            try eventually("the scan of the store has ended") {
                second.snapshot().totals.evictedDevices == 20
            }
            try bed.produce(try devices.map { try event("online", of: $0) })
            var most = 0
            try eventually("as many items as possible have returned", timeout: .seconds(60)) {
                most = max(most, second.snapshot().totals.residentItems)
                return most > 15_000
            }
            // More items would occupy the slots that records need.
            #expect(most <= WorkerBounds().residency.room)
            try bed.produce(300, seed: 992)
            let known = Set(devices)
            // A turn with thousands of items takes seconds in a debug build on a busy machine.
            try eventually("records are pushed meanwhile", timeout: .seconds(180)) {
                bed.outcomes.poll()
                return bed.readOutcomes().count { $0.kind == .accepted && !known.contains($0.deviceToken) }
                    == 300
            }
            #expect(second.snapshot().totals.unaccounted == 0)
        }
    }
}

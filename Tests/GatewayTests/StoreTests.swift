import APNSSimulator
import EventLoop
import Gateway
import RetryStore
import SluiceModel
import Synchronization
import TestSupport
import Testing

/// Pushes that wait for long leave memory. They return on an event of their device, when they are due, and after a
/// restart.
struct StoreTests {
    private func worker(_ bed: WorkerBed, shards: Int = 1) throws -> Worker {
        try bed.worker {
            $0.store = .init(
                directory: bed.directory.file("store"), after: .seconds(1), changelog: .off)
            $0.delivery.shards = shards
        }
    }

    /// Returns the number of items in the store of a stopped worker.
    private func left(_ bed: WorkerBed) throws -> Int {
        let store = try RetryStore(
            RetryStore.Settings(
                directory: bed.directory.file("store"), sourceTopic: bed.kafka.topic("jobs")))
        defer { store.close() }
        let count = Mutex(0)
        for partition in store.partitions {
            let isDone = BlockingFlag()
            store.scanItems(partition, chunk: 100) { keys in
                count.withLock { $0 += keys.count }
            } completion: { _ in
                isDone.set()
            }
            isDone.wait()
        }
        return count.withLock { $0 }
    }

    /// Runs `sluice inspect store` on a store of 40 devices with one item each.
    private func inspect(_ bed: WorkerBed, device: String) throws {
        func inspect(_ arguments: String...) throws -> (Bool, String) {
            let result = try ChildProcess.run(
                Executables.sluice, ["inspect", "store", bed.directory.file("store")] + arguments)
            #expect(!result.standardOutput.contains(device))
            return (result.exit == .status(0), result.standardOutput)
        }
        let summary = try inspect("--json")
        #expect(summary.0 && summary.1.contains(#""items":40"#) && summary.1.contains(#""offline":40"#))
        let people = try inspect()
        #expect(people.0 && people.1.contains("held") && people.1.contains(newsTopic))
        let one = try inspect("--device", device.uppercased(), "--json")
        #expect(one.0 && one.1.contains(#""collapse-id":"x""#) && one.1.contains(#""presence":"offline""#))
        let sound = try inspect("--verify")
        #expect(sound.0 && sound.1.hasSuffix("sound\n"))
    }

    @Test func heldPushLeavesMemoryAndReturnsWithItsDevice() throws {
        try withBed { bed in
            let worker = try worker(bed)
            let device = SeededGenerator.hexadecimal(seed: 901)
            try bed.produce([
                try event("offline", of: device), held("held", to: device), held("held as well", to: device),
            ])
            try worker.waitUntilEvicted(devices: 1)
            try eventually("offsets of stored pushes are committed") { try bed.committed() == 3 }
            #expect(worker.snapshot().outstanding == 0)
            #expect(bed.simulator.summary.requests == 0)
            try bed.produce([try event("online", of: device)])
            let outcomes = try bed.waitForOutcomes(4)
            #expect(outcomes.count { $0.kind == .accepted } == 2)
            #expect(outcomes.filter { $0.kind == .applied }.map(\.count) == [0, 2])
            #expect(worker.snapshot().totals.unaccounted == 0)
            bed.stop(worker)
            #expect(try bed.committed() == 4)
            #expect(try left(bed) == 0)
        }
    }

    @Test func heldPushesSurviveARestart() throws {
        try withBed { bed in
            var random = SeededGenerator(seed: 902)
            let devices = (0..<40).map { _ in random.hexadecimal(bytes: 32) }
            let first = try worker(bed, shards: 2)
            try bed.produce(
                try devices.map { try event("offline", of: $0) }
                    + devices.map { device in
                        held("for \(device)", to: device) { $0.collapseIdentifier = "x" }
                    })
            try bed.waitForOutcomes(40)
            try first.waitUntilEvicted(devices: 40)
            bed.stop(first)
            #expect(try bed.committed() == 80)
            #expect(try left(bed) == 40)
            try inspect(bed, device: devices[0])
            // The second worker has more shards, and every other device gets a newer push while it is offline.
            let second = try worker(bed, shards: 3)
            try bed.produce(
                devices.enumerated().filter { $0.offset % 2 == 0 }.map { _, device in
                    held("newer for \(device)", to: device) { $0.collapseIdentifier = "x" }
                })
            let superseded = try bed.waitForOutcomes(60).suffix(20)
            #expect(superseded.allSatisfy { $0.kind == .superseded && $0.supersededBy != nil })
            try second.waitUntilEvicted(devices: 40)
            #expect(bed.simulator.summary.requests == 0, "the store still has all devices as offline")
            try bed.produce(try devices.map { try event("online", of: $0) })
            let outcomes = try bed.waitForOutcomes(140)
            #expect(Set(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken)) == Set(devices))
            #expect(bed.simulator.summary.requests == 40)
            bed.stop(second)
            #expect(try left(bed) == 0)
        }
    }

    /// Each push is written once, regardless of how long the topic is refused. A worker that takes over finds the
    /// pushes.
    @Test func pushesOfRefusedTopicReturnWhenItIsAccepted() throws {
        try withBed(simulator: {
            $0.deviceRules = [.init(prefix: "dead", reason: .topicDisallowed)]
        }) { bed in
            let first = try worker(bed, shards: 2)
            try bed.produce(120, seed: 907) { push, _ in
                push.deviceToken = "dead" + push.deviceToken.dropFirst(4)
                push.ttl = 3600
            }
            try first.waitUntilEvicted(devices: 120)
            try eventually("their offsets are committed") { try bed.committed() == 120 }
            #expect(try left(of: bed, stopping: first) == 120)

            let second = try worker(bed, shards: 3)
            try eventually("APNs refuses the topic in the new worker, too") {
                second.snapshot().totals.stops > 0 && second.snapshot().totals.evictedDevices > 100
            }
            // A push that was tried is written again with its number of attempts.
            let writes = second.snapshot().totals.store.puts
            #expect(writes < 60, "\(writes) of 120 pushes were written again")
            try bed.replaceSimulator()
            let outcomes = try bed.waitForOutcomes(120)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            #expect(try left(of: bed, stopping: second) == 0)
        }
    }

    private func left(of bed: WorkerBed, stopping worker: Worker) throws -> Int {
        bed.stop(worker)
        return try left(bed)
    }

    @Test func scheduledAndExpiringPushesReturnOnTime() throws {
        try withBed { bed in
            let worker = try worker(bed)
            var random = SeededGenerator(seed: 903)
            let (scheduled, offline) = (random.hexadecimal(bytes: 32), random.hexadecimal(bytes: 32))
            let now = wallClockSeconds() * 1000
            try bed.produce([
                held("scheduled", to: scheduled) { $0.deliverAtMilliseconds = now + 22_000 },
                try event("offline", of: offline),
                held("expires", to: offline) { $0.ttl = 22 },
            ])
            try worker.waitUntilEvicted(devices: 2)
            let outcomes = try bed.waitForOutcomes(3)
            let accepted = try #require(outcomes.first { $0.kind == .accepted })
            #expect(try #require(accepted.firstSentMilliseconds) >= now + 22_000)
            #expect(outcomes.contains { $0.kind == .expired })
            bed.stop(worker)
            #expect(try left(bed) == 0)
        }
    }

    @Test func pushesExpiredDuringDowntimeEndAtTheNextStart() throws {
        try withBed { bed in
            let first = try worker(bed)
            var random = SeededGenerator(seed: 904)
            let devices = (0..<20).map { _ in random.hexadecimal(bytes: 32) }
            try bed.produce(try devices.map { try event("offline", of: $0) })
            try bed.waitForOutcomes(20)
            try bed.produce(devices.map { device in held("soon", to: device) { $0.ttl = 22 } })
            try first.waitUntilEvicted(devices: 20)
            let expiry = wallClockSeconds() + 22
            bed.stop(first)
            try eventually("the pushes have expired") { wallClockSeconds() > expiry }
            let second = try worker(bed)
            let outcomes = try bed.waitForOutcomes(40)
            #expect(outcomes.count { $0.kind == .expired } == 20)
            bed.stop(second)
            #expect(bed.simulator.summary.requests == 0)
            #expect(try left(bed) == 0)
        }
    }

    @Test func eventsAndCancelsApplyToStoredPushes() throws {
        try withBed { bed in
            let worker = try worker(bed, shards: 2)
            var random = SeededGenerator(seed: 905)
            let devices = (0..<8).map { _ in random.hexadecimal(bytes: 32) }
            let new = (0..<8).map { _ in random.hexadecimal(bytes: 32) }
            let (cancelled, unregistered) = (random.hexadecimal(bytes: 32), random.hexadecimal(bytes: 32))
            let all = devices + [cancelled, unregistered]
            try bed.produce(
                try all.map { try event("offline", of: $0) }
                    + all.map { device in held("for \(device)", to: device) { $0.collapseIdentifier = "x" } })
            try bed.waitForOutcomes(10)
            try worker.waitUntilEvicted(devices: 10)
            try bed.produce(
                try zip(devices, new).map {
                    try event("token-changed", of: $0, #","new-device-token":"\#($1)""#)
                }
                    + [
                        job(
                            #"{"kind":"cancel","device-token":"\#(cancelled)","topic":"\#(newsTopic)","collapse-id":"x"}"#
                        ),
                        event("unregistered", of: unregistered),
                    ])
            let outcomes = try bed.waitForOutcomes(30)
            #expect(Set(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken)) == Set(new))
            #expect(outcomes.count { $0.kind == .applied && $0.count == 1 } == 9)
            #expect(outcomes.count { $0.kind == .cancelled } == 2)
            #expect(outcomes.first { $0.kind == .rejected }?.deviceToken == unregistered)
            #expect(worker.snapshot().totals.unaccounted == 0)
            bed.stop(worker)
            #expect(try left(bed) == 0)
        }
    }

    /// Ten times as many pushes as a worker may have in memory.
    @Test func storeHoldsMorePushesThanMemoryAllows() throws {
        try withBed { bed in
            let worker = try bed.worker {
                $0.store = .init(
                    directory: bed.directory.file("store"), after: .seconds(1), changelog: .off)
                $0.delivery.maxInFlight = 500
                $0.delivery.returnRate = 100_000
            }
            var random = SeededGenerator(seed: 906)
            let devices = (0..<500).map { _ in random.hexadecimal(bytes: 32) }
            try bed.produce(
                try devices.flatMap { device in
                    try [event("offline", of: device)] + (0..<10).map { held("\($0)", to: device) }
                })
            try bed.waitForOutcomes(500)
            try worker.waitUntilEvicted(devices: 500)
            #expect(worker.snapshot().totals.store.puts >= 5000)
            try bed.produce(try devices.map { try event("online", of: $0) })
            let outcomes = try bed.waitForOutcomes(6000)
            #expect(outcomes.count { $0.kind == .accepted } == 5000)
            bed.stop(worker)
            #expect(bed.simulator.summary.requests == 5000)
            #expect(try left(bed) == 0)
        }
    }
}

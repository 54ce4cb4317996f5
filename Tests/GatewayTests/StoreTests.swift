import APNSSimulator
import EventLoop
import Gateway
import RetryStore
import SluiceModel
import Synchronization
import TestSupport
import Testing

/// What has to wait for long leaves memory, and comes back: when its device is heard of, when it is due, and after a
/// restart.
struct StoreTests {
    private func worker(_ bed: WorkerBed, shards: Int = 1) throws -> Worker {
        try bed.worker {
            $0.store = .init(
                directory: bed.directory.file("store"), after: .seconds(1), changelog: .off)
            $0.delivery.shards = shards
        }
    }

    /// What is left in the store of a worker that has stopped.
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

    /// `sluice inspect store` on what 40 devices with an item each have left.
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

    @Test func aHeldPushLeavesMemoryAndComesBack() throws {
        let bed = try WorkerBed()
        let worker = try worker(bed)
        let device = SeededRandom.hexadecimal(seed: 901)
        try bed.produce([
            try event("offline", of: device), held("held", to: device), held("held as well", to: device),
        ])
        try worker.waitUntilEvicted(devices: 1)
        try eventually("the store has it, so its offset is committed") { try bed.committed() == 3 }
        #expect(worker.snapshot().outstanding == 0)
        #expect(bed.simulator.summary.requests == 0)
        try bed.produce([try event("online", of: device)])
        let outcomes = try bed.waitForOutcomes(4)
        #expect(outcomes.count { $0.kind == .accepted } == 2)
        #expect(outcomes.filter { $0.kind == .applied }.map(\.count) == [0, 2])
        #expect(worker.snapshot().shards.unaccounted == 0)
        #expect(bed.stop(worker).failure == nil)
        #expect(try bed.committed() == 4)
        #expect(try left(bed) == 0)
        bed.simulator.stop()
    }

    @Test func whatIsHeldOutlivesARestart() throws {
        let bed = try WorkerBed()
        var random = SeededRandom(seed: 902)
        let devices = (0..<40).map { _ in random.hexadecimal(bytes: 32) }
        let first = try worker(bed, shards: 2)
        try bed.produce(
            try devices.map { try event("offline", of: $0) }
                + devices.map { device in held("for \(device)", to: device) { $0.collapseIdentifier = "x" } })
        try bed.waitForOutcomes(40)
        try first.waitUntilEvicted(devices: 40)
        #expect(bed.stop(first).failure == nil)
        #expect(try bed.committed() == 80)
        #expect(try left(bed) == 40)
        try inspect(bed, device: devices[0])
        // With another number of shards, and a newer push for each second device while it is away.
        let second = try worker(bed, shards: 3)
        try bed.produce(
            devices.enumerated().filter { $0.offset % 2 == 0 }.map { _, device in
                held("newer for \(device)", to: device) { $0.collapseIdentifier = "x" }
            })
        let superseded = try bed.waitForOutcomes(60).suffix(20)
        #expect(superseded.allSatisfy { $0.kind == .superseded && $0.supersededBy != nil })
        try second.waitUntilEvicted(devices: 40)
        #expect(bed.simulator.summary.requests == 0, "all devices are still offline, as the store knows")
        try bed.produce(try devices.map { try event("online", of: $0) })
        let outcomes = try bed.waitForOutcomes(140)
        #expect(Set(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken)) == Set(devices))
        #expect(bed.simulator.summary.requests == 40)
        #expect(bed.stop(second).failure == nil)
        #expect(try left(bed) == 0)
        bed.simulator.stop()
    }

    /// However long that lasts, each push is written once. All come back when APNs takes the topic again, and a worker that
    /// takes over meanwhile finds them too.
    @Test func whatWaitsWithItsTopicComesBackWhenTheTopicGoesOn() throws {
        let bed = try WorkerBed { $0.deviceRules = [.init(prefix: "dead", reason: .topicDisallowed)] }
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
            second.snapshot().shards.stops > 0 && second.snapshot().shards.evictedDevices > 100
        }
        // A push that was tried has an attempt more, and is written for that.
        let writes = second.snapshot().shards.store.puts
        #expect(writes < 60, "\(writes) of 120 pushes were written again")
        let port = bed.simulator.port
        bed.simulator.stop()
        var options = SimulatorOptions()
        options.certificateDirectory = bed.directory.path
        options.port = port
        let mended = try Simulator(options: options)
        mended.start()
        let outcomes = try bed.waitForOutcomes(120)
        #expect(outcomes.allSatisfy { $0.kind == .accepted })
        #expect(try left(of: bed, stopping: second) == 0)
        mended.stop()
    }

    private func left(of bed: WorkerBed, stopping worker: Worker) throws -> Int {
        #expect(bed.stop(worker).failure == nil)
        return try left(bed)
    }

    @Test func whatIsDueComesBackInTime() throws {
        let bed = try WorkerBed()
        let worker = try worker(bed)
        var random = SeededRandom(seed: 903)
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
        #expect(bed.stop(worker).failure == nil)
        #expect(try left(bed) == 0)
        bed.simulator.stop()
    }

    @Test func whatExpiresWhileTheWorkerIsDownEndsWhenItIsBack() throws {
        let bed = try WorkerBed()
        let first = try worker(bed)
        var random = SeededRandom(seed: 904)
        let devices = (0..<20).map { _ in random.hexadecimal(bytes: 32) }
        try bed.produce(try devices.map { try event("offline", of: $0) })
        try bed.waitForOutcomes(20)
        try bed.produce(devices.map { device in held("soon", to: device) { $0.ttl = 22 } })
        try first.waitUntilEvicted(devices: 20)
        let expiry = wallClockSeconds() + 22
        #expect(bed.stop(first).failure == nil)
        try eventually("they have expired") { wallClockSeconds() > expiry }
        let second = try worker(bed)
        let outcomes = try bed.waitForOutcomes(40)
        #expect(outcomes.count { $0.kind == .expired } == 20)
        #expect(bed.stop(second).failure == nil)
        #expect(bed.simulator.summary.requests == 0)
        #expect(try left(bed) == 0)
        bed.simulator.stop()
    }

    @Test func eventsFindWhatIsInTheStore() throws {
        let bed = try WorkerBed()
        let worker = try worker(bed, shards: 2)
        var random = SeededRandom(seed: 905)
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
            try zip(devices, new).map { try event("token-changed", of: $0, #","new-device-token":"\#($1)""#) }
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
        #expect(worker.snapshot().shards.unaccounted == 0)
        #expect(bed.stop(worker).failure == nil)
        #expect(try left(bed) == 0)
        bed.simulator.stop()
    }

    /// Ten times as many as a worker may have in memory.
    @Test func moreIsHeldThanMemoryHolds() throws {
        let bed = try WorkerBed()
        let worker = try bed.worker {
            $0.store = .init(
                directory: bed.directory.file("store"), after: .seconds(1), changelog: .off)
            $0.delivery.maxInFlight = 500
            $0.delivery.returnRate = 100_000
        }
        var random = SeededRandom(seed: 906)
        let devices = (0..<500).map { _ in random.hexadecimal(bytes: 32) }
        try bed.produce(
            try devices.flatMap { device in
                try [event("offline", of: device)] + (0..<10).map { held("\($0)", to: device) }
            })
        try bed.waitForOutcomes(500)
        try worker.waitUntilEvicted(devices: 500)
        #expect(worker.snapshot().shards.store.puts >= 5000)
        try bed.produce(try devices.map { try event("online", of: $0) })
        let outcomes = try bed.waitForOutcomes(6000)
        #expect(outcomes.count { $0.kind == .accepted } == 5000)
        #expect(bed.stop(worker).failure == nil)
        #expect(bed.simulator.summary.requests == 5000)
        #expect(try left(bed) == 0)
        bed.simulator.stop()
    }
}

import APNSSimulator
import Configuration
import EventLoop
import Foundation
import Gateway
import KafkaTestSupport
import RetryStore
import SluiceModel
import TestSupport
import Testing

/// What the store has moves to the new token of its device, once, whatever happens to the worker.
struct MoveTests {
    private func change(_ device: String, to new: String, at time: Int64? = nil) throws -> EncodedJob {
        let occurred = time.map { #","occurred-at":\#($0)"# } ?? ""
        return try event("token-changed", of: device, #","new-device-token":"\#(new)"\#(occurred)"#)
    }

    private func devices(_ count: Int, seed: UInt64) -> [String] {
        var random = SeededRandom(seed: seed)
        return (0..<count).map { _ in random.hexadecimal(bytes: 32) }
    }

    /// Produces in one partition, so that the order is known.
    private func produce(_ bed: WorkerBed, _ jobs: [EncodedJob], in partition: Int32 = 1) throws {
        try bed.kafka.produce(
            to: "jobs",
            jobs.map {
                var record = NewRecord($0)
                record.partition = partition
                return record
            })
    }

    private func worker(
        _ bed: WorkerBed, store: String = "store", shards: Int = 3, group: String? = nil,
        commitInterval: Duration = .milliseconds(50)
    ) throws -> Worker {
        try bed.worker {
            $0.store = .init(directory: bed.directory.file(store), after: .seconds(1), changelog: .off)
            $0.delivery.shards = shards
            $0.delivery.commitInterval = commitInterval
            if let group { $0.kafka.groupID = group }
        }
    }

    /// What a worker would leave that is killed now, while nothing goes on.
    private func copyStore(_ bed: WorkerBed, to name: String) throws {
        try FileManager.default.copyItem(
            atPath: bed.directory.file("store"), toPath: bed.directory.file(name))
    }

    private func report(_ bed: WorkerBed, _ name: String) throws -> StoreReport {
        try StoreInspector(directory: bed.directory.file(name)).verify()
    }

    /// Device tokens and how many items the store has of each, where it has some.
    private func items(_ bed: WorkerBed, _ name: String, of tokens: [String]) throws -> [String: Int] {
        let reader = try StoreInspector(directory: bed.directory.file(name)).reader
        var counts: [String: Int] = [:]
        for var token in tokens {
            try token.withUTF8 { bytes in
                for partition in reader.partitions {
                    try reader.visitItems(of: partition, token: UnsafeRawBufferPointer(bytes)) { _ in
                        counts[String(decoding: bytes, as: UTF8.self), default: 0] += 1
                        return true
                    }
                }
            }
        }
        return counts
    }

    /// A worker takes over what one has left that was killed before anything was committed, and that items had moved in.
    private func takeOver(_ bed: WorkerBed, records: Int, items: Int, online: [String]) throws {
        let (before, sent) = (bed.readOutcomes().count, bed.simulator.summary.requests)
        let worker = try worker(bed, store: "left", group: bed.kafka.group + "-next")
        try eventually("all records are done again") {
            try bed.kafka.committed(
                group: bed.kafka.group + "-next", topic: "jobs", partitions: WorkerBed.partitions) == records
        }
        let again = try bed.waitForOutcomes(before + records - items).dropFirst(before)
        #expect(again.allSatisfy { $0.kind == .applied }, "no push ends by being read again")
        #expect(bed.simulator.summary.requests == sent)
        try worker.waitUntilEvicted(devices: items)
        try produce(bed, try online.map { try event("online", of: $0) })
        let outcomes = try bed.waitForOutcomes(before + again.count + online.count + items)
        let accepted = outcomes.filter { $0.kind == .accepted }
        #expect(accepted.count == items && WorkerBed.places(accepted).count == items)
        #expect(Set(accepted.map(\.deviceToken)).isSubset(of: online))
        #expect(worker.snapshot().shards.unaccounted == 0)
        try eventually("what is committed needs no marks") { (try? report(bed, "left"))?.marks == 0 }
        #expect(bed.stop(worker).failure == nil)
        #expect(bed.readOutcomes().count == outcomes.count)
        #expect(bed.simulator.summary.requests == sent + UInt64(items))
        let left = try report(bed, "left")
        #expect(left.isSound && left.items == 0)
        bed.simulator.stop()
    }

    @Test func aRecordIsNotDoneTwiceThatIsReadAgainAfterItsItemHasMoved() throws {
        let bed = try WorkerBed()
        let first = try worker(bed, commitInterval: .seconds(3600))
        let (old, new) = (devices(24, seed: 961), devices(24, seed: 962))
        try produce(
            bed,
            try (old + new).map { try event("offline", of: $0) }
                + old.map { device in held("for \(device)", to: device) { $0.collapseIdentifier = "x" } })
        try bed.waitForOutcomes(48)
        try first.waitUntilEvicted(devices: 24)
        try produce(bed, try zip(old, new).map { try change($0, to: $1) })
        try bed.waitForOutcomes(72)
        try first.waitUntilEvicted(devices: 24)
        try copyStore(bed, to: "left")
        #expect(bed.stop(first).failure == nil)
        let left = try report(bed, "left")
        #expect(left.isSound, "\(left.problems)")
        #expect((left.items, left.marks) == (24, 24))
        #expect(
            try items(bed, "left", of: old + new) == Dictionary(uniqueKeysWithValues: new.map { ($0, 1) }))
        try takeOver(bed, records: 48 + 24 + 24, items: 24, online: new)
    }

    /// They are stored for the first time when they have moved already.
    @Test func aRecordIsNotDoneTwiceWhoseItemMovedBeforeItWasStored() throws {
        let bed = try WorkerBed {
            $0.latency = .seconds(2)
            $0.deviceRules = [.init(prefix: "aa", reason: .serviceUnavailable)]
            $0.retryAfterSeconds = 1
        }
        let first = try worker(bed, commitInterval: .seconds(3600))
        let old = devices(6, seed: 963).map { "aa" + $0.dropFirst(2) }
        let new = devices(6, seed: 964).map { "bb" + $0.dropFirst(2) }
        try produce(
            bed, try new.map { try event("offline", of: $0) } + old.map { held("for \($0)", to: $0) })
        try eventually("all are in flight") { bed.simulator.summary.requests >= 6 }
        try produce(bed, try zip(old, new).map { try change($0, to: $1) })
        try bed.waitForOutcomes(12)
        // They are held for the new tokens' sake, as soon as the old ones' answers are there.
        try first.waitUntilEvicted(devices: 6)
        try copyStore(bed, to: "left")
        #expect(bed.stop(first).failure == nil)
        #expect(
            try items(bed, "left", of: old + new) == Dictionary(uniqueKeysWithValues: new.map { ($0, 1) }))
        #expect(try report(bed, "left").marks == 6)
        try takeOver(bed, records: 18, items: 6, online: new)
    }

    @Test func whatCameBackToItsFirstTokenIsThereOnce() throws {
        let bed = try WorkerBed()
        let first = try worker(bed, commitInterval: .seconds(3600))
        let (old, new) = (devices(16, seed: 965), devices(16, seed: 966))
        try produce(
            bed,
            try (old + new).map { try event("offline", of: $0) } + old.map { held("for \($0)", to: $0) })
        try bed.waitForOutcomes(32)
        try first.waitUntilEvicted(devices: 16)
        try produce(bed, try zip(old, new).map { try change($0, to: $1) })
        try bed.waitForOutcomes(48)
        try produce(bed, try zip(old, new).map { try change($1, to: $0) })
        try bed.waitForOutcomes(64)
        try first.waitUntilEvicted(devices: 16)
        try copyStore(bed, to: "left")
        #expect(bed.stop(first).failure == nil)
        #expect(
            try items(bed, "left", of: old + new) == Dictionary(uniqueKeysWithValues: old.map { ($0, 1) }))
        // Marked once each, however often they moved.
        #expect(try report(bed, "left").marks == 16)
        // When both changes of a device are done again at once, the second may overtake what the first one moves.
        try takeOver(bed, records: 32 + 16 + 32, items: 16, online: old + new)
    }

    /// The change of the new token is read before the one that it follows.
    @Test func aTokenThatHasChangedOnceMoreIsFollowed() throws {
        let bed = try WorkerBed()
        let worker = try worker(bed)
        let (old, new) = (devices(40, seed: 974), devices(40, seed: 975))
        let third = devices(40, seed: 976)
        let time = Int64(Date().timeIntervalSince1970 * 1000)
        try produce(
            bed, try old.map { try event("offline", of: $0) } + old.map { held("for \($0)", to: $0) })
        try bed.waitForOutcomes(40)
        try worker.waitUntilEvicted(devices: 40)
        try produce(bed, try zip(new, third).map { try change($0, to: $1, at: time + 2) }, in: 2)
        // Earlier changes are none that what comes later would follow.
        try produce(bed, try zip(third, old).map { try change($0, to: $1, at: time) }, in: 0)
        try bed.waitForOutcomes(120)
        try produce(bed, try zip(old, new).map { try change($0, to: $1, at: time + 1) })
        let outcomes = try bed.waitForOutcomes(200)
        #expect(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken).sorted() == third.sorted())
        #expect(worker.snapshot().shards.unaccounted == 0)
        #expect(bed.stop(worker).failure == nil)
        #expect(bed.simulator.summary.requests == 40)
        let left = try report(bed, "store")
        #expect(left.isSound && left.items == 0)
        bed.simulator.stop()
    }

    /// The items are in the partition of the old token, and the new token's events in another.
    @Test func theFirstEventsAfterAStartFindWhatIsInAnotherPartition() throws {
        let bed = try WorkerBed()
        let first = try worker(bed)
        let (old, new) = (devices(40, seed: 971), devices(40, seed: 972))
        let third = devices(40, seed: 973)
        try produce(
            bed, try old.map { try event("offline", of: $0) } + old.map { held("for \($0)", to: $0) })
        try produce(bed, try new.map { try event("offline", of: $0) }, in: 2)
        try bed.waitForOutcomes(80)
        try first.waitUntilEvicted(devices: 40)
        try produce(bed, try zip(old, new).map { try change($0, to: $1) })
        try bed.waitForOutcomes(120)
        try eventually("all is committed") { try bed.committed() == 160 }
        #expect(bed.stop(first).failure == nil)
        #expect(
            try items(bed, "store", of: old + new) == Dictionary(uniqueKeysWithValues: new.map { ($0, 1) }))

        // A cancel brings items to memory, and doesn't ask where the device is.
        let cancels = new.map { device in
            var job = ControlDescription(.cancel, deviceToken: device)
            job.apnsID = "00000000-0000-0000-0000-000000000001"
            return JobEncoder.binary(job)
        }
        try produce(bed, cancels + zip(new, third).map { try change($0, to: $1) }, in: 2)
        let second = try worker(bed)
        // Nothing is known of their third tokens, so they are sent.
        let outcomes = try bed.waitForOutcomes(240).dropFirst(120)
        #expect(outcomes.count { $0.kind == .notFound } == 40)
        #expect(outcomes.filter { $0.kind == .applied }.map(\.count) == Array(repeating: 1, count: 40))
        #expect(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken).sorted() == third.sorted())
        #expect(bed.stop(second).failure == nil)
        #expect(bed.simulator.summary.requests == 40)
        bed.simulator.stop()
    }

    /// Each shard has to look for the new devices first, as nothing is known of them.
    @Test func aTokenChangeIsCommittedAfterItsItemsHaveMovedInTheStore() throws {
        let bed = try WorkerBed()
        let worker = try worker(bed)
        let (old, new) = (devices(60, seed: 967), devices(60, seed: 968))
        try produce(
            bed,
            try old.map { try event("offline", of: $0) }
                + old.map { device in held("for \(device)", to: device) { $0.ttl = 3600 } })
        try bed.waitForOutcomes(60)
        try worker.waitUntilEvicted(devices: 60)
        try eventually("all is committed") { try bed.committed() == 120 }
        // Held back, so that they stay in the store.
        try produce(bed, try new.map { try event("offline", of: $0) })
        try bed.waitForOutcomes(120)
        try eventually("all is committed") { try bed.committed() == 180 }
        try produce(bed, try zip(old, new).map { try change($0, to: $1) })
        try eventually("the changes are committed") { try bed.committed() == 240 }
        // Also in the middle of what goes on: it is as a crash would leave it.
        try copyStore(bed, to: "left")
        #expect(
            try items(bed, "left", of: old + new) == Dictionary(uniqueKeysWithValues: new.map { ($0, 1) }))
        try eventually("what is committed needs no marks") { (try? report(bed, "store"))?.marks == 0 }
        try produce(bed, try new.map { try event("online", of: $0) })
        let outcomes = try bed.waitForOutcomes(60 + 60 + 60 + 60 + 60)
        #expect(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken).sorted() == new.sorted())
        #expect(bed.simulator.summary.requests == 60)
        #expect(bed.stop(worker).failure == nil)
        bed.simulator.stop()
    }

    /// Another shard goes on with an item when the changelog has its move for good.
    @Test(arguments: [Configuration.Store.Switch.on, .off])
    func itemsMoveBetweenShardsWithAChangelog(transactions: Configuration.Store.Switch) throws {
        let bed = try WorkerBed()
        let worker = try bed.worker {
            $0.store = .init(
                directory: bed.directory.file("store"), after: .seconds(1), changelog: .on,
                transactions: transactions)
            $0.delivery.shards = 3
        }
        let (old, new) = (devices(40, seed: 971), devices(40, seed: 972))
        try produce(
            bed,
            try (old + new).map { try event("offline", of: $0) } + old.map { held("for \($0)", to: $0) })
        try bed.waitForOutcomes(80)
        try worker.waitUntilEvicted(devices: 40)
        // Events of the new devices come at once, and meet what moves.
        try produce(
            bed,
            try zip(old, new).map { try change($0, to: $1) } + new[..<20].map { try event("online", of: $0) })
        try bed.waitForOutcomes(80 + 40 + 20)
        try produce(bed, try new.map { try event("online", of: $0) })
        let outcomes = try bed.waitForOutcomes(80 + 40 + 20 + 40 + 40)
        let accepted = outcomes.filter { $0.kind == .accepted }
        #expect(accepted.map(\.deviceToken).sorted() == new.sorted())
        #expect(worker.snapshot().shards.unaccounted == 0)
        try eventually("all is committed") { worker.snapshot().outstanding == 0 }
        #expect(bed.stop(worker).failure == nil)
        #expect(bed.readOutcomes().count == outcomes.count)
        #expect(bed.simulator.summary.requests == 40)
        let left = try report(bed, "store")
        #expect(left.isSound && left.items == 0, "\(left)")
        bed.simulator.stop()
    }

    @Test func aTokenChangeWaitsForAStoredItemInFlight() throws {
        let bed = try WorkerBed {
            $0.latency = .seconds(4)
            $0.deviceRules = [.init(prefix: "aa", reason: .serviceUnavailable)]
        }
        let worker = try worker(bed)
        let old = "aa" + devices(1, seed: 969)[0].dropFirst(2)
        let new = "bb" + devices(1, seed: 970)[0].dropFirst(2)
        try produce(bed, [try event("offline", of: old), held("once", to: old)])
        try worker.waitUntilEvicted(devices: 1)
        try produce(bed, [try event("online", of: old)])
        try eventually("it is in flight") { bed.simulator.summary.requests == 1 }
        try produce(bed, [try change(old, to: new), try event("online", of: new)])
        // The last event's outcome is there; that of the change before it isn't.
        try eventually("the worker has read them") {
            bed.outcomes.poll()
            return bed.readOutcomes().contains { $0.deviceToken == new }
        }
        #expect(bed.readOutcomes().count == 3, "the change has none while the old token's answer is awaited")
        let outcomes = try bed.waitForOutcomes(5)
        #expect(outcomes.last?.kind == .accepted && outcomes.last?.deviceToken == new)
        let change = try #require(outcomes.first { $0.kind == .applied && $0.offset == 3 })
        #expect(change.deviceToken == old && change.count == 1)
        #expect(worker.snapshot().shards.unaccounted == 0)
        try eventually("all is committed") { try bed.committed() == 5 }
        #expect(bed.stop(worker).failure == nil)
        let left = try report(bed, "store")
        #expect(left.isSound && left.items == 0)
        bed.simulator.stop()
    }
}

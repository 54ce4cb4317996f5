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

/// Stored items move exactly once to the new token of their device, even when the worker is killed.
struct MoveTests {
    private func change(_ device: String, to new: String, at time: Int64? = nil) throws -> EncodedJob {
        let occurred = time.map { #","occurred-at":\#($0)"# } ?? ""
        return try event("token-changed", of: device, #","new-device-token":"\#(new)"\#(occurred)"#)
    }

    private func devices(_ count: Int, seed: UInt64) -> [String] {
        var random = SeededGenerator(seed: seed)
        return (0..<count).map { _ in random.hexadecimal(bytes: 32) }
    }

    /// Produces in one partition, which defines the order.
    private func produce(_ bed: WorkerBed, _ jobs: [EncodedJob], in partition: Int32 = 1) throws {
        try bed.produce(jobs, in: partition)
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

    /// Copies the files that the worker would leave if it was killed now. Nothing must be in progress.
    private func copyStore(_ bed: WorkerBed, to name: String) throws {
        try FileManager.default.copyItem(
            atPath: bed.directory.file("store"), toPath: bed.directory.file(name))
    }

    private func report(_ bed: WorkerBed, _ name: String) throws -> StoreReport {
        try StoreInspector(directory: bed.directory.file(name)).verify()
    }

    /// Returns the number of stored items by device token, without tokens that have none.
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

    /// Starts a worker on the store of a killed one, which had moved items and committed nothing.
    private func takeOver(_ bed: WorkerBed, records: Int, items: Int, online: [String]) throws {
        let (before, sent) = (bed.readOutcomes().count, bed.simulator.summary.requests)
        let worker = try worker(bed, store: "left", group: bed.kafka.group + "-next")
        try eventually("all records are processed again") {
            try bed.kafka.committed(
                group: bed.kafka.group + "-next", topic: "jobs", partitions: WorkerBed.partitions) == records
        }
        let again = try bed.waitForOutcomes(before + records - items).dropFirst(before)
        #expect(again.allSatisfy { $0.kind == .applied }, "a replayed push must not end")
        #expect(bed.simulator.summary.requests == sent)
        try worker.waitUntilEvicted(devices: items)
        try produce(bed, try online.map { try event("online", of: $0) })
        let outcomes = try bed.waitForOutcomes(before + again.count + online.count + items)
        let accepted = outcomes.filter { $0.kind == .accepted }
        #expect(accepted.count == items && WorkerBed.places(accepted).count == items)
        #expect(Set(accepted.map(\.deviceToken)).isSubset(of: online))
        #expect(worker.snapshot().totals.unaccounted == 0)
        try eventually("committed moves leave no marks") { (try? report(bed, "left"))?.marks == 0 }
        bed.stop(worker)
        #expect(bed.readOutcomes().count == outcomes.count)
        #expect(bed.simulator.summary.requests == sent + UInt64(items))
        let left = try report(bed, "left")
        #expect(left.isSound && left.items == 0)
    }

    @Test func recordReplayedAfterItsItemMovedIsNotRepeated() throws {
        try withBed { bed in
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
            bed.stop(first)
            let left = try report(bed, "left")
            #expect(left.isSound, "\(left.problems)")
            #expect((left.items, left.marks) == (24, 24))
            #expect(
                try items(bed, "left", of: old + new) == Dictionary(uniqueKeysWithValues: new.map { ($0, 1) })
            )
            try takeOver(bed, records: 48 + 24 + 24, items: 24, online: new)
        }
    }

    /// The items move before they are stored for the first time.
    @Test func recordMovedBeforeStorageIsNotRepeatedOnReplay() throws {
        try withBed(simulator: {
            $0.latency = .seconds(2)
            $0.deviceRules = [.init(prefix: "aa", reason: .serviceUnavailable)]
            $0.retryAfterSeconds = 1
        }) { bed in
            let first = try worker(bed, commitInterval: .seconds(3600))
            let old = devices(6, seed: 963).map { "aa" + $0.dropFirst(2) }
            let new = devices(6, seed: 964).map { "bb" + $0.dropFirst(2) }
            try produce(
                bed, try new.map { try event("offline", of: $0) } + old.map { held("for \($0)", to: $0) })
            try eventually("all pushes are in flight") { bed.simulator.summary.requests >= 6 }
            try produce(bed, try zip(old, new).map { try change($0, to: $1) })
            try bed.waitForOutcomes(12)
            // The pushes are held for the new tokens once the answers for the old tokens are there.
            try first.waitUntilEvicted(devices: 6)
            try copyStore(bed, to: "left")
            bed.stop(first)
            #expect(
                try items(bed, "left", of: old + new) == Dictionary(uniqueKeysWithValues: new.map { ($0, 1) })
            )
            #expect(try report(bed, "left").marks == 6)
            try takeOver(bed, records: 18, items: 6, online: new)
        }
    }

    @Test func itemReturnedToItsFirstTokenExistsOnce() throws {
        try withBed { bed in
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
            bed.stop(first)
            #expect(
                try items(bed, "left", of: old + new) == Dictionary(uniqueKeysWithValues: old.map { ($0, 1) })
            )
            // Each item has one mark, regardless of how often it moved.
            #expect(try report(bed, "left").marks == 16)
            // When both changes of a device are replayed, the second may overtake the items that the first one moves.
            try takeOver(bed, records: 32 + 16 + 32, items: 16, online: old + new)
        }
    }

    /// The later token change is read before the earlier one.
    @Test func itemsFollowATokenThatChangedTwice() throws {
        try withBed { bed in
            let worker = try worker(bed)
            let (old, new) = (devices(40, seed: 974), devices(40, seed: 975))
            let third = devices(40, seed: 976)
            let time = Int64(Date().timeIntervalSince1970 * 1000)
            try produce(
                bed, try old.map { try event("offline", of: $0) } + old.map { held("for \($0)", to: $0) })
            try bed.waitForOutcomes(40)
            try worker.waitUntilEvicted(devices: 40)
            try produce(bed, try zip(new, third).map { try change($0, to: $1, at: time + 2) }, in: 2)
            // Items don't follow a change that is older than the one that moved them.
            try produce(bed, try zip(third, old).map { try change($0, to: $1, at: time) }, in: 0)
            try bed.waitForOutcomes(120)
            try produce(bed, try zip(old, new).map { try change($0, to: $1, at: time + 1) })
            let outcomes = try bed.waitForOutcomes(200)
            #expect(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken).sorted() == third.sorted())
            #expect(worker.snapshot().totals.unaccounted == 0)
            bed.stop(worker)
            #expect(bed.simulator.summary.requests == 40)
            let left = try report(bed, "store")
            #expect(left.isSound && left.items == 0)
        }
    }

    /// The items are in the partition of the old token, and the events of the new token in another.
    @Test func eventsAfterRestartFindItemsInAnotherPartition() throws {
        try withBed { bed in
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
            try eventually("all offsets are committed") { try bed.committed() == 160 }
            bed.stop(first)
            #expect(
                try items(bed, "store", of: old + new)
                    == Dictionary(uniqueKeysWithValues: new.map { ($0, 1) }))

            // A cancel loads items without asking for the presence of the device.
            let cancels = new.map { device in
                var job = ControlDescription(.cancel, deviceToken: device)
                job.apnsID = "00000000-0000-0000-0000-000000000001"
                return JobEncoder.binary(job)
            }
            try produce(bed, cancels + zip(new, third).map { try change($0, to: $1) }, in: 2)
            let second = try worker(bed)
            // The pushes are sent because the third tokens have no presence.
            let outcomes = try bed.waitForOutcomes(240).dropFirst(120)
            #expect(outcomes.count { $0.kind == .notFound } == 40)
            #expect(outcomes.filter { $0.kind == .applied }.map(\.count) == Array(repeating: 1, count: 40))
            #expect(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken).sorted() == third.sorted())
            bed.stop(second)
            #expect(bed.simulator.summary.requests == 40)
        }
    }

    /// Each shard has to look up the new devices first, because it knows nothing about them.
    @Test func tokenChangeIsCommittedAfterItsItemsMoved() throws {
        try withBed { bed in
            let worker = try worker(bed)
            let (old, new) = (devices(60, seed: 967), devices(60, seed: 968))
            try produce(
                bed,
                try old.map { try event("offline", of: $0) }
                    + old.map { device in held("for \(device)", to: device) { $0.ttl = 3600 } })
            try bed.waitForOutcomes(60)
            try worker.waitUntilEvicted(devices: 60)
            try eventually("all offsets are committed") { try bed.committed() == 120 }
            // The new devices are offline, so the items stay in the store.
            try produce(bed, try new.map { try event("offline", of: $0) })
            try bed.waitForOutcomes(120)
            try eventually("all offsets are committed") { try bed.committed() == 180 }
            try produce(bed, try zip(old, new).map { try change($0, to: $1) })
            try eventually("the changes are committed") { try bed.committed() == 240 }
            // A copy taken during writes is equivalent to the state after a crash.
            try copyStore(bed, to: "left")
            #expect(
                try items(bed, "left", of: old + new) == Dictionary(uniqueKeysWithValues: new.map { ($0, 1) })
            )
            try eventually("committed moves leave no marks") { (try? report(bed, "store"))?.marks == 0 }
            try produce(bed, try new.map { try event("online", of: $0) })
            let outcomes = try bed.waitForOutcomes(60 + 60 + 60 + 60 + 60)
            #expect(outcomes.filter { $0.kind == .accepted }.map(\.deviceToken).sorted() == new.sorted())
            #expect(bed.simulator.summary.requests == 60)
        }
    }

    /// Another shard continues with an item after the changelog has committed its move.
    @Test(arguments: [(Configuration.Store.Switch.on, true), (.off, true), (.off, false)])
    func itemsMoveBetweenShardsWithAChangelog(
        transactions: Configuration.Store.Switch, isEncrypted: Bool
    ) throws {
        try withBed { bed in
            let key = "a " + Data(repeating: 5, count: 32).base64EncodedString()
            let file = try bed.directory.write(key, to: "store.keys")
            let worker = try bed.worker {
                $0.store = .init(
                    directory: bed.directory.file("store"), after: .seconds(1), changelog: .on,
                    transactions: transactions,
                    encryption: isEncrypted ? .init(keyFile: file) : nil)
                $0.delivery.shards = 3
            }
            let (old, new) = (devices(40, seed: 971), devices(40, seed: 972))
            try produce(
                bed,
                try (old + new).map { try event("offline", of: $0) } + old.map { held("for \($0)", to: $0) })
            try bed.waitForOutcomes(80)
            try worker.waitUntilEvicted(devices: 40)
            // Events of the new devices arrive while the items move.
            try produce(
                bed,
                try zip(old, new).map { try change($0, to: $1) }
                    + new[..<20].map { try event("online", of: $0) })
            try bed.waitForOutcomes(80 + 40 + 20)
            try produce(bed, try new.map { try event("online", of: $0) })
            let outcomes = try bed.waitForOutcomes(80 + 40 + 20 + 40 + 40)
            let accepted = outcomes.filter { $0.kind == .accepted }
            #expect(accepted.map(\.deviceToken).sorted() == new.sorted())
            #expect(worker.snapshot().totals.unaccounted == 0)
            try eventually("all offsets are committed") { worker.snapshot().outstanding == 0 }
            bed.stop(worker)
            #expect(bed.readOutcomes().count == outcomes.count)
            #expect(bed.simulator.summary.requests == 40)
            let left = try report(bed, "store")
            #expect(left.isSound && left.items == 0, "\(left)")
        }
    }

    @Test func tokenChangeWaitsForStoredItemInFlight() throws {
        try withBed(simulator: {
            $0.latency = .seconds(4)
            $0.deviceRules = [.init(prefix: "aa", reason: .serviceUnavailable)]
        }) { bed in
            let worker = try worker(bed)
            let old = "aa" + devices(1, seed: 969)[0].dropFirst(2)
            let new = "bb" + devices(1, seed: 970)[0].dropFirst(2)
            try produce(bed, [try event("offline", of: old), held("once", to: old)])
            try worker.waitUntilEvicted(devices: 1)
            try produce(bed, [try event("online", of: old)])
            try eventually("the push is in flight") { bed.simulator.summary.requests == 1 }
            try produce(bed, [try change(old, to: new), try event("online", of: new)])
            // The last event has an outcome, and the change before it has none yet.
            try eventually("the worker has read the events") {
                bed.outcomes.poll()
                return bed.readOutcomes().contains { $0.deviceToken == new }
            }
            #expect(
                bed.readOutcomes().count == 3, "the change has no outcome before the old token's answer")
            let outcomes = try bed.waitForOutcomes(5)
            #expect(outcomes.last?.kind == .accepted && outcomes.last?.deviceToken == new)
            let change = try #require(outcomes.first { $0.kind == .applied && $0.offset == 3 })
            #expect(change.deviceToken == old && change.count == 1)
            #expect(worker.snapshot().totals.unaccounted == 0)
            try eventually("all offsets are committed") { try bed.committed() == 5 }
            bed.stop(worker)
            let left = try report(bed, "store")
            #expect(left.isSound && left.items == 0)
        }
    }
}

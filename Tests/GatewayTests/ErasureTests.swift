import Configuration
import DeliveryCore
import Foundation
import Kafka
import KafkaTestSupport
import RetryStore
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import Gateway

/// Erasure of a device's data, in memory, store and changelog.
struct ErasureTests {
    /// Keys of the changelog that name a device and have a value, as compaction leaves them.
    private func keys(of device: String, in changelog: TopicReader) -> Int {
        changelog.poll()
        var left: [String: Bool] = [:]
        for record in changelog.records {
            guard let key = record.key, key.firstRange(of: Array(device.utf8)) != nil else { continue }
            left["\(record.partition) \(key)"] = record.value != nil
        }
        return left.values.count { $0 }
    }

    @Test func nothingIsLeftInMemoryStoreAndChangelog() throws {
        try withBed { bed in
            let worker = try bed.worker {
                $0.store = .init(
                    directory: bed.directory.file("store"), after: .seconds(1), changelog: .on,
                    transactions: .off)
                $0.delivery.shards = 2
            }
            var random = SeededGenerator(seed: 81)
            let (erased, other) = (random.hexadecimal(bytes: 32), random.hexadecimal(bytes: 32))
            let jobs = try [erased, other].flatMap { device in
                [try event("offline", of: device)]
                    + ["a", "b", "c"].map { id in held("secret", to: device) { $0.collapseIdentifier = id } }
            }
            try bed.produce(jobs)
            try worker.waitUntilEvicted(devices: 2)
            let changelog = try TopicReader(bed.kafka, "changelog", partitions: WorkerBed.partitions)
            try eventually("the changelog has both devices") {
                keys(of: erased, in: changelog) == 4 && keys(of: other, in: changelog) == 4
            }

            try bed.produce([try event("erase", of: erased)])
            let outcomes = try bed.waitForOutcomes(2 + 4)
            let own = outcomes.filter { $0.deviceToken == erased }
            #expect(own.filter { $0.kind == .cancelled && $0.cause == "device-erased" }.count == 3)
            #expect(own.contains { $0.kind == .applied && $0.count == 3 })

            let store = try #require(worker.store)
            try eventually("the store has nothing of the device") { try left(of: erased, in: store) == 0 }
            try eventually("the changelog has a tombstone for all of it") {
                keys(of: erased, in: changelog) == 0
            }
            #expect(try left(of: other, in: store) == 4 && keys(of: other, in: changelog) == 4)
            #expect(worker.snapshot().totals.evictedDevices == 1)

            // The next owner has nothing of it either.
            bed.stop(worker)
            let next = try bed.worker {
                $0.store = .init(
                    directory: bed.directory.file("other"), after: .seconds(1), changelog: .on,
                    transactions: .off)
            }
            try eventually("the other device is restored") { next.snapshot().totals.evictedDevices == 1 }
            let restored = try #require(next.store)
            #expect(try left(of: erased, in: restored) == 0)
        }
    }

    /// A push that moved lies in the partition of its first token. The event of the new token may have any partition.
    @Test func eventInAnotherPartitionReachesMovedPushes() throws {
        try withBed { bed in
            let worker = try bed.worker {
                $0.store = .init(
                    directory: bed.directory.file("store"), after: .seconds(1), changelog: .off)
                $0.delivery.shards = 2
            }
            var random = SeededGenerator(seed: 83)
            let (first, new) = (random.hexadecimal(bytes: 32), random.hexadecimal(bytes: 32))
            let store = try #require(worker.store)
            let later = Int64(Date().timeIntervalSince1970) * 1000 + 3_000_000
            try bed.produce(
                ["a", "b"].map { id in
                    push("secret", to: first) {
                        $0.collapseIdentifier = id
                        $0.deliverAtMilliseconds = later
                        $0.ttl = 7_200
                    }
                }, in: 1)
            try worker.waitUntilEvicted(devices: 1)
            try bed.produce([event("token-changed", of: first, #","new-device-token":"\#(new)""#)], in: 1)
            try bed.waitForOutcomes(1)
            try worker.waitUntilEvicted(devices: 1)
            #expect(try left(of: first, in: store) == 0 && left(of: new, in: store) == 2)
            for partition in [Int32(0), 2, 1] { try bed.produce([event("erase", of: new)], in: partition) }
            let outcomes = try bed.waitForOutcomes(1 + 2 + 3)
            #expect(outcomes.count { $0.kind == .cancelled && $0.cause == "device-erased" } == 2)
            #expect(outcomes.filter { $0.kind == .applied }.compactMap(\.count).sorted() == [0, 0, 2, 2])
            try eventually("the store has nothing of the device") { try left(of: new, in: store) == 0 }
        }
    }

    /// Names of files in the store's directory that have the device's token, as text or packed, or the text.
    private func files(_ directory: String, with device: String, or text: String) throws -> [String] {
        let packed = stride(from: 0, to: device.utf8.count, by: 2).map {
            UInt8(device.dropFirst($0).prefix(2), radix: 16) ?? 0
        }
        let needles = [Data(device.utf8), Data(packed), Data(text.utf8)]
        return try FileManager.default.contentsOfDirectory(atPath: directory).filter { name in
            guard let data = FileManager.default.contents(atPath: "\(directory)/\(name)") else {
                return false
            }
            return needles.contains { data.range(of: $0) != nil }
        }
    }

    @Test(arguments: [Configuration.Store.Switch.off, .on])
    func bytesLeaveTheDisk(changelog: Configuration.Store.Switch) throws {
        try withBed { bed in
            func start(_ name: String) throws -> Worker {
                try bed.worker {
                    $0.store = .init(
                        directory: bed.directory.file(name), after: .seconds(1), changelog: changelog,
                        transactions: changelog, purgeAfter: .seconds(1))
                    $0.delivery.shards = 2
                }
            }
            let worker = try start("store")
            var random = SeededGenerator(seed: 82)
            let (erased, other) = (random.hexadecimal(bytes: 32), random.hexadecimal(bytes: 32))
            let secret = "secret-of-the-device"
            let long = secret + String(repeating: "s", count: 500)
            func jobs(_ device: String, _ texts: [String]) throws -> [EncodedJob] {
                try [event("offline", of: device)]
                    + texts.enumerated().map { id, text in
                        held(text, to: device) { $0.collapseIdentifier = "c\(id)" }
                    }
            }
            try bed.produce(jobs(erased, [secret, long, secret]) + jobs(other, ["a", "b", "c"]))
            try worker.waitUntilEvicted(devices: 2)
            let directory = bed.directory.file("store")
            let store = try #require(worker.store)
            // Without a changelog the log has the bytes.
            if changelog == .off {
                #expect(try !files(directory, with: erased, or: secret).isEmpty)
            }
            try bed.produce([try event("erase", of: erased)])
            try eventually("the store has nothing of the device") { try left(of: erased, in: store) == 0 }
            try eventually("no purge is pending") {
                store.purges.completed > 0 && store.purges.pending.isEmpty
            }
            #expect(store.purges.failed == 0)
            #expect(try files(directory, with: erased, or: secret) == [])
            #expect(try left(of: other, in: store) == 4)

            // The next owner restores older values from the changelog, and has to purge them too.
            bed.stop(worker)
            #expect(try files(directory, with: erased, or: secret) == [])
            guard changelog == .on else { return }
            let next = try start("other")
            try eventually("the other device is restored") { next.snapshot().totals.evictedDevices == 1 }
            let restored = try #require(next.store)
            try eventually("the restored partition is purged") {
                restored.purges.completed > 0 && restored.purges.pending.isEmpty
            }
            #expect(try files(bed.directory.file("other"), with: erased, or: secret) == [])
            #expect(try left(of: other, in: restored) == 4)
        }
    }

    /// Items and presences of a device in all partitions.
    private func left(of device: String, in store: RetryStore) throws -> Int {
        let answer = Answer()
        store.read { reader throws(RetryStoreError) in
            var count = 0
            for partition in reader.partitions {
                let token = Array(device.utf8)
                count += try Self.left(of: token, partition, reader)
            }
            return count
        } completion: {
            answer.set($0)
        }
        return try eventually("the store is read") { answer.value }.get()
    }

    private static func left(
        of token: [UInt8], _ partition: Int32, _ reader: StoreReader
    ) throws(RetryStoreError) -> Int {
        let result = token.withUnsafeBytes { token in
            Result { () throws(RetryStoreError) in
                var count = try reader.device(of: partition, token: token) == nil ? 0 : 1
                try reader.visitItems(of: partition, token: token) { _ in
                    count += 1
                    return true
                }
                return count
            }
        }
        return try result.get()
    }

    private final class Answer: Sendable {
        private let result = Mutex<Result<Int, RetryStoreError>?>(nil)
        var value: Result<Int, RetryStoreError>? { result.withLock { $0 } }
        func set(_ new: Result<Int, RetryStoreError>) { result.withLock { $0 = new } }
    }
}

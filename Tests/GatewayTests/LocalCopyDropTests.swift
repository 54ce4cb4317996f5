import Configuration
import EventLoop
import Foundation
import Kafka
import KafkaTestSupport
import RetryStore
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import Admin
@testable import Gateway

/// Copies of partitions that a worker doesn't own are dropped in time, and no count includes them.
struct LocalCopyDropTests {
    private func worker(
        _ bed: WorkerBed, _ name: String, longestAbsence: Int64 = RestoreLimits.longestAbsence
    ) throws -> Worker {
        try bed.worker(longestAbsence: longestAbsence) {
            $0.store = .init(
                directory: bed.directory.file(name), after: .seconds(1), changelog: .on, transactions: .off)
        }
    }

    /// Writes partitions with one item each, as an earlier worker would have left them.
    private func leave(_ copies: [LocalCopy], in bed: WorkerBed) throws {
        var settings = RetryStore.Settings(
            directory: bed.directory.file("store"), sourceTopic: bed.kafka.topic("jobs"))
        settings.isChangelogBacked = true
        let store = try RetryStore(settings)
        defer { store.close() }
        for copy in copies {
            let handle = try eventually("the partition is open", opened(copy.partition, in: store)).get()[0]
                .handle
            let isDone = BlockingFlag()
            var batch = store.makeBatch()
            let key = ItemKey(device: DeviceKey(high: 1, low: 2), offset: 3)
            Array("secret \(copy.partition)".utf8).withUnsafeBytes {
                batch.put(handle, key, due: 4, replacingDue: nil, value: $0)
            }
            store.submit(batch) { _ in isDone.set() }
            isDone.wait()
            guard let position = copy.position else { continue }
            let isKept = BlockingFlag()
            store.checkpoint(handle, position: position) { _ in isKept.set() }
            isKept.wait()
        }
    }

    private func opened(
        _ partition: Int32, in store: RetryStore
    ) -> () -> Result<[RestorablePartition], RetryStoreError>? {
        let result = SharedResult()
        store.openCopies(partitions: [partition], reachedAfter: 0) { opened in
            result.value.withLock { $0 = opened }
        }
        return { result.value.withLock { $0 } }
    }

    private final class SharedResult: Sendable {
        let value = Mutex<Result<[RestorablePartition], RetryStoreError>?>(nil)
    }

    private func numbers(_ worker: Worker) -> [Int32] { worker.store?.partitions.map(\.number) ?? [] }

    private func hasFile(with text: String, in directory: String) -> Bool {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        return names.contains { name in
            let data = try? Data(contentsOf: URL(filePath: "\(directory)/\(name)"))
            return data?.range(of: Data(text.utf8)) != nil
        }
    }

    @Test func startDropsOutdatedCopiesAndCountsNoCopies() throws {
        try withBed { bed in
            let now = wallClockMilliseconds()
            func copy(_ partition: Int32, age: Int64?) -> LocalCopy {
                LocalCopy(
                    partition: partition,
                    position: age.map { ChangelogCheckpoint(offset: 0, reachedMilliseconds: now - $0) })
            }
            // Copies left without a checkpoint, recently, and long ago.
            try leave(
                [
                    copy(7, age: nil), copy(8, age: 60_000), copy(9, age: RestoreLimits.longestAbsence),
                    copy(10, age: 60_000),
                ], in: bed)
            let directory = bed.directory.file("store")
            #expect(hasFile(with: "secret 9", in: directory))
            let worker = try worker(bed, "store")
            let endpoints = AdminEndpoints(patience: .seconds(60), freshness: .zero)
            let server = try AdminTestServer(endpoints.routes)
            endpoints.attach(AdminSource(worker))
            try eventually("the worker is ready") { try server.get("/readyz").status == 200 }
            try eventually("outdated copies are dropped") { numbers(worker) == [0, 1, 2, 8, 10] }
            try eventually("payloads are deleted from the disk") {
                !hasFile(with: "secret 7", in: directory) && !hasFile(with: "secret 9", in: directory)
            }
            #expect(hasFile(with: "secret 8", in: directory))

            let counts = try server.get("/store").json
            #expect(counts["estimated-items"] as? Int == 0)
            #expect((counts["partitions"] as? [[String: Int]])?.compactMap { $0["partition"] } == [0, 1, 2])
            let copies = try #require(counts["copies"] as? [String: Any])
            #expect(copies["partitions"] as? [Int] == [8, 10])
            #expect(copies["disk-bytes"] as? Int ?? 0 > 0)
            let summary = try server.get("/store/summary").json
            #expect(summary["items"] as? Int == 0)
            #expect(summary["partitions"] as? [Int] == [0, 1, 2])
            #expect(try server.get("/store/summary?partition=8").status == 404)
            #expect(try server.get("/metrics").body.contains("\nsluice_store_copies 2\n"))

            bed.stop(worker)

            // All partitions of a closed store count as copies.
            let arguments = ["inspect", "store", directory]
            let json = try ChildProcess.run(Executables.sluice, arguments + ["--json"])
            let document = try JSONSerialization.jsonObject(with: Data(json.standardOutput.utf8))
            let left = try #require((document as? [String: Any])?["copies"] as? [[String: Int]])
            #expect(left.map { $0["partition"] } == [0, 1, 2, 8, 10])
            #expect(
                left.prefix(3).allSatisfy { ($0["age-seconds"] ?? -1) >= 0 && $0["changelog-offset"] != nil })
            let text = try ChildProcess.run(Executables.sluice, arguments).standardOutput
            #expect(
                text.contains(
                    #/copy +partition 1: a copy of the changelog up to offset \d+, \d+ seconds? old/#))
        }
    }

    /// Copies expire at once here. Held pushes survive while partitions move between the workers.
    @Test func itemsStayWhilePartitionsMoveBetweenWorkers() throws {
        try withBed { bed in
            let first = try worker(bed, "first", longestAbsence: 0)
            var random = SeededGenerator(seed: 977)
            let devices = (0..<60).map { _ in random.hexadecimal(bytes: 32) }
            try bed.produce(
                try devices.map { try event("offline", of: $0) }
                    + devices.map { held("secret \($0)", to: $0) })
            try bed.waitForOutcomes(60)
            try first.waitUntilEvicted(devices: 60)
            #expect(numbers(first) == [0, 1, 2])

            let second = try worker(bed, "second", longestAbsence: 0)
            try eventually("each worker has its share and no more") {
                let counts = [first, second].map { $0.snapshot().assignedPartitions }
                return counts.reduce(0, +) == 3 && counts.allSatisfy { $0 > 0 }
                    && numbers(first).count == counts[0] && numbers(second).count == counts[1]
                    && first.snapshot().totals.evictedDevices + second.snapshot().totals.evictedDevices == 60
            }
            try eventually("the first worker's disk has no payload of other partitions") {
                let own = first.snapshot().totals.evictedDevices
                let directory = bed.directory.file("first")
                return devices.count { hasFile(with: "secret \($0)", in: directory) } <= own
            }
            bed.stop(second)
            try eventually("the first worker has all partitions again") {
                first.snapshot().assignedPartitions == 3 && numbers(first) == [0, 1, 2]
                    && first.snapshot().totals.evictedDevices == 60
            }
            try bed.produce(try devices.map { try event("online", of: $0) })
            let outcomes = try eventually("all pushes are sent") {
                bed.outcomes.poll()
                let accepted = bed.readOutcomes().filter { $0.kind == .accepted }
                return Set(accepted.map(\.deviceToken)).count == 60 ? accepted : nil
            }
            #expect(outcomes.count >= 60)
        }
    }
}

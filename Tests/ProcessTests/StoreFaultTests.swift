import CRocksDB
import Foundation
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

@testable import RetryStore

/// Full disks, and directories that a worker must not use.
@Suite("Store: disks and directories that are not as they should be")
struct StoreFaultTests {
    private static func held(
        _ tokens: [String], _ random: inout SeededGenerator, payload: Int = 2
    ) -> [JobDraft] {
        tokens.map { token in
            var push = AuditedPush(apnsID: random.identifier(), topic: StoreLoad.topic)
            push.delivery = .holdWhileOffline
            var draft = JobDraft(token, .push(push))
            draft.payload = payload
            return draft
        }
    }

    @Test func unusableStoreDirectoriesAreRefusedWithoutLoss() throws {
        var random = SeededGenerator(seed: 51)
        let tokens = (0..<50).map { _ in random.hexadecimal(bytes: 32) }
        try withBed(BedOptions(partitions: 4)) { bed in
            let lives = try StoreLives(bed)
            try lives.start()
            try lives.produce(tokens.map { JobDraft($0, .offline) } + Self.held(tokens, &random))
            try lives.waitUntilCommitted()

            func refuse(_ text: String, store: String? = nil, jobsTopic: String? = nil) throws {
                var configuration = bed.configuration(lives.options(store: store))
                if let jobsTopic {
                    configuration.replace("jobs: \(bed.kafka.topic("jobs"))", with: "jobs: \(jobsTopic)")
                }
                let path = try bed.directory.write(configuration, to: "refused.yaml")
                let result = try sluice("run", "-c", path, "--stop-with-input")
                #expect(result.exit == .status(69), "\(text): \(result.standardError)")
                #expect(result.standardError.contains(text), "\(result.standardError)")
                #expect(result.standardError.contains(store == nil ? "/store " : "/sys/sluice-test "))
                #expect(!tokens.contains { result.standardError.contains($0) })
            }
            try refuse("is in use by another process")
            try lives.stop()
            let directory = bed.directory
            // A store of another topic, which exists.
            let kafka = bed.kafka
            try refuse(
                "keeps pushes of topic \"\(kafka.topic("jobs"))\"", jobsTopic: kafka.topic("changelog"))
            // A directory that not even root may write.
            try refuse("can't be written", store: "{directory: /sys/sluice-test, changelog: off}")

            let current = try #require(directory.read("store/CURRENT")).trimmingCharacters(
                in: .whitespacesAndNewlines)
            for name in ["CURRENT", current] {
                let file = URL(filePath: directory.file("store/\(name)"))
                let good = try Data(contentsOf: file)
                var bad = good
                for index in bad.indices where index % 7 == 3 { bad[index] ^= 0x55 }
                try bad.write(to: file)
                try refuse("is damaged")
                #expect(try Data(contentsOf: file) == bad, "the damaged file must not change")
                try good.write(to: file)
            }

            // A format that a later version may write.
            try Self.setFormat("2", directory.file("store"))
            try refuse("has format 2")
            try Self.setFormat("1", directory.file("store"))

            try lives.start()
            try lives.produce(tokens.map { JobDraft($0, .online) })
            try lives.finish()
            try lives.judge("directories refused", seed: 51)
            #expect(lives.accepted.count == tokens.count)
        }
    }

    private static func setFormat(_ version: String, _ directory: String) throws {
        let (database, families) = try Database.open(
            directory, options: StoreOptions(blockCacheBytes: 1 << 20, memtableBytes: 1 << 20),
            readOnly: false)
        let meta = try #require(families.first { $0.name == "default" })
        let options: OpaquePointer = rocksdb_writeoptions_create()
        defer { rocksdb_writeoptions_destroy(options) }
        try database.call {
            rocksdb_put_cf(
                database.handle, options, meta.handle, "format", 6, version, version.utf8.count, $0)
        }
    }

    // MARK: Full disks

    private static let mayMount: Bool = {
        guard getuid() == 0, Executables.find("mount") != nil,
            let directory = try? TemporaryDirectory("disk"),
            let mounted = try? ChildProcess.run("mount", ["-t", "tmpfs", "sluice-test", directory.path])
        else { return false }
        defer { _ = try? ChildProcess.run("umount", ["-l", directory.path]) }
        return mounted.exit == .status(0)
    }()

    @Test(.enabled(if: mayMount, "needs the right to mount a file system"))
    func fullDiskStopsReadingUntilThereIsRoom() throws {
        let disk = try TemporaryDirectory("disk")
        let mounted = try ChildProcess.run(
            "mount", ["-t", "tmpfs", "-o", "size=24m", "sluice-test", disk.path])
        try #require(mounted.exit == .status(0))
        defer { _ = try? ChildProcess.run("umount", ["-l", disk.path]) }
        var random = SeededGenerator(seed: 52)
        let tokens = (0..<50).map { _ in random.hexadecimal(bytes: 32) }
        let others = (0..<20).map { _ in random.hexadecimal(bytes: 32) }
        try withBed(BedOptions(partitions: 4)) { bed in
            let lives = try StoreLives(
                bed,
                store: "{directory: \(disk.file("store")), after: 1s, write-buffer: 8MiB, changelog: off}")
            try lives.start()
            try lives.produce(tokens.map { JobDraft($0, .offline) })
            try lives.waitUntilCommitted()

            try Self.fill(disk.file("filler"), leaving: 128 << 10)
            // Exceeds the disk with a bounded number of batches: RocksDB preallocates its log, as much as a write
            // buffer.
            let failed = "the store failed; nothing is read until it works again"
            var batches = 0
            try lives.worker.waits(for: "the store has failed") {
                if batches < 120, !lives.worker.log.contains(failed) {
                    batches += 1
                    try lives.produce(Self.held(tokens, &random, payload: 3_000))
                }
                try lives.poll()
                return lives.worker.log.contains(failed)
            }
            let failure = try #require(
                lives.worker.log.split(separator: "\n").first { $0.contains(failed) })
            #expect(failure.contains("has no room left on its disk: make room"))
            let waiting = Self.held(others, &random)
            try lives.produce(waiting)
            // The worker's loop continues to turn, and reads nothing.
            let reports = Self.reports(lives)
            try lives.worker.waits(for: "there are three more reports") { Self.reports(lives) >= reports + 3 }
            try lives.poll()
            #expect(lives.accepted.isEmpty, "no job is read while the store fails")

            try FileManager.default.removeItem(atPath: disk.file("filler"))
            try lives.worker.waitForOutput("the store works again")
            try lives.worker.waits(for: "the waiting pushes are sent") {
                try lives.poll()
                return lives.accepted.count >= others.count
            }
            try lives.waitUntilCommitted()
            try lives.produce(tokens.map { JobDraft($0, .online) })
            try lives.finish()
            try lives.judge("a full disk", seed: 52)
            #expect(lives.history.outcomes.count == lives.history.jobs.count)
            #expect(lives.accepted.count == batches * tokens.count + others.count)
        }
    }

    private static func reports(_ lives: StoreLives) -> Int {
        lives.worker.log.split(separator: "\n").count { $0.contains("info    worker statistics ") }
    }

    /// Writes a file that leaves only this many bytes of the disk.
    private static func fill(_ path: String, leaving rest: Int) throws {
        try #require(FileManager.default.createFile(atPath: path, contents: nil))
        let file = try #require(FileHandle(forWritingAtPath: path))
        let block = Data(repeating: 1, count: 64 << 10)
        while (try? file.write(contentsOf: block)) != nil {}
        try file.truncate(atOffset: try file.seekToEnd() - UInt64(rest))
        try file.close()
    }
}

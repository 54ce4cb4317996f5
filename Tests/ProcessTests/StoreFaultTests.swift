import CRocksDB
import Foundation
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

@testable import RetryStore

/// Disks that are full, and directories that a worker must not use.
@Suite("Store: disks and directories that are not as they should be")
struct StoreFaultTests {
    private static func held(_ tokens: [String], _ random: inout SeededRandom, payload: Int = 2) -> [JobDraft]
    {
        tokens.map { token in
            var push = AuditedPush(apnsID: random.identifier(), topic: StoreLoad.topic)
            push.delivery = .holdWhileOffline
            var draft = JobDraft(token, .push(push))
            draft.payload = payload
            return draft
        }
    }

    @Test("a worker refuses a directory that isn't its own, or is damaged, and says why; nothing is lost")
    func refused() throws {
        var random = SeededRandom(seed: 51)
        let tokens = (0..<50).map { _ in random.hexadecimal(bytes: 32) }
        let bed = try StoreBed()
        try bed.start()
        try bed.produce(tokens.map { JobDraft($0, .offline) } + Self.held(tokens, &random))
        try bed.waitUntilCommitted()

        func refuse(_ text: String, store: String? = nil, jobsTopic: String? = nil) throws {
            let path = try bed.configuration("refused.yaml", store: store, jobsTopic: jobsTopic)
            let result = try sluice("run", "-c", path, "--stop-with-input")
            #expect(result.exit == .status(69), "\(text): \(result.standardError)")
            #expect(result.standardError.contains(text), "\(result.standardError)")
            #expect(result.standardError.contains(store == nil ? "/store " : "/sys/sluice-test "))
            #expect(!tokens.contains { result.standardError.contains($0) })
        }
        try refuse("is in use by another process")
        try bed.stop()
        let directory = bed.installation.directory
        // Another topic that exists.
        let kafka = bed.installation.kafka
        try refuse("keeps pushes of topic \"\(kafka.topic("jobs"))\"", jobsTopic: kafka.topic("changelog"))
        // Where even root may not write.
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
            #expect(try Data(contentsOf: file) == bad, "a damaged file is left as it is")
            try good.write(to: file)
        }

        // What a later version may write.
        try Self.setFormat("2", directory.file("store"))
        try refuse("has format 2")
        try Self.setFormat("1", directory.file("store"))

        try bed.start()
        try bed.produce(tokens.map { JobDraft($0, .online) })
        try bed.finish()
        try bed.stop()
        StoreCrashTests.judge(try bed.audit(), seed: 51, "directories refused")
        #expect(bed.accepted.count == tokens.count)
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

    @Test(
        "a full disk: reading stops with a clear error, nothing is lost, and it goes on when there is room",
        .enabled(if: mayMount, "needs the right to mount a file system"))
    func fullDisk() throws {
        let disk = try TemporaryDirectory("disk")
        let mounted = try ChildProcess.run(
            "mount", ["-t", "tmpfs", "-o", "size=24m", "sluice-test", disk.path])
        try #require(mounted.exit == .status(0))
        defer { _ = try? ChildProcess.run("umount", ["-l", disk.path]) }
        var random = SeededRandom(seed: 52)
        let tokens = (0..<50).map { _ in random.hexadecimal(bytes: 32) }
        let others = (0..<20).map { _ in random.hexadecimal(bytes: 32) }
        let bed = try StoreBed(
            store: "{directory: \(disk.file("store")), after: 1s, write-buffer: 8MiB, changelog: off}")
        try bed.start()
        try bed.produce(tokens.map { JobDraft($0, .offline) })
        try bed.waitUntilCommitted()

        try Self.fill(disk.file("filler"), leaving: 128 << 10)
        // More than there is room for, and then no more: RocksDB's log has its room beforehand, as much as a write buffer.
        let failed = "the store failed; nothing is read until it works again"
        var batches = 0
        try bed.worker!.waits(for: "the store has failed") {
            if batches < 120, !bed.worker!.standardError.contains(failed) {
                batches += 1
                try bed.produce(Self.held(tokens, &random, payload: 3_000))
            }
            try bed.poll()
            return bed.worker!.standardError.contains(failed)
        }
        let failure = try #require(
            bed.worker!.standardError.split(separator: "\n").first { $0.contains(failed) })
        #expect(failure.contains("has no room left on its disk: make room"))
        let waiting = Self.held(others, &random)
        try bed.produce(waiting)
        // The worker has gone round some times more.
        let reports = Self.reports(bed)
        try bed.worker!.waits(for: "three reports more") { Self.reports(bed) >= reports + 3 }
        try bed.poll()
        #expect(bed.accepted.isEmpty, "nothing is read meanwhile")

        try FileManager.default.removeItem(atPath: disk.file("filler"))
        try bed.worker!.waitForOutput("the store works again")
        try bed.worker!.waits(for: "what waited is pushed") {
            try bed.poll()
            return bed.accepted.count >= others.count
        }
        try bed.waitUntilCommitted()
        try bed.produce(tokens.map { JobDraft($0, .online) })
        try bed.finish()
        try bed.stop()
        StoreCrashTests.judge(try bed.audit(), seed: 52, "a full disk")
        #expect(bed.history.outcomes.count == bed.history.jobs.count)
        #expect(bed.accepted.count == batches * tokens.count + others.count)
    }

    private static func reports(_ bed: StoreBed) -> Int {
        bed.worker!.standardError.split(separator: "\n").count { $0.contains("info    worker statistics ") }
    }

    /// Writes a file until the disk has only so much left.
    private static func fill(_ path: String, leaving rest: Int) throws {
        try #require(FileManager.default.createFile(atPath: path, contents: nil))
        let file = try #require(FileHandle(forWritingAtPath: path))
        let block = Data(repeating: 1, count: 64 << 10)
        while (try? file.write(contentsOf: block)) != nil {}
        try file.truncate(atOffset: try file.seekToEnd() - UInt64(rest))
        try file.close()
    }
}

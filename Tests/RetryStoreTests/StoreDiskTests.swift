import Foundation
import RetryStore
import SluiceModel
import Synchronization
import TestSupport
import Testing

/// Disks that are full or not writable.
@Suite struct StoreDiskTests {
    /// A file system of its own, where the tests may mount one.
    private final class SmallDisk {
        let directory: TemporaryDirectory

        init?(megabytes: Int) throws {
            directory = try TemporaryDirectory("disk")
            guard getuid() == 0, Executables.find("mount") != nil, Executables.find("umount") != nil else {
                return nil
            }
            let (exit, _, _) = try ChildProcess.run(
                "mount", ["-t", "tmpfs", "-o", "size=\(megabytes)m", "sluice-test", directory.path])
            guard exit == .status(0) else { return nil }
        }

        func remount(_ option: String) throws -> Bool {
            try ChildProcess.run("mount", ["-o", "remount,\(option)", directory.path]).exit == .status(0)
        }

        deinit { _ = try? ChildProcess.run("umount", ["-l", directory.path]) }
    }

    static let mayMount: Bool = (try? SmallDisk(megabytes: 1)) != nil

    /// Puts an item of 60,000 bytes, and returns its pending result.
    private func put(
        _ store: RetryStore, _ partition: StorePartition, _ offset: Int64
    ) -> Awaited<BatchResult> {
        let value = [UInt8](repeating: 7, count: 60_000)
        let key = ItemKey(device: DeviceKey(high: 1, low: 1), offset: offset)
        var batch = store.makeBatch()
        value.withUnsafeBytes { batch.put(partition, key, due: offset, replacingDue: nil, value: $0) }
        batch.load(partition, key.device)
        let result = Awaited<BatchResult>()
        store.submit(batch) { result.set($0) }
        return result
    }

    @Test(.enabled(if: mayMount, "needs the right to mount a file system"))
    func fullDiskIsReportedAndWritingResumesWithRoom() throws {
        let disk = try #require(try SmallDisk(megabytes: 24))
        let filler = disk.directory.file("filler")
        try Data(repeating: 0, count: 12 << 20).write(to: URL(filePath: filler))
        let store = try RetryStore.make(disk.directory)
        let partition = try store.partition(0)
        let reported = Mutex<[RetryStoreError?]>([])
        store.observeFailures { failure in reported.withLock { $0.append(failure) } }
        var written: Int64 = 0
        while store.failure == nil {
            let result = put(store, partition, written)
            try eventually("a put ends or fails") { result.value != nil || store.failure != nil }
            if result.value == nil { break }
            written += 1
            try #require(written < 1000)
        }
        let noSpace = RetryStoreError.noSpace(directory: disk.directory.file("store"))
        #expect(written > 0)
        #expect(store.failure == noSpace)
        // Later batches wait behind the failed one. Written items can still be read.
        let waiting = (1...3).map { put(store, partition, written + $0) }
        #expect(try store.synced() == noSpace)
        #expect(try store.due(partition).entries.count == written)
        try eventually("the put is tried again") { reported.withLock { $0.count } >= 3 }
        #expect(reported.withLock { $0 }.allSatisfy { $0 == noSpace })
        #expect(waiting.allSatisfy { $0.value == nil })

        try FileManager.default.removeItem(atPath: filler)
        for (index, result) in waiting.enumerated() {
            let loaded = try result.wait("a batch that waited")
            #expect(loaded.error == nil)
            // Completions keep their order: each load sees exactly the batches submitted before it.
            #expect(loaded.items.map(\.offset) == Array(0...written + Int64(index) + 1))
        }
        try eventually("the store works again") { store.failure == nil }
        #expect(reported.withLock { $0 }.last == .some(nil))
        #expect(try store.synced() == nil)
        store.close()
    }

    @Test(.enabled(if: mayMount, "needs the right to mount a file system"))
    func batchesUnwrittenAtCloseReportTheFullDisk() throws {
        let disk = try #require(try SmallDisk(megabytes: 16))
        let store = try RetryStore.make(disk.directory)
        let partition = try store.partition(0)
        var results: [Awaited<BatchResult>] = []
        while store.failure == nil {
            results.append(put(store, partition, Int64(results.count)))
            try eventually("a put ends or fails") { results.last!.value != nil || store.failure != nil }
            try #require(results.count < 1000)
        }
        results.append(put(store, partition, Int64(results.count)))
        store.close()
        #expect(results.suffix(2).allSatisfy { $0.value?.error == .noSpace(directory: store.directory) })
        #expect(results.dropLast(2).allSatisfy { $0.value?.error == nil })
    }

    @Test(.enabled(if: mayMount, "needs the right to mount a file system"))
    func readOnlyDiskIsReported() throws {
        let disk = try #require(try SmallDisk(megabytes: 24))
        do {
            let store = try RetryStore.make(disk.directory)
            let partition = try store.partition(0)
            #expect(try put(store, partition, 0).wait().error == nil)
            store.close()
        }
        try #require(try disk.remount("ro"))
        #expect(throws: RetryStoreError.readOnly(directory: disk.directory.file("store"))) {
            try RetryStore.make(disk.directory)
        }
        // The inspector can still read the store.
        let inspector = try StoreInspector(directory: disk.directory.file("store")).reader
        #expect(inspector.partitions == [0])
        var items = 0
        try inspector.visitItems(of: 0) { _ in
            items += 1
            return true
        }
        #expect(items == 1)
        try #require(try disk.remount("rw"))
        try RetryStore.make(disk.directory).close()
    }

    /// Needs no right to mount: the log exceeds a limit on the size of files.
    @Test func failedWriteLosesNoSyncedItem() throws {
        let directory = try TemporaryDirectory("store")
        let writer = try Executables.built("sluice-store-writer")
        let child = try ChildProcess(
            "sh",
            ["-c", "trap '' XFSZ; ulimit -f 400; exec \"$0\" write \"$1\"", writer, directory.file("store")])
        try child.waits(for: "a write fails") { child.standardOutput.contains("failed ") }
        child.closeInput()
        try child.wait()
        let lines = child.standardOutput.split(separator: "\n")
        let failure = try #require(lines.first { $0.hasPrefix("failed ") })
        #expect(failure.contains(directory.file("store")))
        let synced = lines.prefix { !$0.hasPrefix("failed ") }.compactMap { line in
            line.hasPrefix("synced ") ? Int(line.dropFirst(7)) : nil
        }
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let offsets = try store.due(store.partitions[0]).entries.map(\.key.offset)
        #expect(offsets.count >= synced.last ?? 1)
        #expect(offsets == Array(0..<Int64(offsets.count)))
    }
}

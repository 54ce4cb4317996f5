import Foundation
import RetryStore
import SluiceModel
import TestSupport
import Testing

/// Disks that are full or may not be written.
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

    private func put(
        _ store: RetryStore, _ partition: StorePartition, _ offset: Int64
    ) throws
        -> RetryStoreError?
    {
        let value = [UInt8](repeating: 7, count: 60_000)
        let key = ItemKey(device: DeviceKey(high: 1, low: 1), offset: offset)
        return try store.submitted { batch in
            value.withUnsafeBytes { batch.put(partition, key, due: offset, replacingDue: nil, value: $0) }
        }.error
    }

    @Test(.enabled(if: mayMount, "needs the right to mount a file system"))
    func aFullDiskIsToldAndWritingGoesOnWhenThereIsRoom() throws {
        let disk = try #require(try SmallDisk(megabytes: 24))
        let filler = disk.directory.file("filler")
        try Data(repeating: 0, count: 12 << 20).write(to: URL(filePath: filler))
        let store = try RetryStore.make(disk.directory)
        let partition = try store.partition(0)
        var written: Int64 = 0
        while true {
            if let error = try put(store, partition, written) {
                #expect(error == .noSpace(directory: disk.directory.file("store")))
                break
            }
            written += 1
            try #require(written < 1000)
        }
        #expect(written > 0)
        // It stays so, and what was written can still be read.
        #expect(try put(store, partition, written) == .noSpace(directory: disk.directory.file("store")))
        #expect(try store.synced() == .noSpace(directory: disk.directory.file("store")))
        #expect(try store.due(partition).entries.count == written)

        try FileManager.default.removeItem(atPath: filler)
        try eventually("a put succeeds again") { try put(store, partition, written) == nil }
        #expect(try store.synced() == nil)
        #expect(try store.due(partition).entries.map(\.key.offset) == Array(0...written))
        store.close()
    }

    @Test(.enabled(if: mayMount, "needs the right to mount a file system"))
    func aDiskThatBecomesReadOnlyIsTold() throws {
        let disk = try #require(try SmallDisk(megabytes: 24))
        do {
            let store = try RetryStore.make(disk.directory)
            let partition = try store.partition(0)
            #expect(try put(store, partition, 0) == nil)
            store.close()
        }
        try #require(try disk.remount("ro"))
        #expect(throws: RetryStoreError.readOnly(directory: disk.directory.file("store"))) {
            try RetryStore.make(disk.directory)
        }
        // It can still be looked at.
        let inspector = try StoreInspector(directory: disk.directory.file("store"))
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

    /// Without the right to mount: a limit on the size of files, which the log runs into.
    @Test func aWriteThatFailsLosesNothingThatWasSynced() throws {
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

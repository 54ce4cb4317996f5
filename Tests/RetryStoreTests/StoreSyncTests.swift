import Foundation
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import RetryStore

/// Syncs of written data to the disk.
@Suite struct StoreSyncTests {
    /// Records which files are synced, and fails on request.
    private final class Disk: Sendable {
        private let state = Mutex<(synced: [String], failures: Int)>(([], 0))

        /// Names of the synced files, in order.
        var synced: [String] { state.withLock { $0.synced } }

        func fail(_ times: Int) { state.withLock { $0.failures = times } }

        func synchronize(_ file: Int32) -> Int32 {
            let path = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(file)")
            return state.withLock { state in
                if state.failures > 0 {
                    state.failures -= 1
                    errno = EIO
                    return -1
                }
                state.synced.append(path.map { URL(filePath: $0).lastPathComponent } ?? "?")
                return fdatasync(file)
            }
        }
    }

    private func append(_ text: String, to name: String, _ directory: TemporaryDirectory) throws {
        let old = directory.read(name) ?? ""
        try (old + text).write(toFile: directory.file(name), atomically: false, encoding: .utf8)
    }

    @Test func onlyGrownLogsAndTheirDirectoryAreSynced() throws {
        let directory = try TemporaryDirectory("logs")
        let (disk, own) = (Disk(), URL(filePath: directory.path).lastPathComponent)
        var files = WriteAheadLogSync(directory: directory.path) { disk.synchronize($0) }
        func synced() throws -> [String] {
            let before = disk.synced.count
            try files.sync()
            return disk.synced.dropFirst(before).sorted()
        }
        #expect(try synced() == [])
        try append("a", to: "000001.log", directory)
        try append("x", to: "000002.sst", directory)
        try append("x", to: "LOG", directory)
        #expect(try synced() == ["000001.log", own].sorted())
        #expect(try synced() == [])
        try append("b", to: "000001.log", directory)
        #expect(try synced() == ["000001.log"])
        try append("c", to: "000003.log", directory)
        #expect(try synced() == ["000003.log", own].sorted())
        try FileManager.default.removeItem(atPath: directory.file("000001.log"))
        try append("d", to: "000003.log", directory)
        #expect(try synced() == ["000003.log"])
        disk.fail(1)
        try append("e", to: "000003.log", directory)
        #expect(throws: RetryStoreError.self) { try files.sync() }
        #expect(try synced() == ["000003.log"], "a failed sync doesn't count")
    }

    @Test func missingDirectoryIsReported() throws {
        let directory = try TemporaryDirectory("logs")
        var files = WriteAheadLogSync(directory: directory.file("none")) { fdatasync($0) }
        #expect(throws: RetryStoreError.self) { try files.sync() }
    }

    @Test func failedSyncFlushesEverythingBeforeTheNextSuccess() throws {
        let directory = try TemporaryDirectory("store")
        let disk = Disk()
        var settings = RetryStore.Settings(directory: directory.file("store"), sourceTopic: "jobs")
        settings.synchronize = { disk.synchronize($0) }
        let store = try RetryStore(settings)
        defer { store.close() }
        let partition = try store.partition(0)
        let reported = Mutex<[RetryStoreError?]>([])
        let device = DeviceKey(high: 1, low: 1)
        let state = DeviceState(presence: 1, learnedMilliseconds: 2, expiryMilliseconds: .max)
        func put() throws {
            var batch = store.makeBatch()
            batch.put(partition, device: device, state)
            let result = Awaited<BatchResult>()
            store.submit(batch) { result.set($0) }
            #expect(try result.wait().error == nil)
        }
        try put()
        #expect(try store.synced() == nil)
        #expect(disk.synced.contains { $0.hasSuffix(".log") })
        #expect(partition.devices.number("rocksdb.num-entries-active-mem-table") == 1)

        store.observeFailures { failure in reported.withLock { $0.append(failure) } }
        try put()
        disk.fail(1)
        let failure = try #require(try store.synced())
        #expect(failure.isTransient)
        #expect("\(failure)".contains("\(store.directory): can't sync 0"))
        #expect("\(failure)".contains("Input/output error"))
        // The system would report success now, although data may be lost.
        try eventually("syncs succeed again") { try store.synced() == nil }
        #expect(partition.devices.number("rocksdb.num-entries-active-mem-table") == 0)
        #expect(try store.failure == nil && store.synced() == nil)
    }
}

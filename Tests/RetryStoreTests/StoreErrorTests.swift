import CRocksDB
import Foundation
import SluiceModel
import TestSupport
import Testing

@testable import RetryStore

@Suite struct StoreErrorTests {
    @Test func storeOfAnotherTopicIsRefused() throws {
        let directory = try TemporaryDirectory("store")
        try RetryStore.make(directory, topic: "jobs").close()
        #expect(
            throws: RetryStoreError.wrongTopic(
                directory: directory.file("store"), found: "jobs", expected: "other")
        ) {
            try RetryStore.make(directory, topic: "other")
        }
        try RetryStore.make(directory, topic: "jobs").close()
    }

    @Test(arguments: [("2", "2"), ("x\u{1b}", "of an unknown kind"), ("", "of an unknown kind")])
    func storeOfAnotherFormatIsRefused(written: String, reported: String) throws {
        let directory = try TemporaryDirectory("store")
        try RetryStore.make(directory).close()
        try change(directory) { database, meta in
            try database.call {
                rocksdb_put_cf(
                    database.handle, self.write.options, meta.handle, "format", 6, written,
                    written.utf8.count, $0)
            }
        }
        let expected = RetryStoreError.format(directory: directory.file("store"), found: reported)
        #expect(throws: expected) { try RetryStore.make(directory) }
        #expect(throws: expected) { try StoreInspector(directory: directory.file("store")) }
    }

    @Test func databaseWithoutFormatIsRefused() throws {
        let directory = try TemporaryDirectory("store")
        do {
            let store = try RetryStore.make(directory)
            _ = try store.partition(0)
            store.close()
        }
        try change(directory) { database, meta in
            try database.call {
                rocksdb_delete_cf(database.handle, self.write.options, meta.handle, "format", 6, $0)
            }
        }
        #expect {
            try RetryStore.make(directory)
        } throws: {
            guard case .corrupt = $0 as? RetryStoreError else { return false }
            return true
        }
    }

    @Test func directoryInUseIsRefused() throws {
        let directory = try TemporaryDirectory("store")
        let locked = RetryStoreError.locked(directory: directory.file("store"))
        do {
            let store = try RetryStore.make(directory)
            defer { store.close() }
            #expect(throws: locked) { try RetryStore.make(directory) }
        }
        let child = try ChildProcess(
            Executables.built("sluice-store-writer"), ["hold", directory.file("store")])
        try child.waitForOutput("open\n")
        #expect(throws: locked) { try RetryStore.make(directory) }
        child.closeInput()
        #expect(try child.wait() == .status(0))
        try RetryStore.make(directory).close()
    }

    @Test func fileInPlaceOfTheDirectoryIsRefused() throws {
        let directory = try TemporaryDirectory("store")
        try directory.write("text", to: "store")
        let path = directory.file("store")
        #expect(throws: RetryStoreError.notADirectory(directory: path)) { try RetryStore.make(directory) }
        #expect(throws: RetryStoreError.notADirectory(directory: path + "/below")) {
            try RetryStore(RetryStore.Settings(directory: path + "/below", sourceTopic: "jobs"))
        }
        #expect(throws: RetryStoreError.notADirectory(directory: path)) {
            try StoreInspector(directory: path)
        }
    }

    @Test func missingDirectoriesAreCreated() throws {
        let directory = try TemporaryDirectory("store")
        let path = directory.file("a/b//c/")
        try RetryStore(RetryStore.Settings(directory: path, sourceTopic: "jobs")).close()
        #expect(try StoreInspector(directory: path).reader.sourceTopic == "jobs")
    }

    @Test func inspectorCreatesNothing() throws {
        let directory = try TemporaryDirectory("store")
        let path = directory.file("store")
        #expect(throws: RetryStoreError.missing(directory: path)) { try StoreInspector(directory: path) }
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        #expect(throws: RetryStoreError.missing(directory: path)) { try StoreInspector(directory: path) }
        #expect(try FileManager.default.contentsOfDirectory(atPath: path).isEmpty)
    }

    /// The kernel's own file system, where even root may not write.
    @Test func unwritableDirectoryIsRefused() throws {
        let path = "/sys/sluice-test"
        #expect(throws: RetryStoreError.readOnly(directory: path)) {
            try RetryStore(RetryStore.Settings(directory: path, sourceTopic: "jobs"))
        }
    }

    @Test(arguments: [
        (
            "IO error: No space left on device: While appending to file: /d/1.log: No space left on device",
            "noSpace"
        ),
        ("IO error: While appending to file: /d/1.log: Disk quota exceeded", "quota"),
        ("IO error: While open a file for appending: /d/1.log: Read-only file system", "readOnly"),
        ("IO error: While lock file: /d/LOCK: Resource temporarily unavailable", "locked"),
        ("Corruption: block checksum mismatch", "corrupt"),
        ("IO error: No such file or directory: While open a file for random read: /d/1.sst", "corrupt"),
        ("IO error: While fdatasync: /d/1.log: Input/output error", "io"),
    ])
    func rocksDBErrorsAreClassified(text: String, kind: String) {
        let error = RocksFailure(text: text).error(in: "/d")
        let found =
            switch error {
            case .noSpace: "noSpace"
            case .quota: "quota"
            case .readOnly: "readOnly"
            case .locked: "locked"
            case .corrupt: "corrupt"
            case .io: "io"
            default: "another"
            }
        #expect(found == kind)
        #expect(error.description.contains("/d"))
        #expect(error.isTransient == ["noSpace", "quota", "readOnly", "io"].contains(kind))
        #expect(error.needsReopening == ["quota", "readOnly", "io"].contains(kind))
    }

    private final class Write {
        let options: OpaquePointer = rocksdb_writeoptions_create()
        deinit { rocksdb_writeoptions_destroy(options) }
    }

    private let write = Write()

    /// Changes the database behind the store's back.
    private func change(
        _ directory: TemporaryDirectory, _ body: (Database, ColumnFamily) throws -> Void
    ) throws {
        let (database, families) = try Database.open(
            directory.file("store"), options: StoreOptions(blockCacheBytes: 1 << 20, memtableBytes: 1 << 20),
            readOnly: false)
        try body(database, try #require(families.first { $0.name == "default" }))
    }
}

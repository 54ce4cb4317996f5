import Foundation
import TestSupport
import Testing

@testable import RetryStore

/// Pushes have payloads and device tokens, so the store's directory and files are private to its owner.
@Suite struct StoreRightsTests {
    private func mode(_ path: String) throws -> mode_t {
        var status = stat()
        try #require(lstat(path, &status) == 0)
        return status.st_mode & 0o777
    }

    @Test func newDirectoryIsPrivate() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        #expect(store.exposures.isEmpty)
        store.close()
        #expect(try mode(directory.file("store")) == 0o700)
    }

    @Test func accessOfOthersIsRevoked() throws {
        let directory = try TemporaryDirectory("store")
        let path = directory.file("store")
        let first = try RetryStore.make(directory)
        _ = try first.partition(0)
        first.close()
        try directory.write("elsewhere", to: "target")
        chmod(directory.file("target"), 0o644)
        symlink(directory.file("target"), "\(path)/link.sst")
        chmod(path, 0o777)
        let names = try StoreDirectory(path: path).names().filter { !$0.hasPrefix(".") && $0 != "link.sst" }
        for name in names { chmod("\(path)/\(name)", 0o666) }
        #expect(try StoreDirectory(path: path).protect().isEmpty)
        #expect(try mode(path) == 0o700)
        #expect(names.count > 3)
        for name in names { #expect(try mode("\(path)/\(name)") == 0o600, "\(name)") }
        // A link's target isn't the store's.
        #expect(try mode(directory.file("target")) == 0o644)
        unlink("\(path)/link.sst")
        let second = try RetryStore.make(directory)
        #expect(second.exposures.isEmpty)
        second.close()
    }

    @Test func emptyDirectoryBecomesPrivate() throws {
        let directory = try TemporaryDirectory("store")
        mkdir(directory.file("store"), 0o755)
        // A volume of its own has this directory.
        mkdir(directory.file("store/lost+found"), 0o700)
        chmod(directory.file("store"), 0o755)
        let store = try RetryStore.make(directory)
        #expect(store.exposures.isEmpty)
        store.close()
        #expect(try mode(directory.file("store")) == 0o700)
    }

    @Test func directoryWithForeignFilesIsReportedNotChanged() throws {
        let directory = try TemporaryDirectory("store")
        let path = directory.file("store")
        mkdir(path, 0o755)
        chmod(path, 0o755)
        try directory.write("of another program", to: "store/notes.txt")
        chmod("\(path)/notes.txt", 0o644)
        let store = try RetryStore.make(directory)
        let exposure = try #require(store.exposures.first)
        #expect(store.exposures.count == 1)
        #expect(exposure.contains("mode 0755") && exposure.contains("`chmod 700 \(path)`"))
        store.close()
        #expect(try mode(path) == 0o755)
        #expect(try mode("\(path)/notes.txt") == 0o644)
    }
}

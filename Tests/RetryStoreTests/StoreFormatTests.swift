import Foundation
import SluiceModel
import TestSupport
import Testing

@testable import RetryStore

/// Stores that workers of earlier versions wrote, in Tests/RetryStoreTests/Formats. `Deploy/checks/upgrade` tries whole
/// workers of two versions.
@Suite("Retry store: formats of earlier versions")
struct StoreFormatTests {
    /// Unpacks a store of twelve pushes of the topic sluice.jobs, which were held for their time.
    private func unpacked(_ name: String) throws -> TemporaryDirectory {
        let directory = try TemporaryDirectory("format")
        let archive = URL(filePath: #filePath).deletingLastPathComponent().appending(
            path: "Formats/\(name).tar.gz")
        let path = directory.file("store")
        try FileManager.default.createDirectory(
            atPath: path, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
        let result = try ChildProcess.run("tar", ["-xzf", archive.path(percentEncoded: false), "-C", path])
        #expect(result.exit == .status(0), "\(result.standardError)")
        return directory
    }

    /// Payloads of all items, and whether each item has the bytes that this version writes for the same push.
    private func items(_ directory: String) throws -> (payloads: [String], areSame: Bool) {
        var (payloads, areSame) = ([String](), true)
        try StoreInspector(directory: directory).reader.visitItems(of: 0) { item in
            guard let length = try? StoredPush.tokenTextLength(of: item.push) else { return false }
            withUnsafeTemporaryAllocation(byteCount: max(1, length), alignment: 1) { text in
                guard let stored = try? StoredPush(decoding: item.push, tokenText: text) else { return }
                payloads.append(String(decoding: stored.push.payload, as: UTF8.self))
                var writer = ByteWriter()
                stored.encode(into: &writer)
                areSame = areSame && writer.bytes.elementsEqual(item.push)
            }
            return true
        }
        return (payloads, areSame)
    }

    @Test("an update reads a store of format 1 whole, and a roll-back would read what this version writes")
    func formerStore() throws {
        let directory = try unpacked("store-1")
        let report = try StoreInspector(directory: directory.file("store")).verify()
        #expect(report.problems.isEmpty)
        #expect(report.items == 12)
        let (payloads, areSame) = try items(directory.file("store"))
        #expect(
            Set(payloads.map { $0.filter { $0 != " " } })
                == Set((0..<12).map { #"{"aps":{"alert":"Held\#($0)"}}"# }))
        // An earlier version reads the form without further parts, so pushes that need none keep it.
        #expect(areSame)
        let store = try RetryStore.make(directory, topic: "sluice.jobs")
        #expect(try store.partition(0).number == 0)
        store.close()
    }
}

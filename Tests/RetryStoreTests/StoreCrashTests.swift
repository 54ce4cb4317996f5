import Foundation
import SluiceModel
import TestSupport
import Testing

@testable import RetryStore

/// State after a crash: the files are copied, cut off or damaged, and opened.
@Suite struct StoreCrashTests {
    private let device = DeviceKey(high: 9, low: 9)

    /// Three batches into one log: put two items, replace one and remove the other, put a third.
    private static let states: [[Int64]] = [[], [10, 20], [30], [30, 40]]

    private func writeThree(_ store: RetryStore, _ log: () throws -> Int) throws -> [Int] {
        let partition = try store.partition(0)
        var lengths = [try log()]
        let value: [UInt8] = [1, 2, 3]
        func put(_ batch: inout StoreBatch, _ offset: Int64, _ due: Int64, _ before: Int64?) {
            value.withUnsafeBytes {
                batch.put(
                    partition, ItemKey(device: device, offset: offset), due: due, replacingDue: before,
                    value: $0)
            }
        }
        for number in 0..<3 {
            let result = try store.submitted { batch in
                switch number {
                case 0:
                    put(&batch, 1, 10, nil)
                    put(&batch, 2, 20, nil)
                case 1:
                    put(&batch, 1, 30, 10)
                    batch.remove(partition, ItemKey(device: device, offset: 2), due: 20)
                default: put(&batch, 3, 40, nil)
                }
            }
            #expect(result.error == nil)
            #expect(try store.synced() == nil)
            lengths.append(try log())
        }
        return lengths
    }

    @Test func truncatedLogYieldsWholeBatches() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let lengths = try writeThree(store) { try size(of: log(in: directory.file("store"))) }
        #expect(Set(lengths).count == 4)
        for length in lengths[0]...lengths[3] {
            let copy = try TemporaryDirectory("crash")
            try FileManager.default.copyItem(atPath: directory.file("store"), toPath: copy.file("store"))
            try truncate(log(in: copy.file("store")), to: length)
            let opened = try RetryStore.make(copy)
            defer { opened.close() }
            let whole = lengths.lastIndex { $0 <= length }!
            let dues = try opened.due(opened.partitions[0]).entries.map(\.due)
            #expect(dues == Self.states[whole], "log of \(length) bytes")
            let loaded = try opened.loaded(opened.partitions[0], device)
            #expect(loaded.items.map(\.due).sorted() == Self.states[whole], "log of \(length) bytes")
        }
    }

    @Test func damageInsideALogIsRefused() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let lengths = try writeThree(store) { try size(of: log(in: directory.file("store"))) }
        // A byte of the first batch's record, after its header.
        for position in [lengths[0] + 10, lengths[1] - 1] {
            let copy = try TemporaryDirectory("crash")
            try FileManager.default.copyItem(atPath: directory.file("store"), toPath: copy.file("store"))
            try damage(log(in: copy.file("store")), at: position)
            #expect {
                try RetryStore.make(copy)
            } throws: { error in
                guard case .corrupt(let place, _) = error as? RetryStoreError else { return false }
                return place == copy.file("store")
            }
        }
    }

    /// The manifest lists the log, so its missing end can't pass for a torn one.
    @Test(arguments: [false, true]) func missingOrShortEarlierLogIsRefused(isShort: Bool) throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        try put(store, partition, 1)
        // The due entries are still in this log when the items are flushed and another log is begun.
        let first = try log(in: directory.file("store"))
        try partition.items.flush()
        try put(store, partition, 2)
        #expect(try store.synced() == nil)
        #expect(try log(in: directory.file("store")) != first)
        let copy = try TemporaryDirectory("crash")
        try FileManager.default.copyItem(atPath: directory.file("store"), toPath: copy.file("store"))
        let copied = copy.file("store/" + URL(filePath: first).lastPathComponent)
        if isShort {
            try truncate(copied, to: try size(of: copied) - 1)
        } else {
            try FileManager.default.removeItem(atPath: copied)
        }
        #expect {
            try RetryStore.make(copy)
        } throws: { error in
            guard case .corrupt = error as? RetryStoreError else { return false }
            return true
        }
    }

    private func put(_ store: RetryStore, _ partition: StorePartition, _ offset: Int64) throws {
        try store.submitted { batch in
            withUnsafeBytes(of: offset) {
                batch.put(
                    partition, ItemKey(device: device, offset: offset), due: offset, replacingDue: nil,
                    value: $0)
            }
        }
    }

    @Test func syncedItemsSurviveAKilledProcess() throws {
        let directory = try TemporaryDirectory("store")
        let path = directory.file("store")
        var least: Int64 = 0
        for round in 1...3 as ClosedRange<Int64> {
            let child = try ChildProcess(Executables.built("sluice-store-writer"), ["write", path])
            try child.waitForOutput("synced \(round * 400)\n")
            child.signal(SIGKILL)
            try child.wait()
            let synced = child.standardOutput.split(separator: "\n").compactMap { line in
                line.hasPrefix("synced ") ? Int64(line.dropFirst(7)) : nil
            }
            // Each process starts at 0 again. Items synced by earlier processes stay.
            least = max(least, synced.last ?? 0)
            let store = try RetryStore.make(directory)
            let partition = store.partitions[0]
            let offsets = try store.due(partition).entries.map(\.key.offset)
            #expect(Int64(offsets.count) >= least)
            #expect(offsets == Array(0..<Int64(offsets.count)))
            // Only whole batches survive.
            #expect(offsets.count.isMultiple(of: 10))
            var items = 0
            for high in 0..<7 as Range<UInt64> {
                items += try store.loaded(partition, DeviceKey(high: high, low: 1)).items.count
            }
            #expect(items == offsets.count)
            store.close()
        }
    }

    @Test func halfDroppedPartitionIsGoneAfterReopening() throws {
        let directory = try TemporaryDirectory("store")
        do {
            let store = try RetryStore.make(directory)
            let partition = try store.partition(4)
            _ = try store.partition(5)
            #expect(try store.submitted { $0.remove(partition, device: device) }.error == nil)
            try partition.items.removed()
            store.close()
        }
        let store = try RetryStore.make(directory)
        defer { store.close() }
        #expect(store.partitions.map(\.number) == [5])
        #expect(try store.partition(4).number == 4)
    }

    // MARK: Damaged tables

    /// A closed store with an item in a blob file.
    private func writtenOut(_ directory: TemporaryDirectory) throws {
        let store = try RetryStore.make(directory)
        let partition = try store.partition(0)
        let value = [UInt8](repeating: 0x61, count: 1000)
        try store.submitted { batch in
            value.withUnsafeBytes {
                batch.put(
                    partition, ItemKey(device: device, offset: 1), due: 10, replacingDue: nil, value: $0)
            }
        }
        store.close()
    }

    @Test func damagedValueIsReported() throws {
        let directory = try TemporaryDirectory("store")
        try writtenOut(directory)
        let blob = try #require(try files(in: directory.file("store"), suffix: ".blob").first)
        try damage(blob, at: try size(of: blob) / 2)
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let reported = Awaited<RetryStoreError?>()
        store.observeFailures { reported.set($0) }
        let result = try store.submitted { $0.load(store.partitions[0], device) }
        guard case .corrupt = result.error else {
            Issue.record("\(String(describing: result.error))")
            return
        }
        #expect(result.loads.isEmpty)
        #expect(try reported.wait() == result.error)
    }

    @Test func damagedTableIsReported() throws {
        let directory = try TemporaryDirectory("store")
        try writtenOut(directory)
        let tables = try files(in: directory.file("store"), suffix: ".sst")
        #expect(tables.count >= 2)
        for table in tables { try damage(table, at: 5) }
        do {
            let store = try RetryStore.make(directory)
            defer { store.close() }
            _ = try store.loaded(store.partitions[0], device)
            Issue.record("the damage wasn't reported")
        } catch let error as RetryStoreError {
            guard case .corrupt = error else {
                Issue.record("\(error)")
                return
            }
        }
    }

    @Test(arguments: ["CURRENT", ".sst", ".blob"])
    func missingFileIsReported(suffix: String) throws {
        let directory = try TemporaryDirectory("store")
        try writtenOut(directory)
        let missing = try #require(try files(in: directory.file("store"), suffix: suffix).first)
        try FileManager.default.removeItem(atPath: missing)
        do {
            let store = try RetryStore.make(directory)
            defer { store.close() }
            _ = try store.due(store.partitions[0])
            _ = try store.loaded(store.partitions[0], device)
            Issue.record("the damage wasn't reported")
        } catch let error as RetryStoreError {
            guard case .corrupt = error else {
                Issue.record("\(error)")
                return
            }
        }
    }

    // MARK: Files

    /// The newest log.
    private func log(in directory: String) throws -> String {
        let logs = try files(in: directory, suffix: ".log").sorted()
        return try #require(logs.last)
    }

    private func files(in directory: String, suffix: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: directory).filter { $0.hasSuffix(suffix) }
            .map { "\(directory)/\($0)" }
    }

    private func size(of path: String) throws -> Int {
        try Data(contentsOf: URL(filePath: path)).count
    }

    private func truncate(_ path: String, to length: Int) throws {
        let file = try FileHandle(forUpdating: URL(filePath: path))
        try file.truncate(atOffset: UInt64(length))
        try file.close()
    }

    private func damage(_ path: String, at position: Int) throws {
        var data = try Data(contentsOf: URL(filePath: path))
        data[position] ^= 0x55
        try data.write(to: URL(filePath: path))
    }
}

import SluiceModel
import TestSupport
import Testing

@testable import RetryStore

/// Marks of records whose pushes are stored under other device tokens.
@Suite struct StoreMarkTests {
    private func mark(_ offset: Int64) -> RelocationMark {
        RelocationMark(offset: offset, apnsID: APNSID(high: .max - UInt64(offset), low: UInt64(offset)))
    }

    private func marks(_ store: RetryStore, _ partition: StorePartition) throws -> [RelocationMark] {
        let awaited = Awaited<Result<[RelocationMark], RetryStoreError>>()
        store.loadMarks(of: partition) { awaited.set($0) }
        return try awaited.wait("marks").get()
    }

    /// Runs `body` with a store, and closes the store afterwards.
    private func with(
        _ directory: TemporaryDirectory, _ body: (RetryStore, StorePartition) throws -> Void
    ) throws {
        let store = try RetryStore.make(directory)
        defer { store.close() }
        try body(store, store.partition(2))
    }

    private let push = TestPush(
        token: String(repeating: "0a", count: 32), payload: "{}", partition: 2, offset: 7)

    @Test func marksAreStoredByOffsetApartFromItems() throws {
        let directory = try TemporaryDirectory("store")
        try with(directory) { store, partition in
            let other = try store.partition(3)
            try store.submitted { batch in
                for offset in [7, 300, 2] as [Int64] { batch.put(partition, mark(offset)) }
                push.withStored { batch.put(partition, store.key(push), due: 100, replacingDue: nil, $0) }
                batch.put(other, mark(9))
            }
            #expect(try marks(store, partition) == [mark(2), mark(7), mark(300)])
            #expect(try store.scannedItems(partition) == [store.key(push)])
            #expect(try store.due(partition).entries.map(\.key) == [store.key(push)])
            #expect(try store.loaded(partition, store.device(push.token)).items.map(\.offset) == [7])
            // Removing an absent mark does nothing.
            try store.submitted { batch in
                batch.removeMark(partition, offset: 7)
                batch.removeMark(partition, offset: 8)
            }
        }
        try with(directory) { store, partition in
            #expect(try marks(store, partition) == [mark(2), mark(300)])
            #expect(try store.loaded(partition, store.device(push.token)).items.count == 1)
            #expect(try store.dropped(partition) == nil)
            let (anew, other) = (try store.partition(2), try store.partition(3))
            #expect(try marks(store, anew) == [])
            #expect(try marks(store, other) == [mark(9)])
        }
    }

    @Test func inspectorCountsMarksApartFromItems() throws {
        let directory = try TemporaryDirectory("store")
        let damaged = RelocationMarkBytes.key(5)
        try with(directory) { store, partition in
            try store.submitted { batch in
                for offset in [3, 7] as [Int64] { batch.put(partition, mark(offset)) }
                push.withStored { batch.put(partition, store.key(push), due: 100, replacingDue: nil, $0) }
            }
        }
        do {
            let inspector = try StoreInspector(directory: directory.file("store"))
            let report = inspector.verify()
            #expect(report.isSound, "\(report.problems)")
            #expect((report.items, report.marks, report.dueEntries) == (1, 2, 1))
            var (items, found): ([Int64], [RelocationMark]) = ([], [])
            try inspector.reader.visitItems(of: 2) {
                items.append($0.key.offset)
                return true
            }
            try inspector.reader.visitMarks(of: 2) {
                found.append($0)
                return true
            }
            #expect((items, found) == ([7], [mark(3), mark(7)]))
        }
        try with(directory) { store, partition in
            try store.submitted { batch in
                batch.put(partition.items, ItemKeyBytes(damaged), count: 2) {
                    $0.storeBytes(of: 0x0909, as: UInt16.self)
                }
            }
            #expect(try marks(store, partition) == [mark(3), mark(7)])
        }
        let report = try StoreInspector(directory: directory.file("store")).verify()
        #expect(report.problems == [StoreProblem(partition: 2, key: damaged, kind: .mark)])
        #expect(
            report.problems.first?.description == "partition 2, offset 5: the mark of a record can't be read")
    }

    @Test func changelogRestoresMarks() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(2)
        var keys: RestoreFilter?
        func append(_ offset: Int64, _ value: [UInt8]?, _ chunk: ChangelogChunk) {
            var key = ByteWriter()
            ChangelogKey.mark(offset: offset).encode(into: &key)
            chunk.append(ChangelogRecord(key: Array(key.bytes), value: value), among: &keys)
        }
        func value(_ offset: Int64) -> [UInt8] {
            var value = ByteWriter()
            ChangelogKey.encode(mark(offset), into: &value)
            return Array(value.bytes)
        }
        let chunk = ChangelogChunk(of: store)
        chunk.begin(partition)
        for offset in [4, 5, 6] as [Int64] { append(offset, value(offset), chunk) }
        append(5, nil, chunk)
        append(8, Array(value(8).dropLast()), chunk)
        #expect((chunk.count, chunk.unknown) == (4, 1))
        try store.restored(chunk)
        #expect(try marks(store, partition) == [mark(4), mark(6)])
        chunk.begin(partition)
        append(4, nil, chunk)
        try store.restored(chunk)
        #expect(try marks(store, partition) == [mark(6)])
        #expect(try store.due(partition).entries.isEmpty)
    }
}

import RetryStore
import SluiceModel
import TestSupport
import Testing

/// The store as a copy of the changelog.
@Suite struct StoreCopyTests {
    private static let position = ChangelogCheckpoint(offset: 17, reachedMilliseconds: 1000)

    private func makeStore(_ directory: TemporaryDirectory) throws -> RetryStore {
        var settings = RetryStore.Settings(directory: directory.file("store"), sourceTopic: "jobs")
        settings.isChangelogBacked = true
        return try RetryStore(settings)
    }

    @Test func copyWithoutPositionIsOpenedEmpty() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory)
        defer { store.close() }
        let first = try store.copy(of: 3)
        #expect(first.position == nil)
        try store.restored(first.handle, [push(1, due: 50)])
        #expect(try store.due(first.handle).entries.map(\.due) == [50])
        let second = try store.copy(of: 3)
        #expect(second.position == nil)
        #expect(second.handle !== first.handle)
        #expect(try store.due(second.handle).entries.isEmpty)
        #expect(store.partitions.map(\.number) == [3])
    }

    @Test func positionIsReturnedOnceWithTheRestoredItems() throws {
        let directory = try TemporaryDirectory("store")
        do {
            let store = try makeStore(directory)
            defer { store.close() }
            let copy = try store.copy(of: 0)
            try store.restored(copy.handle, [push(1, due: 50), push(2, due: 40)])
            try store.checkpointed(copy.handle, Self.position)
        }
        let store = try makeStore(directory)
        defer { store.close() }
        let copy = try store.copy(of: 0, reachedAfter: 999)
        #expect(copy.position == Self.position)
        #expect(try store.due(copy.handle).entries.map(\.key.offset) == [2, 1])
        let again = try store.copy(of: 0, reachedAfter: 999)
        #expect(again.position == nil)
        #expect(try store.due(again.handle).entries.isEmpty)
    }

    @Test func outdatedPositionIsIgnored() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory)
        defer { store.close() }
        let copy = try store.copy(of: 0)
        try store.restored(copy.handle, [push(1, due: 50)])
        try store.checkpointed(copy.handle, Self.position)
        let later = try store.copy(of: 0, reachedAfter: 1000)
        #expect(later.position == nil)
        #expect(try store.due(later.handle).entries.isEmpty)
    }

    @Test func lastRecordOfAKeyWins() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory)
        defer { store.close() }
        let copy = try store.copy(of: 0)
        try store.restored(
            copy.handle, [push(1, due: 50), push(2, due: 40), push(1, due: 30), push(2, due: nil)])
        #expect(try store.due(copy.handle).entries.map(\.due) == [30])
        try store.restored(copy.handle, [push(1, due: 60), push(3, due: 10)])
        #expect(try store.due(copy.handle).entries.map(\.due) == [10, 60])
        try store.restored(copy.handle, [push(1, due: nil), push(3, due: 10)])
        #expect(try store.due(copy.handle).entries.map(\.key.offset) == [3])
        let token = TestPush(token: String(repeating: "a1", count: 32), payload: "{}", offset: 0).token
        #expect(try store.loaded(copy.handle, store.device(token)).items.map(\.offset) == [3])
    }

    @Test func copiesOpenedTogetherKeepTheirPositions() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory)
        defer { store.close() }
        // Copies: with a position, with an outdated position, without a position, and missing.
        for number in [0, 1, 2] as [Int32] {
            let copy = try store.copy(of: number)
            try store.restored(copy.handle, [push(Int64(number), due: 50)])
            guard number < 2 else { continue }
            let position = ChangelogCheckpoint(offset: 17, reachedMilliseconds: number == 0 ? 1000 : 10)
            try store.checkpointed(copy.handle, position)
        }
        let copies = try store.copies(of: [3, 2, 0, 1], reachedAfter: 100)
        #expect(copies.map(\.handle.number) == [3, 2, 0, 1])
        #expect(copies.map(\.position) == [nil, nil, Self.position, nil])
        let due = try copies.map { try store.due($0.handle).entries.map(\.key.offset) }
        #expect(due == [[], [], [0], []])
        #expect(store.partitions.map(\.number) == [0, 1, 2, 3])
        #expect(try store.copies(of: []).isEmpty)
        // All positions are consumed, including the unusable ones.
        let again = try store.copies(of: [0, 1, 2, 3])
        #expect(again.allSatisfy { $0.position == nil })
    }

    /// The changelog would refuse an invalid position at every start.
    @Test(arguments: [
        ChangelogCheckpoint(offset: -1, reachedMilliseconds: 1000),
        ChangelogCheckpoint(offset: .min, reachedMilliseconds: 1000),
        ChangelogCheckpoint(offset: 17, reachedMilliseconds: .max),
        ChangelogCheckpoint(offset: 17, reachedMilliseconds: .min),
    ])
    func invalidPositionIsIgnored(_ position: ChangelogCheckpoint) throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory)
        defer { store.close() }
        let copy = try store.copy(of: 0)
        try store.restored(copy.handle, [push(1, due: 50)])
        try store.checkpointed(copy.handle, position)
        let again = try store.copy(of: 0, reachedAfter: .min)
        #expect(again.position == nil)
        #expect(try store.due(again.handle).entries.isEmpty)
    }

    private func push(_ offset: Int64, due: Int64?) -> ChangelogRecord { .push(offset, due: due) }
}

extension RetryStore {
    fileprivate func copy(of number: Int32, reachedAfter: Int64 = 0) throws -> RestorablePartition {
        try copies(of: [number], reachedAfter: reachedAfter)[0]
    }

    fileprivate func copies(of numbers: [Int32], reachedAfter: Int64 = 0) throws -> [RestorablePartition] {
        let awaited = Awaited<Result<[RestorablePartition], RetryStoreError>>()
        openCopies(partitions: numbers, reachedAfter: reachedAfter) { awaited.set($0) }
        return try awaited.wait("copies").get()
    }

    fileprivate func restored(
        _ partition: StorePartition, _ records: [ChangelogRecord]
    ) throws {
        let chunk = ChangelogChunk(of: self)
        chunk.begin(partition)
        var keys: RestoreFilter?
        for record in records { chunk.append(record, among: &keys) }
        try restored(chunk)
    }

    fileprivate func checkpointed(_ partition: StorePartition, _ position: ChangelogCheckpoint) throws {
        let awaited = Awaited<Result<Void, RetryStoreError>>()
        checkpoint(partition, position: position) { awaited.set($0) }
        try awaited.wait("a checkpoint").get()
    }
}

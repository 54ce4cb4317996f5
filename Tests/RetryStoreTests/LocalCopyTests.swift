import Foundation
import SluiceModel
import TestSupport
import Testing

@testable import RetryStore

/// Obsolete copies of the changelog, and their removal.
@Suite struct LocalCopyTests {
    private static let absence: Int64 = 1_800_000
    private static let now: Int64 = 1_700_000_000_000

    private func copy(_ partition: Int32, age: Int64?) -> LocalCopy {
        LocalCopy(
            partition: partition,
            position: age.map { ChangelogCheckpoint(offset: 1, reachedMilliseconds: Self.now - $0) })
    }

    private func obsolete(_ copies: [LocalCopy], kept: Set<Int32> = []) -> [Int32] {
        LocalCopy.obsolete(among: copies, kept: kept, at: Self.now, longestAbsence: Self.absence)
    }

    // MARK: The decision

    @Test func copyIsKeptForTheLongestAbsence() {
        #expect(obsolete([copy(1, age: 0), copy(2, age: Self.absence - 1)]) == [])
        #expect(obsolete([copy(2, age: Self.absence + 1), copy(1, age: Self.absence)]) == [1, 2])
    }

    @Test func copyWithoutPositionIsObsolete() {
        #expect(obsolete([copy(4, age: nil), copy(5, age: 0)]) == [4])
    }

    @Test func assignedPartitionsAreKept() {
        let copies = [copy(1, age: nil), copy(2, age: 10 * Self.absence), copy(3, age: nil)]
        #expect(obsolete(copies, kept: [1, 2, 9]) == [3])
        #expect(obsolete(copies, kept: [1, 2, 3]) == [])
    }

    /// A clock set back by a little is tolerated. Beyond that, the age is unknown.
    @Test func copyFromTheFutureIsKeptOnlyWithinTheAbsence() {
        #expect(obsolete([copy(1, age: -Self.absence)]) == [])
        #expect(obsolete([copy(1, age: -Self.absence - 1)]) == [1])
        #expect(obsolete([copy(1, age: .min / 2), copy(2, age: .max / 2)]) == [1, 2])
        let broken = LocalCopy(
            partition: 3, position: ChangelogCheckpoint(offset: 0, reachedMilliseconds: .min))
        #expect(obsolete([broken]) == [3])
    }

    /// Dropping a copy and opening its partition follow the same rule.
    @Test(arguments: [-1, 0, 1] as [Int64]) func openingUsesTheSameAgeLimit(_ difference: Int64) throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory)
        defer { store.close() }
        let left = ChangelogCheckpoint(
            offset: 17, reachedMilliseconds: Self.now - Self.absence + difference)
        try store.leave(0, left, payload: "x")
        let isObsolete = LocalCopy(partition: 0, position: left).isObsolete(
            at: Self.now, longestAbsence: Self.absence)
        #expect(isObsolete == (difference <= 0))
        let opened = try store.openedCopies([0], reachedAfter: Self.now - Self.absence)[0]
        #expect((opened.position == nil) == isObsolete)
    }

    // MARK: The store

    private func makeStore(_ directory: TemporaryDirectory) throws -> RetryStore {
        var settings = RetryStore.Settings(directory: directory.file("store"), sourceTopic: "jobs")
        settings.isChangelogBacked = true
        return try RetryStore(settings)
    }

    /// Searches the store's files for a text.
    private func has(_ text: String, _ store: RetryStore) throws -> Bool {
        let files = try FileManager.default.contentsOfDirectory(atPath: store.directory)
        return files.contains { name in
            let data = try? Data(contentsOf: URL(filePath: "\(store.directory)/\(name)"))
            return data?.range(of: Data(text.utf8)) != nil
        }
    }

    private static func payload(_ partition: Int32) -> String {
        #"{"secret":"\#(String(repeating: "p\(partition)-", count: 30))"}"#
    }

    @Test func droppedPayloadsAreRemovedFromTheDisk() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory)
        defer { store.close() }
        let recent = ChangelogCheckpoint(offset: 5, reachedMilliseconds: Self.now - 1000)
        let old = ChangelogCheckpoint(offset: 5, reachedMilliseconds: Self.now - Self.absence)
        // Cases: owned without a position, left recently, left long ago, left without a position.
        for (number, position) in [(0, nil), (1, recent), (2, old), (3, nil)]
            as [(Int32, ChangelogCheckpoint?)]
        {
            try store.leave(number, position, payload: Self.payload(number))
        }
        for number in 0..<4 as Range<Int32> { #expect(try has(Self.payload(number), store)) }
        let dropped = try store.droppedCopies(except: [0], at: Self.now, absence: Self.absence)
        #expect(dropped == DroppedCopies(partitions: [2, 3], areMore: false))
        #expect(store.partitions.map(\.number) == [0, 1])
        // RocksDB removes files on a thread of its own.
        try eventually("the dropped payloads are removed") {
            try !has(Self.payload(2), store) && !has(Self.payload(3), store)
        }
        #expect(try has(Self.payload(0), store))
        #expect(try has(Self.payload(1), store))
        #expect(try store.droppedCopies(except: [0], at: Self.now, absence: Self.absence).partitions == [])
        // Opening finds the kept copy, and an empty partition in place of a dropped copy.
        let copies = try store.openedCopies([1, 2], reachedAfter: Self.now - Self.absence)
        #expect(copies.map(\.position) == [recent, nil])
        #expect(try copies.map { try store.due($0.handle).entries.count } == [1, 0])
    }

    @Test func copiesAreDroppedAFewAtATime() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory)
        defer { store.close() }
        for number in 0..<5 as Range<Int32> { try store.leave(number, nil, payload: "x") }
        var parts: [[Int32]] = []
        var areMore = true
        while areMore {
            let dropped = try store.droppedCopies(
                except: [3], at: Self.now, absence: Self.absence, atMost: 2)
            parts.append(dropped.partitions)
            areMore = dropped.areMore
        }
        #expect(parts == [[0, 1], [2, 4]])
        #expect(store.partitions.map(\.number) == [3])
    }

    @Test func droppedCopiesDoNotReturnAfterReopening() throws {
        let directory = try TemporaryDirectory("store")
        let left = ChangelogCheckpoint(offset: 5, reachedMilliseconds: Self.now - Self.absence)
        do {
            let store = try makeStore(directory)
            defer { store.close() }
            try store.leave(0, left, payload: "x")
            try store.leave(1, left, payload: "x")
        }
        do {
            // Opening the store finds the copies.
            let store = try makeStore(directory)
            defer { store.close() }
            #expect(store.partitions.map(\.number) == [0, 1])
            #expect(
                try store.droppedCopies(except: [1], at: Self.now, absence: Self.absence).partitions == [0])
        }
        let store = try makeStore(directory)
        defer { store.close() }
        #expect(store.partitions.map(\.number) == [1])
        // A position that outlives its partition would be returned with an empty one.
        #expect(try store.openedCopies([0], reachedAfter: 0)[0].position == nil)
    }

    /// A later opening runs after the drop. Writes to the old handle have no effect.
    @Test func openingAfterADropFindsAnEmptyPartition() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory)
        defer { store.close() }
        let handle = try store.openedCopies([0], reachedAfter: 0)[0].handle
        try store.put(handle, 1, payload: "x")
        let opened = Awaited<Result<[RestorablePartition], RetryStoreError>>()
        store.dropCopies(except: [], at: Self.now, longestAbsence: Self.absence, atMost: 8) { _ in }
        store.openCopies(partitions: [0], reachedAfter: 0) { opened.set($0) }
        let copy = try opened.wait().get()[0]
        try store.put(handle, 2, payload: "y")
        #expect(copy.handle !== handle)
        #expect(try store.due(copy.handle).entries.isEmpty)
        #expect(store.failure == nil)
    }

    @Test func statisticsCountCopiesApartFromItems() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory)
        defer { store.close() }
        for number in 0..<3 as Range<Int32> { try store.leave(number, nil, payload: Self.payload(number)) }
        let all = store.statistics()
        #expect(all.estimatedItems == 3 && all.partitions == 3 && all.copies == [])
        let some = store.statistics(of: [1])
        #expect(some.estimatedItemsByPartition == [1: 1])
        #expect(some.estimatedItems == 1 && some.partitions == 1)
        #expect(some.copies == [0, 2])
        #expect(some.copyDiskBytes > 0 && some.copyDiskBytes < some.diskBytes)
        #expect(some.diskBytes == all.diskBytes)
    }

    @Test func inspectorListsLeftCopies() throws {
        let directory = try TemporaryDirectory("store")
        let left = ChangelogCheckpoint(offset: 5, reachedMilliseconds: Self.now)
        do {
            let store = try makeStore(directory)
            defer { store.close() }
            try store.leave(0, nil, payload: "x")
            try store.leave(1, left, payload: "x")
        }
        let reader = try StoreInspector(directory: directory.file("store")).reader
        #expect(reader.partitions == [0, 1])
        #expect(try reader.leftCopies() == [LocalCopy(partition: 1, position: left)])
    }
}

extension RetryStore {
    fileprivate func openedCopies(_ numbers: [Int32], reachedAfter: Int64) throws -> [RestorablePartition] {
        let awaited = Awaited<Result<[RestorablePartition], RetryStoreError>>()
        openCopies(partitions: numbers, reachedAfter: reachedAfter) { awaited.set($0) }
        return try awaited.wait("copies").get()
    }

    fileprivate func put(_ partition: StorePartition, _ offset: Int64, payload: String) throws {
        let push = TestPush(
            token: String(repeating: "a1", count: 32), payload: payload, partition: partition.number,
            offset: offset)
        let value = push.encoded()
        let error = try submitted { batch in
            value.withUnsafeBytes {
                batch.put(partition, key(push), due: 50, replacingDue: nil, value: $0)
            }
        }.error
        if let error { throw error }
    }

    /// Leaves a partition with a flushed item, and with `position` if any. No handle remains.
    fileprivate func leave(_ number: Int32, _ position: ChangelogCheckpoint?, payload: String) throws {
        let handle = try openedCopies([number], reachedAfter: 0)[0].handle
        try put(handle, 1, payload: payload)
        guard let position else {
            for family in handle.families { try family.flush() }
            return
        }
        let awaited = Awaited<Result<Void, RetryStoreError>>()
        checkpoint(handle, position: position) { awaited.set($0) }
        try awaited.wait("a checkpoint").get()
    }

    fileprivate func droppedCopies(
        except kept: Set<Int32>, at now: Int64, absence: Int64, atMost count: Int = 8
    ) throws -> DroppedCopies {
        let awaited = Awaited<Result<DroppedCopies, RetryStoreError>>()
        dropCopies(except: kept, at: now, longestAbsence: absence, atMost: count) { awaited.set($0) }
        return try awaited.wait("a drop").get()
    }
}

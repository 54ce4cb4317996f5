import RetryStore
import SluiceModel
import Synchronization
import TestSupport
import Testing

@Suite struct StoreScanTests {
    private static func key(_ offset: Int64) -> ItemKey {
        ItemKey(device: DeviceKey(high: UInt64(offset % 3), low: 0), offset: offset)
    }

    private func fill(_ store: RetryStore, _ partition: StorePartition, _ dues: Range<Int64>) throws {
        try store.submitted { batch in
            for due in dues {
                withUnsafeBytes(of: due) {
                    batch.put(partition, Self.key(due), due: due, replacingDue: nil, value: $0)
                }
            }
        }
    }

    @Test func aScanGoesOnWhereTheOneBeforeEnded() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        try fill(store, partition, 0..<100)
        var cursor: DueCursor?
        var seen: [Int64] = []
        for _ in 0..<6 {
            let scan = try store.due(partition, after: cursor, through: 49, limit: 10)
            seen += scan.entries.map(\.due)
            cursor = scan.cursor
            #expect(scan.isEnd == (seen.count == 50))
            // What is removed behind the cursor changes nothing.
            try store.submitted { batch in
                for entry in scan.entries { batch.remove(partition, entry.key, due: entry.due) }
            }
        }
        #expect(seen == Array(0..<50))
        #expect(cursor?.entry.due == 49)
        let rest = try store.due(partition, after: cursor)
        #expect(rest.entries.map(\.due) == Array(50..<100))
        #expect(rest.isEnd)
    }

    @Test func anEntryBeforeTheCursorIsSeenFromTheBeginningOnly() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        try fill(store, partition, 10..<12)
        let cursor = try store.due(partition).cursor
        try fill(store, partition, 5..<6)
        try fill(store, partition, 20..<21)
        #expect(try store.due(partition, after: cursor).entries.map(\.due) == [20])
        #expect(try store.due(partition).entries.map(\.due) == [5, 10, 11, 20])
    }

    @Test func aStaleEntryIsRemovedAlone() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        try fill(store, partition, 1..<2)
        // As if the removal of the entry at 1 had been lost.
        try store.submitted { batch in
            withUnsafeBytes(of: 1) {
                batch.put(partition, Self.key(1), due: 9, replacingDue: nil, value: $0)
            }
        }
        #expect(try store.due(partition).entries.map(\.due) == [1, 9])
        try store.submitted { $0.removeStaleDue(partition, DueEntry(due: 1, key: Self.key(1))) }
        #expect(try store.due(partition).entries.map(\.due) == [9])
        #expect(try store.loaded(partition, Self.key(1).device).items.map(\.due) == [9])
    }

    @Test func aScanOfAllItemsHasTheStateOfItsBeginning() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        try fill(store, partition, 0..<100)
        let chunks = Mutex<[[ItemKey]]>([])
        let ended = Awaited<RetryStoreError??>()
        let changed = Awaited<RetryStoreError?>()
        store.scanItems(
            partition, chunk: 30,
            each: { [store] keys in
                let isFirst = chunks.withLock {
                    $0.append(keys)
                    return $0.count == 1
                }
                // The first chunk waits until everything is removed and more is there.
                guard isFirst else { return }
                var batch = store.makeBatch()
                for due in 0..<100 as Range<Int64> { batch.remove(partition, Self.key(due), due: due) }
                withUnsafeBytes(of: 1) {
                    batch.put(partition, Self.key(500), due: 500, replacingDue: nil, value: $0)
                }
                store.submit(batch) { changed.set($0.error) }
                _ = try? changed.wait()
            }, completion: { ended.set(.some($0)) })
        #expect(try ended.wait() == .some(nil))
        let keys = chunks.withLock { $0 }
        #expect(keys.map(\.count) == [30, 30, 30, 10])
        #expect(Set(keys.joined()) == Set((0..<100).map { Self.key($0) }))
        #expect(try store.due(partition).entries.map(\.due) == [500])
    }

    @Test func closingEndsAScan() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        let partition = try store.partition(0)
        try fill(store, partition, 0..<100)
        let began = Awaited<Void>()
        let isClosing = Mutex(false)
        let ended = Awaited<RetryStoreError??>()
        store.scanItems(
            partition, chunk: 100,
            each: { _ in
                began.set(())
                try? eventually("closing has begun") { isClosing.withLock { $0 } }
            }, completion: { ended.set(.some($0)) })
        // Waits behind the other, and never begins.
        let second = Awaited<RetryStoreError??>()
        store.scanItems(partition, chunk: 1, each: { _ in }, completion: { second.set(.some($0)) })
        try began.wait()
        isClosing.withLock { $0 = true }
        store.close()
        // The first had only its end left to find.
        #expect([.some(nil), .some(.closed)].contains(try ended.wait()))
        #expect([.some(nil), .some(.closed)].contains(try second.wait()))
    }
}

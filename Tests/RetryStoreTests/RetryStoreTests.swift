import RetryStore
import SluiceModel
import TestSupport
import Testing

@Suite struct RetryStoreTests {
    private let push = TestPush(
        token: "0badcafe001122330badcafe00112233", payload: #"{"aps":{}}"#, partition: 3, offset: 42)

    @Test func pushIsLoadedAsItWasPut() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(3)
        let key = store.key(push)
        let result = try store.submitted { batch in
            let isEmpty = batch.isEmpty
            #expect(isEmpty)
            push.withStored { batch.put(partition, key, due: 1000, replacingDue: nil, $0) }
            let bytes = batch.bytes
            #expect(bytes > push.encoded().count)
            batch.load(partition, key.device)
            let count = batch.count
            #expect(count == 2)
        }
        #expect(result.error == nil)
        #expect(
            result.loaded == [
                Loaded(device: key.device, items: [.init(offset: 42, due: 1000, push: push.encoded())])
            ])
        #expect(try store.due(partition).entries == [DueEntry(due: 1000, key: key)])
    }

    @Test func replacedPushIsDueOnce() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(3)
        let key = store.key(push)
        for (due, before) in [(1000, nil), (2000, 1000), (2000, 2000), (500, 2000)] as [(Int64, Int64?)] {
            try store.submitted { batch in
                push.encoded().withUnsafeBytes {
                    batch.put(partition, key, due: due, replacingDue: before, value: $0)
                }
            }
            #expect(try store.due(partition).entries == [DueEntry(due: due, key: key)])
            #expect(try store.loaded(partition, key.device).items.map(\.due) == [due])
        }
        try store.submitted { $0.remove(partition, key, due: 500) }
        #expect(try store.due(partition).entries == [])
        #expect(try store.loaded(partition, key.device).items == [])
        // Removing again changes nothing.
        #expect(try store.submitted { $0.remove(partition, key, due: 500) }.error == nil)
    }

    @Test func laterChangesInABatchWin() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        let key = store.key(push)
        let result = try store.submitted { batch in
            push.withStored { batch.put(partition, key, due: 10, replacingDue: nil, $0) }
            batch.remove(partition, key, due: 10)
            push.withStored { batch.put(partition, key, due: 20, replacingDue: nil, $0) }
            push.withStored { batch.put(partition, key, due: 30, replacingDue: 20, $0) }
            batch.load(partition, key.device)
        }
        #expect(result.loaded[0].items.map(\.due) == [30])
        #expect(try store.due(partition).entries.map(\.due) == [30])
    }

    @Test func discardedBatchChangesNothing() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        do {
            var batch = store.makeBatch()
            push.withStored { batch.put(partition, store.key(push), due: 10, replacingDue: nil, $0) }
        }
        #expect(try store.submitted { _ in }.error == nil)
        #expect(try store.due(partition).entries == [])
    }

    @Test func partitionsAreIndependent() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let (first, second) = (try store.partition(0), try store.partition(1))
        let key = store.key(push)
        let result = try store.submitted { batch in
            push.withStored { batch.put(first, key, due: 10, replacingDue: nil, $0) }
            push.withStored { batch.put(second, key, due: 20, replacingDue: nil, $0) }
            batch.remove(first, key, due: 10)
            batch.load(second, key.device)
            batch.load(first, key.device)
        }
        #expect(result.loads.map(\.partition) == [1, 0])
        #expect(result.loaded.map { $0.items.map(\.due) } == [[20], []])
        #expect(try store.partition(1) === second)
    }

    @Test func reopenedStoreHasItsItemsAndStates() throws {
        let directory = try TemporaryDirectory("store")
        let device: DeviceKey
        do {
            let store = try RetryStore.make(directory)
            let partition = try store.partition(7)
            device = store.device(push.token)
            // Submitted, and closed without waiting.
            var batch = store.makeBatch()
            push.withStored { batch.put(partition, store.key(push), due: 10, replacingDue: nil, $0) }
            batch.put(
                partition, device: device,
                DeviceState(presence: 1, learnedMilliseconds: 5, expiryMilliseconds: .max))
            let written = Awaited<BatchResult>()
            store.submit(batch) { written.set($0) }
            store.close()
            #expect(try written.wait().error == nil)
            store.close()
        }
        let store = try RetryStore.make(directory)
        defer { store.close() }
        #expect(store.partitions.map(\.number) == [7])
        #expect(store.device(push.token) == device)
        let loaded = try store.loaded(store.partitions[0], device)
        #expect(loaded.items == [.init(offset: 42, due: 10, push: push.encoded())])
        #expect(
            loaded.state == DeviceState(presence: 1, learnedMilliseconds: 5, expiryMilliseconds: .max))
    }

    @Test func everyDatabaseHasItsOwnHasher() throws {
        let (one, other) = (try TemporaryDirectory("store"), try TemporaryDirectory("store"))
        let (first, second) = (try RetryStore.make(one), try RetryStore.make(other))
        defer {
            first.close()
            second.close()
        }
        #expect(first.device(push.token) != second.device(push.token))
        #expect(first.device(push.token) == first.device(push.token.uppercased()))
    }

    @Test func closedStoreReportsClosed() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        let partition = try store.partition(0)
        store.close()
        #expect(try store.submitted { $0.load(partition, DeviceKey(high: 1, low: 2)) }.error == .closed)
        #expect(try store.synced() == .closed)
        #expect(throws: RetryStoreError.closed) { try store.due(partition) }
        #expect(throws: RetryStoreError.closed) { try store.scannedItems(partition) }
        #expect(throws: RetryStoreError.closed) { try store.partition(1) }
        #expect(try store.dropped(partition) == .closed)
        #expect(store.partitions.isEmpty)
        #expect(store.queuedBytes == 0)
    }

    @Test func directoryUnlocksWhenAllPartitionHandlesAreReleased() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        var partition: StorePartition? = try store.partition(0)
        store.close()
        #expect(throws: RetryStoreError.locked(directory: directory.file("store"))) {
            try RetryStore.make(directory)
        }
        #expect(partition?.number == 0)
        partition = nil
        try RetryStore.make(directory).close()
    }

    @Test func droppedPartitionIsEmptyWhenReopened() throws {
        let directory = try TemporaryDirectory("store")
        for _ in 0..<2 {
            let store = try RetryStore.make(directory)
            defer { store.close() }
            let (dropped, kept) = (try store.partition(0), try store.partition(1))
            let key = store.key(push)
            try store.submitted { batch in
                push.withStored { batch.put(dropped, key, due: 10, replacingDue: nil, $0) }
                push.withStored { batch.put(kept, key, due: 11, replacingDue: nil, $0) }
            }
            #expect(try store.dropped(dropped) == nil)
            // A batch begun before the drop counts for the other partitions.
            let late = try store.submitted { batch in
                push.withStored { batch.put(dropped, key, due: 20, replacingDue: nil, $0) }
                push.withStored { batch.put(kept, key, due: 21, replacingDue: 11, $0) }
            }
            #expect(late.error == nil)
            #expect(store.partitions.map(\.number) == [1])
            #expect(try store.due(kept).entries == [DueEntry(due: 21, key: key)])
            let again = try store.partition(0)
            #expect(try store.due(again).entries == [])
            #expect(try store.loaded(again, key.device).items == [])
            try store.submitted { $0.remove(kept, key, due: 21) }
        }
        let store = try RetryStore.make(directory)
        defer { store.close() }
        #expect(store.partitions.map(\.number) == [0, 1])
    }

    @Test func statisticsCountItemsAndBytes() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        let partition = try store.partition(0)
        let value = [UInt8](repeating: 1, count: 600)
        try store.submitted { batch in
            for offset in 0..<1000 as Range<Int64> {
                value.withUnsafeBytes {
                    batch.put(
                        partition, ItemKey(device: DeviceKey(high: 1, low: 1), offset: offset), due: 1,
                        replacingDue: nil, value: $0)
                }
            }
        }
        let statistics = store.statistics()
        #expect(statistics.estimatedItems == 1000)
        #expect(statistics.partitions == 1)
        #expect(statistics.memtableBytes + statistics.diskBytes > 500_000)
        #expect(!statistics.isWriteStopped)
        store.close()
        #expect(store.statistics().partitions == 0)
    }
}

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

    @Test func scanContinuesFromTheCursor() throws {
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
            // A removal behind the cursor changes nothing.
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

    @Test func entryBeforeTheCursorIsFoundOnlyFromTheBeginning() throws {
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

    @Test func itemScanReadsASnapshot() throws {
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
                // The first chunk waits until all items are removed and another is put.
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

    @Test func closingTheStoreEndsAScan() throws {
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
        // The second scan waits behind the first, and never begins.
        let second = Awaited<RetryStoreError??>()
        store.scanItems(partition, chunk: 1, each: { _ in }, completion: { second.set(.some($0)) })
        try began.wait()
        isClosing.withLock { $0 = true }
        store.close()
        // The first scan had only its end left to find.
        #expect([.some(nil), .some(.closed)].contains(try ended.wait()))
        #expect([.some(nil), .some(.closed)].contains(try second.wait()))
    }

    // MARK: Pushes behind open circuits

    private func push(
        _ offset: Int64, _ topic: String = "com.example.app", _ wait: StoredPush.Wait = .suspended
    ) -> TestPush {
        TestPush(
            token: String(repeating: "0\(offset % 10)", count: 32), payload: "{}", offset: offset,
            topic: topic,
            wait: wait)
    }

    private func put(
        _ store: RetryStore, _ partition: StorePartition, _ push: TestPush, due: Int64,
        replacing: Int64? = nil
    ) throws {
        try store.submitted { batch in
            push.withStored { batch.put(partition, store.key(push), due: due, replacingDue: replacing, $0) }
        }
    }

    @Test func pushesBehindOpenCircuitsAreFoundByTopic() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        let pushes: Int64 = 60
        let held = pushes / 3
        for offset in 0..<pushes {
            let wait: StoredPush.Wait = offset % 3 == 0 ? .held : .suspended
            try put(
                store, partition, push(offset, offset % 2 == 0 ? "even.app" : "odd.app", wait),
                due: 100 - offset)
        }
        let all = try store.suspended(partition)
        #expect(all.isEnd && all.entries.count == Int(pushes - held))
        #expect(all.entries.map(\.entry.due) == all.entries.map(\.entry.due).sorted())
        var (cursor, seen): (DueCursor?, [Int64]) = (nil, [])
        var isEnd = false
        while !isEnd {
            let scan = try store.suspended(partition, topic: "odd.app", after: cursor, limit: 7)
            #expect(scan.entries.count <= 7)
            #expect(scan.entries.allSatisfy { $0.topic == RetryStore.hash("odd.app") })
            seen += scan.entries.map(\.entry.key.offset)
            (cursor, isEnd) = (scan.cursor, scan.isEnd)
        }
        let odd: [Int64] = (0..<pushes).reversed().filter { $0 % 2 == 1 && $0 % 3 != 0 }
        #expect(seen == odd)
        #expect(try store.suspended(partition, topic: "other.app").entries.isEmpty)
        // Skipped entries don't count towards the limit.
        let others = try store.suspended(partition, without: ["even.app"], limit: 20)
        #expect(others.entries.map(\.entry.key.offset) == odd)
        let none = try store.suspended(partition, without: ["even.app", "odd.app"], limit: 1)
        #expect(none.entries.isEmpty && none.isEnd)
    }

    /// Another wait at the same due time removes the mark, and the former wait restores it.
    @Test func lastWriteDeterminesWhatAPushWaitsFor() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        try put(store, partition, push(5), due: 1000)
        #expect(try store.suspended(partition).entries.count == 1)
        try put(store, partition, push(5, "com.example.app", .held), due: 1000, replacing: 1000)
        #expect(try store.suspended(partition).entries.isEmpty)
        #expect(try store.due(partition).entries.map(\.due) == [1000])
        try put(store, partition, push(5), due: 2000, replacing: 1000)
        let found = try store.suspended(partition).entries
        #expect(found.map(\.entry.due) == [2000])
        try store.submitted { batch in batch.remove(partition, found[0].entry.key, due: 2000) }
        #expect(try store.suspended(partition).entries.isEmpty)
    }

    @Test func restoredCopyFindsPushesBehindOpenCircuits() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        var keys: RestoreFilter? = RestoreFilter(records: 10, mostBytes: 1 << 10)
        // A key's first record is new. Its second is looked up in the store.
        for wait in [StoredPush.Wait.suspended, .held, .suspended] {
            let chunk = ChangelogChunk(of: store)
            chunk.begin(partition)
            for offset in Int64(0)..<4 {
                let push = push(offset, "com.example.app", offset < 2 ? wait : .suspended)
                let due = withUnsafeBytes(of: (1000 + offset).bigEndian) { Array($0) }
                var key = ByteWriter()
                var token = push.token
                token.withUTF8 {
                    ChangelogKey.item(offset: offset, deviceToken: UnsafeRawBufferPointer($0)).encode(
                        into: &key)
                }
                key.bytes.withUnsafeBytes { key in
                    (due + push.encoded()).withUnsafeBytes { chunk.append(key: key, value: $0, among: &keys) }
                }
            }
            let done = Awaited<RetryStoreError??>()
            store.restore(chunk) { done.set(.some($0)) }
            #expect(try (done.wait("a chunk") ?? nil) == nil)
            #expect(try store.suspended(partition).entries.count == (wait == .suspended ? 4 : 2))
        }
    }

    @Test func devicesAwaitingTheirItemsAreFound() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(0)
        let devices = (0..<25).map { DeviceKey(high: UInt64($0), low: 1) }
        try store.submitted { batch in
            for (index, device) in devices.enumerated() {
                let state = DeviceState(
                    presence: index % 2 == 0 ? 0 : 1, isAwaited: index % 5 == 0,
                    learnedMilliseconds: 1_700_000_000_000, expiryMilliseconds: .max)
                batch.put(partition, device: device, state)
            }
        }
        for chunk in [1, 2, 3, 5, 100] {
            #expect(
                try store.awaitedDevices(partition, chunk: chunk)
                    == devices.enumerated().filter { $0.offset % 5 == 0 }.map(\.element))
        }
        let state = try store.loaded(partition, devices[5]).state
        #expect(state?.isAwaited == true && state?.presence == 1)
        #expect(try store.loaded(partition, devices[6]).state?.isAwaited == false)
    }
}

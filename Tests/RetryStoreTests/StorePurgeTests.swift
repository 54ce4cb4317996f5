import EventLoop
import Foundation
import RetryStore
import SluiceModel
import Synchronization
import TestSupport
import Testing

/// Bytes of removed entries leave the directory: real files, searched byte by byte.
@Suite("Purge: removed bytes leave the disk", .serialized) struct StorePurgeTests {
    /// Device whose data is removed. Its token has bytes that nothing else has.
    private static let token = String(repeating: "5ec7e7", count: 10) + "abcd"
    private static let payload =
        #"{"aps":{"alert":"the-erased-payload"},"pad":""# + String(repeating: "x", count: 400) + "\"}"
    private static let short = "the-short-erased-payload"
    private static let other = String(repeating: "0b", count: 32)

    private func makeStore(
        _ directory: TemporaryDirectory, isChangelogBacked: Bool, purgeAfter: Duration = .seconds(86_400)
    ) throws -> RetryStore {
        var settings = RetryStore.Settings(directory: directory.file("store"), sourceTopic: "jobs")
        settings.memtableBytes = 8 << 20
        settings.blockCacheBytes = 1 << 20
        settings.isChangelogBacked = isChangelogBacked
        settings.purgeAfter = purgeAfter
        return try RetryStore(settings)
    }

    /// Names of the directory's files that have bytes of the device: its payloads, or its token, packed or as text.
    private func files(of directory: TemporaryDirectory) throws -> [String] {
        let path = directory.file("store")
        let packed = stride(from: 0, to: Self.token.utf8.count, by: 2).map { index in
            UInt8(Self.token.dropFirst(index).prefix(2), radix: 16) ?? 0
        }
        let needles = [
            Data("the-erased-payload".utf8), Data(Self.short.utf8), Data(Self.token.utf8), Data(packed),
        ]
        return try FileManager.default.contentsOfDirectory(atPath: path).filter { name in
            guard let data = FileManager.default.contents(atPath: "\(path)/\(name)") else { return false }
            return needles.contains { data.range(of: $0) != nil }
        }
    }

    private func item(_ token: String, _ offset: Int64, _ payload: String, _ partition: Int32) -> TestPush {
        TestPush(token: token, payload: payload, partition: partition, offset: offset)
    }

    /// Items of the device in a partition, and those of others.
    private func items(_ partition: Int32) -> (erased: [TestPush], others: [TestPush]) {
        (
            [item(Self.token, 1, Self.payload, partition), item(Self.token, 2, Self.short, partition)],
            (10..<60).map {
                item(Self.other, $0, "kept \($0) " + String(repeating: "y", count: 300), partition)
            }
        )
    }

    private func state(_ offset: Int64) -> DeviceState {
        DeviceState(
            presence: 1, isAwaited: false, learnedMilliseconds: 1_700_000_000_000, learnedOffset: offset,
            expiryMilliseconds: 1_800_000_000_000)
    }

    private func put(_ pushes: [TestPush], _ partition: StorePartition, in store: RetryStore) throws {
        let result = try store.submitted { batch in
            for push in pushes {
                push.withStored {
                    batch.put(partition, store.key(push), due: 5_000, replacingDue: nil, $0)
                }
            }
        }
        #expect(result.error == nil)
    }

    private func putState(_ token: String, _ partition: StorePartition, in store: RetryStore) throws {
        var token = token
        let device = store.device(token)
        try store.submitted { batch in
            token.withUTF8 {
                batch.put(partition, device: device, state(3), token: UnsafeRawBufferPointer($0))
            }
        }
    }

    /// Flushes memtables: bytes are in tables, blob files and perhaps the log afterwards.
    private func flush(_ partition: StorePartition, _ store: RetryStore) throws {
        let awaited = Awaited<Result<Void, RetryStoreError>>()
        store.checkpoint(partition, position: ChangelogCheckpoint(offset: 1, reachedMilliseconds: 1_000)) {
            awaited.set($0)
        }
        try awaited.wait("a flush").get()
    }

    private func remove(_ pushes: [TestPush], _ partition: StorePartition, in store: RetryStore) throws {
        try store.submitted { batch in
            for push in pushes { batch.remove(partition, store.key(push), due: 5_000) }
            batch.remove(partition, device: store.device(Self.token))
            batch.notePurge(partition)
        }
    }

    private func purged(_ store: RetryStore, _ scope: PurgeScope = .pending) throws -> RetryStoreError? {
        let awaited = Awaited<RetryStoreError??>()
        store.purge(scope) { awaited.set(.some($0)) }
        return try awaited.wait("a purge") ?? nil
    }

    @Test(arguments: [false, true]) func noFileHasTheBytesAndOthersAreThere(isChangelogBacked: Bool) throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory, isChangelogBacked: isChangelogBacked)
        defer { store.close() }
        let numbers: [Int32] = [0, 1, 2]
        for number in numbers {
            let partition = try store.partition(number)
            let (erased, others) = items(number)
            try put(erased + others, partition, in: store)
            try putState(Self.token, partition, in: store)
            try putState(Self.other, partition, in: store)
            try flush(partition, store)
            // A part is in memtables and, without a changelog, in the log.
            try put([item(Self.token, 3, Self.payload, number)], partition, in: store)
        }
        #expect(try !files(of: directory).isEmpty)
        for number in numbers where number != 2 {
            let partition = try store.partition(number)
            try remove(
                items(number).erased + [item(Self.token, 3, Self.payload, number)], partition, in: store)
            try flush(partition, store)
        }
        #expect(store.purges.pending.keys.sorted() == [0, 1])
        let third = try store.partition(2)
        try remove(items(2).erased + [item(Self.token, 3, Self.payload, 2)], third, in: store)
        #expect(try files(of: directory).contains { $0.hasSuffix(".blob") }, "removals leave the bytes")
        #expect(try files(of: directory).contains { $0.hasSuffix(".log") } == !isChangelogBacked)

        #expect(try purged(store) == nil)
        #expect(try files(of: directory) == [])
        let status = store.purges
        #expect(status.pending.isEmpty && status.completed == 3 && status.failed == 0)
        #expect(status.last?.failure == nil && status.last != nil)
        for number in numbers {
            let partition = try store.partition(number)
            let loaded = try store.loaded(partition, store.device(Self.other))
            #expect(loaded.items.map(\.push) == items(number).others.map { $0.encoded() })
            #expect(loaded.state == state(3))
            #expect(try store.loaded(partition, store.device(Self.token)).items.isEmpty)
        }
        // Nothing needs a purge: a further request ends at once.
        #expect(try purged(store) == nil)
        #expect(store.purges.completed == 3)
    }

    /// With a changelog nothing is logged: a position that is found after a crash comes with the need of a purge.
    @Test func needOutlivesACrashAfterACheckpoint() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory, isChangelogBacked: true)
        let partition = try store.partition(0)
        let (erased, others) = items(0)
        try put(erased + others, partition, in: store)
        try remove(erased, partition, in: store)
        #expect(store.purges.pending.keys.sorted() == [0])
        let checkpoint = Awaited<Result<Void, RetryStoreError>>()
        store.checkpoint(
            partition, position: ChangelogCheckpoint(offset: 9, reachedMilliseconds: 1_795_633_200_000)
        ) { checkpoint.set($0) }
        try checkpoint.wait("a checkpoint").get()
        // The files of this moment are those that a crash leaves.
        let crashed = try TemporaryDirectory("crashed")
        try FileManager.default.copyItem(atPath: directory.file("store"), toPath: crashed.file("store"))
        store.close()
        let next = try makeStore(crashed, isChangelogBacked: true)
        defer { next.close() }
        #expect(next.purges.pending.keys.sorted() == [0])
        #expect(try purged(next) == nil)
        #expect(try files(of: crashed) == [])
    }

    @Test(arguments: [false, true]) func bytesLeaveWhileWritesAndScansGoOn(isChangelogBacked: Bool) throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory, isChangelogBacked: isChangelogBacked)
        defer { store.close() }
        let (partition, busy) = (try store.partition(0), try store.partition(1))
        let (erased, others) = items(0)
        try put(erased + others, partition, in: store)
        try flush(partition, store)
        // Writes follow one another until the purge has ended, and replace and remove others' items.
        let isEnding = Mutex(false)
        let rounds = Mutex(0)
        let scanEnds = Mutex(0)
        @Sendable func write(_ round: Int64) {
            var batch = store.makeBatch()
            for (target, base) in [(partition, Int64(1_000)), (busy, 2_000)] {
                let push = TestPush(
                    token: Self.other, payload: String(repeating: "z", count: 500), offset: base + round % 50)
                push.withStored {
                    batch.put(target, store.key(push), due: 6_000, replacingDue: 6_000, $0)
                }
                batch.remove(
                    target, ItemKey(device: store.device(Self.other), offset: base + (round + 25) % 50),
                    due: 6_000)
            }
            store.submit(batch) { _ in
                rounds.withLock { $0 += 1 }
                if !isEnding.withLock({ $0 }) { write(round + 1) }
            }
        }
        @Sendable func scan() {
            store.scanItems(partition, chunk: 10, each: { _ in }) { _ in
                scanEnds.withLock { $0 += 1 }
                if !isEnding.withLock({ $0 }) { scan() }
            }
        }
        write(0)
        scan()
        try eventually("writes go on") { rounds.withLock { $0 > 100 } && scanEnds.withLock { $0 > 1 } }
        try remove(erased, partition, in: store)
        #expect(try purged(store) == nil)
        #expect(try files(of: directory) == [])
        let before = rounds.withLock { $0 }
        try eventually("writes still go on") { rounds.withLock { $0 > before } }
        isEnding.withLock { $0 = true }
        let loaded = try store.loaded(partition, store.device(Self.other))
        #expect(loaded.items.prefix(others.count).map(\.push) == others.map { $0.encoded() })
    }

    @Test func theNeedSurvivesAReopening() throws {
        let directory = try TemporaryDirectory("store")
        var openings: Set<String> = []
        for isChangelogBacked in [false, true] {
            do {
                let store = try makeStore(directory, isChangelogBacked: isChangelogBacked)
                defer { store.close() }
                let partition = try store.partition(4)
                try put(items(4).erased + items(4).others, partition, in: store)
                try flush(partition, store)
                try remove(items(4).erased, partition, in: store)
                #expect(store.purges.pending.keys.sorted() == [4])
            }
            #expect(try !files(of: directory).isEmpty)
            do {
                let store = try makeStore(directory, isChangelogBacked: isChangelogBacked)
                defer { store.close() }
                #expect(store.purges.pending.keys.sorted() == [4] && store.purges.completed == 0)
                openings.insert(store.purges.opening)
            }
            do {
                // The delay counts from the removal on, and is over by now.
                let store = try makeStore(
                    directory, isChangelogBacked: isChangelogBacked, purgeAfter: .milliseconds(1))
                defer { store.close() }
                try eventually("the partition is purged") { store.purges.completed == 1 }
                #expect(try files(of: directory) == [])
                #expect(store.purges.pending.isEmpty)
            }
            let store = try makeStore(
                directory, isChangelogBacked: isChangelogBacked, purgeAfter: .milliseconds(1))
            defer { store.close() }
            #expect(store.purges.pending.isEmpty, "the record is gone")
            openings.insert(store.purges.opening)
        }
        #expect(openings.count == 4, "each opening has a name of its own")
    }

    @Test func onlyAPartitionThatHasTheStateNeedsAPurge() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory, isChangelogBacked: false)
        defer { store.close() }
        let (with, without) = (try store.partition(0), try store.partition(1))
        try putState(Self.token, with, in: store)
        let device = store.device(Self.token)
        try store.submitted { batch in
            for partition in [with, without] {
                batch.remove(partition, device: device)
                batch.notePurge(partition, ifHas: device)
            }
        }
        #expect(store.purges.pending.keys.sorted() == [0])
        #expect(try purged(store, .all) == nil)
        #expect(store.purges.completed == 2)
        #expect(try files(of: directory) == [])
    }

    @Test func aRestoredErasureNeedsAPurge() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory, isChangelogBacked: true)
        defer { store.close() }
        let partition = try store.partition(0)
        let chunk = ChangelogChunk(of: store)
        chunk.begin(partition)
        var filter: RestoreFilter?
        func key(_ key: ChangelogKey) -> [UInt8] {
            var writer = ByteWriter()
            key.encode(into: &writer)
            return Array(writer.bytes)
        }
        chunk.append(.push(1, token: Self.token, due: 5_000), among: &filter)
        try store.restored(chunk)
        try flush(partition, store)
        chunk.begin(partition)
        chunk.append(.push(1, token: Self.token, due: nil), among: &filter)
        var time = ByteWriter()
        ChangelogKey.encode(erasedMilliseconds: 1_700_000_000_000, into: &time)
        chunk.append(
            ChangelogRecord(key: key(.erasure), value: Array(time.bytes)), among: &filter)
        chunk.append(ChangelogRecord(key: key(.erasure), value: [1]), among: &filter)
        #expect(chunk.unknown == 1)
        try store.restored(chunk)
        #expect(store.purges.pending.keys.sorted() == [0])
        #expect(try !files(of: directory).isEmpty)
        #expect(try purged(store) == nil)
        #expect(try files(of: directory) == [])
    }

    @Test func aPurgeEndsWithTheStore() throws {
        let directory = try TemporaryDirectory("store")
        let end = Awaited<RetryStoreError??>()
        do {
            let store = try makeStore(directory, isChangelogBacked: false)
            let payload = String(repeating: "w", count: 4_000)
            for number in Int32(0)..<4 {
                let partition = try store.partition(number)
                for part in Int64(0)..<8 {
                    try put(
                        (0..<500).map { item(Self.other, part * 500 + $0, payload, number) }, partition,
                        in: store)
                }
                try put(items(number).erased, partition, in: store)
                try flush(partition, store)
                try remove(items(number).erased, partition, in: store)
            }
            store.purge { end.set(.some($0)) }
            try eventually("a purge is under way") { store.purges.current != nil }
            store.close()
            // Closed in the middle: what was requested hasn't ended, and begins anew.
            #expect(try end.wait("the purge's end") == .some(.closed))
        }
        let store = try makeStore(directory, isChangelogBacked: false)
        defer { store.close() }
        #expect(!store.purges.pending.isEmpty)
        #expect(try purged(store) == nil)
        #expect(try files(of: directory) == [])
        for number in Int32(0)..<4 {
            let partition = try store.partition(number)
            #expect(try store.loaded(partition, store.device(Self.other)).items.count == 4_000)
        }
    }

    @Test func aDroppedPartitionNeedsNoPurge() throws {
        let directory = try TemporaryDirectory("store")
        let store = try makeStore(directory, isChangelogBacked: true)
        defer { store.close() }
        let partition = try store.partition(0)
        try put(items(0).erased, partition, in: store)
        try flush(partition, store)
        try remove(items(0).erased, partition, in: store)
        #expect(try store.dropped(partition) == nil)
        #expect(try purged(store) == nil)
        let status = store.purges
        #expect(status.pending.isEmpty && status.completed == 0 && status.failed == 0)
        #expect(status.dropped == [0: 1], "no file was rewritten")
        #expect(status.last?.outcome == .dropped && status.last?.failure == nil)
    }
}

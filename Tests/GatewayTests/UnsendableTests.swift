import APNSSimulator
import Configuration
import EventLoop
import Gateway
import KafkaTestSupport
import RetryStore
import SluiceModel
import Synchronization
import TestSupport
import Testing

/// Stored pushes that this version can't send, for instance after a roll-back, end with an outcome.
struct UnsendableTests {
    private let device = SeededGenerator.hexadecimal(seed: 981)
    /// A payload longer than any connection, scheduler or push type accepts.
    private let tooLong = #"{"aps":{"alert":""# + String(repeating: "a", count: 60_000) + #""}}"#

    private func worker(
        _ bed: WorkerBed, _ directory: String, changelog: Configuration.Store.Switch,
        log: LogRecorder = LogRecorder()
    ) throws -> Worker {
        try bed.worker(log: log) {
            $0.store = .init(
                directory: bed.directory.file(directory), after: .seconds(1), changelog: changelog,
                transactions: .off)
        }
    }

    /// Returns the stored form of a push with ``tooLong`` as its payload.
    private func poison(_ bytes: UnsafeRawBufferPointer) throws -> [UInt8] {
        try withUnsafeTemporaryAllocation(byteCount: StoredPush.longestToken, alignment: 1) { text in
            var stored = try StoredPush(decoding: bytes, tokenText: text)
            var payload = tooLong
            var writer = ByteWriter()
            return payload.withUTF8 {
                stored.push.payload = UnsafeRawBufferPointer($0)
                stored.encode(into: &writer)
                return Array(writer.bytes)
            }
        }
    }

    private struct Entry {
        var partition: Int32
        var key: ItemKey
        var due: Int64
        var push: [UInt8]
    }

    private func open(_ bed: WorkerBed, _ directory: String, isChangelogBacked: Bool) throws -> RetryStore {
        var settings = RetryStore.Settings(
            directory: bed.directory.file(directory), sourceTopic: bed.kafka.topic("jobs"))
        settings.isChangelogBacked = isChangelogBacked
        return try RetryStore(settings)
    }

    /// Returns all items of a store.
    private func entries(_ store: RetryStore) throws -> [Entry] {
        let entries = Mutex<[Entry]>([])
        let failure = Mutex<RetryStoreError?>(nil)
        let isDone = BlockingFlag()
        store.read { reader throws(RetryStoreError) in
            for partition in reader.partitions {
                try reader.visitItems(of: partition) { item in
                    let entry = Entry(
                        partition: partition, key: item.key, due: item.due, push: Array(item.push))
                    entries.withLock { $0.append(entry) }
                    return true
                }
            }
        } completion: { result in
            if case .failure(let error) = result { failure.withLock { $0 = error } }
            isDone.set()
        }
        isDone.wait()
        if let error = failure.withLock({ $0 }) { throw error }
        return entries.withLock { $0 }
    }

    private func check(
        _ bed: WorkerBed, _ worker: Worker, _ log: LogRecorder, outcomes before: Int
    ) throws {
        try bed.produce([
            try event("online", of: device), push("goes on", to: SeededGenerator.hexadecimal(seed: 982)),
        ])
        let outcomes = try bed.waitForOutcomes(before + 3)
        let ended = try #require(outcomes.first { $0.kind == .undeliverable })
        #expect(ended.cause == "not-sendable")
        #expect(ended.deviceToken == device)
        #expect(ended.collapseIdentifier == "poisoned")
        #expect(outcomes.count { $0.kind == .accepted } == 1)
        try eventually("the store has removed the item") {
            let shards = worker.snapshot().totals
            return shards.store.removals == 1 && shards.store.unsendable == 1
        }
        #expect(log.messages.count(containing: "exceeds a limit") == 1)
        #expect(log.messages.count(containing: device) == 0)
        #expect(worker.snapshot().totals.unaccounted == 0)
        bed.stop(worker)
        #expect(bed.simulator.summary.requests == 1)
    }

    /// Replaces the payload of the only item. Closes the store before the worker opens it.
    private func poisonStore(_ bed: WorkerBed) throws {
        let store = try open(bed, "store", isChangelogBacked: false)
        let entry = try #require(try entries(store).first)
        let poisoned = try entry.push.withUnsafeBytes { try poison($0) }
        let handle = try #require(store.partitions.first { $0.number == entry.partition })
        let isDone = BlockingFlag()
        var batch = store.makeBatch()
        poisoned.withUnsafeBytes {
            batch.put(handle, entry.key, due: entry.due, replacingDue: entry.due, value: $0)
            // No record has this offset, and no outcome can name it.
            let damaged = ItemKey(device: entry.key.device, offset: -7)
            batch.put(handle, damaged, due: entry.due, replacingDue: nil, value: $0)
        }
        store.submit(batch) { result in
            #expect(result.error == nil)
            isDone.set()
        }
        isDone.wait()
        store.close()
    }

    @Test func unsendableItemOfTheStoreEndsAsUndeliverable() throws {
        try withBed { bed in
            let first = try worker(bed, "store", changelog: .off)
            try bed.produce([
                try event("offline", of: device),
                held("short", to: device) { $0.collapseIdentifier = "poisoned" },
            ])
            try first.waitUntilEvicted(devices: 1)
            bed.stop(first)

            try poisonStore(bed)
            let log = LogRecorder()
            let second = try worker(bed, "store", changelog: .off, log: log)
            try check(bed, second, log, outcomes: 1)
            #expect(log.messages.count(containing: "can't be read; it stays in the store") > 0)
            let left = try open(bed, "store", isChangelogBacked: false)
            defer { left.close() }
            #expect(try entries(left).map(\.key.offset) == [-7])
        }
    }

    @Test func unsendableRecordOfTheChangelogEndsAsUndeliverable() throws {
        try withBed { bed in
            let first = try worker(bed, "first", changelog: .on)
            try bed.produce([
                try event("offline", of: device),
                held("short", to: device) { $0.collapseIdentifier = "poisoned" },
            ])
            try first.waitUntilEvicted(devices: 1)
            bed.stop(first)

            let store = try open(bed, "first", isChangelogBacked: true)
            let entry = try #require(try entries(store).first)
            store.close()
            var key = ByteWriter()
            var token = device
            token.withUTF8 {
                ChangelogKey.item(offset: entry.key.offset, deviceToken: UnsafeRawBufferPointer($0)).encode(
                    into: &key)
            }
            var record = NewRecord(partition: entry.partition)
            record.key = Array(key.bytes)
            record.value =
                withUnsafeBytes(of: entry.due.bigEndian) { Array($0) }
                + (try entry.push.withUnsafeBytes { try poison($0) })
            try bed.kafka.produce(to: "changelog", [record])

            let log = LogRecorder()
            let second = try worker(bed, "second", changelog: .on, log: log)
            try check(bed, second, log, outcomes: 1)
        }
    }
}

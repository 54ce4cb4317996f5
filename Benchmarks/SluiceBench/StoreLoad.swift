import EventLoop
import Glibc
import RetryStore
import SluiceModel
import Synchronization

/// Puts, replaces, loads and removes pushes in a store as a worker's shards do, in order of the measurements.
struct StoreLoad: ~Copyable {
    private let settings: RetryStore.Settings
    private var store: RetryStore
    private var partitions: [StorePartition]
    private var jobs: StoreJobs
    private let gate = BatchGate()
    /// Number of items that a measurement has replaced, in the order of `scattered`.
    private var replaced = 0
    private var lastSync = MonotonicTime.read()
    private let residentBefore: Int
    private(set) var mostResident = 0

    private static let batch = 500
    /// The worker's limit.
    private static let dueLimit = 8192
    private static let syncEvery: UInt64 = 200_000_000

    /// Opens an empty store.
    init(
        _ settings: RetryStore.Settings, items: Int, partitions count: Int,
        itemsPerDevice: Int = StoreJobs.itemsPerDevice, wait: StoredPush.Wait = .none
    ) throws {
        residentBefore = residentBytes()
        self.settings = settings
        let store = try RetryStore(settings)
        let partitions = try Self.open(count, store)
        self.store = store
        self.partitions = partitions
        jobs = StoreJobs(
            items: items, partitions: count, hasher: store.hasher, itemsPerDevice: itemsPerDevice, wait: wait)
    }

    private static func open(_ count: Int, _ store: RetryStore) throws -> [StorePartition] {
        try (0..<count).map { number in
            try wait { done in store.open(partition: Int32(number)) { done($0) } }.get()
        }
    }

    /// Puts all items. Returns items per second on average and in the slowest second.
    mutating func put() throws -> (rate: Double, slowest: Double) {
        var seconds = RateWatch()
        var item = 0
        while item < jobs.items {
            let end = min(item + Self.batch, jobs.items)
            var batch = store.makeBatch()
            for item in item..<end {
                let identity = jobs.key(item)
                jobs.withPush(item, identity, attempts: 1) {
                    batch.put(
                        partitions[identity.partition],
                        ItemKey(device: identity.device, offset: identity.offset),
                        due: jobs.due(item, state: 0), replacingDue: nil, $0)
                }
            }
            submit(batch)
            seconds.add(end - item)
            item = end
        }
        try finish()
        return seconds.end()
    }

    /// Marks all devices as offline.
    mutating func putOffline() throws {
        let state = DeviceState(
            presence: 1, learnedMilliseconds: wallClockMilliseconds() - StoreJobs.window,
            expiryMilliseconds: StoreJobs.firstDue)
        for first in stride(from: 0, to: jobs.devices, by: Self.batch) {
            var batch = store.makeBatch()
            for device in first..<min(first + Self.batch, jobs.devices) {
                batch.put(
                    partitions[jobs.partition(ofDevice: device)], device: jobs.deviceKey(device), state)
            }
            submit(batch)
        }
        try finish()
    }

    /// Replaces `count` items once each, in an order that is independent of the order of the puts.
    mutating func replace(_ count: Int) throws -> (rate: Double, slowest: Double) {
        var seconds = RateWatch()
        let count = min(count, jobs.items)
        while replaced < count {
            let end = min(replaced + Self.batch, count)
            var batch = store.makeBatch()
            for place in replaced..<end {
                let item = scattered(place)
                let identity = jobs.key(item)
                jobs.withPush(item, identity, attempts: 2) {
                    batch.put(
                        partitions[identity.partition],
                        ItemKey(device: identity.device, offset: identity.offset),
                        due: jobs.due(item, state: 1), replacingDue: jobs.due(item, state: 0), $0)
                }
            }
            submit(batch)
            seconds.add(end - replaced)
            replaced = end
        }
        try finish()
        return seconds.end()
    }

    /// Takes the first due items and removes them, `count` in all.
    mutating func deleteDue(_ count: Int) throws -> (rate: Double, slowest: Double) {
        var seconds = RateWatch()
        var cursors = [DueCursor?](repeating: nil, count: partitions.count)
        var removed = 0
        let share = max(1, count / partitions.count)
        for (number, partition) in partitions.enumerated() {
            var ofPartition = 0
            while ofPartition < share {
                let cursor = cursors[number]
                let scan = try Self.wait { [store] done in
                    store.scanDue(partition, after: cursor, through: .max, limit: Self.dueLimit) { done($0) }
                }.get()
                cursors[number] = scan.cursor
                guard !scan.entries.isEmpty else { break }
                for start in stride(from: 0, to: scan.entries.count, by: Self.batch) {
                    var batch = store.makeBatch()
                    for entry in scan.entries[start..<min(start + Self.batch, scan.entries.count)] {
                        batch.remove(partition, entry.key, due: entry.due)
                    }
                    submit(batch)
                }
                ofPartition += scan.entries.count
                seconds.add(scan.entries.count)
            }
            removed += ofPartition
        }
        try finish()
        guard removed >= min(count, jobs.items) * 9 / 10 else {
            throw LoadError(description: "only \(removed) items were due")
        }
        return seconds.end()
    }

    /// Loads random devices one by one. Returns the times in milliseconds, sorted.
    mutating func load(_ count: Int) throws -> [Double] {
        var times: [Double] = []
        for place in 0..<count {
            let device = Int(UInt64(place) &* 0x9e37_79b9_7f4a_7c15 % UInt64(jobs.devices))
            let key = jobs.deviceKey(device)
            var batch = store.makeBatch()
            batch.load(partitions[jobs.partition(ofDevice: device)], key)
            let from = MonotonicTime.read()
            let answer = BlockingAnswer<BatchResult>()
            store.submit(batch) { answer.set($0) }
            let result = answer.wait()
            times.append(Double(MonotonicTime.read().nanoseconds(since: from)) / 1e6)
            if let error = result.error { throw error }
            let expected = min(StoreJobs.itemsPerDevice, jobs.items / jobs.devices)
            guard result.items.count >= expected else {
                throw LoadError(description: "a device had \(result.items.count) items of \(expected)")
            }
        }
        return times.sorted()
    }

    /// Closes the store and opens it again. Returns the seconds of both.
    mutating func reopen() throws -> (closing: Double, opening: Double) {
        partitions = []
        let before = MonotonicTime.read()
        store.close()
        let from = MonotonicTime.read()
        store = try RetryStore(settings)
        let opening = MonotonicTime.read()
        partitions = store.partitions
        return (
            Double(from.nanoseconds(since: before)) / 1e9, Double(opening.nanoseconds(since: from)) / 1e9
        )
    }

    /// Scans a whole partition, as a worker does after opening the store.
    static func countItems(of partition: StorePartition, _ store: RetryStore) throws -> Int {
        let count = Mutex(0)
        let error: RetryStoreError? = wait { done in
            store.scanItems(
                partition, chunk: 8192, each: { keys in count.withLock { $0 += keys.count } },
                completion: { done($0) })
        }
        if let error { throw error }
        return count.withLock { $0 }
    }

    func statistics() -> StoreStatistics { store.statistics() }

    var residentOwn: Int { residentBytes() - residentBefore }

    func close() { store.close() }

    // MARK: Inside

    /// A permutation of the items.
    private func scattered(_ place: Int) -> Int {
        // This prime divides no number of items in use.
        Int((UInt64(place) * 2_147_483_647) % UInt64(jobs.items))
    }

    /// Submits a batch, after waiting so that the queue stays bounded. Requests a sync from time to time.
    private mutating func submit(_ batch: consuming StoreBatch) {
        gate.enter()
        store.submit(batch) { [gate] result in gate.leave(result.error) }
        let now = MonotonicTime.read()
        if now.nanoseconds(since: lastSync) >= Self.syncEvery {
            lastSync = now
            store.sync { [gate] error in if let error { gate.fail(error) } }
            mostResident = max(mostResident, residentOwn)
        }
    }

    private func finish() throws {
        gate.waitUntilEmpty()
        if let error = Self.wait({ [store] done in store.sync { done($0) } }) { throw error }
        if let error = gate.error { throw error }
    }

    private static func wait<Value: Sendable>(
        _ begin: (@escaping @Sendable (Value) -> Void) -> Void
    ) -> Value {
        let answer = BlockingAnswer<Value>()
        begin { answer.set($0) }
        return answer.wait()
    }
}

import RetryStore
import SluiceModel
import TestSupport
import Testing

/// Compares the store with a dictionary through random changes, loads, scans and reopenings.
@Suite struct StoreModelTests {
    @Test(arguments: 1...12 as ClosedRange<UInt64>)
    func randomOperationsMatchADictionary(seed: UInt64) throws {
        var run = try Run(seed: seed)
        do {
            for _ in 0..<250 { try run.step() }
            try run.compare()
        } catch {
            Issue.record("seed \(seed): \(error)")
        }
        run.store.close()
    }

    private struct Mismatch: Error { var what: String }

    private struct Run {
        struct Stored: Equatable {
            var due: Int64
            var bytes: [UInt8]
        }

        let directory: TemporaryDirectory
        var random: SeededGenerator
        var store: RetryStore
        var partitions: [StorePartition] = []
        var items: [[ItemKey: Stored]] = [[:], [:]]
        var states: [[DeviceKey: DeviceState]] = [[:], [:]]
        /// Cursors of the last scans.
        var cursors: [DueCursor?] = [nil, nil]

        init(seed: UInt64) throws {
            directory = try TemporaryDirectory("store")
            random = SeededGenerator(seed: seed)
            // So small that memtables are flushed all the time.
            store = try RetryStore.make(directory, memtableBytes: 256 << 10)
            partitions = [try store.partition(0), try store.partition(1)]
        }

        mutating func step() throws {
            switch Int.random(in: 0..<40, using: &random) {
            case 0: try reopen()
            case 1: if let error = try store.synced() { throw error }
            case 2..<8: try scan()
            case 8: try compareScan()
            default: try change()
            }
        }

        private mutating func change() throws {
            var loads: [(Int, DeviceKey)] = []
            let count = Int.random(in: 0..<8, using: &random)
            var batch = store.makeBatch()
            for _ in 0..<count {
                let number = Int.random(in: 0...1, using: &random)
                let partition = partitions[number]
                let device = DeviceKey(high: UInt64.random(in: 0..<8, using: &random) << 60, low: 5)
                let key = ItemKey(device: device, offset: .random(in: 0..<20, using: &random))
                switch Int.random(in: 0..<10, using: &random) {
                case 0..<5:
                    let stored = Stored(
                        due: .random(in: -2...300, using: &random),
                        bytes: (0..<Int.random(in: 0...400, using: &random)).map { _ in
                            .random(in: .min ... .max, using: &random)
                        })
                    stored.bytes.withUnsafeBytes {
                        batch.put(
                            partition, key, due: stored.due, replacingDue: items[number][key]?.due, value: $0)
                    }
                    items[number][key] = Stored(due: max(0, stored.due), bytes: stored.bytes)
                case 5..<8:
                    batch.remove(partition, key, due: items[number][key]?.due ?? 7)
                    items[number][key] = nil
                case 8:
                    let state = DeviceState(
                        presence: .random(in: 0...2, using: &random), learnedMilliseconds: -5,
                        expiryMilliseconds: .max)
                    batch.put(partition, device: device, state)
                    states[number][device] = state
                default:
                    batch.remove(partition, device: device)
                    states[number][device] = nil
                }
                if Bool.random(using: &random) {
                    batch.load(partition, device)
                    loads.append((number, device))
                }
            }
            let awaited = Awaited<BatchResult>()
            store.submit(batch) { awaited.set($0) }
            let result = try awaited.wait("a batch")
            if let error = result.error { throw error }
            guard result.loaded == loads.map({ expected($0.0, $0.1) }) else {
                throw Mismatch(what: "loads of \(loads): \(result.loads)")
            }
        }

        private func expected(_ number: Int, _ device: DeviceKey) -> Loaded {
            Loaded(
                device: device, state: states[number][device],
                items: items[number].filter { $0.key.device == device }.sorted {
                    $0.key.offset < $1.key.offset
                }.map { .init(offset: $0.key.offset, due: $0.value.due, push: $0.value.bytes) })
        }

        private func expectedDue(_ number: Int) -> [DueEntry] {
            items[number].map { DueEntry(due: $0.value.due, key: $0.key) }.sorted(by: Self.precedes)
        }

        private static func precedes(_ left: DueEntry, _ right: DueEntry) -> Bool {
            (left.due, left.key.device.high, left.key.offset)
                < (right.due, right.key.device.high, right.key.offset)
        }

        private mutating func scan() throws {
            let number = Int.random(in: 0...1, using: &random)
            let all = expectedDue(number)
            let through = Int64.random(in: -5...310, using: &random)
            let after =
                switch Int.random(in: 0...3, using: &random) {
                case 0: nil as DueEntry?
                case 1: all.randomElement(using: &random)
                // Continues from the last cursor, as a worker does.
                default: cursors[number]?.entry
                }
            let limit = Int.random(in: 1...20, using: &random)
            let expected = all.filter { entry in
                entry.due <= through && after.map { Self.precedes($0, entry) } ?? true
            }
            let scan = try store.due(
                partitions[number], after: after.map { DueCursor($0) }, through: through, limit: limit)
            guard scan.entries == Array(expected.prefix(limit)), scan.isEnd == (expected.count <= limit),
                scan.cursor?.entry == expected.prefix(limit).last ?? after
            else { throw Mismatch(what: "due after \(after as Any) through \(through): \(scan)") }
            cursors[number] = scan.cursor
        }

        private func compareScan() throws {
            for number in 0...1 {
                let keys = try store.scannedItems(partitions[number], chunk: 7)
                guard keys.count == items[number].count, Set(keys) == Set(items[number].keys) else {
                    throw Mismatch(what: "scan of partition \(number)")
                }
            }
        }

        mutating func compare() throws {
            for number in 0...1 {
                guard try store.due(partitions[number]).entries == expectedDue(number) else {
                    throw Mismatch(what: "due entries of partition \(number)")
                }
                for high in 0..<8 as Range<UInt64> {
                    let device = DeviceKey(high: high << 60, low: 5)
                    guard try store.loaded(partitions[number], device) == expected(number, device) else {
                        throw Mismatch(what: "device \(high) of partition \(number)")
                    }
                }
            }
            try compareScan()
        }

        private mutating func reopen() throws {
            partitions = []
            store.close()
            store = try RetryStore.make(directory, memtableBytes: 256 << 10)
            partitions = store.partitions
            try compare()
        }
    }
}

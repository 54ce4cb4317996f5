import RetryStore
import SluiceModel

/// Runs random calls of a store and returns all that they return, as text.
public func randomSteps(seed: UInt64, directory: String, count: Int) throws -> [String] {
    var run = try RandomSteps(seed: seed, directory: directory)
    for _ in 0..<count { try run.step() }
    run.store.close()
    return run.lines
}

private struct RandomSteps {
    let directory: String
    var random: SeededGenerator
    var store: RetryStore
    var partitions: [StorePartition] = []
    /// Due times by partition and key.
    var due: [[ItemKey: Int64]] = [[:], [:]]
    var lines: [String] = []

    init(seed: UInt64, directory: String) throws {
        self.directory = directory
        random = SeededGenerator(seed: seed)
        store = try Self.open(directory)
        partitions = [try store.opened(0), try store.opened(1)]
    }

    private static func open(_ directory: String) throws(RetryStoreError) -> RetryStore {
        var settings = RetryStore.Settings(directory: directory, sourceTopic: "jobs")
        // So small that memtables are flushed all the time.
        settings.memtableBytes = 256 << 10
        settings.blockCacheBytes = 1 << 20
        return try RetryStore(settings)
    }

    mutating func step() throws {
        let number = below(2)
        switch below(40) {
        case 0:
            partitions = []
            store.close()
            store = try Self.open(directory)
            partitions = [try store.opened(0), try store.opened(1)]
        case 1:
            lines.append("drop \(store.dropped(partitions[number]).map { "\($0)" } ?? "")")
            due[number] = [:]
            partitions[number] = try store.opened(Int32(number))
        case 2: lines.append("sync \(store.synced().map { "\($0)" } ?? "")")
        case 3: lines.append("purge \(store.purged(.all).map { "\($0)" } ?? "")")
        case 4..<10:
            let scan = try store.due(partitions[number], through: Int64(below(300)), limit: 1 + below(30))
            lines.append("due \(scan.entries.map(text)) \(scan.isEnd)")
        case 10..<12:
            let marks = try store.marks(of: partitions[number])
            lines.append("marks \(marks.map { "\($0.offset) \($0.apnsID)" })")
        case 12..<14:
            let scan = try store.suspended(partitions[number], topic: nil, limit: 1 + below(10))
            lines.append("suspended \(scan.entries.map { "\(text($0.entry)) \($0.topic)" }) \(scan.isEnd)")
        case 14..<16:
            let scan = try store.expired(partitions[number], through: Int64(below(300)), limit: 1 + below(10))
            lines.append("expired \(scan.devices.map(text)) \(scan.isEnd)")
        default: change()
        }
    }

    private mutating func change() {
        var batch: [(inout StoreBatch) -> Void] = []
        for _ in 0..<below(8) {
            let number = below(2)
            let partition = partitions[number]
            let device = DeviceKey(high: UInt64(1 + below(8)) << 60, low: 5)
            let key = ItemKey(device: device, offset: Int64(below(20)))
            let time = Int64(below(302)) - 2
            let old = due[number][key]
            switch below(12) {
            case 0..<6:
                let bytes = (0..<below(400)).map { _ in UInt8(below(256)) }
                batch.append { batch in
                    bytes.withUnsafeBytes {
                        batch.put(partition, key, due: time, replacingDue: old, value: $0)
                    }
                }
                due[number][key] = time
            case 6..<9:
                batch.append { $0.remove(partition, key, due: old ?? 7) }
                due[number][key] = nil
            case 9:
                let state = DeviceState(
                    presence: UInt8(below(3)), learnedMilliseconds: 1, expiryMilliseconds: time)
                batch.append { $0.put(partition, device: device, state) }
            case 10: batch.append { $0.remove(partition, device: device) }
            default:
                let mark = RelocationMark(offset: key.offset, apnsID: APNSID(high: 1, low: UInt64(below(9))))
                batch.append { $0.put(partition, mark) }
            }
        }
        for _ in 0..<below(3) {
            let device = DeviceKey(high: UInt64(1 + below(8)) << 60, low: 5)
            let partition = partitions[below(2)]
            batch.append { $0.load(partition, device) }
        }
        let result = store.written { written in for part in batch { part(&written) } }
        for load in result.loads {
            let state = load.state.map { "\($0.presence) until \($0.expiryMilliseconds)" }
            lines.append("load \(text(load.device)) \(state ?? "")")
            for item in result.items[load.items] {
                lines.append("  \(item.offset) due \(item.due): \(Array(result.push(item)))")
            }
        }
    }

    private func text(_ device: DeviceKey) -> String { "\(device.high >> 60)" }

    private func text(_ entry: DueEntry) -> String {
        "\(text(entry.key.device))/\(entry.key.offset) at \(entry.due)"
    }

    private mutating func below(_ count: Int) -> Int { Int.random(in: 0..<count, using: &random) }
}

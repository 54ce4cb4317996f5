import SimulatedEventLoop
import SimulatedRetryStore
import SimulatedStoreSteps
import SluiceModel

/// A store on a simulated disk, and the process that has it open.
final class StoreWorld {
    let scheduler: Scheduler
    let disk: SimulatedDisk
    private(set) var process = SimulatedProcess("worker")

    private init(_ scheduler: Scheduler) {
        self.scheduler = scheduler
        disk = .at("/stores/worker")
    }

    static func run<Result>(seed: UInt64 = 1, _ body: (StoreWorld) throws -> Result) rethrows -> Result {
        let scheduler = Scheduler(seed: seed)
        return try scheduler.run {
            defer { scheduler.end() }
            return try body(StoreWorld(scheduler))
        }
    }

    /// Opens the store in a new process.
    func open(isCopy: Bool = false) throws(RetryStoreError) -> RetryStore {
        var settings = RetryStore.Settings(directory: disk.path, sourceTopic: "jobs")
        settings.isChangelogBacked = isCopy
        process = SimulatedProcess("worker")
        return try process.run { () throws(RetryStoreError) in try RetryStore(settings) }
    }

    func run(milliseconds: UInt64) { scheduler.run(until: scheduler.now + milliseconds * 1_000_000) }

    /// What another process would find now.
    func items(of partition: Int32 = 0) throws -> [String] {
        try StoreInspector(directory: disk.path).reader.items(of: partition)
    }

    /// Whether each item has its due entry, and each due entry its item.
    func isConsistent() throws -> Bool {
        try StoreInspector(directory: disk.path).verify().problems.allSatisfy {
            switch $0.kind {
            case .itemWithoutDue, .dueWithoutItem, .dueOfOtherTime: false
            default: true
            }
        }
    }

    static func key(_ device: UInt64, _ offset: Int64) -> ItemKey {
        ItemKey(device: DeviceKey(high: device << 60, low: 5), offset: offset)
    }
}

/// Values that completions have appended.
// Sendable: used by one simulation on its thread.
final class Noted<Value>: @unchecked Sendable {
    var values: [Value] = []
}

extension StoreBatch {
    mutating func put(
        _ partition: StorePartition, _ device: UInt64, _ offset: Int64, due: Int64, replacing: Int64? = nil,
        _ value: [UInt8] = [1]
    ) {
        value.withUnsafeBytes {
            put(partition, StoreWorld.key(device, offset), due: due, replacingDue: replacing, value: $0)
        }
    }
}

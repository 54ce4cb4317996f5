import ArgumentParser
import Glibc
import RetryStore

/// The retry store by itself.
struct StoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "store",
        abstract: "The retry store, from an empty one to many items; prints one line of JSON per figure.",
        discussion: """
            One after another: puts of new items, replaces, loads of single devices, reopening, removing what is due. \
            Each value is a stored push of about 600 bytes; everything is synced each 200 ms.
            """)

    @Option(help: "Items to put.") var items = 10_000_000
    @Option(help: "Partitions of the jobs topic.") var partitions = 4
    @Option(help: "Of the items, how many are replaced.") var replaces = 3_000_000
    @Option(help: "Of the items, how many are removed as due.") var deletes = 3_000_000
    @Option(help: "Devices to load.") var loads = 20_000
    @Option(help: "For all memtables together, MiB.") var memtables: Int?
    @Option(help: "For the block cache, MiB.") var cache: Int?
    @Option(help: "Where the data goes; it must not exist, and is removed.") var directory =
        ".build/benchmarks/store"

    func validate() throws {
        guard (100...1_000_000_000).contains(items), (1...1000).contains(partitions), loads > 0 else {
            throw ValidationError("--items must be 100 to 1000000000, --partitions 1 to 1000, --loads at least 1")
        }
        guard access(directory, F_OK) != 0 else {
            throw ValidationError("--directory: \(directory) exists already")
        }
    }

    func run() throws {
        let copy = directory + "-copy"
        defer {
            removeDirectory(directory)
            removeDirectory(copy)
        }
        var load = try StoreLoad(directory: directory, items: items, partitions: partitions) { settings in
            if let memtables { settings.memtableBytes = memtables << 20 }
            if let cache { settings.blockCacheBytes = cache << 20 }
        }
        try rate("put") { try load.put() }
        try rate("replace") { try load.replace(replaces) }
        let times = try load.load(loads)
        figure("online_flush_p50_ms", times[times.count / 2], "ms")
        figure("online_flush_p99_ms", times[times.count * 99 / 100], "ms")
        figure("reopen_after_crash_s", try load.openCopy(copy), "s")
        figure("resident_mb", Double(load.residentOwn) / 1e6, "MB")
        let (closing, opening) = try load.reopen()
        figure("close_s", closing, "s")
        figure("reopen_s", opening, "s")
        figure("resident_reopened_mb", Double(load.residentOwn) / 1e6, "MB")
        try rate("due_delete") { try load.deleteDue(deletes) }
        figure("most_resident_mb", Double(load.mostResident) / 1e6, "MB")
        let statistics = load.statistics()
        figure("disk_mb", Double(statistics.diskBytes) / 1e6, "MB")
        figure("cache_mb", Double(statistics.cacheBytes) / 1e6, "MB")
        figure("items", Double(statistics.estimatedItems), "1")
        load.close()
    }

    private func rate(_ name: String, _ body: () throws -> (rate: Double, slowest: Double)) rethrows {
        let before = ProcessUsage.read().cpuSeconds
        let (rate, slowest) = try body()
        figure("\(name)_per_s", rate, "1/s")
        figure("\(name)_slowest_second", slowest, "1/s")
        figure("\(name)_cpu_s", ProcessUsage.read().cpuSeconds - before, "s")
    }

    private func figure(_ name: String, _ value: Double, _ unit: String) {
        var line = JSONLine()
        line.add("figure", name)
        line.add("value", value)
        line.add("unit", unit)
        line.print()
        fflush(nil)
    }
}

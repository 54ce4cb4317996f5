import ArgumentParser
import EventLoop
import Glibc
import RetryStore

/// Measures the retry store without a worker. Each printed line is the JSON of a figure.
struct StoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "store", abstract: "The retry store by itself; prints one line of JSON per figure.",
        subcommands: [Run.self, Fill.self, Reopen.self, Restore.self, Encryption.self])

    struct Shape: ParsableArguments {
        @Option(help: "Items to put.") var items = 10_000_000
        @Option(help: "Partitions of the jobs topic.") var partitions = 4
        @Option(help: "For all memtables together, MiB.") var memtables: Int?
        @Option(help: "For the block cache, MiB.") var cache: Int?
        @Option(help: "Where the data is.") var directory = ".build/benchmarks/store"

        func validate() throws {
            guard (100...1_000_000_000).contains(items), (1...1000).contains(partitions) else {
                throw ValidationError("--items must be 100 to 1000000000, --partitions 1 to 1000")
            }
        }

        /// Requires a new directory, because its contents are removed at the end.
        func requireNewDirectory() throws {
            guard access(directory, F_OK) != 0 else {
                throw ValidationError("--directory: \(directory) exists already")
            }
        }

        var settings: RetryStore.Settings {
            var settings = RetryStore.Settings(directory: directory, sourceTopic: "sluice.jobs")
            if let memtables { settings.memtableBytes = memtables << 20 }
            if let cache { settings.blockCacheBytes = cache << 20 }
            return settings
        }
    }

    struct Run: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "From an empty store to many items, and back.",
            discussion: """
                One after another: puts of new items, replaces, loads of single devices, closing and opening again, \
                removing what is due. Each value is a stored push of about 600 bytes; all is synced each 200 ms.
                """)

        @OptionGroup var shape: Shape
        @Option(help: "Of the items, how many are replaced.") var replaces = 3_000_000
        @Option(help: "Of the items, how many are removed as due.") var deletes = 3_000_000
        @Option(help: "Devices to load.") var loads = 20_000
        @Flag(help: "End after the loads as a crash would, and leave the data for `store reopen`.")
        var crash =
            false

        func validate() throws {
            try shape.requireNewDirectory()
            guard loads > 0, replaces >= 0, deletes >= 0 else {
                throw ValidationError("--loads must be at least 1, --replaces and --deletes at least 0")
            }
        }

        func run() throws {
            defer { removeDirectory(shape.directory) }
            var load = try StoreLoad(shape.settings, items: shape.items, partitions: shape.partitions)
            try rate("put") { try load.put() }
            if replaces > 0 { try rate("replace") { try load.replace(replaces) } }
            let times = try load.load(loads)
            figure("online_flush_p50_ms", times[times.count / 2], "ms")
            figure("online_flush_p99_ms", times[times.count * 99 / 100], "ms")
            figure("resident_mb", Double(load.residentOwn) / 1e6, "MB")
            figure("most_resident_mb", Double(load.mostResident) / 1e6, "MB")
            figure("disk_mb", Double(load.statistics().diskBytes) / 1e6, "MB")
            if crash { _exit(0) }
            let (closing, opening) = try load.reopen()
            figure("close_s", closing, "s")
            figure("reopen_s", opening, "s")
            figure("resident_reopened_mb", Double(load.residentOwn) / 1e6, "MB")
            if deletes > 0 { try rate("due_delete") { try load.deleteDue(deletes) } }
            figure("disk_after_deletes_mb", Double(load.statistics().diskBytes) / 1e6, "MB")
            load.close()
        }

        private func rate(_ name: String, _ body: () throws -> (rate: Double, slowest: Double)) rethrows {
            let before = ProcessUsage.read().cpuSeconds
            let (rate, slowest) = try body()
            figure("\(name)_per_s", rate, "1/s")
            figure("\(name)_slowest_second_per_s", slowest, "1/s")
            figure("\(name)_cpu_s", ProcessUsage.read().cpuSeconds - before, "s")
        }
    }

    struct Fill: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Make a store of items that wait, for a worker to open.")

        enum Wait: String, ExpressibleByArgument, CaseIterable { case suspended, held }

        @OptionGroup var shape: Shape
        @Option(help: "What the items wait for: their topic, or their devices, which are offline then.")
        var wait: Wait
        @Option(help: "Items of one device.") var perDevice = StoreJobs.itemsPerDevice

        func validate() throws {
            try shape.requireNewDirectory()
            guard perDevice > 0 else { throw ValidationError("--per-device must be at least 1") }
        }

        func run() throws {
            var load = try StoreLoad(
                shape.settings, items: shape.items, partitions: shape.partitions, itemsPerDevice: perDevice,
                wait: wait == .suspended ? .suspended : .held)
            _ = try load.put()
            if wait == .held { try load.putOffline() }
            load.close()
        }
    }

    struct Reopen: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Open what `store run --crash` has left, scan all of it, and remove it.")

        @OptionGroup var shape: Shape

        func run() throws {
            defer { removeDirectory(shape.directory) }
            let before = residentBytes()
            let from = MonotonicTime.read()
            let store = try RetryStore(shape.settings)
            figure("reopen_after_crash_s", Double(MonotonicTime.read().nanoseconds(since: from)) / 1e9, "s")
            figure("resident_after_crash_mb", Double(residentBytes() - before) / 1e6, "MB")
            let scanned = MonotonicTime.read()
            var items = 0
            for partition in store.partitions { items += try StoreLoad.countItems(of: partition, store) }
            figure("rebuild_scan_s", Double(MonotonicTime.read().nanoseconds(since: scanned)) / 1e9, "s")
            guard items == shape.items else {
                throw LoadError(description: "\(items) items of \(shape.items) are there")
            }
            store.close()
        }
    }

    struct Restore: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Fill a changelog, and let a worker without a copy of it take all of it over.",
            discussion: "Needs a topic sluice.changelog with as many partitions as sluice.jobs.")

        @OptionGroup var surroundings: WorkerSurroundings
        @OptionGroup var shape: Shape

        func validate() throws { try shape.requireNewDirectory() }

        func run() throws {
            defer { removeDirectory(shape.directory) }
            let (seconds, cpuSeconds) = try RestoreLoad(
                surroundings: surroundings, settings: shape.settings, items: shape.items,
                partitions: shape.partitions
            ).run()
            figure("restore_items_per_s", Double(shape.items) / seconds, "1/s")
            figure("restore_cpu_s", cpuSeconds, "s")
        }
    }
}

func figure(_ name: String, _ value: Double, _ unit: String) {
    var line = JSONLine()
    line.add("figure", name)
    line.add("value", value)
    line.add("unit", unit)
    line.print()
    fflush(nil)
}

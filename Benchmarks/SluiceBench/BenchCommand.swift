import ArgumentParser
import CAllocationCounter

/// Measures Sluice's own parts. The scripts in `Benchmarks` compare them with other clients.
@main
struct BenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sluice-bench", abstract: "Measurements of Sluice's parts.",
        subcommands: [
            ConnectionCommand.self, OpenLoopCommand.self, GrowthCommand.self, FairnessCommand.self,
            PriorityCommand.self, FloorCommand.self, FaultCommand.self, AllocationsCommand.self,
            HeadersCommand.self, Scheduler.self, Gateway.self, BacklogCommand.self, ReturnCommand.self,
            LatencyCommand.self,
            CoreCommand.self, StoreCommand.self, DevicesCommand.self,
        ])

    struct Gateway: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Take a backlog of jobs from Kafka to outcomes with a worker; prints one line of JSON.",
            discussion: "Another process, `backlog`, produces the jobs.")

        @OptionGroup var surroundings: WorkerSurroundings
        @OptionGroup var backlog: Backlog
        @OptionGroup var topics: BenchmarkTopics
        @Option(help: "Connections to APNs.") var connections = 2
        @Option(help: "Shards.") var shards = 1
        @Option(help: "A store's directory, left by `store run --crash`, or empty.") var store: String?
        @Flag(help: "With --store: changes are also written to the topic sluice.changelog.") var changelog =
            false
        @Flag(help: "With --changelog: in transactions, which need real brokers.") var transactions = false
        @Flag(help: "The jobs come when the worker has its partitions and the store's scans have ended.")
        var settled = false
        @Flag(help: "Measure all jobs from the first finished ones on, with room for 100,000 at once.")
        var whole = false
        @Option(help: "With --settled: watch the worker for so many seconds before the jobs come.")
        var watchSeconds = 0
        @Flag(help: "A profiler measures: ask the worker for its counts rarely, and print no useful figures.")
        var profiled = false
        @Flag(help: "Also print the processor time of a job by thread.") var threads = false
        @Flag(
            help:
                "Count Swift's allocations after a quarter of the jobs, for a quarter, and measure nothing else."
        )
        var allocations = false

        func validate() throws {
            guard watchSeconds >= 0, (1...64).contains(shards), connections > 0 else {
                throw ValidationError(
                    "--watch-seconds must be at least 0, --shards 1 to 64, --connections at least 1")
            }
            guard backlog.storedPercent == 0 || settled else {
                throw ValidationError("--stored-percent needs --settled")
            }
        }

        func run() throws {
            var load = GatewayLoad(surroundings: surroundings, backlog: backlog, topics: topics)
            load.watchSeconds = watchSeconds
            load.connections = connections
            load.shards = shards
            load.storeDirectory = store
            load.hasChangelog = changelog || transactions
            load.hasTransactions = transactions
            load.isSettled = settled
            load.isWhole = whole
            load.isProfiled = profiled
            load.readsThreads = threads
            if allocations { return try countAllocations(load) }
            let result = try load.run()
            print(
                """
                {"jobs":\(result.jobs),"accepted":\(result.accepted),"seconds":\(result.seconds),\
                "jobs_per_second":\(Int(Double(result.jobs) / max(result.seconds, 1e-3))),\
                "cpu_us_per_job":\(result.cpuMicroseconds),\
                "max_resident_mb":\(result.residentMegabytes),"resident_mb":\(result.residentNowMegabytes),\
                "open_seconds":\(result.readySeconds),"puts":\(result.puts),\
                "watched_puts_per_hour":\(result.watchedPutsPerHour),"loaded":\(result.loaded),\
                "devices_in_store":\(result.devicesInStore),\
                "threads":{\(result.threadMicroseconds.map { "\"\($0)\":\($1)" }.joined(separator: ","))},\
                "rebuild_jobs_per_second":\(result.rebuildJobsPerSecond.map { "\(Int($0))" } ?? "null")}
                """)
        }

        private func countAllocations(_ load: GatewayLoad) throws {
            sluice_allocations_prepare()
            try AllocationsCommand.checkCounter()
            try AllocationsCommand.checkCounterOfAllThreads()
            // The rest keeps the worker busy until the count has ended.
            let part = load.backlog.jobs / 4
            let result = try load.countAllocations(warmUp: part, measured: part)
            var line = JSONLine()
            line.add("jobs", result.jobs)
            line.add("swift_allocations", result.swift)
            line.add("swift_allocations_per_job", Double(result.swift) / Double(result.jobs))
            line.add("swift_allocations_per_job_shards", Double(result.shards) / Double(result.jobs))
            line.add("callers", result.callers)
            line.print()
        }
    }

    struct Scheduler: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Decisions of the stream scheduler by itself; prints one line of JSON.")

        @Option(help: "Apps, each with notifications waiting in all classes; 65,535 at most.") var apps = 1000
        @Option(help: "Connections.") var connections = 64
        @Option(help: "Decisions to measure.") var decisions = 5_000_000

        func validate() throws {
            guard (1...65_535).contains(apps), connections > 0, decisions > 0 else {
                throw ValidationError("--apps must be 1 to 65535, --connections and --decisions at least 1")
            }
        }

        func run() {
            var load = SchedulerLoad(apps: apps, connections: connections)
            let nanoseconds = load.run(decisions: decisions)
            print(#"{"apps":\#(apps),"connections":\#(connections),"decision_ns":\#(nanoseconds)}"#)
        }
    }
}

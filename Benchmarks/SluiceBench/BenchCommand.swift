import ArgumentParser

/// Measures Sluice's own parts. The scripts in `Benchmarks` compare them with other clients.
@main
struct BenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sluice-bench", abstract: "Measurements of Sluice's parts.",
        subcommands: [
            ConnectionCommand.self, OpenLoopCommand.self, GrowthCommand.self, FairnessCommand.self,
            PriorityCommand.self, FloorCommand.self, FaultCommand.self, AllocationsCommand.self,
            HeadersCommand.self, Scheduler.self, Gateway.self, ReturnCommand.self,
            CoreCommand.self, StoreCommand.self, DevicesCommand.self, SoakCommand.self,
        ])

    struct Gateway: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Take a backlog of jobs from Kafka to outcomes with a worker; prints one line of JSON.")

        @OptionGroup var surroundings: WorkerSurroundings
        @Option(help: "Jobs.") var jobs = 100_000
        @Option(help: "Payload bytes.") var payload = 250
        @Option(help: "Connections to APNs.") var connections = 2
        @Option(help: "A store's directory, left by `store run --crash`, or empty.") var store: String?
        @Option(help: "So many of a hundred jobs go through the store.") var storedPercent = 0
        @Flag(help: "The jobs come when the worker has its partitions and the store's scans have ended.")
        var settled = false
        @Option(help: "The jobs are of the topics com.example.app<n> to app3.") var firstApp = 0
        @Option(help: "With --settled: watch the worker for so many seconds before the jobs come.")
        var watchSeconds = 0

        func validate() throws {
            guard (0...3).contains(firstApp), watchSeconds >= 0 else {
                throw ValidationError("--first-app must be 0 to 3, --watch-seconds at least 0")
            }
        }

        func run() throws {
            var load = GatewayLoad(surroundings: surroundings)
            load.firstApp = firstApp
            load.watchSeconds = watchSeconds
            load.jobs = jobs
            load.payloadBytes = payload
            load.connections = connections
            load.storeDirectory = store
            load.storedPercent = storedPercent
            load.isSettled = settled
            let result = try load.run()
            print(
                """
                {"jobs":\(result.jobs),"accepted":\(result.accepted),"seconds":\(result.seconds),\
                "cpu_seconds":\(result.cpuSeconds),"jobs_per_second":\(Int(Double(result.jobs) / result.seconds)),\
                "cpu_us_per_job":\(result.cpuSeconds * 1e6 / Double(result.jobs)),\
                "max_resident_mb":\(result.residentMegabytes),"resident_mb":\(result.residentNowMegabytes),\
                "open_seconds":\(result.readySeconds),"puts":\(result.puts),\
                "watched_puts_per_hour":\(result.watchedPutsPerHour),"loaded":\(result.loaded),\
                "devices_in_store":\(result.devicesInStore),\
                "rebuild_jobs_per_second":\(result.rebuildJobsPerSecond.map { "\(Int($0))" } ?? "null")}
                """)
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

import ArgumentParser
import Foundation

struct DemoCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo",
        abstract:
            "Run Kafka, a worker and an APNs simulator on this machine, with a load through them.",
        discussion: """
            Starts an embedded Kafka cluster, an APNs simulator and a worker as separate processes, on free ports of \
            127.0.0.1, and produces jobs as four apps would: alerts, background updates, Live Activities and calls, in \
            both encodings, with collapse identifiers and three priorities. Some devices are gone, some answers ask \
            for another attempt, and some jobs are malformed.

            Then it checks that every job has exactly one outcome, or a dead letter if the job is malformed, and prints \
            what the devices have shown. A page shows the devices while the demo runs, and afterwards with --keep.

            EXIT STATUS
              0   the counts match
              1   the counts don't match, or a process failed; the demo prints where the logs are kept
            """)

    @Option(help: ArgumentHelp("Number of jobs.", valueName: "n"))
    var jobs = 60_000

    @Option(help: ArgumentHelp("Number of devices that the jobs are for.", valueName: "n"))
    var devices = 10_000

    @Option(
        help: ArgumentHelp(
            "Highest number of jobs under way; the producer waits for outcomes.", valueName: "n"))
    var window = 4_000

    @Option(
        help: ArgumentHelp(
            "Highest number of jobs per second. Default: as fast as outcomes arrive.", valueName: "jobs/s"))
    var rate: Double?

    @Option(
        help: ArgumentHelp(
            "Delay of the simulator's answers, which is at least this and up to twice this.", valueName: "ms")
    )
    var latency = 10.0

    @Option(help: "Shards of the worker: threads that push.")
    var shards = 1

    @Option(help: "Seed of the load; the same seed gives the same jobs.")
    var seed: UInt64 = 1

    @Flag(
        help:
            "Leave all running after the load, to push more and look at the devices, until Ctrl-C. The directory with configuration and logs is kept."
    )
    var keep = false

    func validate() throws {
        guard (1...5_000_000).contains(jobs) else { throw ValidationError("--jobs: 1 to 5000000") }
        guard devices > 0, window > 0 else {
            throw ValidationError("--devices and --window must be greater than 0")
        }
        if let rate, rate <= 0 { throw ValidationError("--rate must be greater than 0") }
        guard (1...64).contains(shards) else { throw ValidationError("--shards: 1 to 64") }
    }

    func run() throws {
        let stop = StopSignals()
        let files = try LocalFiles()
        do {
            let stage = try DemoStage(files: files, options: self, stop: stop)
            let report = try stage.run()
            for line in report.lines { Terminal.output(line) }
            if !report.isRight {
                files.isKept = true
                Terminal.output("")
                Terminal.output("configuration and logs are kept in \(files.directory)")
                throw CommandFailure(.failure, "the demo's counts don't match")
            }
            if keep {
                files.isKept = true
                try stage.keep()
                Terminal.output("configuration and logs are kept in \(files.directory)")
            }
        } catch let failure as CommandFailure {
            if !stop.isRequested, !files.isKept {
                files.isKept = true
                Terminal.error("configuration and logs are kept in \(files.directory)")
            }
            throw failure
        }
    }

    /// Partitions that hold the whole load. The embedded cluster keeps about 5 MB in each partition. An average job or
    /// outcome takes well under 1 kB.
    var partitions: Int { max(4, jobs / 4_000 + 1) }
}

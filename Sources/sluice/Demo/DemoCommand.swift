import ArgumentParser
import Foundation

struct DemoCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo",
        abstract:
            "Show everything at work: Kafka, a worker and APNs on this machine, and a load through them.",
        discussion: """
            Starts an embedded Kafka cluster, an APNs simulator and a worker as separate processes, on free ports of \
            127.0.0.1, and produces jobs as four apps would: alerts, background updates, Live Activities and calls, in \
            both encodings, with collapse identifiers and three priorities. Some devices are gone, some answers ask \
            for another attempt, and some jobs are malformed.

            Then it compares: every job must have exactly one outcome, or a dead letter if it is malformed.

            EXIT STATUS
              0   the counts add up
              1   they don't, or something failed; logs are kept, and it says where
            """)

    @Option(help: ArgumentHelp("How many jobs.", valueName: "n"))
    var jobs = 60_000

    @Option(help: ArgumentHelp("How many devices they are for.", valueName: "n"))
    var devices = 10_000

    @Option(
        help: ArgumentHelp(
            "At most so many jobs are under way at a time; the producer waits for outcomes.", valueName: "n"))
    var window = 4_000

    @Option(
        help: ArgumentHelp(
            "At most so many jobs per second. Default: as fast as they are done.", valueName: "jobs/s"))
    var rate: Double?

    @Option(
        help: ArgumentHelp("The simulator answers after this long, and up to twice as long.", valueName: "ms")
    )
    var latency = 10.0

    @Option(help: "Threads of the worker that push.")
    var shards = 1

    @Option(help: "Seed of the load: the same one gives the same jobs.")
    var seed: UInt64 = 1

    @Flag(help: "Keep the directory with configuration and logs, and say where it is.")
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
        let files = try DemoFiles()
        files.isKept = keep
        do {
            let stage = try DemoStage(files: files, options: self, stop: stop)
            let report = try stage.run()
            for line in report.lines { Terminal.output(line) }
            if !report.isRight {
                files.isKept = true
                Terminal.output("")
                Terminal.output("configuration and logs are kept in \(files.directory)")
                throw CommandFailure(.failure, "the demo's counts don't add up")
            }
            if keep { Terminal.output("configuration and logs are kept in \(files.directory)") }
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

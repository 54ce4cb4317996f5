import ArgumentParser
import Glibc
import Kafka
import SluiceModel

/// Produces jobs to running processes and audits their outcomes.
struct SoakCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "soak",
        abstract:
            "Produce jobs at a constant rate, read all outcomes, and count each job's; prints one line of JSON."
    )

    @Option(help: "Bootstrap servers.") var bootstrapServers: String
    @Option(help: "Jobs per second; 0: as fast as outcomes arrive.") var rate = 0
    @Option(help: "Most jobs without an outcome. Production waits there.") var window = 4_000
    @Option(help: "Seconds of production.") var seconds = 10
    @Option(help: "Longest wait for the last outcomes, in seconds.") var drain = 120
    @Option(help: "Of a hundred jobs, so many are due later and wait in the store.") var heldPercent = 0
    @Option(help: "Seconds after which such jobs are due.") var holdSeconds = 45
    @Option(help: "Partitions of the outcomes topic.") var partitions = 32
    @Option(help: "Seed of tokens and identifiers.") var seed: UInt64 = 1

    func validate() throws {
        guard rate >= 0, window > 0, seconds > 0, drain >= 0, (0...100).contains(heldPercent),
            holdSeconds >= 0,
            (1...1_000).contains(partitions), rate * seconds < 2_000_000_000
        else { throw ValidationError("an option is out of its range") }
    }

    func run() throws {
        var load = try SoakLoad(self)
        let result = try load.run()
        var line = JSONLine()
        line.add("produced", result.audit.expected)
        line.add("not_acknowledged", result.audit.refused)
        line.add("seconds", result.seconds)
        line.add("jobs_per_second", Double(result.produced) / max(result.seconds, 1e-3))
        line.add("outcomes_per_second", result.outcomesPerSecond)
        line.add("held_back_seconds", result.heldBackSeconds)
        line.add("outcomes", result.audit.outcomes)
        line.add("missing", result.audit.missing)
        line.add("doubled", result.audit.doubled)
        line.add("unknown", result.audit.unknown)
        line.add("unreadable", result.audit.unreadable)
        line.add("drain_seconds", result.drainSeconds)
        line.add("p50_ms", result.audit.milliseconds(50))
        line.add("p99_ms", result.audit.milliseconds(99))
        line.add("longest_ms", result.audit.milliseconds(100))
        for kind in OutcomeKind.allCases {
            line.add("kind_\(kind.name)", result.audit.kinds[Int(kind.rawValue)])
        }
        line.add("retried", result.audit.retried)
        line.print()
    }
}

import ArgumentParser
import DeliveryCore
import StreamScheduling

struct OpenLoopCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "open-loop",
        abstract: "Push at a fixed rate, answered or not, and measure from when each was due to its answer.",
        discussion:
            "Latencies in milliseconds. What the loop comes to late counts as waiting, so that a stall is seen in all that "
            + "it held up.")

    @OptionGroup var load: LoadOptions
    @Option(help: "Pushes a second.") var rate: Double
    @Option(help: "Seconds to measure.") var seconds = 4.0
    @Option(help: "Seconds before the measurement begins.") var warmUp = 1.0

    func run() throws {
        var settings = load.settings
        settings.warmUp = .seconds(warmUp)
        settings.measured = .seconds(seconds)
        settings.sources = [.init(demand: .rate(rate), slots: 100_000, recordsLatency: true)]
        let result = try PushLoad(settings).run()
        var line = result.line
        line.add("waiting", result.waiting)
        if let latencies = result.sources[0].latencies { line.add("", latencies) }
        line.print()
    }
}

extension JSONLine {
    /// - Parameter prefix: Prefix of the names.
    mutating func add(_ prefix: String, _ latencies: LatencyHistogram) {
        for (name, percent) in [("p50", 50.0), ("p90", 90), ("p99", 99), ("p999", 99.9)] {
            add("\(prefix)\(name)_ms", Double(latencies.percentile(percent)) / 1e6)
        }
        add("\(prefix)maximum_ms", Double(latencies.max) / 1e6)
    }
}

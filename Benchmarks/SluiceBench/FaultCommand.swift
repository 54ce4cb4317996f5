import ArgumentParser

struct FaultCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "faults",
        abstract: "Push at a fixed rate to a server that fails, and count what becomes of the connections.")

    @OptionGroup var load: LoadOptions
    @Option(help: "Pushes a second.") var rate: Double
    @Option(help: "Seconds to measure.") var seconds: Double
    @Option(help: "Milliseconds until a request counts as unanswered.") var requestTimeout = 2_000

    func run() throws {
        var settings = load.settings
        settings.warmUp = .seconds(1)
        settings.measured = .seconds(seconds)
        settings.requestTimeout = .milliseconds(requestTimeout)
        settings.allowsFaults = true
        settings.sources = [.init(demand: .rate(rate), slots: 100_000, recordsLatency: true)]
        let result = try PushLoad(settings).run()
        var line = result.line
        line.add("connections_closed", result.closed)
        line.add("connections_opened", result.opened)
        line.add("unanswered", result.unanswered)
        line.print()
    }
}

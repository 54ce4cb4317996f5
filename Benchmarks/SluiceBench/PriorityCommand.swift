import ArgumentParser

struct PriorityCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "priority",
        abstract:
            "A steady trickle of priority 10, alone or beside a campaign of priority 5 that takes all it gets."
    )

    @OptionGroup var load: LoadOptions
    @Option(help: "Pushes of priority 10 a second.") var rate = 500.0
    @Flag(help: "With the campaign.") var campaign = false
    @Option(help: "Seconds to measure.") var seconds = 5.0

    func run() throws {
        var settings = load.settings
        settings.warmUp = .seconds(1)
        settings.measured = .seconds(seconds)
        settings.sources = [
            .init(app: 0, priority: .immediate, demand: .rate(rate), slots: 20_000, recordsLatency: true)
        ]
        if campaign {
            // A separate app, as campaigns have.
            settings.sources.append(
                .init(app: 1, priority: .powerAware, slots: load.saturatingSlots))
        }
        let result = try PushLoad(settings).run()
        var line = result.line
        line.add("alerts", result.sources[0].pushes)
        if let latencies = result.sources[0].latencies { line.add("alert_", latencies) }
        line.print()
    }
}

import ArgumentParser

struct GrowthCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "growth",
        abstract:
            "Begin with few connections and a demand that they can't carry, until the pool has grown to it.")

    @OptionGroup var load: LoadOptions
    @Option(help: "Pushes a second.") var rate: Double
    @Option(help: "Connections that the pool may have.") var maximumConnections = 8
    @Option(help: "Seconds after which it has failed.") var limit = 30.0

    func run() throws {
        var settings = load.settings
        settings.maximumConnections = maximumConnections
        settings.warmUp = .pushes(0)
        settings.measured = .seconds(limit + 10)
        settings.watch = GrowthWatch(demand: rate, limitSeconds: limit)
        // Pushes beyond the slots wait in the schedule, as they would in Kafka.
        settings.sources = [.init(demand: .rate(rate), slots: 100_000, recordsLatency: true)]
        let result = try PushLoad(settings).run()
        var line = result.line
        guard let watch = result.watch else { throw LoadError(description: "nothing was watched") }
        line.add("carried", watch.carriedAfter == nil ? 0 : 1)
        line.add("carried_after_seconds", watch.carriedAfter ?? limit)
        line.add("most_connections", watch.mostConnections)
        line.add("waiting", result.waiting)
        line.print()
    }
}

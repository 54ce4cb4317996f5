import ArgumentParser

struct ConnectionCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connection",
        abstract: "Push through the connection layer as fast as a server answers; prints one line of JSON.")

    @OptionGroup var load: LoadOptions
    @Option(help: "Pushes to measure.") var pushes = 200_000
    @Option(help: "Pushes before the measurement begins.") var warmUp = 20_000

    func run() throws {
        var settings = load.settings
        settings.warmUp = .pushes(warmUp)
        settings.measured = .pushes(pushes)
        settings.sources = [.init(slots: load.inFlight * load.connections)]
        let result = try PushLoad(settings).run()
        result.line.print()
    }
}

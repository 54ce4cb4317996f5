import ArgumentParser

struct FloorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "floor",
        abstract:
            "An app of priority 10 and another of priority 5 that both always have more than the pool takes.")

    @OptionGroup var load: LoadOptions
    @Option(help: "Seconds to measure.") var seconds = 4.0

    func run() throws {
        var settings = load.settings
        settings.warmUp = .seconds(1)
        settings.measured = .seconds(seconds)
        let slots = load.saturatingSlots
        settings.sources = [
            .init(app: 0, priority: .immediate, slots: slots),
            .init(app: 1, priority: .powerAware, slots: slots),
        ]
        let result = try PushLoad(settings).run()
        var line = result.line
        let pushes = result.sources.map { Double($0.pushes) }
        line.add("floor_share", pushes[1] / (pushes[0] + pushes[1]))
        line.print()
    }
}

import ArgumentParser

struct FairnessCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fairness",
        abstract: "Two apps of different weight that both always have more to push than the pool takes.")

    @OptionGroup var load: LoadOptions
    @Option(help: "Weight of the first app; the second's is 1.") var weight = 3
    @Option(help: "Seconds to measure.") var seconds = 3.0

    func run() throws {
        var settings = load.settings
        settings.warmUp = .seconds(1)
        settings.measured = .seconds(seconds)
        // Each source has more pushes than all streams take, so that both wait at all times.
        let slots = load.saturatingSlots
        settings.sources = [
            .init(app: 0, weight: weight, slots: slots), .init(app: 1, weight: 1, slots: slots),
        ]
        let result = try PushLoad(settings).run()
        var line = result.line
        let pushes = result.sources.map { Double($0.pushes) }
        let wanted = Double(weight) / Double(weight + 1)
        let shares = [pushes[0] / (pushes[0] + pushes[1]), pushes[1] / (pushes[0] + pushes[1])]
        line.add("share", shares[0])
        line.add("error", max(abs(shares[0] / wanted - 1), abs(shares[1] / (1 - wanted) - 1)))
        line.print()
    }
}

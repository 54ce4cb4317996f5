import ArgumentParser
import HTTP2

struct HeadersCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "headers",
        abstract: "Count the bytes of the header blocks that a server gets, in steady state.")

    @Option(help: "Pushes to measure.") var pushes = 20_000
    @Option(help: "Pushes before the measurement begins.") var warmUp = 2_000
    @Option(help: "Requests in flight.") var inFlight = 1000

    func run() throws {
        let server = try FrameCountingServer(skipped: warmUp, counted: pushes)
        var settings = PushLoad.Settings()
        settings.port = server.port
        settings.trust = .text(server.authorityPEM)
        settings.inFlight = inFlight
        settings.warmUp = .pushes(warmUp)
        settings.measured = .pushes(pushes)
        settings.sources = [.init(slots: inFlight)]
        server.start()
        let result = try PushLoad(settings).run()
        let counts = try server.finish()
        guard counts.requests == pushes, counts.collapseIdentifiers == pushes, counts.identifiers == pushes
        else {
            throw LoadError(description: "not every request had what it was to have: \(counts)")
        }
        var line = result.line
        line.add("header_bytes_per_push", Double(counts.headerBlockBytes) / Double(counts.requests))
        line.add("header_list_bytes_per_push", Double(counts.headerListBytes) / Double(counts.requests))
        line.add("frame_bytes_per_push", Double(counts.frameBytes) / Double(counts.requests))
        line.add("authorization_bytes", counts.authorizationBytes)
        line.print()
    }
}

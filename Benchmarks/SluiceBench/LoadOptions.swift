import ArgumentParser
import HTTP2

/// Options of the server and of all loads.
struct LoadOptions: ParsableArguments {
    @Option(help: "The server's port.") var port: UInt16
    @Option(help: "PEM file of the authority that signed the server's certificate.") var caFile: String
    @Option(help: "The server's name, as in its certificate.") var host = "localhost"
    @Option(help: "Connections.") var connections = 1
    @Option(help: "Requests in flight on each connection at most.") var inFlight = 1000
    @Option(help: "Payload bytes.") var payload = 250

    /// Number of slots for a source that always has more pushes than all streams take.
    var saturatingSlots: Int { 2 * inFlight * connections + 1000 }

    var settings: PushLoad.Settings {
        var settings = PushLoad.Settings()
        settings.port = port
        settings.trust = .file(caFile)
        settings.host = host
        settings.connections = connections
        settings.inFlight = inFlight
        settings.payloadBytes = payload
        return settings
    }
}

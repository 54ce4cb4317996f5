import Configuration
import TestSupport

@testable import Admin

/// An admin server on a port of its own, and clients of it. The server stops with the last reference.
final class AdminTestServer: Sendable {
    private let server: AdminServer

    /// - Parameter server: nothing has started it.
    init(_ server: AdminServer) {
        self.server = server
        server.start()
    }

    convenience init(_ routes: [String: AdminServer.Handler]) throws {
        self.init(try AdminServer(ListenAddress(host: "127.0.0.1", port: 0), routes: routes))
    }

    deinit { server.stop() }

    var address: ListenAddress { server.address! }

    /// Returns whether all connections ended in time.
    @discardableResult
    func stop() -> Bool { server.stop() }

    func client() throws -> AdminClient { try AdminClient(address.port) }

    func get(_ target: String) throws -> AdminClient.Answer { try AdminClient.get(target, address.port) }
}

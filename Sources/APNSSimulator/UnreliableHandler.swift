import HTTP2
import SluiceModel

/// Leaves some requests without an answer, or ends connections after a number of requests. Passes all other requests to
/// another handler. Loop's thread only.
final class UnreliableHandler: ServerRequestHandler {
    private let handler: any ServerRequestHandler
    private unowned let shard: SimulatorShard
    private var requests = 0

    init(_ handler: any ServerRequestHandler, shard: SimulatorShard) {
        self.handler = handler
        self.shard = shard
    }

    func connectionOpened(_ connection: ServerConnection) {
        handler.connectionOpened(connection)
    }

    func requestReceived(_ request: ServerRequest, on connection: ServerConnection) {
        if shard.options.unansweredShare > 0, shard.random.fraction() < shard.options.unansweredShare {
            return shard.counters.add(.unanswered)
        }
        handler.requestReceived(request, on: connection)
        requests += 1
        if requests == shard.options.requestsPerConnection {
            connection.goAway(debugData: "{\"reason\":\"\(Reason.idleTimeout.name)\"}")
        }
    }

    func requestOversized(_ request: ServerRequest, on connection: ServerConnection) {
        handler.requestOversized(request, on: connection)
    }

    func requestCancelled(stream: Int32, on connection: ServerConnection) {
        handler.requestCancelled(stream: stream, on: connection)
    }

    func connectionClosed(_ connection: ServerConnection, reason: ServerCloseReason) {
        handler.connectionClosed(connection, reason: reason)
    }
}

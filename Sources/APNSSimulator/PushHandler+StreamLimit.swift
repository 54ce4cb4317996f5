import HTTP2
import SluiceModel

/// Stream limit of a connection: the least of those by provider token, error budget and faults.
extension PushHandler {
    /// Allows all streams, because a provider token was accepted.
    func acceptToken(_ connection: ServerConnection) {
        tokenStreams = shard.options.maximumStreams
        applyStreamLimit(connection)
    }

    /// Draws the consequences of an answer for the connection.
    func adaptStreamLimit(_ reason: Reason, _ connection: ServerConnection) {
        if reason == .absent {
            tokenStreams = shard.options.maximumStreams
        } else if reason == .expiredProviderToken {
            // Seen in the field: the connection is reduced to one stream until a token is accepted again.
            tokenStreams = shard.options.streamsBeforeToken
        }
        if budget?.record(reason, now: shard.loop.now.nanoseconds) == true {
            // The open requests of a connection that ends are judged too.
            guard connection.isOpen else { return }
            shard.counters.add(.exhausted)
            return connection.goAway(debugData: "{\"reason\":\"\(reason.name)\"}")
        }
        applyStreamLimit(connection)
    }

    func applyStreamLimit(_ connection: ServerConnection) {
        let limit = budget?.limit(of: tokenStreams) ?? tokenStreams
        connection.maximumConcurrentStreams = min(limit, shard.script.active.streamLimit)
    }
}

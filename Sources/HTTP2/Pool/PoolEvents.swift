/// Events in a pool, for logs and metrics.
public enum PoolEvent: Sendable {
    /// A connection is open. `handshakeNanoseconds`: time from the start of its opening.
    case opened(connection: UInt32, address: String, tls: String, handshakeNanoseconds: UInt64)
    /// A connection, open or still opening, is closed. `generation`: that of its credential.
    case closed(connection: UInt32, generation: UInt32, reason: ConnectionCloseReason)
    /// The server announced the end of a connection. `generation`: that of its credential; `debugData`: at most 256 bytes of
    /// the server's reason.
    case goAway(connection: UInt32, generation: UInt32, code: HTTP2ErrorCode, debugData: [UInt8])
    /// A look-up of the host's addresses failed.
    case resolveFailed(ResolverError)
    /// The resolver fell silent, or answers again.
    case resolver(ResolverChange)
    /// Nothing is opened or sent for so many nanoseconds; see ``ConnectionPool/stop(reason:)``.
    case stopped(reason: String, nanoseconds: UInt64)
    /// The pool changed its size, a connection's role, or its circuit.
    case changed(PoolChange)
}

/// A change in whether the resolver answers for a pool's name.
public enum ResolverChange: Sendable, Equatable {
    /// No usable answer arrives. Meanwhile the pool tries the `known` addresses: those of earlier connections and of
    /// the last answer.
    case silent(host: String, reason: String, known: Int)
    /// Usable answers arrive again.
    case answers(host: String)
}

/// Receives the events of a pool's connections, on the loop's thread.
public protocol ConnectionPoolDelegate: AnyObject {
    /// Receives the ends of requests, as one batch per read. Tags are the scheduler's slots, which are idle. `events`
    /// are valid during the call only.
    func pool(
        _ pool: ConnectionPool, received events: UnsafeBufferPointer<ClientEvent>,
        on connection: ClientConnection)
    /// Reports possible room for requests: the delegate fetches assignments at the end of this turn.
    func poolHasCapacity(_ pool: ConnectionPool)
    /// Reports an event for logs and metrics.
    func pool(_ pool: ConnectionPool, happened event: PoolEvent)
}

/// What happens in a pool, for logs and metrics.
public enum PoolEvent: Sendable {
    case opened(connection: UInt32, address: String, tls: String, handshakeNanoseconds: UInt64)
    case closed(connection: UInt32, reason: ConnectionCloseReason)
    /// The server announced the end of a connection; `debugData` at most 256 bytes of its reason.
    case goAway(connection: UInt32, code: HTTP2ErrorCode, debugData: [UInt8])
    case resolveFailed(ResolverError)
    /// The resolver fell silent, or answers again.
    case resolver(ResolverChange)
    /// Nothing will be opened or sent for a while; see ``ConnectionPool/stop(reason:retryAfter:)``.
    case stopped(reason: String)
    /// The pool changed its size, a connection's part, or its circuit.
    case changed(PoolChange)
}

/// A change in what comes of looking a pool's name up.
public enum ResolverChange: Sendable, Equatable {
    /// No answer comes in time. The `known` addresses that a connection was open with, or that were the last answer, are
    /// tried meanwhile.
    case silent(host: String, reason: String, known: Int)
    case answers(host: String)
}

/// Told what a pool's connections bring. Loop's thread.
public protocol ConnectionPoolDelegate: AnyObject {
    /// Ends of requests, as one batch a read; tags are the scheduler's slots, which are idle. Valid during the call.
    func pool(
        _ pool: ConnectionPool, received events: UnsafeBufferPointer<ClientEvent>,
        on connection: ClientConnection)
    /// There may be room for requests again: take assignments at the end of this turn.
    func poolHasCapacity(_ pool: ConnectionPool)
    func pool(_ pool: ConnectionPool, happened event: PoolEvent)
}

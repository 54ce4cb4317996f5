/// What happens in a pool, for logs and metrics.
public enum PoolEvent: Sendable {
    case opened(connection: UInt32, address: String, tls: String, handshakeNanoseconds: UInt64)
    case closed(connection: UInt32, reason: ConnectionCloseReason)
    /// The server announced the end of a connection; `debugData` at most 256 bytes of its reason.
    case goAway(connection: UInt32, code: HTTP2ErrorCode, debugData: [UInt8])
    case resolveFailed(ResolverError)
    /// Nothing will be opened or sent for a while; see ``ConnectionPool/stop(reason:retryAfter:)``.
    case stopped(reason: String)
    /// The pool changed its size, a connection's part, or its circuit.
    case changed(PoolChange)
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

import EventLoop

/// Why a connection is no more.
public enum ConnectionCloseReason: Sendable, CustomStringConvertible {
    /// TCP did not come about.
    case connectFailed(SystemError)
    /// No connection within the connect timeout, TLS and SETTINGS included.
    case connectTimeout
    case tls(TLSError)
    case http2(HTTP2ConnectionError)
    /// The server closed it; `clean` when it said so in TLS.
    case closedByServer(clean: Bool)
    /// No sign of life within the PING timeout, or several requests in a row without an answer.
    case unresponsive
    /// We ended it after its streams were done.
    case drained
    /// We ended it at once.
    case closed

    public var description: String {
        switch self {
        case .connectFailed(let error): "\(error)"
        case .connectTimeout: "no connection within the connect timeout"
        case .tls(let error): "\(error)"
        case .http2(let error): "\(error)"
        case .closedByServer(clean: true): "closed by the server"
        case .closedByServer(clean: false): "cut by the server without close_notify"
        case .unresponsive: "unresponsive: requests or PINGs had no answer in time"
        case .drained: "drained"
        case .closed: "closed"
        }
    }
}

/// Told what happens on a connection; on the loop's thread. Events come in batches, one call a read.
public protocol ClientConnectionOwner: AnyObject {
    /// TLS is up and the server's SETTINGS have come.
    func connectionOpened(_ connection: ClientConnection)
    /// Answers, failures, changed settings. The buffer is valid during the call.
    func connection(_ connection: ClientConnection, received events: UnsafeBufferPointer<ClientEvent>)
    /// The last call; every request has been answered for before.
    func connectionClosed(_ connection: ClientConnection, reason: ConnectionCloseReason)
}

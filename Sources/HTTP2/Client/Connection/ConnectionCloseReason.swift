import EventLoop

/// How far the opening of a connection has come.
public enum OpeningPhase: String, Sendable, CustomStringConvertible {
    case dialing = "TCP"
    case tunnelling = "the proxy's answer"
    case handshaking = "the TLS handshake"
    case negotiating = "the server's SETTINGS"

    public var description: String { rawValue }
}

/// Why a connection is no more.
public enum ConnectionCloseReason: Sendable, CustomStringConvertible {
    /// TCP did not come about, with any address.
    case connectFailed(DialError)
    /// TCP came about, and the connection was not open within the connect timeout.
    case connectTimeout(OpeningPhase)
    /// The proxy gave no tunnel.
    case proxy(ProxyError)
    case tls(TLSError)
    case http2(HTTP2ConnectionError)
    /// The server closed it; `clean` when it said so in TLS.
    case closedByServer(clean: Bool)
    /// No sign of life within the PING timeout, or several requests in a row without an answer.
    case unresponsive(UnresponsiveCause)
    /// We ended it after its streams were done.
    case drained
    /// We ended it at once.
    case closed
    /// Requests were to leave after the end of ``EventLoop/SendPermit``: this process was stopped for a while.
    case permitEnded

    /// What an end calls for.
    public enum Kind: Sendable, Equatable {
        /// TCP, or a peer that is not there: open another one, with the usual back-off.
        case network
        /// A certificate, ALPN, TLS versions, a credential of the proxy, or something else than the server at that
        /// address: it stays so until someone mends it. Try again seldom, and say so.
        case settings
        /// One side broke the protocol: open another one, with the usual back-off, and say so.
        case protocolBreach
        /// The server ended it in order.
        case endedByServer
        /// We ended it.
        case endedByUs
    }

    public var kind: Kind {
        switch self {
        case .connectFailed, .connectTimeout, .unresponsive, .closedByServer(clean: false): .network
        case .proxy(let error):
            switch error.kind {
            case .authenticationRequired, .notHTTP, .headerTooLong, .unexpectedBytes, .configuration:
                .settings
            // The proxy's rules say no; its failures to reach the target (5xx) are the network's.
            case .refused(let status): status >= 500 ? .network : .settings
            case .closed, .lost: .network
            }
        case .tls(let error):
            switch error.kind {
            case .connectionLost: .network
            case .protocolViolation: .protocolBreach
            case .configuration, .certificateExpired, .certificateNotYetValid, .hostnameMismatch,
                .unknownAuthority, .certificateInvalid, .certificateRefused, .protocolRefused,
                .noCommonParameters, .notTLS:
                .settings
            }
        case .http2: .protocolBreach
        case .closedByServer(clean: true): .endedByServer
        case .drained, .closed, .permitEnded: .endedByUs
        }
    }

    public var description: String {
        switch self {
        case .connectFailed(let error): "\(error)"
        case .connectTimeout(let phase): "no connection within the connect timeout: it waited for \(phase)"
        case .proxy(let error): "\(error)"
        case .tls(let error): "\(error)"
        case .http2(let error): "\(error)"
        case .closedByServer(clean: true): "closed by the server"
        case .closedByServer(clean: false): "cut by the server without close_notify"
        case .unresponsive(.silent(let nanoseconds)):
            "unresponsive: nothing came for \(nanoseconds / 1_000_000) ms, not even the answer to a PING"
        case .unresponsive(.requestsUnanswered(let count)):
            "unresponsive: \(count) requests in a row had no answer in time"
        case .drained: "drained"
        case .closed: "closed"
        case .permitEnded:
            "closed with requests that were not sent, as this process was stopped for too long to be sure of them"
        }
    }
}

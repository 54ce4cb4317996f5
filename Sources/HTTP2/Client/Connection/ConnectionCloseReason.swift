import EventLoop

/// Progress of a connection's opening.
public enum OpeningPhase: String, Sendable, CustomStringConvertible {
    case dialing = "TCP"
    case tunnelling = "the proxy's answer"
    case handshaking = "the TLS handshake"
    case negotiating = "the server's SETTINGS"

    public var description: String { rawValue }
}

/// Reason for the end of a connection.
public enum ConnectionCloseReason: Sendable, CustomStringConvertible {
    /// TCP could not be opened to any address.
    case connectFailed(DialError)
    /// TCP opened, but the connection was not open within the connect timeout.
    case connectTimeout(OpeningPhase)
    /// The proxy opened no tunnel.
    case proxy(ProxyError)
    /// TLS failed: the handshake or a record.
    case tls(TLSError)
    /// The server broke HTTP/2, or the session can't continue.
    case http2(HTTP2ConnectionError)
    /// The server closed the connection; `clean` when it announced the end in TLS.
    case closedByServer(clean: Bool)
    /// No sign of life arrived within the PING timeout, or several requests in a row had no answer.
    case unresponsive(UnresponsiveCause)
    /// We ended the connection after its streams were done.
    case drained
    /// We ended the connection at once.
    case closed
    /// Requests were to be sent after the end of ``EventLoop/SendPermit``, because this process was stopped for a
    /// while.
    case permitEnded

    /// The response that an end calls for.
    public enum Kind: Sendable, Equatable {
        /// TCP failed, or the peer is not there: open another connection, with the usual back-off.
        case network
        /// A certificate, ALPN, TLS versions or the proxy's credential is wrong, or another host answers at that
        /// address. The fault stays until someone mends it: retry seldom, and report it.
        case settings
        /// A breach of the protocol by either side: open another connection, with the usual back-off, and report the
        /// breach.
        case protocolBreach
        /// The server ended the connection in order.
        case endedByServer
        /// We ended the connection.
        case endedByUs
    }

    /// Kind of the reason, for counters.
    public var kind: Kind {
        switch self {
        case .connectFailed, .connectTimeout, .unresponsive, .closedByServer(clean: false): .network
        case .proxy(let error):
            switch error.kind {
            case .authenticationRequired, .notHTTP, .headerTooLong, .unexpectedBytes, .configuration:
                .settings
            // A refusal below 500 is the proxy's rule; a 5xx is a failure of the proxy to reach the target, so the
            // network's.
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

    /// Whether the other side ended an open connection, or broke the protocol, so that a request may be the cause.
    var isOfServer: Bool {
        switch self {
        case .tls(let error): error.kind == .connectionLost || error.kind == .protocolViolation
        case .http2, .closedByServer: true
        case .connectFailed, .connectTimeout, .proxy, .unresponsive, .drained, .closed, .permitEnded: false
        }
    }

    /// Whether the server refused our certificate, or demands one that we did not present.
    public var refusesCertificate: Bool {
        if case .tls(let error) = self { error.kind == .certificateRefused } else { false }
    }

    public var description: String {
        switch self {
        case .connectFailed(let error): "\(error)"
        case .connectTimeout(let phase):
            "no connection within the connect timeout; it was waiting for \(phase)"
        case .proxy(let error): "\(error)"
        case .tls(let error): "\(error)"
        case .http2(let error): "\(error)"
        case .closedByServer(clean: true): "closed by the server"
        case .closedByServer(clean: false): "cut by the server without close_notify"
        case .unresponsive(.silent(let nanoseconds)):
            "unresponsive: nothing was received for \(nanoseconds / 1_000_000) ms, not even the answer to a PING"
        case .unresponsive(.requestsUnanswered(let count)):
            "unresponsive: \(count) requests in a row had no answer in time"
        case .unresponsive(.requestsUnderWay(let count)):
            "unresponsive: \(count) expired requests had not reached the server"
        case .drained: "drained"
        case .closed: "closed"
        case .permitEnded:
            "closed with unsent requests because the process was stopped for too long"
        }
    }
}

import EventLoop

/// An HTTP proxy that connections use by CONNECT (RFC 9110 §9.3.6). Neither its description nor its mirror shows user
/// and password.
public struct ProxyConfiguration: Sendable, Equatable {
    /// Name or address of the proxy.
    public var host: String
    public var port: UInt16
    /// User for Basic credentials (RFC 7617), which the proxy receives when this is set; must not contain a colon.
    public var user: String?
    /// Password for Basic credentials, with ``user``; nil counts as empty.
    public var password: String?

    public init(host: String, port: UInt16, user: String? = nil, password: String? = nil) {
        self.host = host
        self.port = port
        self.user = user
        self.password = password
    }
}

extension ProxyConfiguration: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    public var description: String { ProxyEndpoint.text(host: host, port: port) }
    public var debugDescription: String { description }
    public var customMirror: Mirror {
        Mirror(self, children: ["host": host, "port": port], displayStyle: .struct)
    }
}

/// Reason why a proxy opened no tunnel.
public struct ProxyError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Cause of the failure.
    public enum Kind: Sendable, Equatable {
        /// Status 407: the proxy demands other credentials, or any at all (RFC 9110 §15.5.8).
        case authenticationRequired
        /// Another status than success: 403 by the proxy's rules, 502 or 504 because the proxy did not reach the
        /// target.
        case refused(status: Int)
        /// The bytes received are no HTTP/1 response.
        case notHTTP
        /// The header block is longer than ``ProxyResponseParser/maximumLength``.
        case headerTooLong
        /// Bytes followed the header block, though in TLS the client sends first.
        case unexpectedBytes
        /// The proxy closed the connection before its answer was complete.
        case closed
        /// The connection to the proxy broke.
        case lost(SystemError)
        /// The target, user or password can't be put into a request.
        case configuration
    }

    public let kind: Kind
    /// Host and port of the proxy.
    public let proxy: String
    /// Host and port of the requested target.
    public let target: String

    public var description: String {
        let what = "proxy \(proxy), tunnel to \(target): "
        switch kind {
        case .authenticationRequired:
            return what + "authentication required (407); check the proxy's user and password"
        case .refused(let status) where status == 502 || status == 503 || status == 504:
            return what + "status \(status): the proxy can't reach the target; check the proxy's network"
        case .refused(let status):
            return what + "status \(status): refused; check that the proxy allows CONNECT to this port"
        case .notHTTP: return what + "the answer is not HTTP; check the proxy's host and port"
        case .headerTooLong:
            return what + "the answer's header is longer than \(ProxyResponseParser.maximumLength) bytes"
        case .unexpectedBytes: return what + "bytes after the answer, before TLS began"
        case .closed: return what + "closed by the proxy before it answered"
        case .lost(let error): return what + "\(error)"
        case .configuration:
            return what
                + "the request is not valid; the host must be a name or an address, and the proxy's user must not contain a colon"
        }
    }
}

enum ProxyEndpoint {
    /// Returns host and port as in an authority (RFC 9110 §7.2): an IPv6 address in brackets.
    static func text(host: String, port: UInt16) -> String {
        host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]:\(port)" : "\(host):\(port)"
    }
}

/// The limits and parameters of an HTTP/2 server.
///
/// The defaults are the SETTINGS that APNs was seen to send (table of RFC 9113 §6.5.2 values: 4096, N, 65535, 16384,
/// 8000).
public struct ServerOptions: Sendable {
    /// SETTINGS_HEADER_TABLE_SIZE: bytes of HPACK table that a client may use.
    public var headerTableSize: UInt32 = 4_096
    /// SETTINGS_MAX_CONCURRENT_STREAMS of a new connection; a handler may change it later.
    public var maximumConcurrentStreams: UInt32 = 1_000
    /// Treatment of streams above the limit.
    public var excessStreams = ExcessStreams.refuse
    /// Debug data of the GOAWAY for streams above the limit.
    public var excessDebugData = "Maximum active streams violated for this endpoint."
    /// SETTINGS_INITIAL_WINDOW_SIZE: bytes of body that a client may send on a stream unasked.
    public var initialWindowSize: UInt32 = 65_535
    /// The receive window of the whole connection, in bytes; below 65,535 it has no effect.
    public var connectionWindowSize: Int32 = 65_535
    /// SETTINGS_MAX_FRAME_SIZE, 16,384 to 16,777,215 bytes.
    public var maximumFrameSize: UInt32 = 16_384
    /// SETTINGS_MAX_HEADER_LIST_SIZE: bytes of names and values plus 32 for each field. A longer list is
    /// handed to ``ServerRequestHandler/requestOversized(_:on:)``.
    public var maximumHeaderListSize: UInt32 = 8_000
    /// Bytes that a request body may have. A longer one is handed to the handler at once, marked as cut off, and the
    /// rest is dropped.
    public var maximumBodySize = 65_536
    /// Parts of a request that the handler reads; the rest is not copied.
    public var requestParts: RequestParts = .all
    /// Time from accept to the end of the TLS handshake.
    public var handshakeTimeout: Duration = .seconds(10)
    /// Time without any byte from the client after which GOAWAY ends the connection.
    public var idleTimeout: Duration = .seconds(3_600)
    /// The debug data of that GOAWAY.
    public var idleDebugData = ""
    /// Time from GOAWAY to the forced end of a connection whose streams do not finish.
    public var drainTimeout: Duration = .seconds(10)
    /// Bytes of unsent output at which a connection stops to read, until half of them are sent.
    public var outputLimit = 256 * 1_024
    /// Highest number of connections at a listener; further ones are closed when they arrive.
    public var maximumConnections = 10_000
    /// Streams that a client may reset at once before it receives GOAWAY (CVE-2023-44487, “rapid reset”).
    public var resetBurst: UInt64 = 1_000
    /// Further streams that a client may reset per second.
    public var resetRatePerSecond: UInt64 = 33
    /// Whether requests are checked against the rules of RFC 9113 §8; false only for measurements.
    public var checksMessages = true

    public init() {}
}

/// The parts of a request that are copied for the handler.
public struct RequestParts: OptionSet, Sendable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Header fields.
    public static let headers = RequestParts(rawValue: 1)
    /// Content.
    public static let body = RequestParts(rawValue: 2)
    public static let all: RequestParts = [.headers, .body]
}

/// Reason for the end of a connection.
public enum ServerCloseReason: Sendable {
    /// The client closed the connection; `clean` if it announced the close in TLS.
    case byClient(clean: Bool)
    /// The handler or the listener closed the connection, or a GOAWAY was sent and all its streams were finished.
    case byServer
    /// No byte arrived within the idle timeout.
    case idle
    /// The TLS handshake did not end in time.
    case handshakeTimeout
    /// TLS failed: the handshake or a record.
    case tls(TLSError)
    /// The client broke HTTP/2; the text is nghttp2's.
    case protocolError(String)
}

/// The limits and parameters of an HTTP/2 server.
///
/// The defaults are the SETTINGS that APNs was seen to send (table of RFC 9113 §6.5.2 values: 4096, N, 65535, 16384,
/// 8000).
public struct ServerOptions: Sendable {
    /// SETTINGS_HEADER_TABLE_SIZE: bytes of HPACK table that a client may use.
    public var headerTableSize: UInt32 = 4_096
    /// SETTINGS_MAX_CONCURRENT_STREAMS of a new connection; a handler may change it later.
    public var maximumConcurrentStreams: UInt32 = 1_000
    /// SETTINGS_INITIAL_WINDOW_SIZE: bytes of body that a client may send on a stream unasked.
    public var initialWindowSize: UInt32 = 65_535
    /// The receive window of the whole connection, in bytes; below 65,535 it has no effect.
    public var connectionWindowSize: Int32 = 65_535
    /// SETTINGS_MAX_FRAME_SIZE, 16,384 to 16,777,215 bytes.
    public var maximumFrameSize: UInt32 = 16_384
    /// SETTINGS_MAX_HEADER_LIST_SIZE: bytes of names and values plus 32 for each field. A longer list is answered
    /// with status 431 (RFC 6585 §5).
    public var maximumHeaderListSize: UInt32 = 8_000
    /// Bytes that a request body may have. A longer one is handed to the handler at once, marked as cut off, and the
    /// rest is dropped.
    public var maximumBodySize = 65_536
    /// What of a request the handler looks at; the rest is not copied.
    public var requestParts: RequestParts = .all
    /// From accept to the end of the TLS handshake.
    public var handshakeTimeout: Duration = .seconds(10)
    /// Without any byte from the client for so long, the connection is ended by GOAWAY.
    public var idleTimeout: Duration = .seconds(3_600)
    /// The debug data of that GOAWAY.
    public var idleDebugData = ""
    /// From GOAWAY to the forced end of a connection whose streams do not finish.
    public var drainTimeout: Duration = .seconds(10)
    /// Bytes of unsent output at which a connection stops to read, until half of them are sent.
    public var outputLimit = 256 * 1_024
    /// More connections at one listener are closed when they arrive.
    public var maximumConnections = 10_000
    /// Streams that a client may reset in one go, and per second after that, before it gets GOAWAY
    /// (CVE-2023-44487, “rapid reset”).
    public var resetBurst: UInt64 = 1_000
    public var resetRatePerSecond: UInt64 = 33
    /// Whether requests are checked against the rules of RFC 9113 §8. Off only to measure.
    public var checksMessages = true

    public init() {}
}

/// The parts of a request that are copied for the handler.
public struct RequestParts: OptionSet, Sendable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) { self.rawValue = rawValue }

    public static let headers = RequestParts(rawValue: 1)
    public static let body = RequestParts(rawValue: 2)
    public static let all: RequestParts = [.headers, .body]
}

/// Why a connection ended.
public enum ServerCloseReason: Sendable {
    /// The client closed it; `clean` if it said so in TLS.
    case byClient(clean: Bool)
    /// The handler or the listener closed it, or a GOAWAY was sent and all its streams were finished.
    case byServer
    /// No byte came within the idle timeout.
    case idle
    /// The TLS handshake did not end in time.
    case handshakeTimeout
    case tls(TLSError)
    /// The client broke HTTP/2; the text is nghttp2's.
    case protocolError(String)
}

/// What a client session has to tell its owner. Each request that was submitted ends in exactly one
/// ``response`` or ``failed``.
public struct ClientEvent {
    public enum Kind: UInt8, Sendable {
        /// The whole answer has arrived.
        case response
        /// The request ended without an answer; ``processed`` says whether the server may have acted on it.
        case failed
        /// What the server takes has changed: its SETTINGS, or the connection's window.
        case capacityChanged
        /// The server ends the connection in an orderly way; ``body`` is the frame's debug data.
        case goAway
        /// A PING of ours was answered; ``code`` holds its number.
        case pingAnswered
    }

    /// Whether the server may have acted on a request that has no answer (RFC 9113 §8.7).
    public enum Processed: UInt8, Sendable {
        /// It certainly has not: refused, above the last stream of a GOAWAY, or its end never left us.
        case no
        /// It may have.
        case unknown
    }

    public var kind: Kind
    /// Bit 0: the server may have acted on the request. Bit 1: ``isStreamError``.
    private var flags: UInt8 = 1
    /// The response's status code.
    public var status: UInt16 = 0
    /// The owner's mark of the request, as given on submission.
    public var tag: UInt32 = 0
    /// The error code of a reset or GOAWAY. Of a request that failed without a reset by the server: PROTOCOL_ERROR or
    /// FLOW_CONTROL_ERROR as the answer broke the rules, NO_ERROR as it lies above a GOAWAY's last stream, CANCEL as it ran
    /// out of time, CONNECT_ERROR as the connection ended.
    public var code: UInt32 = 0
    /// `retry-after` in seconds; 0 when the server gave none.
    public var retryAfterSeconds: UInt32 = 0
    /// The answer's content, cut at ``ClientSession/maximumResponseBody``. Valid until the session is
    /// next given input.
    public var body = UnsafeRawBufferPointer(start: nil, count: 0)

    init(_ kind: Kind) {
        self.kind = kind
    }

    public internal(set) var processed: Processed {
        get { flags & 1 == 0 ? .no : .unknown }
        set { flags = newValue == .no ? flags & ~1 : flags | 1 }
    }

    /// The server failed this request, and not its connection: it reset the stream, or its answer broke the rules.
    public internal(set) var isStreamError: Bool {
        get { flags & 2 != 0 }
        set { flags = newValue ? flags | 2 : flags & ~2 }
    }
}

/// Why a session can't go on: the connection is to be closed.
public struct HTTP2ConnectionError: Error, Equatable, Sendable, CustomStringConvertible {
    public var code: HTTP2ErrorCode
    /// What the server did, or what happened.
    public var message: String

    public init(_ code: HTTP2ErrorCode, _ message: String) {
        self.code = code
        self.message = message
    }

    public var description: String { "HTTP/2 \(code): \(message)" }
}

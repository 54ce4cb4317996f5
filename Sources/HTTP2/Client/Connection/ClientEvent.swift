/// An event that a client session reports to its owner. Each submitted request ends in exactly one ``response`` or
/// ``failed``.
public struct ClientEvent {
    /// Kind of the event.
    public enum Kind: UInt8, Sendable {
        /// The answer has arrived, or its status before the stream ended in another way.
        case response
        /// The request ended without a status; ``processed`` reports whether the server may have acted on it.
        case failed
        /// The server's limits have changed: its SETTINGS, or the connection's window.
        case capacityChanged
        /// The server ends the connection in an orderly way; ``body`` is the frame's debug data.
        case goAway
        /// The server acknowledged our PING; ``code`` holds the PING's number.
        case pingAnswered
    }

    /// Whether the server may have acted on a request that has no answer (RFC 9113 §8.7).
    public enum Processed: UInt8, Sendable {
        /// The server certainly has not: it refused the stream, the stream is above a GOAWAY's last, or its end never
        /// left us.
        case no
        /// The server may have acted on the request.
        case unknown
    }

    public var kind: Kind
    /// Bit 0: the server may have acted on the request. Bit 1: ``isStreamError``. Bit 2: ``isCut``.
    private var flags: UInt8 = 1
    /// The response's status code.
    public var status: UInt16 = 0
    /// The owner's mark of the request, as passed on submission.
    public var tag: UInt32 = 0
    /// Error code of a reset or GOAWAY. When a request fails without a reset by the server, the code shows the cause.
    /// PROTOCOL_ERROR or FLOW_CONTROL_ERROR: the answer broke the rules. NO_ERROR: the stream is above a GOAWAY's last
    /// stream. CANCEL: the request expired, or we ended the connection. CONNECT_ERROR: the other side ended it.
    public var code: UInt32 = 0
    /// `retry-after` in seconds; 0 when the server gave none.
    public var retryAfterSeconds: UInt32 = 0
    /// Content of the answer, cut at ``ClientSession/Configuration/maximumBody``. Valid until the session next receives
    /// input.
    public var body = UnsafeRawBufferPointer(start: nil, count: 0)
    /// `apns-unique-id` of the answer; empty when the answer has none, or one of more than 64 bytes. Valid until the
    /// session next receives input.
    public var uniqueID = UnsafeRawBufferPointer(start: nil, count: 0)

    init(_ kind: Kind) {
        self.kind = kind
    }

    /// Whether the server may have acted on a request that failed; ``Processed/unknown`` for all other events.
    public internal(set) var processed: Processed {
        get { flags & 1 == 0 ? .no : .unknown }
        set { flags = newValue == .no ? flags & ~1 : flags | 1 }
    }

    /// Whether the server failed this request and not its connection: it reset the stream, or its answer broke the
    /// rules.
    public internal(set) var isStreamError: Bool {
        get { flags & 2 != 0 }
        set { flags = newValue ? flags | 2 : flags & ~2 }
    }

    /// Whether an answer of this status is about the push, so that the server accepts the credential. A refused or too
    /// often changed provider token (403, 429) isn't, nor a connection that is not for this server (421).
    static func isAboutPush(status: UInt16) -> Bool {
        status / 100 == 2 || status / 100 == 4 && status != 403 && status != 421 && status != 429
    }

    /// Whether the other side ended the connection, and the failed request may be the cause.
    public var isConnectionLoss: Bool {
        kind == .failed && code == HTTP2ErrorCode.connectError.rawValue && processed == .unknown
            && !isStreamError
    }

    /// Whether the request has expired, or we ended its connection.
    var isExpired: Bool {
        kind == .failed && code == HTTP2ErrorCode.cancel.rawValue && processed == .unknown && !isStreamError
    }

    /// Whether the stream ended after the status and before the end of the answer. Content is missing then, perhaps.
    public internal(set) var isCut: Bool {
        get { flags & 4 != 0 }
        set { flags = newValue ? flags | 4 : flags & ~4 }
    }
}

/// The error that ends a session. The connection must be closed.
public struct HTTP2ConnectionError: Error, Equatable, Sendable, CustomStringConvertible {
    /// HTTP/2 error code of the failure.
    public var code: HTTP2ErrorCode
    /// Description of the server's act or of the event.
    public var message: String

    public init(_ code: HTTP2ErrorCode, _ message: String) {
        self.code = code
        self.message = message
    }

    public var description: String { "HTTP/2 \(code): \(message)" }
}

/// A request whose end has arrived. The request borrows the connection's memory, so it is valid only within the call
/// that hands it over.
public struct ServerRequest {
    /// The stream to respond on.
    public let stream: Int32
    let storage: UnsafePointer<RequestStorage>

    /// A header field as received; names are lower-case (RFC 9113 §8.2).
    public typealias Field = (name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer)

    /// `:method`; empty if headers are not kept.
    public var method: UnsafeRawBufferPointer { storage.pointee.bytes(storage.pointee.method) }
    /// `:path`; empty if headers are not kept.
    public var path: UnsafeRawBufferPointer { storage.pointee.bytes(storage.pointee.path) }
    /// `:authority`; empty if it is absent.
    public var authority: UnsafeRawBufferPointer { storage.pointee.bytes(storage.pointee.authority) }

    /// Whether the method is HEAD.
    var isHead: Bool {
        let method = method
        return method.count == 4 && method[0] == UInt8(ascii: "H") && method[1] == UInt8(ascii: "E")
            && method[2] == UInt8(ascii: "A") && method[3] == UInt8(ascii: "D")
    }

    /// Number of header fields, without the pseudo-headers.
    public var headerCount: Int { storage.pointee.fieldCount }

    /// Returns the header field at `index`, in the order of arrival.
    public func header(_ index: Int) -> Field {
        let field = storage.pointee.field(index)
        return (storage.pointee.bytes(field.name), storage.pointee.bytes(field.value))
    }

    /// Body as far as it was kept.
    public var body: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: storage.pointee.body, count: storage.pointee.bodyCount)
    }

    /// Number of body bytes that have arrived, kept or not.
    public var bodyLength: Int { storage.pointee.bodyLength }

    /// Whether the body exceeds the limit; the server does not wait for its rest.
    public var isBodyCutOff: Bool { storage.pointee.isBodyCutOff }
}

/// A header field of a response.
public struct ResponseField {
    /// Name of the field, in lower case.
    public var name: StaticString
    /// Value that `respond` copies.
    public var value: UnsafeRawBufferPointer
    /// Whether the field may enter the HPACK table; not sensible for values that differ with each response.
    public var isIndexed: Bool

    public init(_ name: StaticString, _ value: UnsafeRawBufferPointer, isIndexed: Bool) {
        self.name = name
        self.value = value
        self.isIndexed = isIndexed
    }
}

/// Serves the requests of one connection, on the connection's loop.
public protocol ServerRequestHandler: AnyObject {
    /// Reports that the TLS handshake is over; the SETTINGS of the options are about to be sent.
    func connectionOpened(_ connection: ServerConnection)
    /// Receives a whole request. Answer with `connection.respond`, at once or later.
    func requestReceived(_ request: ServerRequest, on connection: ServerConnection)
    /// Receives a request whose header list exceeds the limit, with the fields before the excess. Answers with status 431
    /// (RFC 6585 §5) by default.
    func requestOversized(_ request: ServerRequest, on connection: ServerConnection)
    /// Reports that the client reset a stream (RST_STREAM) before the answer, so that an answer would have no receiver.
    func requestCancelled(stream: Int32, on connection: ServerConnection)
    /// Reports that the connection is gone; nothing more can be sent.
    func connectionClosed(_ connection: ServerConnection, reason: ServerCloseReason)
}

extension ServerRequestHandler {
    public func connectionOpened(_ connection: ServerConnection) {}
    public func requestOversized(_ request: ServerRequest, on connection: ServerConnection) {
        connection.respond(stream: request.stream, status: 431)
    }
    public func requestCancelled(stream: Int32, on connection: ServerConnection) {}
    public func connectionClosed(_ connection: ServerConnection, reason: ServerCloseReason) {}
}

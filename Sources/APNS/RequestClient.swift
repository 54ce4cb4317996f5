import EventLoop
import HTTP2
import SluiceModel

/// Sends single requests to a server of APNs, each on a connection of its own, for commands and checks. Pushes take
/// the pool instead.
///
/// The client is a value: any thread may use it. ``send(_:)`` blocks its thread, so no event loop may call it.
public struct RequestClient: Sendable {
    /// Method of a request.
    public enum Method: Sendable {
        case get, post, delete
    }

    /// A header field of a request.
    public struct Header: Sendable {
        /// Name, in lower case.
        public var name: StaticString
        /// Printable ASCII characters.
        public var value: String

        public init(_ name: StaticString, _ value: String) {
            self.name = name
            self.value = value
        }
    }

    /// A request with the whole body.
    public struct Request: Sendable {
        public var method: Method
        /// `:path`, which begins with a slash and has printable ASCII characters only.
        public var path: String
        /// Header fields in order, without pseudo-header fields and `authorization`.
        public var headers: [Header]
        public var body: [UInt8]

        public init(_ method: Method, _ path: String, headers: [Header] = [], body: [UInt8] = []) {
            self.method = method
            self.path = path
            self.headers = headers
            self.body = body
        }
    }

    /// The answer to a request.
    public struct Answer: Sendable {
        /// HTTP status, from 200 on.
        public var status: Int
        /// Header fields in the order of arrival, without `:status`.
        public var fields: [AnswerField]
        /// Content, at most ``ClientSession/maximumResponseBody`` bytes unless the client keeps more.
        public var body: [UInt8]

        /// Returns the value of the first field with the name, in lower case; nil without such a field.
        public subscript(_ name: String) -> String? { fields.first { $0.name == name }?.value }

        /// Identifier of the request at APNs (`apns-request-id`); nil when the answer has none, or no UUID.
        public var requestID: APNSID? { self["apns-request-id"].flatMap { APNSID(text: $0) } }
        /// Identifier of a channel that was created (`apns-channel-id`); nil when the answer has none.
        public var channelID: String? { self["apns-channel-id"] }
        /// Identifier for Apple's delivery log (`apns-unique-id`); nil when the answer has none, or no UUID.
        public var uniqueID: APNSID? { self["apns-unique-id"].flatMap { APNSID(text: $0) } }
        /// The server's clock (`date`), in the text form of RFC 9110 §5.6.7; nil when the answer has none.
        public var date: String? { self["date"] }
        /// Content as a reason of APNs.
        public var reason: Reason { body.withUnsafeBytes { ReasonBody($0).reason } }
        /// Seconds of `retry-after`; nil when the answer has none, or another form.
        public var retryAfterSeconds: Int? { self["retry-after"].flatMap { Int($0) } }
    }

    /// Stages of a request, in order.
    public enum Stage: String, Sendable, CaseIterable, Comparable {
        /// The request or the TLS options can't be used; nothing was sent.
        case preparation
        /// Looking the name up.
        case resolve
        /// Opening TCP, to the proxy if there is one.
        case connect
        /// Opening the tunnel through the proxy.
        case proxy
        /// The TLS handshake.
        case tls
        /// The server's SETTINGS.
        case http2
        /// The answer to the request.
        case answer

        public static func < (a: Stage, b: Stage) -> Bool {
            let order = allCases
            return order.firstIndex(of: a)! < order.firstIndex(of: b)!
        }
    }

    /// Facts about the connection, as far as it was opened.
    public struct Progress: Sendable {
        /// Addresses of the server, or of its proxy; empty before the look-up has ended.
        public var addresses: [SocketAddress] = []
        /// Address that TCP was opened to; nil when TCP was not opened.
        public var address: SocketAddress?
        /// Version and cipher suite of TLS; nil before the handshake has ended.
        public var tls: String?
        /// Protocol that ALPN selected; nil before the handshake has ended, and when the server selected none.
        public var applicationProtocol: String?
        /// Time from the call to the end of the request.
        public var duration: Duration = .zero
    }

    /// A request without an answer.
    public struct Failure: Error, Sendable, CustomStringConvertible {
        /// Stage that failed.
        public var stage: Stage
        /// Whether the time was up in this stage.
        public var isTimeout = false
        /// Cause and remedy, for people.
        public var message: String
        /// Class of a TLS failure; nil for other failures.
        public var tlsKind: TLSError.Kind?
        /// Reason of the server's GOAWAY; nil when none arrived. Faults of certificates arrive this way.
        public var goAway: GoAwayReason?
        /// Facts until the failure.
        public var progress = Progress()

        public init(stage: Stage, message: String) {
            self.stage = stage
            self.message = message
        }

        public var description: String { message }
    }

    /// Result of a request that was answered.
    public struct Result: Sendable {
        public var answer: Answer
        public var progress: Progress
    }

    /// Name or address of the server, which its certificate must carry unless ``serverName`` is set.
    public var host: String
    /// Name that the server's certificate must carry; nil: ``host``.
    public var serverName: String?
    public var port: UInt16
    /// `:authority` of requests; nil: ``host``, with the port unless that is 443.
    public var authority: String?
    public var tls: ClientTLSOptions
    /// Context of connections in place of ``tls``; nil: one is made for each request.
    public var context: TLSContext?
    /// Proxy to connect through; nil: none.
    public var proxy: ProxyConfiguration?
    /// Value of `authorization`, `bearer` included; nil: none, as on certificate connections.
    public var authorization: [UInt8]?
    /// Time from the call to the whole answer.
    public var timeout: Duration = .seconds(15)
    /// Bytes of an answer's content that are kept; more are cut off.
    public var maximumBody = ClientSession.maximumResponseBody

    public init(
        host: String, port: UInt16, authority: String? = nil, tls: ClientTLSOptions = .init(),
        proxy: ProxyConfiguration? = nil, authorization: [UInt8]? = nil
    ) {
        self.host = host
        self.port = port
        self.authority = authority
        self.tls = tls
        self.proxy = proxy
        self.authorization = authorization
    }

    /// `:authority` of requests.
    var authorityText: String {
        if let authority { return authority }
        let name = host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host
        return port == APNSEnvironment.standardPort ? name : "\(name):\(port)"
    }

    /// Opens a connection, sends the request, waits for the answer and closes the connection. Blocks the thread for
    /// at most about ``timeout``.
    ///
    /// - Throws: a failure that names the stage. Statuses of 400 and more are answers, not failures.
    public func send(_ request: Request) throws(Failure) -> Result {
        try check(request)
        let context: TLSContext
        let loop: EventLoop
        do {
            context = try self.context ?? TLSContext.client(tls)
            loop = try EventLoop(name: "apns-request")
        } catch {
            throw Failure(stage: .preparation, message: "\(error)")
        }
        let run = LoopConfined(RequestRun(client: self, request: request, context: context, loop: loop))
        let result = BlockingAnswer<Swift.Result<Result, Failure>>()
        loop.start()
        loop.execute { run.value.start { result.set($0) } }
        // Connection and look-up do not keep their owner.
        let outcome = withExtendedLifetime(run) {
            let outcome = result.wait()
            loop.stop()
            loop.join()
            return outcome
        }
        return try outcome.get()
    }

    /// Checks what a header block can't carry (RFC 9113 §8.2.1), because the texts may be a user's.
    private func check(_ request: Request) throws(Failure) {
        func isPrintable(_ text: String) -> Bool { text.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7f } }
        guard request.path.utf8.first == UInt8(ascii: "/"),
            request.path.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f })
        else {
            throw Failure(
                stage: .preparation, message: "the path of a request must have printable characters only")
        }
        for header in request.headers {
            let value = header.value
            guard isPrintable(value), value.first != " ", value.last != " " else {
                throw Failure(
                    stage: .preparation,
                    message:
                        "\(header.name): the value must have printable characters, and no space at its ends"
                )
            }
        }
        let length =
            request.path.utf8.count + request.headers.reduce(0) { $0 + $1.value.utf8.count }
            + (authorization?.count ?? 0)
        guard length <= Self.maximumHeaderText else {
            throw Failure(
                stage: .preparation,
                message: "the header of the request has \(length) bytes, over \(Self.maximumHeaderText)")
        }
    }

    /// Most bytes of path and header values together. APNs accepts 8,000 bytes of header list.
    private static let maximumHeaderText = 1_500
}

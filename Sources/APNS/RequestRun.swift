import EventLoop
import HTTP2
import SluiceModel

/// A request of ``RequestClient`` under way, from the look-up to the answer. Loop's thread only.
final class RequestRun: AddressLookupOwner, ClientConnectionOwner, TimerHandler {
    typealias Completion = (Result<RequestClient.Result, RequestClient.Failure>) -> Void

    private let client: RequestClient
    private let request: RequestClient.Request
    private let context: TLSContext
    private let loop: EventLoop
    private let fields = StableFields()
    private let began = MonotonicTime.read()
    private var completion: Completion?
    private var progress = RequestClient.Progress()
    private var lookup: AddressLookup?
    private var connection: ClientConnection?
    /// Deadline of the answer, while the connection is open.
    private var timer: TimerID?
    private var isOpened = false
    private var goAway: GoAwayReason?
    private var answer: RequestClient.Answer?
    /// Cause of the failure of the request, when the connection had none.
    private var requestFailure: String?
    private var isLate = false
    /// Body of the request, owned, because the session reads it until the request ends.
    private let body: UnsafeMutableRawBufferPointer

    init(client: RequestClient, request: RequestClient.Request, context: TLSContext, loop: EventLoop) {
        self.client = client
        self.request = request
        self.context = context
        self.loop = loop
        body = .allocate(byteCount: request.body.count, alignment: 1)
        body.copyBytes(from: request.body)
    }

    deinit { body.deallocate() }

    /// Begins. `completion` is called once, when everything is closed.
    func start(_ completion: @escaping Completion) {
        self.completion = completion
        let lookup = AddressLookup(
            number: 0, host: client.proxy?.host ?? client.host, port: client.proxy?.port ?? client.port,
            deadline: client.timeout, resolver: .system, loop: loop, owner: self)
        self.lookup = lookup
        lookup.start()
    }

    /// Time that is left; at least a millisecond.
    private var remaining: Duration {
        let passed = MonotonicTime.read().nanoseconds(since: began)
        let whole = client.timeout.wholeNanoseconds
        return .nanoseconds(Int64(clamping: whole > passed ? max(whole - passed, 1_000_000) : 1_000_000))
    }

    // MARK: Connection

    func lookup(_ lookup: AddressLookup, ended end: LookupEnd) {
        self.lookup = nil
        switch end {
        case .failed(let error): fail(.resolve, "\(error)")
        case .late:
            fail(
                .resolve,
                "cannot resolve \(client.proxy?.host ?? client.host): no answer of the name servers within "
                    + seconds, isTimeout: true)
        case .addresses(let addresses):
            progress.addresses = addresses
            connect(addresses)
        }
    }

    private var seconds: String { "\(client.timeout.wholeNanoseconds / 1_000_000_000) s" }

    private func connect(_ addresses: [SocketAddress]) {
        var configuration = ClientConnection.Configuration()
        configuration.connectTimeout = remaining
        configuration.requestTimeout = client.timeout
        configuration.session.maximumStreams = 1
        configuration.session.keepsFields = true
        configuration.session.maximumBody = client.maximumBody
        configuration.proxy = client.proxy
        let connection = ClientConnection(
            number: 0, addresses: addresses, serverName: client.host,
            certificateName: client.serverName, port: client.port, context: context, fields: fields,
            configuration: configuration, loop: loop, owner: self)
        self.connection = connection
        connection.connect()
    }

    func connectionOpened(_ connection: ClientConnection) {
        isOpened = true
        timer = loop.schedule(after: remaining, handler: self)
        submit(on: connection)
    }

    func connectionAvailabilityChanged(_ connection: ClientConnection) {
        // A server may permit no stream in its first SETTINGS.
        submit(on: connection)
    }

    private var isSubmitted = false

    private func submit(on connection: ClientConnection) {
        guard !isSubmitted, connection.availableStreams > 0 else { return }
        let authority = fields.add(name: ":authority", value: Array(client.authorityText.utf8))
        let delete = fields.add(name: ":method", value: Array("DELETE".utf8))
        let authorization = client.authorization.map { fields.add(name: "authorization", value: $0) }
        let headers = request.headers.map { fields.add(name: $0.name, value: Array($0.value.utf8)) }
        let result = connection.submit(tag: 0, body: UnsafeRawBufferPointer(body)) { block in
            // RFC 7541, appendix A: 2 is GET, 3 is POST, 7 is the scheme https.
            switch request.method {
            case .get: block.indexedStatic(2)
            case .post: block.indexedStatic(3)
            case .delete: block.stable(delete)
            }
            block.indexedStatic(7)
            block.stable(authority)
            Array(request.path.utf8).withUnsafeBytes { block.path("", $0) }
            if let authorization { block.stable(authorization) }
            for header in headers { block.stable(header) }
        }
        switch result {
        case .submitted: isSubmitted = true
        case .noCapacity: break
        case .headersTooLarge:
            requestFailure = "the header of the request is too long"
            connection.drain()
        }
    }

    func connection(
        _ connection: ClientConnection, received events: UnsafeBufferPointer<ClientEvent>
    ) {
        for event in events {
            switch event.kind {
            case .response where event.isCut && request.method == .get:
                // Content is missing, and the answer to a GET is its content.
                requestFailure = "the answer broke off"
                connection.drain()
            case .response:
                answer = RequestClient.Answer(
                    status: Int(event.status), fields: connection.answerFields, body: Array(event.body))
                connection.drain()
            case .failed:
                let code = HTTP2ErrorCode(rawValue: event.code)
                if code == .cancel, !event.isStreamError { isLate = true }
                if event.isStreamError { requestFailure = "the server refused the request: HTTP/2 \(code)" }
                connection.drain()
            case .goAway: goAway = GoAwayReason(event.body)
            case .capacityChanged: submit(on: connection)
            case .pingAnswered: break
            }
        }
    }

    func timerFired(_ timer: TimerID) {
        guard timer == self.timer else { return }
        self.timer = nil
        isLate = true
        connection?.close()
    }

    func connectionClosed(_ connection: ClientConnection, reason: ConnectionCloseReason) {
        if let timer { loop.cancel(timer) }
        timer = nil
        if connection.hasConnected { progress.address = connection.address }
        if !connection.tlsDescription.isEmpty { progress.tls = connection.tlsDescription }
        progress.applicationProtocol = connection.applicationProtocol
        if let answer {
            progress.duration = .nanoseconds(Int64(clamping: MonotonicTime.read().nanoseconds(since: began)))
            return complete(.success(.init(answer: answer, progress: progress)))
        }
        let ending = goAway.map { $0.text.isEmpty ? "" : "; the server gave as reason: \($0.text)" } ?? ""
        if isLate || reason.isTimeout {
            let stage = isLate ? .answer : stage(of: reason)
            let text =
                isLate
                ? "no answer from \(client.authorityText) within \(seconds)" : "\(reason)"
            return fail(stage, text + ending, isTimeout: true)
        }
        fail(stage(of: reason), (requestFailure ?? "\(reason)") + ending, tls: reason)
    }

    private func stage(of reason: ConnectionCloseReason) -> RequestClient.Stage {
        if isOpened { return .answer }
        switch reason {
        case .connectFailed: return .connect
        case .proxy: return .proxy
        case .tls: return .tls
        case .connectTimeout(let phase):
            switch phase {
            case .dialing: return .connect
            case .tunnelling: return .proxy
            case .handshaking: return .tls
            case .negotiating: return .http2
            }
        case .http2, .closedByServer, .unresponsive, .drained, .closed, .permitEnded: return .http2
        }
    }

    // MARK: End

    private func fail(
        _ stage: RequestClient.Stage, _ message: String, isTimeout: Bool = false,
        tls reason: ConnectionCloseReason? = nil
    ) {
        var failure = RequestClient.Failure(stage: stage, message: message)
        failure.isTimeout = isTimeout
        failure.goAway = goAway
        if case .tls(let error)? = reason { failure.tlsKind = error.kind }
        progress.duration = .nanoseconds(Int64(clamping: MonotonicTime.read().nanoseconds(since: began)))
        failure.progress = progress
        complete(.failure(failure))
    }

    private func complete(_ result: Result<RequestClient.Result, RequestClient.Failure>) {
        connection = nil
        let completion = completion
        self.completion = nil
        completion?(result)
    }
}

extension ConnectionCloseReason {
    /// Whether the time for opening was up.
    fileprivate var isTimeout: Bool {
        switch self {
        case .connectTimeout: true
        case .connectFailed(let error): error.attempts.contains { $0.cause == .noAnswer }
        default: false
        }
    }
}

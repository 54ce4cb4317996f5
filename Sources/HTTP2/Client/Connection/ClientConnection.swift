import EventLoop

/// A connection to the server: TCP (through a proxy, if there is one), TLS and ``ClientSession`` on an event loop. All
/// requests of a loop turn are sent together, in full TLS records. Use on the loop's thread only.
public final class ClientConnection: ReadinessHandler, TurnEndHandler, TimerHandler {
    /// Times and limits of a connection.
    public struct Configuration: Sendable {
        /// Limits of the HTTP/2 session.
        public var session = ClientSession.Configuration()
        /// Time from `connect` to the server's SETTINGS, including all addresses, the proxy and TLS.
        public var connectTimeout: Duration = .seconds(10)
        /// Time from a request's submission to its whole answer.
        public var requestTimeout: Duration = .seconds(20)
        /// Time between two PINGs while the connection is healthy.
        public var pingInterval: Duration = .seconds(60)
        /// Time after a PING without a single byte, after which the connection is closed.
        public var pingTimeout: Duration = .seconds(10)
        /// Time without a byte read, with requests open, after which a PING is sent. A silent connection with open
        /// requests is closed after this time and ``pingTimeout`` together.
        public var suspicionInterval: Duration = .seconds(2)
        /// Permit for sending requests. No request is sent once the permit has ended; nil means that requests are
        /// always permitted.
        public var permit: SendPermit?
        /// Proxy to dial through; nil means none. The addresses to dial are then the proxy's.
        public var proxy: ProxyConfiguration?

        public init() {}
    }

    enum State {
        case connecting
        /// TCP to the proxy is up, and the connection waits for the answer to CONNECT.
        case tunnelling
        case handshaking
        /// TLS is up, and the connection waits for the server's SETTINGS.
        case negotiating
        case open
        case closed
    }

    /// The owner's number of this connection.
    public let number: UInt32
    /// Generation of the owner's credential with which the connection was made.
    public let generation: UInt32
    /// Address of the peer; until TCP is up, the first of the addresses to try.
    public internal(set) var address: SocketAddress
    var state = State.connecting
    var session: ClientSession

    let loop: EventLoop
    let configuration: Configuration
    let context: TLSContext
    let serverName: String
    /// Name that the certificate must have, sent as SNI.
    let certificateName: String
    let port: UInt16
    unowned let owner: any ClientConnectionOwner

    /// Dialer while TCP is being opened; kept for what it learned of the addresses.
    var dialer: Dialer?
    private let addresses: [SocketAddress]
    var tunnel: ProxyTunnel?
    /// Socket while TCP is up and TLS has not begun, owned; -1 otherwise.
    var socket: Int32 = -1
    var transport: TLSTransport?
    var registration: Registration?
    var interest: Readiness = []
    var timer: TimerID?
    /// Time when `timer` fires, while the connection is open.
    var timerDue: UInt64 = .max
    /// Reason for closing when the timer next fires; nil when there is none.
    var pendingClose: ConnectionCloseReason?
    var resumeReading: TimerID?

    var input = ByteQueue(capacity: 2 * ClientConnection.readSize)
    var delivering = EventBuffer()
    var isDelivering = false
    var flushScheduled = false
    /// Whether written output waits for the socket. Requests then wait with the owner, where they can still be replaced
    /// or dropped.
    var isBlocked = false
    /// Fault of a write within ``submit(tag:body:encode:)``, which the end of the turn handles; nil when there is none.
    var writeFailure: TLSError?
    var unflushedRequests = 0
    /// Whether a request may be among the bytes that were framed and not sent.
    var hasUnsentRequests = false
    var isDraining = false
    var health: ConnectionHealth
    var wasSuspended = false
    var counters = ConnectionStatistics()
    let requestTimeoutNanoseconds: UInt64
    var phaseBegan: MonotonicTime

    /// Whether any request was ever answered.
    public internal(set) var hasAnswered = false
    /// Version and cipher, once TLS is up; empty before.
    public internal(set) var tlsDescription = ""
    /// Protocol that ALPN selected, once TLS is up; nil before, and when the server selected none.
    public internal(set) var applicationProtocol: String?
    /// Regular header fields of the answer that began last, with ``ClientSession/Configuration/keepsFields``.
    public var answerFields: [AnswerField] { session.answerFields }
    /// Whether TCP was opened, to the server or to its proxy.
    public internal(set) var hasConnected = false
    /// Addresses that did not connect, or that an address tried later overtook. Read the list when the connection has
    /// opened, or has closed without having opened.
    public internal(set) var failedAddresses: [SocketAddress] = []

    /// Size of a read in bytes: a TLS record's content.
    static let readSize = 16 * 1024 + 256
    /// Highest number of reads in a turn, so that a busy connection does not delay the others.
    static let readsPerTurn = 16
    /// Highest number of full turns of reads before a request counts as late.
    static let catchUpTurns = 64
    /// Highest number of reads of a server's remaining bytes when the server no longer accepts ours, because it could
    /// continue to send.
    static let lastReads = 64
    /// Bytes of framed requests that are sent before the turn's end: two full records, as many as TLS gathers.
    static let fullOutput = 2 * TLSTransport.maximumRecordSize

    /// - Parameters:
    ///   - addresses: the server's addresses, or the proxy's if there is one, in the order to try them; at least one.
    ///   - serverName: name of the server, sent to the proxy.
    ///   - certificateName: name that is checked against the certificate and sent as SNI; nil means the server's.
    ///   - port: the server's port; only a proxy receives it.
    public init(
        number: UInt32, generation: UInt32 = 0, addresses: [SocketAddress], serverName: String,
        certificateName: String? = nil, port: UInt16, context: TLSContext,
        fields: StableFields, configuration: Configuration, loop: EventLoop, owner: any ClientConnectionOwner
    ) {
        precondition(!addresses.isEmpty, "a connection needs an address")
        self.number = number
        self.generation = generation
        self.addresses = addresses
        address = addresses[0]
        self.serverName = serverName
        self.certificateName = certificateName ?? serverName
        self.port = port
        self.context = context
        self.configuration = configuration
        requestTimeoutNanoseconds = configuration.requestTimeout.wholeNanoseconds
        self.loop = loop
        self.owner = owner
        session = ClientSession(configuration: configuration.session, fields: fields)
        health = ConnectionHealth(
            configuration: .init(
                pingInterval: configuration.pingInterval.wholeNanoseconds,
                pingTimeout: configuration.pingTimeout.wholeNanoseconds,
                suspicionInterval: configuration.suspicionInterval.wholeNanoseconds),
            now: loop.now.nanoseconds)
        phaseBegan = loop.now
    }

    deinit {
        if let timer { loop.cancel(timer) }
        if socket >= 0 { ClientSocket.close(socket) }
    }

    /// Begins to connect. The owner receives the result, even an immediate failure, after this call.
    public func connect() {
        timer = loop.schedule(after: configuration.connectTimeout, handler: self)
        phaseBegan = MonotonicTime.read()
        let patience = configuration.requestTimeout + configuration.pingTimeout
        let dialer = Dialer(
            addresses: addresses, proxy: configuration.proxy?.description,
            userTimeoutMilliseconds: Int32(clamping: patience.wholeNanoseconds / 1_000_000), loop: loop,
            owner: self)
        self.dialer = dialer
        dialer.start()
    }

    // MARK: Requests

    /// Number of requests that the connection accepts now.
    public var availableStreams: Int {
        guard state == .open, !isDraining, !health.isSuspended, !isBlocked else { return 0 }
        return session.availableStreams
    }

    /// Number of open streams.
    public var openStreams: Int { session.openStreams }
    /// Number of content bytes that the connection's window accepts now.
    public var sendWindow: Int { session.sendWindow }
    /// Highest number of streams that may be open at once: the lower of the server's limit and ours.
    public var streamLimit: Int { session.streamLimit }
    /// Whether the server has shown that it accepts our credential.
    public var isAuthenticated: Bool { session.authenticated }
    /// Number of streams that may be opened before their ids are used up.
    public var remainingStreams: Int { session.remainingStreams }

    /// Whether the connection accepts no more requests for good: draining, GOAWAY, ids used up, or closed.
    public var isEnding: Bool {
        isDraining || state == .closed || (state == .open && !session.canOpenStreams)
    }

    /// Whether requests may be placed on the connection.
    public var isOpen: Bool { state == .open && !isEnding }

    /// Whether the connection is open but suspect: it accepts no requests until it receives a sign of life.
    public var isSuspended: Bool { state == .open && health.isSuspended }

    /// Frames a request, which is sent at the end of the loop's turn, or earlier with further requests that fill full
    /// records. See ``ClientSession/submit(tag:body:deadline:encode:)``.
    public func submit(
        tag: UInt32, body: UnsafeRawBufferPointer, encode: (inout HeaderBlockEncoder) -> Void
    ) -> ClientSession.SubmitResult {
        guard availableStreams > 0 else { return .noCapacity }
        let deadline = loop.now.nanoseconds &+ requestTimeoutNanoseconds
        let result = session.submit(tag: tag, body: body, deadline: deadline, encode: encode)
        if result == .submitted {
            unflushedRequests += 1
            hasUnsentRequests = true
            if session.openStreams == 1 { watchFirstStream() }
            if session.output.count >= Self.fullOutput { sendFullRecords() }
        }
        scheduleFlush()
        return result
    }

    /// Stops accepting requests, and closes when the open ones are answered.
    public func drain() {
        guard state != .closed else { return }
        isDraining = true
        if state != .open || session.openStreams == 0 { closeSoon(.drained) }
    }

    /// Closes at once; open requests without a status end as unknown.
    public func close() {
        close(.closed)
    }

    /// Counts of the connection so far.
    public var statistics: ConnectionStatistics {
        var statistics = counters
        statistics.requests &+= UInt64(unflushedRequests)
        statistics.roundTrip = health.roundTrip
        statistics.resetsReceived = session.resetsReceived
        statistics.streamLimit = session.streamLimit
        statistics.inFlight = session.openStreams
        return statistics
    }

    // MARK: Loop

    public func ready(_ readiness: Readiness) {
        switch state {
        case .connecting, .closed: break
        case .tunnelling: continueTunnel()
        case .handshaking: continueHandshake()
        case .negotiating, .open:
            if readiness.contains(.write) { flush() }
            if !readiness.isDisjoint(with: [.read, .hangup, .error]) { readAll() }
        }
    }

    public func turnEnded() {
        flushScheduled = false
        if unflushedRequests > 0 {
            counters.requests &+= UInt64(unflushedRequests)
            counters.requestsPerFlush.record(unflushedRequests)
            unflushedRequests = 0
        }
        flush()
        deliver()
    }

    public func timerFired(_ timer: TimerID) {
        if timer == resumeReading {
            resumeReading = nil
            readAll()
            return
        }
        guard timer == self.timer else { return }
        self.timer = nil
        timerDue = .max
        if let pendingClose { return close(pendingClose) }
        switch state {
        case .closed: break
        case .connecting: close(.connectFailed(dialer?.error ?? DialError(attempts: [])))
        case .tunnelling: close(.connectTimeout(.tunnelling))
        case .handshaking: close(.connectTimeout(.handshaking))
        case .negotiating: close(.connectTimeout(.negotiating))
        case .open: checkHealth()
        }
    }

    func want(_ interest: Readiness) {
        guard interest != self.interest, let registration else { return }
        self.interest = interest
        loop.modify(registration, interest: interest)
    }
}

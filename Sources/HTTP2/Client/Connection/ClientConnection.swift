import EventLoop
import Glibc

/// One connection to the server: TCP (by way of a proxy, if there is one), TLS and ``ClientSession`` on an event
/// loop. All requests of a loop turn go out together, in full TLS records. Loop's thread only.
public final class ClientConnection: ReadinessHandler, TurnEndHandler, TimerHandler {
    public struct Configuration: Sendable {
        public var session = ClientSession.Configuration()
        /// From `connect` to the server's SETTINGS: all addresses, the proxy and TLS included.
        public var connectTimeout: Duration = .seconds(10)
        /// From a request's submission to its whole answer.
        public var requestTimeout: Duration = .seconds(20)
        /// Between two PINGs while all is well.
        public var pingInterval: Duration = .seconds(60)
        /// The connection is given up when nothing at all comes for so long after a PING.
        public var pingTimeout: Duration = .seconds(10)
        /// A PING is sent when requests are open and not a byte was read for so long. A silent connection with open
        /// requests is given up after this and ``pingTimeout`` together.
        public var suspicionInterval: Duration = .seconds(2)
        /// Without it, once it has ended, no request is sent; nil: always.
        public var permit: SendPermit?
        /// The proxy to go through. The addresses to connect to are then its own.
        public var proxy: ProxyConfiguration?

        public init() {}
    }

    enum State {
        case connecting
        /// TCP to the proxy is up; its answer to CONNECT is awaited.
        case tunnelling
        case handshaking
        /// TLS is up; the server's SETTINGS are awaited.
        case negotiating
        case open
        case closed
    }

    /// The owner's number of this connection.
    public let number: UInt32
    /// The address that it is connected to; until TCP is up, the first of those to try.
    public internal(set) var address: SocketAddress
    var state = State.connecting
    var session: ClientSession

    let loop: EventLoop
    let configuration: Configuration
    let context: TLSContext
    let serverName: String
    let port: UInt16
    unowned let owner: any ClientConnectionOwner

    /// While TCP is being opened, and for what it learned of the addresses.
    var dialer: Dialer?
    private let addresses: [SocketAddress]
    var tunnel: ProxyTunnel?
    /// Owned while TCP is up and TLS has not begun.
    var socket: Int32 = -1
    var transport: TLSTransport?
    var registration: Registration?
    var interest: Readiness = []
    var timer: TimerID?
    /// When `timer` fires, while the connection is open.
    var timerDue: UInt64 = .max
    /// The reason for closing at the next turn of the timer.
    var pendingClose: ConnectionCloseReason?
    var resumeReading: TimerID?

    var input = ByteQueue(capacity: 2 * ClientConnection.readSize)
    var delivering = EventBuffer()
    var isDelivering = false
    var flushScheduled = false
    /// The output was at its limit, and the owner has not been told that it is not any more.
    var isOutputFull = false
    var unflushedRequests = 0
    /// A request may be among what was framed and not sent.
    var hasUnsentRequests = false
    var isDraining = false
    var health: ConnectionHealth
    var wasSuspended = false
    var counters = ConnectionStatistics()
    let requestTimeoutNanoseconds: UInt64
    var phaseBegan: MonotonicTime

    /// Whether any request was ever answered.
    public internal(set) var hasAnswered = false
    /// Version and cipher, once TLS is up.
    public internal(set) var tlsDescription = ""
    /// Addresses that did not connect, or that were overtaken by one that was tried later. To be read when the
    /// connection has opened, or has closed without having been open.
    public internal(set) var failedAddresses: [SocketAddress] = []

    /// A TLS record's content; what a read takes at once.
    static let readSize = 16 * 1024 + 256
    /// Reads of one turn, so that one busy connection does not hold up the others.
    static let readsPerTurn = 16
    /// What a turn reads, at most so many times, before a request counts as late.
    static let catchUpTurns = 64
    /// Reads of what a server left that no longer takes ours; it could go on sending.
    static let lastReads = 64
    /// Output that waits for the socket at most while requests are accepted.
    static let outputLimit = 256 * 1024

    /// - Parameters:
    ///   - addresses: of the server, or of the proxy if there is one; in the order to try them, at least one.
    ///   - serverName: checked against the certificate, sent as SNI and asked of the proxy.
    ///   - port: of the server; only a proxy is told.
    public init(
        number: UInt32, addresses: [SocketAddress], serverName: String, port: UInt16, context: TLSContext,
        fields: StableFields, configuration: Configuration, loop: EventLoop, owner: any ClientConnectionOwner
    ) {
        precondition(!addresses.isEmpty, "a connection needs an address")
        self.number = number
        self.addresses = addresses
        address = addresses[0]
        self.serverName = serverName
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
        if socket >= 0 { Glibc.close(socket) }
    }

    /// Begins to connect. The result, also a failure at once, comes through the owner, after this call.
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

    /// Requests that it takes now.
    public var availableStreams: Int {
        guard state == .open, !isDraining, !health.isSuspended, session.output.count < Self.outputLimit
        else { return 0 }
        return session.availableStreams
    }

    public var openStreams: Int { session.openStreams }
    public var sendWindow: Int { session.sendWindow }
    /// Streams that may be open at once: the server's limit and ours.
    public var streamLimit: Int { session.streamLimit }
    /// Whether the server has shown that it takes our credential.
    public var isAuthenticated: Bool { session.authenticated }
    /// Streams that may be opened before their ids are used up.
    public var remainingStreams: Int { session.remainingStreams }

    /// True when it takes no more requests for good: draining, GOAWAY, ids used up, or closed.
    public var isEnding: Bool {
        isDraining || state == .closed || (state == .open && !session.canOpenStreams)
    }

    /// Whether requests may be placed on it.
    public var isOpen: Bool { state == .open && !isEnding }

    /// Open, but silent after a PING: it takes no requests until it shows a sign of life.
    public var isSuspended: Bool { state == .open && health.isSuspended }

    /// Frames a request; it leaves at the end of the loop's turn. See ``ClientSession/submit(tag:body:deadline:encode:)``.
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
        }
        scheduleFlush()
        return result
    }

    /// Takes no more requests and closes when the open ones are answered.
    public func drain() {
        guard state != .closed else { return }
        isDraining = true
        if state != .open || session.openStreams == 0 { closeSoon(.drained) }
    }

    /// Closes at once; open requests end as unknown.
    public func close() {
        close(.closed)
    }

    /// What it has done so far.
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

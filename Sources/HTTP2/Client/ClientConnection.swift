import EventLoop
import Glibc

/// One connection to the server: socket, TLS and ``ClientSession`` on an event loop. All requests of a loop turn
/// go out together, in full TLS records. Loop's thread only.
public final class ClientConnection: ReadinessHandler, TurnEndHandler, TimerHandler {
    public struct Configuration: Sendable {
        public var session = ClientSession.Configuration()
        /// From `connect` to the server's SETTINGS.
        public var connectTimeout: Duration = .seconds(10)
        /// From a request's submission to its whole answer.
        public var requestTimeout: Duration = .seconds(20)
        /// A PING is sent after so long without a byte from the server; also how a silent one is found out
        /// while requests are open.
        public var pingInterval: Duration = .seconds(60)
        /// The connection is given up when nothing at all comes for so long after a PING.
        public var pingTimeout: Duration = .seconds(10)

        public init() {}
    }

    enum State {
        case connecting
        case handshaking
        /// TLS is up; the server's SETTINGS are awaited.
        case negotiating
        case open
        case closed
    }

    /// The owner's number of this connection.
    public let number: UInt32
    public let address: SocketAddress
    var state = State.connecting
    var session: ClientSession

    let loop: EventLoop
    let configuration: Configuration
    private let context: TLSContext
    private let serverName: String
    unowned let owner: any ClientConnectionOwner
    var transport: TLSTransport?
    var socket: Int32 = -1
    var registration: Registration?
    private var interest: Readiness = []
    var timer: TimerID?
    /// The reason for closing at the next turn of the timer.
    var pendingClose: ConnectionCloseReason?
    var resumeReading: TimerID?

    private var input = ByteQueue(capacity: 2 * ClientConnection.readSize)
    private var delivering = EventBuffer()
    private var isDelivering = false
    private var flushScheduled = false
    var isDraining = false
    var pingNumber: UInt32 = 0
    var pingSentAt: MonotonicTime?
    var lastRead: MonotonicTime

    /// Whether any request was ever answered.
    public private(set) var hasAnswered = false
    /// Requests that timed out since the last answer. While there are some, no new ones are placed until a PING is
    /// answered; a connection that answers PINGs and nothing else is given up.
    var timeoutsSinceAnswer = 0
    static let maximumTimeouts = 3
    /// Version and cipher, once TLS is up.
    public private(set) var tlsDescription = ""

    /// A TLS record's content; what a read takes at once.
    static let readSize = 16 * 1024 + 256
    /// Reads of one turn, so that one busy connection does not hold up the others.
    private static let readsPerTurn = 16
    /// Reads of what a server left that no longer takes ours; it could go on sending.
    private static let lastReads = 64
    /// Output that waits for the socket at most while requests are accepted.
    private static let outputLimit = 256 * 1024

    /// Begins to connect.
    /// - Parameter serverName: checked against the certificate and sent as SNI.
    public init(
        number: UInt32, address: SocketAddress, serverName: String, context: TLSContext, fields: StableFields,
        configuration: Configuration, loop: EventLoop, owner: any ClientConnectionOwner
    ) {
        self.number = number
        self.address = address
        self.serverName = serverName
        self.context = context
        self.configuration = configuration
        self.loop = loop
        self.owner = owner
        session = ClientSession(configuration: configuration.session, fields: fields)
        lastRead = loop.now
    }

    deinit {
        if let timer { loop.cancel(timer) }
    }

    /// Opens the socket. The result, also a failure at once, comes through the owner, after this call.
    public func connect() {
        timer = loop.schedule(after: configuration.connectTimeout, handler: self)
        socket = Glibc.socket(
            address.family, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard socket >= 0 else { return closeSoon(.connectFailed(SystemError(call: "socket"))) }
        var one: Int32 = 1
        setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<Int32>.size))
        // What was sent and is not acknowledged for so long ends the connection, whatever the system's retries say.
        var patience = Int32(
            clamping: (configuration.requestTimeout + configuration.pingTimeout).wholeNanoseconds / 1_000_000)
        setsockopt(
            socket, Int32(IPPROTO_TCP), TCP_USER_TIMEOUT, &patience, socklen_t(MemoryLayout<Int32>.size))
        let result = address.withPointer { Glibc.connect(socket, $0, $1) }
        guard result == 0 || errno == EINPROGRESS else {
            return closeSoon(.connectFailed(SystemError(call: "connect to \(address)")))
        }
        do throws(SystemError) {
            interest = .write
            registration = try loop.register(socket, interest: .write, handler: self)
        } catch {
            closeSoon(.connectFailed(error))
        }
    }

    // MARK: Requests

    /// Requests that it takes now.
    public var availableStreams: Int {
        guard state == .open, !isDraining, session.output.count < Self.outputLimit else { return 0 }
        // Under suspicion until it shows a sign of life.
        if timeoutsSinceAnswer > 0, pingSentAt != nil { return 0 }
        return session.availableStreams
    }

    public var openStreams: Int { session.openStreams }
    public var sendWindow: Int { session.sendWindow }

    /// True when it takes no more requests for good: draining, GOAWAY, ids used up, or closed.
    public var isEnding: Bool {
        isDraining || state == .closed || (state == .open && !session.canOpenStreams)
    }

    /// Whether requests may be placed on it.
    public var isOpen: Bool { state == .open && !isEnding }

    /// Frames a request; it leaves at the end of the loop's turn. See ``ClientSession/submit(tag:body:deadline:encode:)``.
    public func submit(
        tag: UInt32, body: UnsafeRawBufferPointer, encode: (inout HeaderBlockEncoder) -> Void
    ) -> ClientSession.SubmitResult {
        guard availableStreams > 0 else { return .noCapacity }
        let deadline = loop.now + configuration.requestTimeout
        let result = session.submit(tag: tag, body: body, deadline: deadline.nanoseconds, encode: encode)
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

    // MARK: Loop

    public func ready(_ readiness: Readiness) {
        switch state {
        case .connecting: finishConnect()
        case .handshaking: continueHandshake()
        case .negotiating, .open:
            if readiness.contains(.write) { flush() }
            if !readiness.isDisjoint(with: [.read, .hangup, .error]) { readAll() }
        case .closed: break
        }
    }

    public func turnEnded() {
        flushScheduled = false
        flush()
        deliver()
    }

    public func timerFired(_ timer: TimerID) {
        if timer == resumeReading {
            resumeReading = nil
            readAll()
            return
        }
        self.timer = nil
        switch state {
        case .closed: return
        case .connecting, .handshaking, .negotiating: close(pendingClose ?? .connectTimeout)
        case .open: checkHealth()
        }
    }

    private func finishConnect() {
        var code: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &length)
        guard code == 0 else {
            return close(.connectFailed(SystemError(call: "connect to \(address)", code: code)))
        }
        do throws(TLSError) {
            let owned = socket
            socket = -1
            transport = try TLSTransport(context: context, fileDescriptor: owned, serverName: serverName)
        } catch {
            return close(.tls(error))
        }
        state = .handshaking
        continueHandshake()
    }

    private func continueHandshake() {
        guard let transport else { return }
        switch transport.handshake() {
        case .done:
            state = .negotiating
            lastRead = loop.now
            want(.read)
            flush()
            if state == .negotiating { readAll() }
        case .wantRead: want(.read)
        case .wantWrite: want(.write)
        case .failed(let error): close(.tls(error))
        }
    }

    private func readAll() {
        guard let transport, state == .open || state == .negotiating else { return }
        for _ in 0..<Self.readsPerTurn {
            let room = input.prepare(Self.readSize)
            switch transport.read(into: room) {
            case .bytes(let count):
                input.commit(count)
                lastRead = loop.now
                pingSentAt = nil
                guard process() else { return }
            case .wantRead: return
            case .wantWrite:
                want([.read, .write])
                return
            case .closed(let clean): return close(.closedByServer(clean: clean))
            case .failed(let error): return close(.tls(error))
            }
        }
        // More may wait in TLS, of which the socket knows nothing.
        if transport.hasBufferedInput {
            resumeReading = loop.schedule(at: loop.now + .nanoseconds(1), handler: self)
        }
    }

    /// Gives the session what has come and its events to the owner. False when the connection has ended.
    private func process() -> Bool {
        do throws(HTTP2ConnectionError) {
            let used = try session.receive(input.readable)
            input.consume(used)
        } catch {
            deliver()
            flush()
            close(.http2(error))
            return false
        }
        if state == .negotiating, session.peerMaximumStreams != nil {
            state = .open
            if let transport { tlsDescription = "\(transport.version) \(transport.cipher)" }
            if let timer { loop.cancel(timer) }
            scheduleHealthCheck()
            owner.connectionOpened(self)
        }
        if !session.output.isEmpty { scheduleFlush() }
        deliver()
        if state == .open, isEnding, session.openStreams == 0 { closeSoon(.drained) }
        return state != .closed
    }

    func deliver() {
        guard !isDelivering else { return }
        isDelivering = true
        while session.events.count > 0 {
            swap(&session.events, &delivering)
            if delivering.all.contains(where: { $0.kind == .response }) {
                hasAnswered = true
                timeoutsSinceAnswer = 0
            }
            owner.connection(self, received: delivering.all)
            delivering.removeAll()
        }
        isDelivering = false
    }

    // MARK: Writing

    func scheduleFlush() {
        guard !flushScheduled, state == .open || state == .negotiating else { return }
        flushScheduled = true
        loop.atTurnEnd(self)
    }

    func flush() {
        guard let transport, state == .open || state == .negotiating else { return }
        while !session.output.isEmpty {
            let waiting = session.output.readable
            let record = UnsafeRawBufferPointer(rebasing: waiting.prefix(TLSTransport.maximumRecordSize))
            switch transport.write(record) {
            case .bytes(let count): session.output.consume(count)
            case .wantWrite:
                want([.read, .write])
                return
            case .wantRead:
                want(.read)
                return
            case .failed(let error):
                // A server that closed may have said why, and which requests it has not processed.
                takeLastInput(from: transport)
                return close(.tls(error))
            }
        }
        want(.read)
    }

    private func takeLastInput(from transport: TLSTransport) {
        for _ in 0..<Self.lastReads {
            let room = input.prepare(Self.readSize)
            guard case .bytes(let count) = transport.read(into: room) else { break }
            input.commit(count)
        }
        if let used = try? session.receive(input.readable) { input.consume(used) }
    }

    private func want(_ interest: Readiness) {
        guard interest != self.interest, let registration else { return }
        self.interest = interest
        loop.modify(registration, interest: interest)
    }
}

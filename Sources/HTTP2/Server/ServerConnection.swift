import CNghttp2
import EventLoop
import Glibc

/// Server side of a client's HTTP/2 connection. Use on its loop's thread only.
///
/// The connection reads the received bytes and hands whole requests to its handler. At the end of the loop's turn it
/// writes all answers together, in full TLS records where possible.
public final class ServerConnection: ReadinessHandler, TimerHandler, TurnEndHandler {
    enum State {
        /// TLS is being negotiated. Next: open, lingering, closed.
        case handshake
        /// Requests are served. Next: draining, lingering, closed.
        case open
        /// GOAWAY was sent, and the open streams are finished. Next: lingering, closed.
        case draining
        /// Nothing more is sent, and the connection waits for the client's last bytes. A close before them would be a
        /// reset that can destroy the last bytes sent. Next: closed.
        case lingering
        case closed
    }

    /// Loop whose thread alone uses the connection.
    public let loop: EventLoop
    /// Handler, set by the listener right after creation and released at the close.
    var handler: (any ServerRequestHandler)?
    var state = State.handshake
    let transport: TLSTransport
    private unowned let listener: ServerListener
    private var registration: Registration?
    private var interest: Readiness = [.read]

    /// nghttp2's session: created after the handshake, freed in `finish`, at the latest in deinit.
    private(set) var session: OpaquePointer?
    /// The session's user data; freed after it.
    let table: UnsafeMutablePointer<ServerStreamTable>
    /// The fields of the response being submitted.
    let fields: UnsafeMutablePointer<nghttp2_nv>
    static let maximumResponseFields = 16
    /// The last breach of the protocol that nghttp2 reported; 0 for none.
    var lastProtocolError: Int32 = 0

    var output: ByteQueue
    var outputFilter = ServerOutputFilter()
    private var isWriteBlocked = false
    private var readWantsWrite = false
    private var isReadPaused = false
    private var isTurnEndDue = false
    private(set) var closeRequested: ServerCloseReason?
    var timer: TimerID?
    private var continuation: TimerID?
    private var lastInput: MonotonicTime
    var streamLimit: ServerStreamLimit
    /// Streams above the limit that were refused since nghttp2 had nothing more to send.
    var unsentRefusals = 0
    /// GOAWAY requested by `connectionOpened` before there is a session; nil when there is none.
    var earlyGoAway: ServerGoAway?
    /// Last stream that the GOAWAY reports as processed; `Int32.max` before a GOAWAY. The handler hears of no stream above.
    var lastProcessedStream = Int32.max
    /// Whether neither a byte is read nor written, see ``isSilent``.
    var isSilenced = false
    /// Pace of reading; nil without a limit.
    var readPace: ReadPace?
    /// Whether reading waits for the pace.
    private var isReadPaced = false
    var options: ServerOptions { listener.options }

    /// Time that the connection waits for the client's end after ours.
    private static let lingerTimeout: Duration = .seconds(1)
    /// Highest number of records read in a turn, so that a busy connection does not delay the others.
    private static let recordsPerTurn = 16

    init(listener: ServerListener, transport: TLSTransport) {
        self.listener = listener
        self.transport = transport
        loop = listener.loop
        table = .allocate(capacity: 1)
        table.initialize(to: ServerStreamTable(options: listener.options))
        fields = .allocate(capacity: Self.maximumResponseFields)
        output = ByteQueue(capacity: 32 * 1_024)
        lastInput = loop.now
        streamLimit = ServerStreamLimit(listener.options.maximumConcurrentStreams)
        table.pointee.connection = self
    }

    deinit {
        if let session { nghttp2_session_del(session) }
        table.pointee.deallocate()
        table.deinitialize(count: 1)
        table.deallocate()
        fields.deallocate()
    }

    func start() throws(SystemError) {
        registration = try loop.register(transport.fileDescriptor, interest: interest, handler: self)
        timer = loop.schedule(after: options.handshakeTimeout, handler: self)
    }

    // MARK: - Public facts and controls

    /// Whether the TLS handshake was completed, and ``ServerRequestHandler/connectionOpened(_:)`` called.
    public private(set) var wasOpened = false

    /// Whether requests are still accepted.
    public var isOpen: Bool { state == .open }

    /// The client's certificate; nil if none was requested or presented.
    public var peerCertificate: PeerCertificate? { transport.peerCertificate }

    /// Number of open streams.
    public var openStreams: Int { table.pointee.count }

    func close(_ reason: ServerCloseReason) {
        guard state != .closed, state != .lingering, closeRequested == nil else { return }
        closeRequested = reason
        requestTurnEnd()
    }

    // MARK: - Loop

    public func ready(_ readiness: Readiness) {
        switch state {
        case .closed: return
        case .handshake: return shakeHands()
        case .lingering:
            if transport.discardInput() { endLingering() }
            return
        case .open, .draining: break
        }
        if isSilenced {
            if !readiness.intersection([.hangup, .error]).isEmpty { close(.byClient(clean: false)) }
            return
        }
        // While reading is paused, a hangup appears only at the next write.
        if readiness.contains(.write) || isReadPaused {
            isWriteBlocked = false
            if readWantsWrite { receive() }
            requestTurnEnd()
        }
        if !isReadPaused, !isReadPaced, !readiness.intersection([.read, .hangup, .error]).isEmpty {
            receive()
        }
    }

    public func timerFired(_ id: TimerID) {
        if id == continuation {
            continuation = nil
            isReadPaced = false
            if state == .open || state == .draining, !isReadPaused, !isSilenced { receive() }
            return
        }
        timer = nil
        switch state {
        case .handshake: close(.handshakeTimeout)
        case .draining: close(.byServer)
        case .lingering: endLingering()
        case .closed: break
        case .open:
            let idle = loop.now.nanoseconds(since: lastInput)
            if idle >= options.idleTimeout.wholeNanoseconds {
                goAway(debugData: options.idleDebugData)
            } else {
                timer = loop.schedule(at: lastInput + options.idleTimeout, handler: self)
            }
        }
    }

    public func turnEnded() {
        isTurnEndDue = false
        guard state != .closed, state != .lingering else { return }
        if !isWriteBlocked, !isSilenced { submitStreamLimit() }
        flush()
        if !table.pointee.refusedWithData.isEmpty, !isWriteBlocked, !isSilenced {
            answerRefusedData()
            flush()
        }
        if let reason = closeRequested { return finish(reason) }
        if let session, state != .handshake, !isSilenced, output.isEmpty,
            nghttp2_session_want_read(session) == 0,
            nghttp2_session_want_write(session) == 0
        {
            return finish(lastProtocolError == 0 ? .byServer : .protocolError(Self.text(lastProtocolError)))
        }
        updateInterest()
    }

    func requestTurnEnd() {
        guard !isTurnEndDue, state != .closed else { return }
        isTurnEndDue = true
        loop.atTurnEnd(self)
    }

    private func updateInterest() {
        let shallPause = isWriteBlocked && output.count >= options.outputLimit
        if isReadPaused, !shallPause, transport.hasBufferedInput { continueLater() }
        isReadPaused = shallPause
        var wanted: Readiness = isReadPaused || isReadPaced ? [] : [.read]
        if isWriteBlocked || readWantsWrite { wanted.insert(.write) }
        // A client that leaves a silent connection frees its descriptor.
        setInterest(isSilenced ? .hangup : wanted)
    }

    private func shakeHands() {
        switch transport.handshake() {
        case .wantRead: setInterest([.read])
        case .wantWrite: setInterest([.write])
        case .failed(let error): close(.tls(error))
        case .done:
            setInterest([.read])
            open()
        }
    }

    private func setInterest(_ wanted: Readiness) {
        guard wanted != interest, let registration else { return }
        interest = wanted
        loop.modify(registration, interest: wanted)
    }

    private func open() {
        state = .open
        wasOpened = true
        handler?.connectionOpened(self)
        session = listener.sessions.makeSession(table: table)
        announceStreamLimit()
        guard session != nil else { return close(.protocolError("no memory for a session")) }
        lastInput = loop.now
        if let timer { loop.cancel(timer) }
        timer = loop.schedule(after: options.idleTimeout, handler: self)
        requestTurnEnd()
        if let early = earlyGoAway { goAway(early) }
        // The client's first frames may have arrived with the end of its handshake.
        if !isSilenced { receive() }
    }

    // MARK: - Bytes

    private func receive() {
        guard let session, closeRequested == nil else { return }
        readWantsWrite = false
        requestTurnEnd()
        var buffer = listener.readBuffer
        if let readPace { buffer = UnsafeMutableRawBufferPointer(rebasing: buffer[..<readPace.mostBytes]) }
        for _ in 0..<Self.recordsPerTurn {
            switch transport.read(into: buffer) {
            case .bytes(let count):
                lastInput = loop.now
                let taken = nghttp2_session_mem_recv(
                    session, listener.readBuffer.baseAddress?.assumingMemoryBound(to: UInt8.self), count)
                if taken < 0 { return close(.protocolError(Self.text(Int32(taken)))) }
                if readPace != nil { return paceReading(count) }
                // The handler of a request may silence the connection.
                if isSilenced { return }
            case .wantRead: return
            case .wantWrite:
                readWantsWrite = true
                return
            case .closed(let clean): return close(.byClient(clean: clean))
            case .failed(let error): return close(.tls(error))
            }
        }
        // The socket reports the bytes left there, but not those that OpenSSL has already read from it.
        if transport.hasBufferedInput { continueLater() }
    }

    private func continueLater() {
        guard continuation == nil else { return }
        continuation = loop.schedule(at: MonotonicTime(nanoseconds: loop.now.nanoseconds + 1), handler: self)
    }

    /// Pauses reading until the pace allows further bytes.
    private func paceReading(_ count: Int) {
        guard let due = readPace?.read(count, now: loop.now.nanoseconds) else { return }
        if let continuation { loop.cancel(continuation) }
        isReadPaced = true
        continuation = loop.schedule(at: MonotonicTime(nanoseconds: due), handler: self)
    }

    /// Continues to read and write after a change of the pace or of the silence.
    func resume() {
        guard state == .open || state == .draining else { return }
        if let continuation { loop.cancel(continuation) }
        continuation = nil
        isReadPaced = false
        // The input that waits may be within OpenSSL, so that the socket doesn't report it.
        if !isSilenced { continueLater() }
        requestTurnEnd()
    }

    /// Writes nghttp2's output, until none is left or the socket accepts no more.
    private func flush() {
        guard let session, !isWriteBlocked, !isSilenced else { return }
        var isExhausted = false
        while !isExhausted {
            while output.count < options.outputLimit {
                var bytes: UnsafePointer<UInt8>?
                let count = nghttp2_session_mem_send(session, &bytes)
                guard count > 0 else {
                    if count < 0 { close(.protocolError(Self.text(Int32(count)))) }
                    isExhausted = true
                    unsentRefusals = 0
                    break
                }
                let frame = UnsafeRawBufferPointer(start: bytes, count: count)
                if outputFilter.isActive {
                    outputFilter.pass(frame, to: &output)
                } else {
                    output.append(frame)
                }
            }
            // A record that is not full waits for further output of this turn.
            while output.count >= TLSTransport.maximumRecordSize || isExhausted && !output.isEmpty {
                switch transport.write(output.readable) {
                case .bytes(let count): output.consume(count)
                case .wantWrite, .wantRead:
                    isWriteBlocked = true
                    return
                case .failed(let error): return close(.tls(error))
                }
            }
        }
    }

    /// Ends the connection: reports it to the handler, and closes the socket. The close is delayed if the client may
    /// still be sending.
    private func finish(_ reason: ServerCloseReason) {
        if let timer { loop.cancel(timer) }
        if let continuation { loop.cancel(continuation) }
        timer = nil
        continuation = nil
        if case .byClient = reason {
            if isSilenced { transport.abandonOutput() }
            state = .closed
        } else {
            transport.endOutput()
            state = .lingering
            setInterest([.read])
            timer = loop.schedule(after: Self.lingerTimeout, handler: self)
        }
        if let session { nghttp2_session_del(session) }
        session = nil
        let handler = self.handler
        self.handler = nil
        handler?.connectionClosed(self, reason: reason)
        if state == .closed { leave() }
    }

    private func endLingering() {
        if let timer { loop.cancel(timer) }
        timer = nil
        state = .closed
        leave()
    }

    private func leave() {
        if let registration { loop.deregister(registration) }
        registration = nil
        transport.close()
        listener.remove(self)
    }

    static func text(_ code: Int32) -> String { String(cString: nghttp2_strerror(code)) }
}

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
    private(set) var state = State.handshake
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

    private var output: ByteQueue
    private var isWriteBlocked = false
    private var readWantsWrite = false
    private var isReadPaused = false
    private var isTurnEndDue = false
    private var closeRequested: ServerCloseReason?
    private var timer: TimerID?
    private var continuation: TimerID?
    private var lastInput: MonotonicTime
    private var streamLimit: UInt32
    /// GOAWAY requested by `connectionOpened` before there is a session; nil when there is none.
    private var earlyGoAway: (errorCode: UInt32, debugData: String)?
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
        streamLimit = listener.options.maximumConcurrentStreams
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

    /// SETTINGS_MAX_CONCURRENT_STREAMS. A change is sent with the end of this turn. Until the client has acknowledged a
    /// lower limit, streams above it are refused with REFUSED_STREAM.
    public var maximumConcurrentStreams: UInt32 {
        get { streamLimit }
        set {
            guard newValue != streamLimit else { return }
            streamLimit = newValue
            guard let session else { return }
            var entry = setting(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, newValue)
            nghttp2_submit_settings(session, noFlags, &entry, 1)
            requestTurnEnd()
        }
    }

    /// Sends GOAWAY. No more streams are accepted, the open ones are finished, then the connection is closed.
    /// - Parameters:
    ///   - errorCode: a code of RFC 9113 §7; 0 for a planned end.
    ///   - debugData: text sent with the GOAWAY; APNs puts a JSON object with `reason` there.
    public func goAway(errorCode: UInt32 = 0, debugData: String = "") {
        guard state == .open else {
            if state == .handshake { close() }
            return
        }
        guard let session else {
            earlyGoAway = (errorCode, debugData)
            return
        }
        state = .draining
        var debugData = debugData
        debugData.withUTF8 { bytes in
            _ = nghttp2_submit_goaway(
                session, noFlags, nghttp2_session_get_last_proc_stream_id(session), errorCode,
                bytes.baseAddress,
                bytes.count)
        }
        if let timer { loop.cancel(timer) }
        timer = loop.schedule(after: options.drainTimeout, handler: self)
        requestTurnEnd()
    }

    /// Resets a stream (RST_STREAM), for example with 7, REFUSED_STREAM: not processed.
    public func reset(stream: Int32, errorCode: UInt32) {
        guard let session else { return }
        nghttp2_submit_rst_stream(session, noFlags, stream, errorCode)
        requestTurnEnd()
    }

    /// Closes the connection at the end of this turn, without waiting for its streams.
    public func close() { close(.byServer) }

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
        // While reading is paused, a hangup appears only at the next write.
        if readiness.contains(.write) || isReadPaused {
            isWriteBlocked = false
            if readWantsWrite { receive() }
            requestTurnEnd()
        }
        if !isReadPaused, !readiness.intersection([.read, .hangup, .error]).isEmpty { receive() }
    }

    public func timerFired(_ id: TimerID) {
        if id == continuation {
            continuation = nil
            if state == .open || state == .draining, !isReadPaused { receive() }
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
        flush()
        if let reason = closeRequested { return finish(reason) }
        if let session, state != .handshake, output.isEmpty, nghttp2_session_want_read(session) == 0,
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
        var wanted: Readiness = isReadPaused ? [] : [.read]
        if isWriteBlocked || readWantsWrite { wanted.insert(.write) }
        setInterest(wanted)
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
        session = listener.sessions.makeSession(table: table, maximumConcurrentStreams: streamLimit)
        guard session != nil else { return close(.protocolError("no memory for a session")) }
        lastInput = loop.now
        if let timer { loop.cancel(timer) }
        timer = loop.schedule(after: options.idleTimeout, handler: self)
        requestTurnEnd()
        if let early = earlyGoAway { goAway(errorCode: early.errorCode, debugData: early.debugData) }
        // The client's first frames may have arrived with the end of its handshake.
        receive()
    }

    // MARK: - Bytes

    private func receive() {
        guard let session, closeRequested == nil else { return }
        readWantsWrite = false
        requestTurnEnd()
        for _ in 0..<Self.recordsPerTurn {
            switch transport.read(into: listener.readBuffer) {
            case .bytes(let count):
                lastInput = loop.now
                let taken = nghttp2_session_mem_recv(
                    session, listener.readBuffer.baseAddress?.assumingMemoryBound(to: UInt8.self), count)
                if taken < 0 { return close(.protocolError(Self.text(Int32(taken)))) }
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

    /// Writes nghttp2's output, until none is left or the socket accepts no more.
    private func flush() {
        guard let session, !isWriteBlocked else { return }
        var isExhausted = false
        while !isExhausted {
            while output.count < options.outputLimit {
                var bytes: UnsafePointer<UInt8>?
                let count = nghttp2_session_mem_send(session, &bytes)
                guard count > 0 else {
                    if count < 0 { close(.protocolError(Self.text(Int32(count)))) }
                    isExhausted = true
                    break
                }
                output.append(UnsafeRawBufferPointer(start: bytes, count: count))
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

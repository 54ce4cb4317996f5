import EventLoop
import Glibc

/// A connection of the HTTP server: reads a request, answers it, and reads the next. Used on the server's loop only.
final class HTTPConnection: ReadinessHandler {
    private enum Phase {
        case reading
        case waiting(any HTTPWaiter)
        case streaming(any HTTPStreamSource)
        case working(any HTTPWork)
        /// The answer is the connection's last.
        case closing
        /// The answer was sent. The other end is to close first, because closing with unread bytes would destroy it.
        case lingering
        case closed
    }

    private unowned let server: HTTPServer
    /// Descriptor of the socket, owned; -1 once closed.
    private var descriptor: Int32
    private var registration: Registration?
    private var phase = Phase.reading
    /// Request that is being answered, or whose body is being read; nil between requests.
    private var request: HTTPRequest?
    private var parser: HTTPRequestParser
    /// Bytes that the system has not taken yet.
    private var output = ByteQueue(capacity: 1 << 10)
    private var part: [UInt8] = []
    /// Whether the client will send nothing more.
    private var sawEnd = false
    /// Whether the body of the answer has chunks.
    private var isChunked = false
    /// Whether the source has more bytes than there was room for, or may have; whether the work has a further step.
    private var hasMore = false
    /// Whether bytes that have arrived wait for their turn, because the output is full or the turn was long.
    private var isBehind = false
    private var interest: Readiness = .read
    /// Whether no byte has arrived yet.
    private var isFresh = true
    /// Bytes that were read and dropped after the answer.
    private var dropped = 0
    /// Address of this machine that the client has reached; nil when the system does not have it.
    private let local: String?
    /// Start of the present phase, of a request, or of its body.
    private(set) var since: MonotonicTime
    /// Time at which the client last read some of the output, or at which the output began.
    private var progress: MonotonicTime
    /// Time at which a stream last had bytes, or was asked for a heartbeat.
    private var beat: MonotonicTime
    /// Time at which ``deadlinePassed()`` is called.
    private(set) var deadline = MonotonicTime.distantFuture

    private static let mostOutput = 256 << 10
    /// Most requests and parts that are handled in a turn, so that a busy connection does not delay the others.
    private static let stepsPerTurn = 64
    private static let mostAhead = 64 << 10

    init(server: HTTPServer, descriptor: Int32) {
        self.server = server
        self.descriptor = descriptor
        parser = HTTPRequestParser(limits: server.limits.parser)
        since = server.loop.now
        progress = server.loop.now
        beat = server.loop.now
        local = HTTPServer.localAddress(of: descriptor)
    }

    deinit {
        if descriptor >= 0 { Glibc.close(descriptor) }
    }

    func start() {
        do {
            registration = try server.loop.register(descriptor, interest: .read, handler: self)
            // A request that came with the connection is answered before further connections are accepted.
            ready(.read)
        } catch {
            close()
        }
    }

    var isClosed: Bool { descriptor < 0 }

    var isWaiting: Bool {
        if case .waiting = phase { return true }
        return false
    }

    private var outlivesInput: Bool {
        if case .waiting(let waiter) = phase { return waiter.outlivesInput }
        return false
    }

    var isStreaming: Bool {
        if case .streaming = phase { return true }
        return false
    }

    var isExpectingNews: Bool {
        switch phase {
        case .waiting: true
        case .streaming, .working: !hasMore
        case .reading, .closing, .lingering, .closed: false
        }
    }

    /// Whether a new connection may take this one's place: it is idle, or its client is slow.
    var isReplaceable: Bool {
        let (now, patience) = (server.loop.now, server.limits.patience)
        switch phase {
        case .reading where isFresh: return since + server.limits.grace <= now && !hasArrived
        case .reading where output.isEmpty && !isBehind:
            return request == nil && !parser.isAmid ? !hasArrived : since + patience <= now
        case .reading, .closing: return waitsForClient && progress + patience <= now
        case .lingering: return true
        case .waiting, .streaming, .working, .closed: return false
        }
    }

    /// Whether bytes have arrived that were not read yet.
    private var hasArrived: Bool {
        var byte: UInt8 = 0
        return recv(descriptor, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT)) > 0
    }

    func pump() {
        switch phase {
        case .waiting(let waiter):
            if let response = waiter.poll() {
                finish(response)
                proceed()
            }
        case .streaming, .working: proceed()
        case .reading, .closing, .lingering, .closed: break
        }
    }

    /// Answers a waiting request with 503, as far as the system takes the answer at once, and closes.
    func stop() {
        switch phase {
        case .waiting, .working: finish(server.handler.fault(HTTPFault(503, "the server is stopping")))
        case .reading, .streaming, .closing, .lingering, .closed: break
        }
        if case .streaming = phase, isChunked, !hasMore, output.isEmpty { append("0\r\n\r\n") }
        flush()
        close()
    }

    func close() {
        guard descriptor >= 0 else { return }
        if let registration { server.loop.deregister(registration) }
        registration = nil
        // A child process that was just made may have inherited the descriptor.
        shutdown(descriptor, Int32(SHUT_RDWR))
        Glibc.close(descriptor)
        descriptor = -1
        phase = .closed
        deadline = .distantFuture
        server.noteUnsent(-output.count)
        output.removeAll()
        server.remove(self)
    }

    // MARK: Readiness

    func ready(_ readiness: Readiness) {
        if !readiness.isDisjoint(with: [.read, .hangup, .error]) { read() }
        proceed()
    }

    private func read() {
        for _ in 0..<4 where descriptor >= 0 {
            let count = Glibc.read(descriptor, server.readBuffer.baseAddress, server.readBuffer.count)
            if count > 0 {
                isFresh = false
                if case .lingering = phase {
                    dropped += count
                    if dropped > 1 << 20 { close() }
                    continue
                }
                if case .closing = phase { continue }
                if request == nil, !parser.isAmid { since = server.loop.now }
                parser.append(UnsafeRawBufferPointer(rebasing: server.readBuffer[..<count]))
                if isBusy, parser.waiting > Self.mostAhead { return }
            } else if count == 0 {
                sawEnd = true
                switch phase {
                case .working, .lingering: close()
                case .reading, .waiting, .streaming, .closing, .closed: break
                }
                return
            } else {
                let code = errno
                if code == EINTR { continue }
                if code != EAGAIN, code != EWOULDBLOCK { close() }
                return
            }
        }
    }

    /// Whether an answer is under way, so that further requests wait.
    private var isBusy: Bool {
        switch phase {
        case .reading: isBehind || output.count > Self.mostOutput
        case .waiting, .streaming, .working, .closing: true
        case .lingering, .closed: false
        }
    }

    private func proceed() {
        advance()
        flush()
        settle()
    }

    /// Handles what has been read, and what a stream or work has. Notes what is left for a later turn.
    private func advance() {
        isBehind = false
        for _ in 0..<Self.stepsPerTurn {
            switch phase {
            case .reading where output.count <= Self.mostOutput:
                do throws(HTTPFault) {
                    guard try handle(parser.next()) else { return }
                } catch {
                    request = nil
                    var response = server.handler.fault(error)
                    response.closes = true
                    finish(response)
                }
            case .streaming(let source) where output.count <= Self.mostOutput:
                part.removeAll(keepingCapacity: true)
                let state = source.fill(&part)
                if !part.isEmpty { beat = server.loop.now }
                appendPart()
                hasMore = state == .more
                if state == .ended { endStream() }
                if state == .idle { return }
            case .working(let work):
                switch work.step() {
                case .more: hasMore = true
                case .idle: hasMore = false
                case .ended(let response):
                    finish(response)
                    continue
                }
                return
            case .streaming:
                // The source was not asked, so that its news of this moment must not be forgotten.
                hasMore = true
                return
            case .reading:
                isBehind = parser.isAmid
                return
            case .waiting, .closing, .lingering, .closed: return
            }
        }
        if case .reading = phase { isBehind = parser.isAmid }
    }

    /// Handles a step of the parser; returns false when further bytes are needed.
    private func handle(_ step: HTTPRequestParser.Step) -> Bool {
        switch step {
        case .wait: return false
        case .head(let head):
            request = head
            since = server.loop.now
            if var refusal = server.handler.refuse(head, local: local) {
                // The body is not read, so nothing behind it can be read either.
                refusal.closes = true
                finish(refusal)
            } else if head.expectsContinue {
                append("HTTP/1.1 100 Continue\r\n\r\n")
            }
        case .request(let whole):
            let isJudged = request != nil
            request = whole
            if !isJudged, let refusal = server.handler.refuse(whole, local: local) {
                finish(refusal)
            } else {
                begin(server.handler.answer(whole, of: server))
            }
        }
        return true
    }

    // MARK: Answers

    private func begin(_ answer: HTTPAnswer) {
        switch answer {
        case .response(let response): finish(response)
        case .waiter(let waiter):
            if let response = waiter.poll() { return finish(response) }
            guard server.hasRoom(forStream: false) else { return finish(busy("requests that wait")) }
            phase = .waiting(waiter)
        case .work(let work): phase = .working(work)
        case .stream(let response, let source):
            guard server.hasRoom(forStream: true) else { return finish(busy("streams")) }
            let isOld = request?.isOld == true
            if request?.method == "HEAD" { return finish(response) }
            if isOld { request?.persists = false }
            isChunked = !isOld
            append(
                response.head(isOld ? .untilClose : .chunked, persists: persists(response), seconds: Self.now)
            )
            hasMore = true
            beat = server.loop.now
            phase = .streaming(source)
        }
        since = server.loop.now
    }

    private func busy(_ what: String) -> HTTPResponse {
        server.handler.fault(HTTPFault(503, "there are too many \(what); end some, or try again"))
            .with("Retry-After", "1")
    }

    private func persists(_ response: HTTPResponse) -> Bool {
        request?.persists == true && !response.closes && !server.isStopping
    }

    private func finish(_ response: HTTPResponse) {
        let persists = persists(response)
        let hasBody = response.status != 204 && response.status != 304
        append(
            response.head(
                hasBody ? .length(response.body.count) : .none, persists: persists, seconds: Self.now))
        if request?.method != "HEAD", hasBody { append(response.body) }
        since = server.loop.now
        request = nil
        hasMore = false
        phase = persists ? .reading : .closing
        server.resume()
    }

    private func appendPart() {
        guard !part.isEmpty else { return }
        if isChunked { append("\(String(part.count, radix: 16))\r\n") }
        append(part)
        if isChunked { append("\r\n") }
    }

    private func endStream() {
        if isChunked { append("0\r\n\r\n") }
        let persists = request?.persists == true && isChunked && !server.isStopping
        request = nil
        hasMore = false
        since = server.loop.now
        phase = persists ? .reading : .closing
    }

    private func append(_ text: String) { append(Array(text.utf8)) }

    private func append(_ bytes: [UInt8]) {
        if output.isEmpty { progress = server.loop.now }
        bytes.withUnsafeBytes { output.append($0) }
        server.noteUnsent(bytes.count)
    }

    private func flush() {
        // Clients that read nothing must not take all memory.
        defer { if server.hasTooMuchUnsent, !output.isEmpty { close() } }
        while descriptor >= 0, !output.isEmpty {
            let bytes = output.readable
            let count = send(descriptor, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL))
            if count > 0 {
                output.consume(count)
                server.noteUnsent(-count)
                progress = server.loop.now
                continue
            }
            let code = errno
            if count < 0, code == EINTR { continue }
            if count < 0, code == EAGAIN || code == EWOULDBLOCK { return }
            return close()
        }
    }

    /// Whether the connection goes on as soon as the system takes bytes for the client. The system may have no room for
    /// more although it has taken all so far.
    private var waitsForClient: Bool { !output.isEmpty || isBehind || (isStreaming && hasMore) }

    /// Determines the next phase, the readiness to wait for, and the deadline.
    private func settle() {
        guard descriptor >= 0 else { return }
        // A client that leaves needs no answer that is still to come.
        if sawEnd, isExpectingNews, !outlivesInput { return close() }
        if output.isEmpty {
            if case .closing = phase {
                shutdown(descriptor, Int32(SHUT_WR))
                phase = .lingering
                since = server.loop.now
            }
            switch phase {
            case .reading where sawEnd && !isBehind, .lingering where sawEnd: return close()
            default: break
            }
        }
        var wanted: Readiness = []
        if !sawEnd, !isBusy || parser.waiting <= Self.mostAhead { wanted.insert(.read) }
        // A socket that accepts bytes is ready in the next turn, which handles what is left.
        if !output.isEmpty || hasMore || isBehind { wanted.insert(.write) }
        if wanted != interest, let registration {
            server.loop.modify(registration, interest: wanted)
            interest = wanted
        }
        arm()
    }

    // MARK: Times

    private func arm() {
        let limits = server.limits
        var next =
            switch phase {
            // The client waits for its answers, not the server for the client.
            case .reading where isBehind: MonotonicTime.distantFuture
            case .reading where request != nil: since + limits.body
            case .reading where parser.isAmid: since + limits.head
            case .reading: since + limits.idle
            case .waiting(let waiter): waiter.deadline
            case .streaming: beat + limits.heartbeat
            case .lingering: since + limits.linger
            case .working, .closing, .closed: MonotonicTime.distantFuture
            }
        if waitsForClient { next = min(next, progress + limits.stall) }
        deadline = next
        server.arm(next)
    }

    /// Ends what has taken too long.
    func deadlinePassed() {
        let now = server.loop.now
        if waitsForClient, progress + server.limits.stall <= now { return close() }
        switch phase {
        case .reading where isBehind: break
        case .reading where request != nil || parser.isAmid:
            var response = server.handler.fault(HTTPFault(408, "the request did not arrive in time"))
            response.closes = true
            finish(response)
        case .reading, .lingering: return close()
        case .waiting(let waiter): finish(waiter.poll() ?? waiter.expired())
        case .streaming(let source):
            part.removeAll(keepingCapacity: true)
            // A client that has not read the output needs no further sign.
            if !waitsForClient { source.heartbeat(&part) }
            appendPart()
            beat = now
        case .working, .closing, .closed: break
        }
        proceed()
    }

    private static var now: Int { Int(wallClockMilliseconds() / 1_000) }
}

import EventLoop
import Glibc
import Synchronization
import Testing

@testable import HTTP2

/// A server that runs a blocking script for each TLS connection, on a thread of its own. It counts received and
/// accepted requests by number, so that a test finds lost and repeated requests.
final class FaultServer: Sendable {
    let tls: TLSFixture
    let port: UInt16
    let record = FaultRecord()
    private let listening: Int32
    private let context: Mutex<TLSContext>

    /// - Parameter script: Serves a connection after the client's preface, and begins with SETTINGS.
    init(
        tls: TLSFixture? = nil, receiveBuffer: Int32? = nil, _ script: @escaping @Sendable (FaultPeer) -> Void
    ) throws {
        let fixture = try tls ?? TLSFixture()
        self.tls = fixture
        context = Mutex(try TLSContext.server(fixture.serverOptions))
        listening = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        let descriptor = listening
        if var size = receiveBuffer { setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, 4) }
        _ = SocketAddress("127.0.0.1", port: 0)!.withPointer { bind(descriptor, $0, $1) }
        guard listen(listening, 64) == 0, let port = SocketAddress.port(of: listening) else {
            throw SystemError(call: "listen")
        }
        self.port = port
        inThread { [self] in
            while true {
                let accepted = acceptConnection(listening)
                guard accepted >= 0 else { return }
                let number = record.change { entries in
                    entries.accepts += 1
                    return entries.accepts - 1
                }
                let context = context.withLock { $0 }
                inThread { [self] in
                    guard
                        let transport = try? TLSTransport(context: context, acceptedFileDescriptor: accepted)
                    else { return }
                    let peer = FaultPeer(number: number, transport: transport, record: record)
                    guard case .done = transport.handshake(), peer.takePreface() else { return }
                    record.change { $0.opened += 1 }
                    script(peer)
                    peer.transport.close()
                    record.change { $0.ended += 1 }
                }
            }
        }
    }

    /// Sets the TLS options of later connections.
    func use(_ options: ServerTLSOptions) throws {
        let new = try TLSContext.server(options)
        context.withLock { $0 = new }
    }

    func stop() {
        shutdown(listening, Int32(SHUT_RDWR))
        close(listening)
    }
}

/// Counts and notes of all connections of a ``FaultServer``.
final class FaultRecord: Sendable {
    struct Entries {
        /// Numbers of accepted TCP connections, of TLS connections with a preface, and of finished scripts.
        var accepts = 0
        var opened = 0
        var ended = 0
        /// Numbers of complete arrivals and of answers with 200, by request number.
        var received: [UInt32: Int] = [:]
        var accepted: [UInt32: Int] = [:]
        /// Error codes of the clients' GOAWAYs, by connection.
        var goAways: [Int: [UInt32]] = [:]
        /// Connections that the client ended with close_notify.
        var cleanEnds: Set<Int> = []
        /// Connections that the client ended by a reset of TCP, as a read or a write found out.
        var resets: Set<Int> = []
        /// Requests above an acknowledged stream limit.
        var violations: [String] = []
        /// Highest number of open streams on a connection.
        var mostOpen = 0
        var notes: [String] = []
    }

    private let entries = Mutex(Entries())

    @discardableResult
    func change<T: Sendable>(_ body: (inout Entries) -> T) -> T { entries.withLock { body(&$0) } }
    var now: Entries { entries.withLock { $0 } }
    func note(_ text: String) { change { $0.notes.append(text) } }
}

/// A barrier for connections, so that the fastest doesn't answer requests that the others' scripts need.
final class Gathering: Sendable {
    private let missing: Mutex<Int>
    private let isComplete = BlockingFlag()

    init(of count: Int) { missing = Mutex(count) }

    /// Returns once all connections have arrived.
    func arrive() {
        let isLast = missing.withLock { missing in
            missing -= 1
            return missing == 0
        }
        if isLast { release() }
        isComplete.wait()
    }

    /// Releases all waiting connections, e.g. when a test gives up.
    func release() { isComplete.set() }
}

/// The server's end of a connection, for scripts: single frames (RFC 9113 §4.1), and requests by number.
final class FaultPeer {
    struct Frame {
        var type: UInt8
        var flags: UInt8
        var stream: UInt32
        var payload: [UInt8]
    }

    /// A request that has arrived whole. Its number is the last part of its path.
    struct Request: Equatable {
        var stream: UInt32
        var number: UInt32
    }

    /// Number of the connection, counted from 0 over the server's life.
    let number: Int
    let transport: TLSTransport
    let record: FaultRecord
    /// Whether arriving content replenishes the connection's window.
    var replenishes = true
    var answersPings = true
    /// Most bytes that one call reads from the socket.
    var readSize = 65_536
    /// Streams of requests that are incomplete or unanswered.
    private(set) var open: Set<UInt32> = []
    /// The highest stream that was answered.
    private(set) var lastAnswered: UInt32 = 0
    /// Payloads of unanswered PINGs.
    private(set) var unansweredPings: [[UInt8]] = []
    /// Requests that arrived while a script waited for something else.
    private var arrived: [Request] = []
    private var numbers: [UInt32: UInt32] = [:]
    private var input: [UInt8] = []
    private var taken = 0
    private let inflater = PathInflater()
    private var limits: [Int?] = []
    private var limit: Int?
    private var pings: UInt32 = 0
    private var pong: UInt32 = 0

    init(number: Int, transport: TLSTransport, record: FaultRecord) {
        self.number = number
        self.transport = transport
        self.record = record
    }

    // MARK: Bytes

    @discardableResult
    func write(_ bytes: [UInt8]) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            switch transport.writeBytes(Array(rest.prefix(16_384))) {
            case .bytes(let count): rest = rest.dropFirst(count)
            case .failed:
                // The system reports a reset to a read or a write, and only once.
                record.change { _ = $0.resets.insert(number) }
                return false
            case .wantRead, .wantWrite: return false
            }
        }
        return true
    }

    private func fill(_ count: Int) -> Bool {
        if taken > 0, input.count - taken < count {
            input.removeFirst(taken)
            taken = 0
        }
        while input.count - taken < count {
            let (result, bytes) = transport.readBytes(readSize)
            switch result {
            case .bytes: input += bytes
            case .closed(let clean):
                if clean { record.change { _ = $0.cleanEnds.insert(number) } }
                return false
            case .failed:
                record.change { _ = $0.resets.insert(number) }
                return false
            case .wantRead, .wantWrite: return false
            }
        }
        return true
    }

    private func take(_ count: Int) -> [UInt8]? {
        guard fill(count) else { return nil }
        defer { taken += count }
        return Array(input[taken..<taken + count])
    }

    func takePreface() -> Bool { take(24) != nil }

    /// Whether input is available without waiting.
    private var hasInput: Bool {
        if input.count > taken || transport.hasBufferedInput { return true }
        var poll = pollfd(fd: transport.fileDescriptor, events: Int16(POLLIN), revents: 0)
        return Glibc.poll(&poll, 1, 0) > 0
    }

    // MARK: Frames

    /// The next frame; nil when the client has ended the connection. Updates the record, answers PINGs and
    /// replenishes the window.
    func next() -> Frame? {
        guard let head = take(9) else { return nil }
        let length = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
        guard let payload = take(length) else { return nil }
        let stream = head[5..<9].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        let frame = Frame(type: head[3], flags: head[4], stream: stream, payload: payload)
        switch frame.type {
        case 0:
            if replenishes, length > 0 { write(Raw.windowUpdate(0, UInt32(length))) }
            finish(frame)
        case 1:
            numbers[stream] = inflater.number(frame.payload)
            open.insert(stream)
            let (open, limit) = (open.count, limit)
            record.change {
                $0.mostOpen = max($0.mostOpen, open)
                if let limit, open > limit { $0.violations.append("\(open) streams, limit \(limit)") }
            }
            finish(frame)
        case 3: open.remove(stream)
        case 4:
            if frame.flags & 1 == 0 {
                write(Raw.frame(4, flags: 1))
            } else if !limits.isEmpty {
                limit = limits.removeFirst() ?? limit
            }
        case 6:
            if frame.flags & 1 != 0 {
                pong = frame.payload[4..<8].reduce(0) { $0 << 8 | UInt32($1) }
            } else if answersPings {
                write(Raw.frame(6, flags: 1, payload))
            } else {
                unansweredPings.append(payload)
            }
        case 7:
            let code = payload[4..<8].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
            record.change { $0.goAways[number, default: []].append(code) }
        default: break
        }
        return frame
    }

    private func finish(_ frame: Frame) {
        guard frame.flags & 1 != 0, open.contains(frame.stream), let number = numbers[frame.stream] else {
            return
        }
        record.change { $0.received[number, default: 0] += 1 }
        arrived.append(Request(stream: frame.stream, number: number))
    }

    /// The next complete request that wasn't reset; nil when the client has ended the connection.
    func request() -> Request? {
        while true {
            while !arrived.isEmpty {
                let request = arrived.removeFirst()
                if open.contains(request.stream) { return request }
            }
            guard next() != nil else { return nil }
        }
    }

    /// The next complete request; nil when none is available without waiting.
    func requestAtHand() -> Request? {
        while true {
            while !arrived.isEmpty {
                let request = arrived.removeFirst()
                if open.contains(request.stream) { return request }
            }
            guard hasInput, next() != nil else { return nil }
        }
    }

    func requests(_ count: Int) -> [Request]? {
        var result: [Request] = []
        while result.count < count {
            guard let request = request() else { return nil }
            result.append(request)
        }
        return result
    }

    /// Number of complete requests that no script has taken yet.
    var waiting: Int { arrived.count }

    /// Sends a PING and reads until its answer. Both sides have then read everything written before.
    @discardableResult
    func roundTrip() -> Bool {
        pings += 1
        write(Raw.frame(6, [0, 0, 0, 0] + Raw.word(pings)))
        while pong != pings { if next() == nil { return false } }
        return true
    }

    // MARK: Answers

    func settings(_ values: [(UInt16, UInt32)] = []) {
        limits.append(values.last { $0.0 == 3 }.map { Int($0.1) })
        write(Raw.settings(values))
    }

    func limit(_ streams: UInt32) { settings([(3, streams)]) }

    func accept(_ request: Request, inSingleBytes: Bool = false) {
        // Recorded first, because the client may act on the answer before this call returns.
        record.change { $0.accepted[request.number, default: 0] += 1 }
        open.remove(request.stream)
        lastAnswered = max(lastAnswered, request.stream)
        let answer = Raw.ok(request.stream)
        guard inSingleBytes else {
            write(answer)
            return
        }
        for byte in answer { write([byte]) }
    }

    /// Answers with a status other than 200.
    func answer(_ request: Request, _ status: UInt16) {
        open.remove(request.stream)
        write(Raw.frame(1, flags: 5, stream: request.stream, [0x08, 3] + Array("\(status)".utf8)))
    }

    func refuse(_ request: Request, code: UInt32 = 7) {
        open.remove(request.stream)
        write(Raw.reset(request.stream, code))
    }

    /// Answers all requests until the client ends the connection.
    func serve() {
        while let request = request() { accept(request) }
    }

    /// Reads until the client ends the connection; returns false when requests arrived.
    @discardableResult
    func awaitEnd() -> Bool {
        var quiet = arrived.isEmpty
        while next() != nil { quiet = quiet && arrived.isEmpty }
        return quiet
    }

    // MARK: Ends

    enum Cut: String, CaseIterable, Sendable {
        /// TCP is reset.
        case reset
        /// TCP closes in order, without close_notify.
        case withoutNotify
        /// TLS closes in order.
        case withNotify
        /// TCP ends within a TLS record.
        case withinRecord
    }

    func cut(_ how: Cut) {
        let descriptor = transport.fileDescriptor
        switch how {
        case .reset:
            var linger = linger(l_onoff: 1, l_linger: 0)
            setsockopt(
                descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout.size(ofValue: linger)))
            // Replaces TLS's socket, because closing TLS would send close_notify.
            let nothing = Glibc.open("/dev/null", O_WRONLY | O_CLOEXEC)
            dup2(nothing, descriptor)
            Glibc.close(nothing)
        case .withoutNotify: shutdown(descriptor, Int32(SHUT_RDWR))
        case .withNotify: break
        case .withinRecord:
            let bytes: [UInt8] = [0x17, 3, 3, 0, 100, 1, 2, 3]
            _ = send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL))
            shutdown(descriptor, Int32(SHUT_RDWR))
        }
        transport.close()
    }
}

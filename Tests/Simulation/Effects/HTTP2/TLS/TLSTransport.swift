import COpenSSL
import EventLoop
import Glibc

/// A simulated TLS connection on a simulated socket: records without encryption, but with the sizes and the steps of
/// the real ones. Certificates are not checked; ``SimulatedLink/handshake`` decides.
public final class TLSTransport {
    public static let maximumRecordSize = 16_384
    private static let gatherSize = 33_000
    /// Bytes of a record before and behind its content: header, type and tag of TLS 1.3.
    private static let headSize = 5
    private static let tailSize = 17

    private enum RecordType: UInt8 { case alert = 21, handshake, content }
    private enum Alert: UInt8 { case closeNotify, failure }
    private enum Step {
        /// The client sends its hello. Next: flight.
        case hello
        /// The client waits for the server's part, the server for the hello. Next: finish.
        case flight
        /// The client sends its end, the server waits for it. Next: done.
        case finish
        case done
    }

    /// Connection and its end; nil once closed.
    private var link: SimulatedLink?
    private var socket: SimulatedSocket?
    public private(set) var fileDescriptor: Int32
    private let context: TLSContext
    public let serverName: String?
    public var resetsOnClose = false { didSet { socket?.resetsOnClose = resetsOnClose } }
    public var sendDeadline = UInt64.max

    private var step: Step
    private var isBroken = false
    private var isOutputBroken = false
    /// Whether the peer's `close_notify` has arrived.
    private var hasEnded = false

    private let gathersOutput: Bool
    /// Records that wait for one system call, at most `gatherSize` bytes.
    private var gathered = ByteQueue(capacity: 4096)
    private var hasGathered = false
    private var isDirect = false
    private var ledger = RecordLedger()
    /// Bytes of records that the system has.
    private var handedOver: UInt64 = 0
    /// Rest of the record that is being passed on.
    private var record = ByteQueue(capacity: 4096)
    /// Bytes of content of that record.
    private var recordContent = 0

    /// Bytes read from the socket.
    private var input = ByteQueue(capacity: 4096)
    /// Bytes of the first record's content that were not read, once its head was.
    private var contentLeft = 0

    public convenience init(
        context: TLSContext, fileDescriptor: Int32, serverName: String?, gathersOutput: Bool = false
    ) throws(TLSError) {
        precondition(!context.isServer, "a client's transport needs a client's context")
        try self.init(context, fileDescriptor, serverName: serverName, gathersOutput: gathersOutput)
        link?.clientContext = context
    }

    public convenience init(context: TLSContext, acceptedFileDescriptor: Int32) throws(TLSError) {
        precondition(context.isServer, "a server's transport needs a server's context")
        try self.init(context, acceptedFileDescriptor, serverName: nil, gathersOutput: false)
    }

    private init(
        _ context: TLSContext, _ fileDescriptor: Int32, serverName: String?, gathersOutput: Bool
    ) throws(TLSError) {
        guard let socket = SimulatedNetwork.current.socket(fileDescriptor) else {
            throw .lost(operation: "creating a TLS connection", reason: "the socket is closed")
        }
        self.context = context
        self.fileDescriptor = fileDescriptor
        self.serverName = serverName
        self.gathersOutput = gathersOutput
        self.socket = socket
        link = socket.link
        step = context.isServer ? .flight : .hello
    }

    deinit { close() }

    // MARK: - Handshake

    public func handshake() -> TLSProgress {
        guard let link, !isBroken else { return .failed(closedError("TLS handshake")) }
        while true {
            if !record.isEmpty {
                if let error = passOn() { return handshakeFailed(error) }
                guard record.isEmpty else { return .wantWrite }
            }
            switch step {
            case .hello:
                append(.handshake, count: 300)
                step = .flight
            case .flight:
                if let end = awaitHandshake() { return end }
                step = .finish
                switch link.handshake {
                case .hanging where context.isServer: step = .flight
                case .failing(let kind) where Self.isNoticed(kind, byServer: context.isServer):
                    return refuse(kind)
                default: append(.handshake, count: context.isServer ? 3000 : 80)
                }
            case .finish:
                if context.isServer {
                    if let end = awaitHandshake() { return end }
                    if link.handshake == .failing(.certificateRefused) { return refuse(.certificateRefused) }
                }
                step = .done
            case .done: return .done
            }
        }
    }

    /// Whether the side notices the fault when the other's hello has arrived. A refused client certificate is noticed
    /// later.
    private static func isNoticed(_ kind: TLSError.Kind, byServer isServer: Bool) -> Bool {
        switch kind {
        case .certificateRefused: false
        case .protocolRefused, .noCommonParameters: isServer
        default: !isServer
        }
    }

    /// Waits for the peer's part of the handshake; nil once it is there.
    private func awaitHandshake() -> TLSProgress? {
        switch nextRecord() {
        case .bytes(let type):
            drop(contentLeft)
            if type == RecordType.handshake.rawValue { return nil }
            isBroken = true
            return .failed(failure())
        case .none: return .wantRead
        case .ended: return handshakeFailed(0)
        case .failed(let code): return handshakeFailed(code)
        }
    }

    private func refuse(_ kind: TLSError.Kind) -> TLSProgress {
        send(.failure)
        isBroken = true
        return .failed(
            TLSError(kind, operation: handshakeName, reason: "simulated fault", hint: ""))
    }

    private func handshakeFailed(_ code: Int32) -> TLSProgress {
        isBroken = true
        return .failed(systemError(code, operation: handshakeName))
    }

    private var handshakeName: String {
        serverName.map { "TLS handshake with “\($0)”" } ?? "TLS handshake"
    }

    /// Error that the peer's alert means.
    private func failure() -> TLSError {
        var kind = TLSError.Kind.protocolViolation
        if case .failing(let known)? = link?.handshake { kind = known }
        return TLSError(kind, operation: handshakeName, reason: "simulated fault", hint: "")
    }

    // MARK: - Reading

    public func read(into buffer: UnsafeMutableRawBufferPointer) -> TLSRead {
        guard socket != nil, !isBroken else { return .failed(closedError("TLS read")) }
        if hasEnded { return .closed(clean: true) }
        if contentLeft == 0 {
            switch nextRecord() {
            case .bytes(let type) where type == RecordType.alert.rawValue:
                hasEnded = input.readable[0] == Alert.closeNotify.rawValue
                drop(contentLeft)
                if hasEnded { return .closed(clean: true) }
                isBroken = true
                return .failed(failure())
            case .bytes: break
            case .none: return .wantRead
            case .ended:
                isBroken = true
                return .closed(clean: false)
            case .failed(let code):
                isBroken = true
                return .failed(systemError(code, operation: "TLS read"))
            }
        }
        let count = min(contentLeft, buffer.count)
        buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: input.readable[..<count]))
        drop(count)
        return .bytes(count)
    }

    /// Drops the head of the next record, once the whole record is there.
    /// - Returns: the record's type as `bytes`.
    private func nextRecord() -> SimulatedSocket.Transfer {
        guard let socket else { return .ended }
        while true {
            let bytes = input.readable
            if bytes.count >= Self.headSize {
                let count = Int(bytes[3]) << 8 | Int(bytes[4])
                if bytes.count >= Self.headSize + count {
                    let type = Int(bytes[0])
                    input.consume(Self.headSize)
                    contentLeft = count - Self.tailSize
                    return .bytes(type)
                }
            }
            let result = socket.receive(into: .init(rebasing: input.prepare(65_536)[..<65_536]))
            guard case .bytes(let count) = result else { return result }
            input.commit(count)
        }
    }

    /// Drops content of the record, and the record's tail with the last of it.
    private func drop(_ count: Int) {
        contentLeft -= count
        input.consume(count + (contentLeft == 0 ? Self.tailSize : 0))
    }

    public var hasBufferedInput: Bool { !isBroken && !input.isEmpty }

    public func discardInput() -> Bool {
        guard let socket else { return true }
        return withUnsafeTemporaryAllocation(byteCount: 16_384, alignment: 16) { buffer in
            for _ in 0..<64 {
                switch socket.receive(into: buffer) {
                case .bytes: continue
                case .none: return false
                case .ended, .failed: return true
                }
            }
            return false
        }
    }

    // MARK: - Writing

    public func write(_ buffer: UnsafeRawBufferPointer) -> TLSWrite {
        guard socket != nil, !isBroken, !isOutputBroken else { return .failed(closedError("TLS write")) }
        guard buffer.count > 0 else { return .bytes(0) }
        let limit = min(buffer.count, Self.maximumRecordSize)
        if gathersOutput {
            ledger.begin(at: handedOver &+ UInt64(hasGathered ? gathered.count : 0), bytes: limit)
            if !isDirect { hasGathered = true }
        }
        if recordContent == 0 {
            append(.content, UnsafeRawBufferPointer(rebasing: buffer[..<limit]))
            recordContent = limit
        }
        precondition(limit >= recordContent, "a write must be repeated with at least the same bytes")
        let isGathered = gathersOutput && !isDirect
        if let error = isGathered ? gather() : passOn() { return .failed(outputFailed(error)) }
        guard record.isEmpty else { return .wantWrite }
        defer { recordContent = 0 }
        if gathersOutput { if isDirect { ledger.passed() } else { ledger.gathered(recordContent) } }
        return .bytes(recordContent)
    }

    public func willWrite(_ count: Int) {
        guard gathersOutput, socket != nil, !isBroken else { return }
        isDirect = !hasGathered && count <= Self.maximumRecordSize
    }

    public func flushOutput() -> TLSProgress {
        guard hasGathered else { return .done }
        guard socket != nil, !isBroken, !isOutputBroken else { return .failed(closedError("TLS write")) }
        if let error = send(&gathered) { return .failed(outputFailed(error)) }
        guard gathered.isEmpty else { return .wantWrite }
        hasGathered = false
        ledger.flushed()
        return .done
    }

    private func outputFailed(_ code: Int32) -> TLSError {
        isOutputBroken = true
        return systemError(code, operation: "TLS write")
    }

    /// Appends a record to the bytes to be passed on.
    private func append(_ type: RecordType, _ content: UnsafeRawBufferPointer? = nil, count: Int = 0) {
        let count = content?.count ?? count
        let room = record.prepare(Self.headSize + count + Self.tailSize)
        let length = count + Self.tailSize
        room[0] = type.rawValue
        room[1] = 3
        room[2] = 3
        room[3] = UInt8(length >> 8)
        room[4] = UInt8(length & 0xFF)
        memset(room.baseAddress! + Self.headSize, 0, length)
        if let base = content?.baseAddress { memcpy(room.baseAddress! + Self.headSize, base, count) }
        record.commit(Self.headSize + length)
    }

    /// Passes bytes of the record on to the socket. Returns the error of a call that failed.
    private func passOn() -> Int32? { send(&record) }

    /// Passes bytes of the record on to those that are gathered, and these to the socket when there are too many.
    private func gather() -> Int32? {
        while !record.isEmpty {
            if gathered.count == Self.gatherSize {
                if let error = send(&gathered) { return error }
                guard gathered.isEmpty else { return nil }
            }
            let count = min(record.count, Self.gatherSize - gathered.count)
            gathered.append(UnsafeRawBufferPointer(rebasing: record.readable[..<count]))
            record.consume(count)
        }
        return nil
    }

    /// Hands bytes over to the system, as far as it takes them.
    private func send(_ queue: inout ByteQueue) -> Int32? {
        while !queue.isEmpty {
            if gathersOutput, sendDeadline != .max, MonotonicTime.read().nanoseconds >= sendDeadline {
                return ETIME
            }
            switch socket?.send(queue.readable) {
            case .bytes(let count):
                queue.consume(count)
                handedOver &+= UInt64(count)
            case .failed(let code): return code
            case .ended, .none?, nil: return nil
            }
        }
        return nil
    }

    // MARK: - Closing

    public func endOutput() {
        sendCloseNotify()
        isBroken = true
        socket?.endOutput()
    }

    /// Ends the output without `close_notify`, as a peer does whose packets are lost.
    func abandonOutput() { isBroken = true }

    private func sendCloseNotify() {
        guard let socket, socket.process?.isAlive != false, step == .done, !isBroken, !isOutputBroken,
            !resetsOnClose
        else { return }
        send(.closeNotify)
    }

    /// Sends an alert behind the gathered bytes, as far as that is possible at once.
    private func send(_ alert: Alert) {
        guard record.isEmpty else { return }
        withUnsafeBytes(of: alert.rawValue) { append(.alert, $0) }
        if send(&gathered) == nil, gathered.isEmpty { _ = passOn() }
    }

    @discardableResult
    public func close() -> TLSBacklog {
        sendCloseNotify()
        let backlog = gathersOutput ? ledger.backlog(handedOver: handedOver) : TLSBacklog()
        socket?.close()
        socket = nil
        link = nil
        fileDescriptor = -1
        return backlog
    }

    /// Number of written bytes, of ciphertext, that the peer's system has not acknowledged.
    var unacknowledged: Int { (socket?.unacknowledged ?? 0) + (hasGathered ? gathered.count : 0) }

    private func closedError(_ operation: String) -> TLSError {
        .lost(operation: operation, reason: "the connection is closed")
    }

    private func systemError(_ code: Int32, operation: String) -> TLSError {
        .lost(
            operation: operation,
            reason: code == 0 ? "unexpected end of the stream" : String(cString: strerror(code)))
    }

    // MARK: - Facts after the handshake

    public var negotiatedProtocol: String? { socket != nil && step == .done ? "h2" : nil }
    public var version: String { socket == nil ? "" : "TLSv1.3" }
    public var cipher: String { socket == nil ? "" : "TLS_AES_128_GCM_SHA256" }

    /// The client's certificate, on a server that asks for one.
    public var peerCertificate: PeerCertificate? {
        guard context.isServer, context.verifiesPeer, let client = link?.clientContext,
            let certificate = SSL_CTX_get0_certificate(client.pointer), X509_up_ref(certificate) == 1
        else { return nil }
        return PeerCertificate(CertificateHandle(pointer: certificate))
    }
}

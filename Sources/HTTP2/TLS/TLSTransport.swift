import COpenSSL
import Glibc

/// A TLS connection on a non-blocking socket. The connection owns the socket, and one thread uses it.
///
/// After `failed` or `closed` only `close()` is useful.
public final class TLSTransport {
    /// The largest plaintext of one TLS record (RFC 8446 §5.1).
    public static let maximumRecordSize = 16_384
    /// Bytes that are gathered for one system call: two full records with their overhead. On loopback this needed 5 to
    /// 9 % less processor time per push than a call for each record. More than two records had no further effect.
    private static let gatherSize = 33_000

    /// Handle that `close()` frees, or deinit at the latest.
    private var ssl: OpaquePointer?
    /// The socket, for registration with an event loop; -1 once closed.
    public private(set) var fileDescriptor: Int32
    private let context: TLSContext
    /// The name or address that the certificate of the server must carry; nil on a server.
    public let serverName: String?
    /// Collector of records for one system call; nil when each record is sent at once. The collector is freed after
    /// `ssl`, which has a reference of its own.
    private var gathering: OpaquePointer?
    /// Storage of ``sendDeadline``, owned. It is freed after `gathering`, whose callback reads it.
    private let deadline: UnsafeMutablePointer<UInt64>
    /// Whether `gathering` may hold bytes that were not sent.
    private var hasGathered = false
    /// Whether records bypass `gathering`.
    private var isDirect = false
    /// Ledger of waiting records, kept while `gathering` exists.
    private var ledger = RecordLedger()
    private var isEstablished = false
    /// After a fatal error OpenSSL forbids further calls, `SSL_shutdown` included.
    private var isBroken = false
    /// Whether the same holds for output alone.
    private var isOutputBroken = false
    /// Whether ``close()`` resets the connection. Nothing that was written is delivered or sent again afterwards. The
    /// system does the same when the process ends in any way.
    public var resetsOnClose = false {
        didSet { if resetsOnClose != oldValue { setLinger() } }
    }

    /// Creates the client's side of a connected socket.
    /// - Parameters:
    ///   - fileDescriptor: a connected, non-blocking stream socket; owned from here on, even when this throws.
    ///   - serverName: DNS name or IP address. It is checked against the certificate, and a name is sent as SNI.
    ///   - gathersOutput: sends written records together; the latest may wait for ``flushOutput()``.
    public convenience init(
        context: TLSContext, fileDescriptor: Int32, serverName: String?, gathersOutput: Bool = false
    ) throws(TLSError) {
        precondition(!context.isServer, "a client's transport needs a client's context")
        try self.init(
            context, fileDescriptor: fileDescriptor, serverName: serverName, gathersOutput: gathersOutput)
    }

    /// Creates the server's side of an accepted socket.
    /// - Parameter acceptedFileDescriptor: a non-blocking socket; owned from here on, even when this throws.
    public convenience init(context: TLSContext, acceptedFileDescriptor: Int32) throws(TLSError) {
        precondition(context.isServer, "a server's transport needs a server's context")
        try self.init(
            context, fileDescriptor: acceptedFileDescriptor, serverName: nil, gathersOutput: false)
    }

    private init(
        _ context: TLSContext, fileDescriptor: Int32, serverName: String?, gathersOutput: Bool
    ) throws(TLSError) {
        ERR_clear_error()
        deadline = .allocate(capacity: 1)
        deadline.initialize(to: .max)
        let created = SSL_new(context.pointer)
        var gathering: OpaquePointer?
        if let created, SSL_set_fd(created, fileDescriptor) == 1, gathersOutput {
            gathering = sluice_SSL_gather_output(created, fileDescriptor, Self.gatherSize, deadline)
        }
        guard let ssl = created, SSL_get_fd(ssl) == fileDescriptor, (gathering != nil) == gathersOutput
        else {
            SSL_free(created)
            deadline.deallocate()
            _ = Glibc.close(fileDescriptor)
            throw .configuration("creating a TLS connection", hint: "the system may be out of memory")
        }
        self.ssl = ssl
        self.gathering = gathering
        self.context = context
        self.fileDescriptor = fileDescriptor
        self.serverName = serverName
        if context.isServer {
            SSL_set_accept_state(ssl)
        } else {
            SSL_set_connect_state(ssl)
            // A throw after this point runs deinit, which frees and closes.
            if let serverName { try Self.expect(serverName, of: ssl, verify: context.verifiesPeer) }
        }
    }

    deinit {
        close()
        deadline.deallocate()
    }

    /// Moment of the monotonic clock from which on nothing is sent: a write or flush fails, and so does the connection.
    /// The initial value `.max` means never. Only for a transport that gathers.
    public var sendDeadline: UInt64 {
        get { deadline.pointee }
        set { deadline.pointee = newValue }
    }

    private static func expect(_ name: String, of ssl: OpaquePointer, verify: Bool) throws(TLSError) {
        let isAddress = SocketAddressText.isAddress(name)
        if verify {
            guard let parameters = SSL_get0_param(ssl) else { return }
            // Without the second flag OpenSSL compares the common name if there is no alternative DNS name.
            // RFC 9525 §2 forbids that.
            let flags = X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT
            X509_VERIFY_PARAM_set_hostflags(parameters, UInt32(flags))
            let accepted =
                isAddress
                ? X509_VERIFY_PARAM_set1_ip_asc(parameters, name)
                : X509_VERIFY_PARAM_set1_host(parameters, name, 0)
            guard accepted == 1 else {
                throw .configuration(
                    "expecting the server name “\(name)”", hint: "a DNS name or an IP address is needed")
            }
        }
        if !isAddress, sluice_SSL_set_tlsext_host_name(ssl, name) != 1 {
            throw .configuration("sending the server name “\(name)”", hint: "a DNS name is needed")
        }
    }

    // MARK: - Handshake

    /// Continues the handshake as far as the socket allows.
    public func handshake() -> TLSProgress {
        guard let ssl, !isBroken else { return .failed(closedError("TLS handshake")) }
        ERR_clear_error()
        let result = SSL_do_handshake(ssl)
        if result == 1 {
            if let refusal = refusedProtocol() {
                isBroken = true
                return .failed(refusal)
            }
            isEstablished = true
            return .done
        }
        let system = errno
        switch SSL_get_error(ssl, result) {
        case SSL_ERROR_WANT_READ: return .wantRead
        case SSL_ERROR_WANT_WRITE: return .wantWrite
        case SSL_ERROR_SYSCALL:
            isBroken = true
            return .failed(systemError(system, operation: handshakeName))
        case SSL_ERROR_ZERO_RETURN:
            isBroken = true
            return .failed(.lost(operation: handshakeName, reason: "closed by the peer"))
        default:
            isBroken = true
            return .failed(handshakeError())
        }
    }

    private var handshakeName: String {
        serverName.map { "TLS handshake with “\($0)”" } ?? "TLS handshake"
    }

    private func handshakeError() -> TLSError {
        // A failed verification has a code of its own; the queue only reports “certificate verify failed”.
        if context.verifiesPeer, let ssl {
            let result = SSL_get_verify_result(ssl)
            if result != Int(X509_V_OK) {
                ERR_clear_error()
                return .verification(result, operation: handshakeName, expectedName: serverName)
            }
        }
        return .fromQueue(operation: handshakeName)
    }

    private func refusedProtocol() -> TLSError? {
        guard context.requiresApplicationProtocol, negotiatedProtocol == nil else { return nil }
        return .noApplicationProtocol(operation: handshakeName, reason: "the server selected no protocol")
    }

    // MARK: - Bytes

    /// Reads the content of one TLS record, at most the buffer's size.
    public func read(into buffer: UnsafeMutableRawBufferPointer) -> TLSRead {
        guard let ssl, !isBroken else { return .failed(closedError("TLS read")) }
        ERR_clear_error()
        var count = 0
        if SSL_read_ex(ssl, buffer.baseAddress, buffer.count, &count) == 1 { return .bytes(count) }
        let system = errno
        switch SSL_get_error(ssl, 0) {
        case SSL_ERROR_WANT_READ: return .wantRead
        case SSL_ERROR_WANT_WRITE: return .wantWrite
        case SSL_ERROR_ZERO_RETURN: return .closed(clean: true)
        case SSL_ERROR_SYSCALL:
            isBroken = true
            return system == 0 ? .closed(clean: false) : .failed(systemError(system, operation: "TLS read"))
        default:
            isBroken = true
            if sluice_ERR_reason(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING {
                ERR_clear_error()
                return .closed(clean: false)
            }
            return .failed(.fromQueue(operation: "TLS read"))
        }
    }

    /// Writes the beginning of the buffer, at most one full TLS record.
    ///
    /// After `wantRead` or `wantWrite` the next call must begin with the same bytes and hold at least as many. The
    /// bytes may lie elsewhere in memory.
    public func write(_ buffer: UnsafeRawBufferPointer) -> TLSWrite {
        guard let ssl, !isBroken, !isOutputBroken else { return .failed(closedError("TLS write")) }
        guard buffer.count > 0 else { return .bytes(0) }
        ERR_clear_error()
        var count = 0
        // Without the cap OpenSSL would continue with further records after resuming an interrupted one.
        let limit = min(buffer.count, Self.maximumRecordSize)
        if let gathering {
            ledger.begin(
                at: sluice_BIO_handed_over(gathering)
                    &+ UInt64(hasGathered ? sluice_BIO_waiting(gathering) : 0),
                bytes: limit)
            if !isDirect { hasGathered = true }
        }
        if SSL_write_ex(ssl, buffer.baseAddress, limit, &count) == 1 {
            if isDirect { ledger.passed() } else { ledger.gathered(count) }
            return .bytes(count)
        }
        let system = errno
        switch SSL_get_error(ssl, 0) {
        case SSL_ERROR_WANT_READ: return .wantRead
        case SSL_ERROR_WANT_WRITE: return .wantWrite
        case SSL_ERROR_SYSCALL:
            // The socket refuses output, but bytes that the peer sent before can still be read.
            isOutputBroken = true
            return .failed(systemError(system, operation: "TLS write"))
        case SSL_ERROR_ZERO_RETURN:
            return .failed(.lost(operation: "TLS write", reason: "closed by the peer"))
        default:
            isBroken = true
            return .failed(.fromQueue(operation: "TLS write"))
        }
    }

    /// Announces the number of bytes to be written before the next ``flushOutput()``. Content of a single record is not
    /// worth the copy that gathering costs.
    public func willWrite(_ count: Int) {
        guard let ssl, let gathering, !isBroken else { return }
        isDirect = !hasGathered && count <= Self.maximumRecordSize
        sluice_SSL_choose_output(ssl, gathering, isDirect ? 1 : 0)
    }

    /// Sends the bytes that ``write(_:)`` has gathered; returns `done` at once for a transport that does not gather.
    /// After `wantWrite` the caller calls again when the socket is writable. Writing in between is allowed.
    public func flushOutput() -> TLSProgress {
        guard hasGathered else { return .done }
        guard let ssl, !isBroken, !isOutputBroken else { return .failed(closedError("TLS write")) }
        if sluice_SSL_flush_output(ssl) == 1 {
            hasGathered = false
            ledger.flushed()
            return .done
        }
        let system = errno
        if sluice_SSL_output_should_retry(ssl) != 0 { return .wantWrite }
        isOutputBroken = true
        return .failed(systemError(system, operation: "TLS write"))
    }

    /// Whether bytes wait inside OpenSSL that the socket's readiness will not announce. A reader that stops before
    /// `wantRead` must then resume by itself.
    public var hasBufferedInput: Bool {
        guard let ssl, !isBroken else { return false }
        return SSL_has_pending(ssl) == 1
    }

    /// Sends `close_notify` if that is possible at once, and ends the TCP stream in this direction. ``discardInput()``
    /// reads further bytes of the peer from the socket. Closing while input is unread would make the system send a
    /// reset, which can overtake and destroy the last written bytes.
    public func endOutput() {
        sendCloseNotify()
        isBroken = true
        if fileDescriptor >= 0 { _ = shutdown(fileDescriptor, Int32(SHUT_WR)) }
    }

    /// Ends the output without `close_notify`, as a peer does whose packets are lost.
    func abandonOutput() { isBroken = true }

    /// Reads raw bytes from the socket and drops them, at most a megabyte per call. Returns true once the peer has
    /// ended.
    public func discardInput() -> Bool {
        guard fileDescriptor >= 0 else { return true }
        return withUnsafeTemporaryAllocation(byteCount: 16_384, alignment: 16) { buffer in
            for _ in 0..<64 {
                let count = recv(fileDescriptor, buffer.baseAddress, buffer.count, 0)
                if count == 0 { return true }
                if count < 0 { return errno != EAGAIN && errno != EINTR }
            }
            return false
        }
    }

    /// With a linger time of 0 the system drops unsent bytes at the end of the socket, and sends RST in place of FIN.
    private func setLinger() {
        guard fileDescriptor >= 0 else { return }
        var value = linger(l_onoff: resetsOnClose ? 1 : 0, l_linger: 0)
        setsockopt(fileDescriptor, SOL_SOCKET, SO_LINGER, &value, socklen_t(MemoryLayout<linger>.size))
    }

    private func sendCloseNotify() {
        guard let ssl, isEstablished, !isBroken, !isOutputBroken, !resetsOnClose else { return }
        ERR_clear_error()
        _ = SSL_shutdown(ssl)
        ERR_clear_error()
    }

    /// Sends `close_notify` if that is possible at once, behind the gathered bytes, and closes the socket. With
    /// ``resetsOnClose`` nothing is sent but a reset. Further calls do nothing. Returns the bytes that a gathering
    /// transport has not sent.
    @discardableResult
    public func close() -> TLSBacklog {
        if let ssl {
            sendCloseNotify()
            SSL_free(ssl)
            self.ssl = nil
        }
        var backlog = TLSBacklog()
        if let gathering { backlog = ledger.backlog(handedOver: sluice_BIO_handed_over(gathering)) }
        BIO_free_all(gathering)
        gathering = nil
        if fileDescriptor >= 0 {
            _ = Glibc.close(fileDescriptor)
            fileDescriptor = -1
        }
        return backlog
    }

    /// Number of written bytes, of ciphertext, that the peer's system has not acknowledged. Makes a system call.
    var unacknowledged: Int {
        var count: Int32 = 0
        guard fileDescriptor >= 0, ioctl(fileDescriptor, UInt(TIOCOUTQ), &count) == 0 else { return 0 }
        return Int(count) + (hasGathered ? gathering.map { sluice_BIO_waiting($0) } ?? 0 : 0)
    }

    private func closedError(_ operation: String) -> TLSError {
        .lost(operation: operation, reason: "the connection is closed")
    }

    private func systemError(_ code: Int32, operation: String) -> TLSError {
        ERR_clear_error()
        return .lost(
            operation: operation,
            reason: code == 0 ? "unexpected end of the stream" : String(cString: strerror(code)))
    }

    // MARK: - Facts after the handshake

    /// The protocol selected by ALPN; nil without one.
    public var negotiatedProtocol: String? {
        guard let ssl else { return nil }
        var name: UnsafePointer<UInt8>?
        var length: UInt32 = 0
        SSL_get0_alpn_selected(ssl, &name, &length)
        guard let name, length > 0 else { return nil }
        return String(decoding: UnsafeBufferPointer(start: name, count: Int(length)), as: UTF8.self)
    }

    /// Name of the TLS version, for example “TLSv1.3”; empty once closed.
    public var version: String {
        guard let ssl, let text = SSL_get_version(ssl) else { return "" }
        return String(cString: text)
    }

    /// Name of the cipher suite, for example “TLS_AES_128_GCM_SHA256”; empty without one.
    public var cipher: String {
        guard let ssl, let current = SSL_get_current_cipher(ssl), let text = SSL_CIPHER_get_name(current)
        else {
            return ""
        }
        return String(cString: text)
    }

    /// The certificate that the peer presented and that was verified; nil without one.
    public var peerCertificate: PeerCertificate? {
        guard let ssl, context.verifiesPeer, let certificate = SSL_get1_peer_certificate(ssl) else {
            return nil
        }
        return PeerCertificate(CertificateHandle(pointer: certificate))
    }
}

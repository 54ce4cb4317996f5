import COpenSSL
import Glibc

/// The settings that TLS connections of one role share: trust, identity, versions, suites, ALPN.
public final class TLSContext: Sendable {
    // SSL_new may be called on the SSL_CTX from any thread. The SSL_CTX does not change after init, and OpenSSL counts
    // its references atomically.
    nonisolated(unsafe) let pointer: OpaquePointer
    let isServer: Bool
    let verifiesPeer: Bool
    /// Whether a client refuses a server that selected no application protocol.
    let requiresApplicationProtocol: Bool
    // Written in init, read by the ALPN callback on any thread, freed in deinit: immutable while shared.
    private nonisolated(unsafe) let protocols: UnsafeMutablePointer<ProtocolList>?

    /// The wire form of an ALPN list (RFC 7301 §3.1), which the server's callback reads.
    struct ProtocolList {
        var bytes: UnsafeMutableBufferPointer<UInt8>
    }

    private init(
        method: OpaquePointer, isServer: Bool, verifiesPeer: Bool, requiresApplicationProtocol: Bool,
        applicationProtocols: [String]
    ) throws(TLSError) {
        Self.ignoreBrokenPipes()
        ERR_clear_error()
        guard let context = SSL_CTX_new(method) else {
            throw .configuration("creating a TLS context", hint: "OpenSSL could not be initialised")
        }
        pointer = context
        self.isServer = isServer
        self.verifiesPeer = verifiesPeer
        self.requiresApplicationProtocol = requiresApplicationProtocol
        protocols = applicationProtocols.isEmpty ? nil : Self.wireFormat(applicationProtocols)
    }

    deinit {
        SSL_CTX_free(pointer)
        if let protocols {
            protocols.pointee.bytes.deallocate()
            protocols.deallocate()
        }
    }

    /// Creates a client's context.
    /// - Throws: `TLSError` of kind `configuration` that names the file or option.
    public static func client(_ options: ClientTLSOptions) throws(TLSError) -> TLSContext {
        let context = try TLSContext(
            method: TLS_client_method(), isServer: false, verifiesPeer: options.verifiesPeer,
            requiresApplicationProtocol: options.requiresApplicationProtocol,
            applicationProtocols: options.applicationProtocols)
        try context.applyCommon(
            minimum: options.minimumVersion, maximum: options.maximumVersion,
            cipherSuites: options.cipherSuites, cipherList: options.cipherList)
        if options.verifiesPeer {
            try context.trust(options.trust)
            SSL_CTX_set_verify(context.pointer, SSL_VERIFY_PEER, nil)
        } else {
            SSL_CTX_set_verify(context.pointer, SSL_VERIFY_NONE, nil)
        }
        if let identity = options.identity { try context.use(identity) }
        if let list = context.protocols?.pointee.bytes {
            // This function returns 0 on success, unlike most of OpenSSL.
            guard SSL_CTX_set_alpn_protos(context.pointer, list.baseAddress, UInt32(list.count)) == 0 else {
                throw .configuration(
                    "setting the ALPN protocols", hint: "names of 1 to 255 bytes are allowed")
            }
        }
        return context
    }

    /// Creates a server's context.
    /// - Throws: `TLSError` of kind `configuration` that names the file or option.
    public static func server(_ options: ServerTLSOptions) throws(TLSError) -> TLSContext {
        let context = try TLSContext(
            method: TLS_server_method(), isServer: true, verifiesPeer: options.clientCertificates != .ignore,
            requiresApplicationProtocol: false, applicationProtocols: options.applicationProtocols)
        try context.applyCommon(
            minimum: options.minimumVersion, maximum: options.maximumVersion,
            cipherSuites: options.cipherSuites, cipherList: options.cipherList)
        try context.use(options.identity)
        _ = sluice_SSL_CTX_prefer_server_ciphers(context.pointer)
        // No resumption: connections live for hours, and each ticket costs bytes and work in every handshake.
        SSL_CTX_set_num_tickets(context.pointer, 0)
        switch options.clientCertificates {
        case .ignore:
            SSL_CTX_set_verify(context.pointer, SSL_VERIFY_NONE, nil)
        case .request(let authorities):
            try context.trust(.authorities(authorities), announce: true)
            SSL_CTX_set_verify(context.pointer, SSL_VERIFY_PEER, nil)
        case .require(let authorities):
            try context.trust(.authorities(authorities), announce: true)
            SSL_CTX_set_verify(context.pointer, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nil)
        }
        if let protocols = context.protocols {
            SSL_CTX_set_alpn_select_cb(context.pointer, selectApplicationProtocol, protocols)
        }
        return context
    }

    // MARK: - Parts

    private func applyCommon(
        minimum: TLSVersion, maximum: TLSVersion, cipherSuites: String, cipherList: String
    ) throws(TLSError) {
        guard minimum <= maximum,
            sluice_SSL_CTX_set_min_proto_version(pointer, minimum.rawValue) == 1,
            sluice_SSL_CTX_set_max_proto_version(pointer, maximum.rawValue) == 1
        else {
            throw .configuration("setting the TLS versions", hint: "the minimum must not exceed the maximum")
        }
        guard SSL_CTX_set_ciphersuites(pointer, cipherSuites) == 1 else {
            throw .configuration(
                "setting the TLS 1.3 cipher suites “\(cipherSuites)”",
                hint: "see `openssl ciphers -s -tls1_3`")
        }
        guard SSL_CTX_set_cipher_list(pointer, cipherList) == 1 else {
            throw .configuration(
                "setting the TLS 1.2 cipher suites “\(cipherList)”", hint: "see `openssl ciphers -s -tls1_2`")
        }
        _ = sluice_SSL_CTX_set_base_options(pointer)
        _ = sluice_SSL_CTX_set_mode(
            pointer, Int(SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER))
        _ = sluice_SSL_CTX_set_session_cache_mode(pointer, Int(SSL_SESS_CACHE_OFF))
        // A single system call then fetches several records, instead of two calls for each record.
        sluice_SSL_CTX_set_read_ahead(pointer, 1)
        SSL_CTX_set_default_read_buffer_len(pointer, 64 * 1024)
    }

    private func trust(_ trust: TLSTrust, announce: Bool = false) throws(TLSError) {
        switch trust {
        case .system:
            guard SSL_CTX_set_default_verify_paths(pointer) == 1 else {
                throw .configuration(
                    "loading the system's certificate authorities", hint: "install ca-certificates")
            }
        case .authorities(let source):
            let store = SSL_CTX_get_cert_store(pointer)
            let context = pointer
            try PEM.certificates(in: source) { certificate throws(TLSError) in
                guard X509_STORE_add_cert(store, certificate.pointer) == 1,
                    !announce || SSL_CTX_add_client_CA(context, certificate.pointer) == 1
                else {
                    throw .configuration(
                        "trusting the authorities of \(source.label)", hint: "each must be a CA certificate")
                }
            }
        }
    }

    private func use(_ identity: TLSIdentity) throws(TLSError) {
        var isLeaf = true
        let context = pointer
        try PEM.certificates(in: identity.certificateChain) { certificate throws(TLSError) in
            let accepted =
                isLeaf
                ? SSL_CTX_use_certificate(context, certificate.pointer) == 1
                : sluice_SSL_CTX_add1_chain_cert(context, certificate.pointer) == 1
            isLeaf = false
            guard accepted else {
                throw .configuration(
                    "using the certificate of \(identity.certificateChain.label)",
                    hint: "the leaf comes first, its issuers after it")
            }
        }
        let key = try PEM.privateKey(in: identity.privateKey)
        guard SSL_CTX_use_PrivateKey(pointer, key.pointer) == 1, SSL_CTX_check_private_key(pointer) == 1
        else {
            throw .configuration(
                "using the private key of \(identity.privateKey.label)",
                hint: "it must belong to the certificate of \(identity.certificateChain.label)")
        }
    }

    private static func wireFormat(_ names: [String]) -> UnsafeMutablePointer<ProtocolList> {
        var bytes: [UInt8] = []
        for name in names {
            bytes.append(UInt8(clamping: name.utf8.count))
            bytes.append(contentsOf: name.utf8)
        }
        let copy = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: bytes.count)
        _ = copy.initialize(from: bytes)
        let list = UnsafeMutablePointer<ProtocolList>.allocate(capacity: 1)
        list.initialize(to: ProtocolList(bytes: copy))
        return list
    }

    /// Ignores SIGPIPE, because OpenSSL's socket BIO writes with write(2) and a closed peer would end the process. A
    /// handler that the program has set itself stays.
    private static func ignoreBrokenPipes() {
        var current = sigaction()
        guard sigaction(SIGPIPE, nil, &current) == 0 else { return }
        let isDefault = unsafeBitCast(current.__sigaction_handler.sa_handler, to: UInt.self) == 0
        if isDefault { _ = signal(SIGPIPE, SIG_IGN) }
    }
}

/// Selects a protocol by the server's preference; without a common protocol the handshake ends with an alert.
private func selectApplicationProtocol(
    ssl: OpaquePointer?, out: UnsafeMutablePointer<UnsafePointer<UInt8>?>?,
    outLength: UnsafeMutablePointer<UInt8>?,
    offered: UnsafePointer<UInt8>?, offeredLength: UInt32, argument: UnsafeMutableRawPointer?
) -> Int32 {
    guard let list = argument?.assumingMemoryBound(to: TLSContext.ProtocolList.self).pointee.bytes, let out
    else {
        return SSL_TLSEXT_ERR_NOACK
    }
    var selected: UnsafeMutablePointer<UInt8>?
    let result = SSL_select_next_proto(
        &selected, outLength, list.baseAddress, UInt32(list.count), offered, offeredLength)
    guard result == OPENSSL_NPN_NEGOTIATED else { return SSL_TLSEXT_ERR_ALERT_FATAL }
    out.pointee = UnsafePointer(selected)
    return SSL_TLSEXT_ERR_OK
}

extension TLSContext {
    /// Version of the OpenSSL that is loaded.
    public static var libraryVersion: String { String(cString: OpenSSL_version(OPENSSL_VERSION_STRING)) }
}

import Glibc
import Testing

@testable import HTTP2

@Suite struct TLSHandshakeTests {
    let fixture: TLSFixture

    init() throws { fixture = try TLSFixture() }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func bothVersionsNegotiateHTTP2(version: TLSVersion) throws {
        let pair = try fixture.pair(client: { $0.maximumVersion = version })
        #expect(pair.handshake().isDone)
        #expect(pair.client.version == (version == .tls13 ? "TLSv1.3" : "TLSv1.2"))
        #expect(pair.client.negotiatedProtocol == "h2")
        #expect(pair.server.negotiatedProtocol == "h2")
        #expect(pair.client.cipher.contains("128"))
        #expect(pair.client.peerCertificate?.commonName == "localhost")
    }

    @Test(arguments: ["localhost", "127.0.0.1", "::1", "push.example.com"])
    func handshakeAcceptsNamesInTheCertificate(name: String) throws {
        #expect(try fixture.pair(name: name).handshake().isDone)
    }

    @Test(arguments: ["api.push.apple.com", "127.0.0.2", "::2", "a.b.example.com", "example.com"])
    func handshakeRefusesNamesNotInTheCertificate(name: String) throws {
        let error = try #require(try fixture.pair(name: name).handshake().clientError)
        #expect(error.kind == .hostnameMismatch)
        #expect(error.description.contains(name))
    }

    /// A common name names no server (RFC 9525 §2), also beside an alternative name of another kind.
    @Test(arguments: [nil, "IP:127.0.0.1"] as [String?])
    func commonNameIsNotTheServersName(alternatives: String?) throws {
        let leaf = try certificate(commonName: "localhost", alternatives: alternatives)
        let pair = try fixture.pair(server: { $0.identity = leaf.identity })
        let error = try #require(pair.handshake().clientError)
        #expect(error.kind == .hostnameMismatch)
        #expect(error.description.contains("“localhost”") && error.hint.contains("subjectAltName"))
    }

    @Test func alternativeNameIsTheServersNameBesideAnyCommonName() throws {
        let leaf = try certificate(commonName: "elsewhere.test", alternatives: "DNS:localhost")
        #expect(try fixture.pair(server: { $0.identity = leaf.identity }).handshake().isDone)
        #expect(throws: TLSError.self) { try fixture.authority.issueServer(names: []) }
    }

    private func certificate(commonName: String, alternatives: String?) throws -> IssuedCertificate {
        try fixture.authority.issue(
            commonName: commonName, userID: nil, validity: .days(1), usage: "serverAuth",
            alternatives: alternatives, topics: [])
    }

    @Test func unknownAuthorityIsRefused() throws {
        let other = try CertificateAuthority(commonName: "Another CA")
        let pair = try fixture.pair(client: { $0.trust = .authorities(.text(other.certificatePEM)) })
        let error = try #require(pair.handshake().clientError)
        #expect(error.kind == .unknownAuthority)
        #expect(error.hint.contains("CA file"))
    }

    @Test func systemRootsRefuseThePrivateAuthority() throws {
        let pair = try fixture.pair(client: { $0.trust = .system })
        #expect(pair.handshake().clientError?.kind == .unknownAuthority)
    }

    @Test func expiredAndFutureCertificatesAreRefused() throws {
        let table: [(CertificateValidity, TLSError.Kind)] = [
            (.expired, .certificateExpired), (.future, .certificateNotYetValid),
        ]
        for (validity, kind) in table {
            let leaf = try fixture.authority.issueServer(names: ["localhost"], validity: validity)
            let pair = try fixture.pair(server: { $0.identity = leaf.identity })
            #expect(pair.handshake().clientError?.kind == kind)
        }
    }

    @Test func verificationCanBeSwitchedOff() throws {
        let pair = try fixture.pair(
            name: "elsewhere.test",
            client: {
                $0.verifiesPeer = false
                $0.trust = .system
            })
        #expect(pair.handshake().isDone)
    }

    @Test func handshakeRequiresACommonApplicationProtocol() throws {
        // The server refuses a client that doesn't offer the server's protocol.
        var pair = try fixture.pair(server: { $0.applicationProtocols = ["http/1.1"] })
        #expect(pair.handshake().clientError?.kind == .protocolRefused)
        // The client refuses a server that ignores ALPN.
        pair = try fixture.pair(server: { $0.applicationProtocols = [] })
        #expect(pair.handshake().clientError?.kind == .protocolRefused)
        // A client that offers no protocol is refused, unless it requires none.
        pair = try fixture.pair(
            client: { $0.applicationProtocols = [] }, server: { $0.applicationProtocols = ["h2"] })
        let result = pair.handshake()
        #expect(result.clientError?.kind == .protocolRefused)
        pair = try fixture.pair(client: {
            $0.applicationProtocols = []
            $0.requiresApplicationProtocol = false
        })
        #expect(pair.handshake().isDone)
        #expect(pair.server.negotiatedProtocol == nil)
    }

    @Test func handshakeFailsWithoutACommonVersion() throws {
        let pair = try fixture.pair(
            client: { $0.minimumVersion = .tls13 }, server: { $0.maximumVersion = .tls12 })
        #expect(pair.handshake().clientError?.kind == .noCommonParameters)
    }

    @Test func plainTextPeerIsReportedAsNotTLS() throws {
        var descriptors: [Int32] = [-1, -1]
        try #require(
            socketpair(
                AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | O_NONBLOCK, 0,
                &descriptors) == 0)
        let client = try TLSTransport(
            context: .client(fixture.clientOptions), fileDescriptor: descriptors[0], serverName: "localhost")
        defer { close(descriptors[1]) }
        #expect({ if case .wantRead = client.handshake() { true } else { false } }())
        let text = Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8)
        #expect(write(descriptors[1], text, text.count) == text.count)
        guard case .failed(let error) = client.handshake() else {
            Issue.record("plain text was taken for TLS")
            return
        }
        #expect(error.kind == .notTLS)
    }

    @Test func closeDuringHandshakeIsReportedAsConnectionLost() throws {
        var descriptors: [Int32] = [-1, -1]
        try #require(
            socketpair(
                AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | O_NONBLOCK, 0,
                &descriptors) == 0)
        let client = try TLSTransport(
            context: .client(fixture.clientOptions), fileDescriptor: descriptors[0], serverName: "localhost")
        _ = client.handshake()
        close(descriptors[1])
        guard case .failed(let error) = client.handshake() else {
            Issue.record("the closed connection went unnoticed")
            return
        }
        #expect(error.kind == .connectionLost)
        #expect(error.operation.contains("localhost"))
    }
}

@Suite struct TLSClientCertificateTests {
    let fixture: TLSFixture

    init() throws { fixture = try TLSFixture() }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func serverReadsIdentityAndTopicsOfPushCertificate(version: TLSVersion) throws {
        let identity = try fixture.authority.issueClient(
            commonName: "Apple Push Services: com.example.app", userID: "com.example.app",
            topics: ["com.example.app", "com.example.app.voip"])
        let authority = PEMSource.text(fixture.authority.certificatePEM)
        let pair = try fixture.pair(
            client: {
                $0.identity = identity.identity
                $0.maximumVersion = version
            },
            server: { $0.clientCertificates = .require(authority) })
        #expect(pair.handshake().isDone)
        let seen = try #require(pair.server.peerCertificate)
        #expect(seen.userID == "com.example.app")
        #expect(seen.commonName == "Apple Push Services: com.example.app")
        #expect(seen.topics == ["com.example.app", "com.example.app.voip"])
    }

    @Test func handshakeSucceedsWithoutARequestedCertificate() throws {
        let authority = PEMSource.text(fixture.authority.certificatePEM)
        let pair = try fixture.pair(server: { $0.clientCertificates = .request(authority) })
        #expect(pair.handshake().isDone)
        #expect(pair.server.peerCertificate == nil)
    }

    @Test func handshakeFailsWithoutARequiredCertificate() throws {
        let authority = PEMSource.text(fixture.authority.certificatePEM)
        let pair = try fixture.pair(server: { $0.clientCertificates = .require(authority) })
        #expect(pair.refusalSeenByClient()?.kind == .certificateRefused)
    }

    @Test func expiredAndForeignClientCertificatesAreRefused() throws {
        let authority = PEMSource.text(fixture.authority.certificatePEM)
        let expired = try fixture.authority.issueClient(commonName: "old", validity: .expired)
        let foreign = try CertificateAuthority(commonName: "Another CA").issueClient(commonName: "foreign")
        for identity in [expired, foreign] {
            for policy in [ClientCertificatePolicy.request(authority), .require(authority)] {
                let pair = try fixture.pair(
                    client: { $0.identity = identity.identity }, server: { $0.clientCertificates = policy })
                #expect(pair.refusalSeenByClient()?.kind == .certificateRefused)
            }
        }
    }
}

extension TLSPair {
    /// In TLS 1.3 the client's handshake ends before the server checks the client's certificate. The refusal
    /// arrives as an alert on the first read.
    fileprivate func refusalSeenByClient() -> TLSError? {
        switch handshake() {
        case .clientFailed(let error): return error
        case .serverFailed:
            if case .failed(let error) = client.readBytes().result { return error }
            return nil
        case .done, .stalled: return nil
        }
    }
}

@Suite struct TLSDataTests {
    let fixture: TLSFixture

    init() throws { fixture = try TLSFixture() }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func readDistinguishesCleanCloseFromCut(version: TLSVersion) throws {
        let clean = try fixture.pair(client: { $0.maximumVersion = version })
        try #require(clean.handshake().isDone)
        clean.server.close()
        #expect({ if case .closed(clean: true) = clean.client.readBytes().result { true } else { false } }())

        let cut = try fixture.pair(client: { $0.maximumVersion = version })
        try #require(cut.handshake().isDone)
        shutdown(cut.server.fileDescriptor, Int32(SHUT_RDWR))
        #expect({ if case .closed(clean: false) = cut.client.readBytes().result { true } else { false } }())
    }

    @Test func writeToAClosedPeerFailsWithoutSIGPIPE() throws {
        let pair = try fixture.pair()
        try #require(pair.handshake().isDone)
        shutdown(pair.server.fileDescriptor, Int32(SHUT_RDWR))
        pair.server.close()
        var result = pair.client.writeBytes([1, 2, 3])
        for _ in 0..<3 {
            if case .failed = result { break }
            result = pair.client.writeBytes([1, 2, 3])
        }
        guard case .failed(let error) = result else {
            Issue.record("writing to a closed peer succeeded")
            return
        }
        #expect(error.kind == .connectionLost)
    }

    /// A megabyte through a socket buffer of 4 KB: writes stop within records, and each retry uses another
    /// buffer.
    @Test(arguments: [TLSVersion.tls12, .tls13])
    func partialWritesDeliverEveryByteInOrder(version: TLSVersion) throws {
        let pair = try fixture.pair(socketBuffer: 4_096, client: { $0.maximumVersion = version })
        try #require(pair.handshake().isDone)
        let sent = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 9) }
        var received: [UInt8] = []
        var offset = 0
        var stops = 0
        var turns = 0
        while received.count < sent.count {
            turns += 1
            try #require(turns < 100_000)
            if offset < sent.count {
                // A new array each time, so that a retry finds the bytes at another address.
                switch pair.client.writeBytes(Array(sent[offset..<min(offset + 40_000, sent.count)])) {
                case .bytes(let count):
                    #expect(count <= 16_384)
                    offset += count
                case .wantWrite: stops += 1
                case .wantRead: Issue.record("a write waited for input")
                case .failed(let error): throw error
                }
            }
            if case .failed(let error) = readAll(pair.server, into: &received) { throw error }
        }
        #expect(received == sent)
        #expect(stops > 10)
    }

    private func readAll(_ transport: TLSTransport, into received: inout [UInt8]) -> TLSRead {
        while true {
            let (result, bytes) = transport.readBytes(5_000)
            guard case .bytes = result else { return result }
            received += bytes
        }
    }

    /// Reading ahead leaves records inside OpenSSL, which polling the socket doesn't show.
    @Test func inputBufferedInsideOpenSSLIsReported() throws {
        let pair = try fixture.pair()
        try #require(pair.handshake().isDone)
        for _ in 0..<3 { _ = pair.client.writeBytes([UInt8](repeating: 7, count: 1_000)) }
        #expect(pair.server.readBytes(500).bytes.count == 500)
        #expect(pair.server.hasBufferedInput)
        var rest: [UInt8] = []
        _ = readAll(pair.server, into: &rest)
        #expect(rest.count == 2_500)
        #expect(!pair.server.hasBufferedInput)
    }

    @Test func useAfterCloseFails() throws {
        let pair = try fixture.pair()
        try #require(pair.handshake().isDone)
        pair.client.close()
        pair.client.close()
        #expect(pair.client.fileDescriptor == -1)
        guard case .failed = pair.client.writeBytes([1]), case .failed = pair.client.readBytes().result else {
            Issue.record("a closed transport was used")
            return
        }
    }
}

@Suite struct TLSConfigurationTests {
    @Test func unusableTLSMaterialIsNamedInTheError() throws {
        let authority = try CertificateAuthority()
        let one = try authority.issueServer(names: ["localhost"])
        let other = try authority.issueServer(names: ["localhost"])
        var client = ClientTLSOptions()
        client.trust = .authorities(.file("/nonexistent/ca.pem"))
        #expect(error { try TLSContext.client(client) }?.description.contains("/nonexistent/ca.pem") == true)
        client.trust = .authorities(.text("no certificate at all"))
        #expect(error { try TLSContext.client(client) }?.kind == .configuration)
        client.trust = .authorities(.text(authority.certificatePEM.firstHalf()))
        #expect(error { try TLSContext.client(client) }?.kind == .configuration)

        let swapped = TLSIdentity(
            certificateChain: .text(one.chainPEM), privateKey: .text(other.privateKeyPEM))
        #expect(
            error { try TLSContext.server(ServerTLSOptions(identity: swapped)) }?.hint.contains("belong")
                == true)
        let keyless = TLSIdentity(certificateChain: .text(one.chainPEM), privateKey: .text(one.chainPEM))
        #expect(
            error { try TLSContext.server(ServerTLSOptions(identity: keyless)) }?.hint.contains("PRIVATE")
                == true)

        var suites = ServerTLSOptions(identity: one.identity)
        suites.cipherSuites = "NO_SUCH_SUITE"
        #expect(error { try TLSContext.server(suites) }?.description.contains("NO_SUCH_SUITE") == true)
        var versions = ServerTLSOptions(identity: one.identity)
        versions.minimumVersion = .tls13
        versions.maximumVersion = .tls12
        #expect(error { try TLSContext.server(versions) }?.kind == .configuration)
    }

    @Test func authorityIssuesCertificatesAfterReloadFromPEM() throws {
        let authority = try CertificateAuthority()
        let again = try CertificateAuthority(
            certificatePEM: authority.certificatePEM, privateKeyPEM: authority.privateKeyPEM)
        let leaf = try again.issueServer(names: ["localhost"])
        var client = ClientTLSOptions()
        client.trust = .authorities(.text(authority.certificatePEM))
        let pair = try TLSPair(
            client: .client(client), server: .server(ServerTLSOptions(identity: leaf.identity)))
        #expect(pair.handshake().isDone)
        #expect(
            error { try CertificateAuthority(certificatePEM: "x", privateKeyPEM: "y") }?.kind
                == .configuration)
    }

    private func error<T>(_ body: () throws -> T) -> TLSError? {
        do {
            _ = try body()
            return nil
        } catch {
            return error as? TLSError
        }
    }
}

extension String {
    /// The text without its second half.
    fileprivate func firstHalf() -> String { String(prefix(count / 2)) }
}

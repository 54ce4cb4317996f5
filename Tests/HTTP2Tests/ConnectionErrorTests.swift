import EventLoop
import Glibc
import TestSupport
import Testing

@testable import HTTP2

/// Tests the texts and kinds of errors for connections that fail to open.
@Suite(.serialized) struct ConnectionErrorTests {
    private let fixture: TLSFixture

    init() throws { fixture = try TLSFixture() }

    /// The reason for which a connection to a server with these options closes.
    private func reason(
        serverName: String = "localhost", client: (inout ClientTLSOptions) -> Void = { _ in },
        server: (inout ServerTLSOptions) -> Void = { _ in }
    ) throws -> ConnectionCloseReason {
        var serverOptions = fixture.serverOptions
        server(&serverOptions)
        var clientOptions = fixture.clientOptions
        client(&clientOptions)
        let loop = try EventLoop(name: "test-server")
        let log = ServerLog()
        let listener = try ServerListener(
            loop: loop, address: "127.0.0.1", port: 0, tls: .server(serverOptions), options: ServerOptions()
        ) { _ in RecordingHandler(log: log) { $1.respond(stream: $0.stream, status: 200) } }
        try listener.start()
        loop.start()
        defer {
            loop.stop()
            loop.join()
        }
        let connection = try ConnectionClient(
            addresses: [SocketAddress("127.0.0.1", port: listener.port)!], serverName: serverName,
            context: .client(clientOptions))
        defer { connection.stop() }
        return try connection.waitUntilClosed()
    }

    private func expect(
        _ reason: ConnectionCloseReason, _ kind: TLSError.Kind, naming parts: String...,
        at location: SourceLocation = #_sourceLocation
    ) {
        guard case .tls(let error) = reason else {
            Issue.record("\(reason)", sourceLocation: location)
            return
        }
        #expect(error.kind == kind, "\(reason)", sourceLocation: location)
        #expect(reason.kind == .settings, sourceLocation: location)
        for part in parts {
            #expect("\(reason)".contains(part), "\(reason)", sourceLocation: location)
        }
    }

    @Test func expiredCertificateErrorAdvisesRenewal() throws {
        let old = try fixture.authority.issueServer(names: ["localhost"], validity: .expired)
        expect(
            try reason(server: { $0.identity = old.identity }), .certificateExpired, naming: "expired",
            "“localhost”", "renew")
    }

    @Test func futureCertificateErrorMentionsTheClock() throws {
        let early = try fixture.authority.issueServer(names: ["localhost"], validity: .future)
        expect(
            try reason(server: { $0.identity = early.identity }), .certificateNotYetValid,
            naming: "not yet valid", "clock")
    }

    @Test func hostnameMismatchErrorNamesTheHost() throws {
        expect(
            try reason(serverName: "api.push.apple.com"), .hostnameMismatch, naming: "“api.push.apple.com”",
            "not for")
    }

    @Test func unknownAuthorityErrorMentionsTheCAFile() throws {
        let other = try CertificateAuthority(commonName: "Another CA")
        expect(
            try reason(client: { $0.trust = .authorities(.text(other.certificatePEM)) }), .unknownAuthority,
            naming: "CA file", "“localhost”")
    }

    @Test func serverWithoutHTTP2IsReportedAsALPNFailure() throws {
        expect(
            try reason(server: { $0.applicationProtocols = ["http/1.1"] }), .protocolRefused, naming: "ALPN",
            "h2")
        expect(
            try reason(server: { $0.applicationProtocols = [] }), .protocolRefused, naming: "ALPN",
            "selected no protocol")
    }

    @Test func versionMismatchErrorMentionsTheVersion() throws {
        expect(
            try reason(client: { $0.minimumVersion = .tls13 }, server: { $0.maximumVersion = .tls12 }),
            .noCommonParameters, naming: "version")
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func refusedClientCertificateErrorNamesTheCause(version: TLSVersion) throws {
        let authority = PEMSource.text(fixture.authority.certificatePEM)
        expect(
            try reason(
                client: { $0.maximumVersion = version },
                server: { $0.clientCertificates = .require(authority) }),
            // TLS 1.2 has no alert of its own for a missing certificate.
            version == .tls13 ? .certificateRefused : .noCommonParameters,
            naming: "server demands a client certificate")
        let expired = try fixture.authority.issueClient(commonName: "old", validity: .expired)
        expect(
            try reason(
                client: {
                    $0.maximumVersion = version
                    $0.identity = expired.identity
                }, server: { $0.clientCertificates = .require(authority) }), .certificateRefused,
            naming: "certificate", "refused")
    }

    @Test func portWithoutTLSIsReportedAsNotTLS() throws {
        let listening = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(listening) }
        _ = SocketAddress("127.0.0.1", port: 0)!.withPointer { bind(listening, $0, $1) }
        listen(listening, 4)
        let port = try #require(SocketAddress.port(of: listening))
        inThread {
            let client = acceptConnection(listening)
            guard client >= 0 else { return }
            let text = "220 mail.test ESMTP ready\r\n"
            send(client, text, text.utf8.count, Int32(MSG_NOSIGNAL))
            var byte: UInt8 = 0
            while recv(client, &byte, 1, 0) == 1 {}
            close(client)
        }
        let connection = try ConnectionClient(
            addresses: [SocketAddress("127.0.0.1", port: port)!], context: .client(fixture.clientOptions))
        expect(try connection.waitUntilClosed(), .notTLS, naming: "does not speak TLS", "port")
        connection.stop()
    }

    @Test func otherCloseReasonsAreNotSettingsFailures() throws {
        #expect(ConnectionCloseReason.closedByServer(clean: true).kind == .endedByServer)
        #expect(ConnectionCloseReason.closedByServer(clean: false).kind == .network)
        #expect(ConnectionCloseReason.drained.kind == .endedByUs)
        #expect(
            ConnectionCloseReason.http2(HTTP2ConnectionError(.protocolError, "x")).kind == .protocolBreach)
        let lost = TLSError(.connectionLost, operation: "TLS read", reason: "reset", hint: "")
        #expect(ConnectionCloseReason.tls(lost).kind == .network)
    }
}

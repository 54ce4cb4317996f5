import EventLoop
import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

@Suite struct ProxyTunnelTests {
    private func tunnel(
        user: String? = nil, password: String? = nil, host: String = "api.push.apple.com"
    ) throws -> ProxyTunnel {
        try ProxyTunnel(
            proxy: ProxyConfiguration(host: "proxy.test", port: 3128, user: user, password: password),
            targetHost: host, targetPort: 443)
    }

    private func text(_ tunnel: ProxyTunnel) -> String { String(decoding: tunnel.unsent, as: UTF8.self) }

    @Test func connectRequestHasHostAndCredentials() throws {
        #expect(
            text(try tunnel())
                == "CONNECT api.push.apple.com:443 HTTP/1.1\r\nHost: api.push.apple.com:443\r\n\r\n")
        // Example credentials of RFC 7617 §2.
        #expect(
            text(try tunnel(user: "Aladdin", password: "open sesame")).contains(
                "\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"))
        #expect(text(try tunnel(host: "fd00::1")).hasPrefix("CONNECT [fd00::1]:443 HTTP/1.1\r\n"))
        var partly = try tunnel()
        partly.didSend(8)
        #expect(text(partly).hasPrefix("api.push"))
    }

    @Test func base64MatchesRFC4648Vectors() {
        // RFC 4648 §10.
        let vectors = [
            "": "", "f": "Zg==", "fo": "Zm8=", "foo": "Zm9v", "foob": "Zm9vYg==", "fooba": "Zm9vYmE=",
            "foobar": "Zm9vYmFy",
        ]
        for (plain, encoded) in vectors {
            #expect(String(decoding: ProxyTunnel.base64(Array(plain.utf8)), as: UTF8.self) == encoded)
        }
    }

    @Test func invalidHostOrCredentialsAreRefusedWithoutShowingSecrets() {
        func error(_ body: () throws -> ProxyTunnel) -> ProxyError? {
            do {
                _ = try body()
                return nil
            } catch { return error as? ProxyError }
        }
        #expect(error { try tunnel(host: "a\r\nX: y") }?.kind == .configuration)
        #expect(error { try tunnel(host: "") }?.kind == .configuration)
        #expect(error { try tunnel(user: "a:b", password: "c") }?.kind == .configuration)
        let secret = error { try tunnel(user: "user", password: "secret\n") }
        #expect(secret?.kind == .configuration)
        #expect(secret?.description.contains("secret") == false)
    }

    @Test func proxyConfigurationPrintsNoCredentials() {
        let proxy = ProxyConfiguration(host: "proxy.test", port: 3128, user: "someone", password: "secret")
        var dumped = ""
        dump(proxy, to: &dumped)
        var configuration = ClientConnection.Configuration()
        configuration.proxy = proxy
        for text in ["\(proxy)", String(reflecting: proxy), dumped, "\(configuration)"] {
            #expect(!text.contains("someone") && !text.contains("secret"))
            #expect(text.contains("proxy.test"))
        }
    }
}

@Suite struct ProxyResponseParserTests {
    private func parse(_ text: String, piece: Int = .max) -> ProxyResponseParser.Result {
        var parser = ProxyResponseParser()
        var bytes = Array(text.utf8)[...]
        var result = ProxyResponseParser.Result.needsMore
        while !bytes.isEmpty, result == .needsMore {
            let part = Array(bytes.prefix(piece))
            bytes = bytes.dropFirst(part.count)
            result = part.withUnsafeBytes { parser.receive($0) }
        }
        return result
    }

    @Test func responseHeadIsParsedOrRejected() {
        let table: [(String, ProxyResponseParser.Result)] = [
            ("HTTP/1.1 200 OK\r\n\r\n", .complete(status: 200, rest: 0)),
            ("HTTP/1.0 200 Connection established\r\n\r\n", .complete(status: 200, rest: 0)),
            ("HTTP/1.1 200\r\n\r\n", .complete(status: 200, rest: 0)),
            ("HTTP/1.1 200 \r\n\r\n", .complete(status: 200, rest: 0)),
            ("HTTP/1.1 299 x\nA: b\n\n", .complete(status: 299, rest: 0)),
            ("HTTP/1.1 407 No\r\nA: b\r\n folded\r\n\r\n", .complete(status: 407, rest: 0)),
            ("HTTP/1.1 502 Bad\r\nContent-Length: 2\r\n\r\nno", .complete(status: 502, rest: 2)),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", .complete(status: 200, rest: 0)),
            ("HTTP/1.1 101 Switching\r\n\r\n", .complete(status: 101, rest: 0)),
            ("HTTP/1.1 200 OK\r\nA: b\r\n", .needsMore),
            ("HTTP/1.1 200 OK", .needsMore),
            ("", .needsMore),
            ("HTTP/2.0 200 OK\r\n\r\n", .malformed),
            ("SSH-2.0-OpenSSH", .malformed),
            ("\u{15}\u{3}\u{1}", .malformed),
            ("HTTP/1.1 20 OK\r\n\r\n", .malformed),
            ("HTTP/1.1 2000 OK\r\n\r\n", .malformed),
            ("HTTP/1.1 999 OK\r\n\r\n", .malformed),
            ("HTTP/1.1  200 OK\r\n\r\n", .malformed),
            ("HTTP/1.x 200 OK\r\n\r\n", .malformed),
            ("\r\nHTTP/1.1 200 OK\r\n\r\n", .malformed),
            ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", .malformed),
        ]
        for (text, expected) in table {
            #expect(parse(text) == expected, "\(text.debugDescription)")
        }
    }

    /// Bytes behind the head count only in the last piece.
    @Test func responseSplitAtAnySizeParsesTheSame() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n"
        for piece in 1...text.utf8.count {
            #expect(parse(text, piece: piece) == .complete(status: 200, rest: 0))
        }
        #expect(parse(text + "abc") == .complete(status: 200, rest: 3))
        #expect(parse("garbage and more of it", piece: 1) == .malformed)
    }

    @Test func responseHeadOverTheLimitIsTooLong() {
        let frame = "HTTP/1.1 200 OK\r\n\r\n".utf8.count + "A: \r\n".utf8.count
        let limit = ProxyResponseParser.maximumLength
        func answer(_ length: Int) -> String {
            "HTTP/1.1 200 OK\r\nA: " + String(repeating: "x", count: length - frame) + "\r\n\r\n"
        }
        for piece in [1, 4096, .max] {
            #expect(parse(answer(limit), piece: piece) == .complete(status: 200, rest: 0))
            #expect(parse(answer(limit + 1), piece: piece) == .tooLong)
        }
        let interim = String(repeating: "HTTP/1.1 103 Early Hints\r\n\r\n", count: 1000)
        #expect(parse(interim) == .tooLong)
    }

    /// Changes one byte of a good answer. A final result doesn't change with later bytes.
    @Test func randomBytesParseTheSameWholeOrSplit() {
        let seed = UInt64.random(in: .min ... .max)
        var random = SeededGenerator(seed: seed)
        let good = Array("HTTP/1.1 200 OK\r\nVia: x\r\n\r\n".utf8)
        for _ in 0..<2000 {
            var bytes = good
            bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            var whole = ProxyResponseParser()
            let expected = bytes.withUnsafeBytes { whole.receive($0) }
            var split = ProxyResponseParser()
            var result = ProxyResponseParser.Result.needsMore
            for byte in bytes {
                let now = withUnsafeBytes(of: byte) { split.receive($0) }
                if result != .needsMore { #expect(now == result, "seed \(seed)") }
                result = now
            }
            switch (expected, result) {
            case (.complete(let a, _), .complete(let b, _)): #expect(a == b, "seed \(seed)")
            default: #expect(expected == result, "seed \(seed)")
            }
        }
    }
}

/// Connections through a proxy, over real sockets.
@Suite(.serialized) struct ProxyTests {
    private func client(
        _ proxy: TestProxy, _ server: ServerFixture, user: String? = nil, password: String? = nil,
        connectTimeout: Duration = .seconds(60), port: UInt16? = nil
    ) throws -> ConnectionClient {
        try ConnectionClient(
            addresses: [proxy.address], port: port ?? server.listener.port,
            context: .client(server.tls.clientOptions)
        ) {
            $0.connectTimeout = connectTimeout
            $0.proxy = ProxyConfiguration(
                host: "127.0.0.1", port: proxy.port, user: user, password: password)
        }
    }

    private func proxyError(_ reason: ConnectionCloseReason) -> ProxyError? {
        if case .proxy(let error) = reason { error } else { nil }
    }

    @Test func requestsAreAnsweredThroughTheTunnel() throws {
        let server = try ServerFixture()
        let proxy = try TestProxy(.tunnel(authorization: nil))
        let client = try client(proxy, server)
        try client.waitUntilOpen()
        #expect(client.send(0..<500).allSatisfy { $0 == .submitted })
        try eventually("500 answers") { client.read { $0.ends.count } == 500 }
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [200] } })
        #expect(
            proxy.requests == [
                "CONNECT localhost:\(server.listener.port) HTTP/1.1\r\nHost: localhost:\(server.listener.port)\r\n\r\n"
            ])
        client.stop()
        proxy.stop()
    }

    /// The pool resolves the proxy's name, not the server's.
    @Test func poolConnectsThroughAProxyWithCredentials() throws {
        let server = try ServerFixture()
        let proxy = try TestProxy(.tunnel(authorization: "Basic dXNlcjpwYXNz"))
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions)) {
            $0.connections = 2
            $0.connection.proxy = ProxyConfiguration(
                host: "localhost", port: proxy.port, user: "user", password: "pass")
        }
        client.send(0..<1000)
        try eventually("1000 answers") { client.read { $0.ends.count } == 1000 }
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [200] } })
        #expect(proxy.requests.count == 2)
        client.stop()
        proxy.stop()
    }

    @Test func missingOrWrongCredentialsReportAuthenticationRequired() throws {
        let server = try ServerFixture()
        let proxy = try TestProxy(.tunnel(authorization: "Basic dXNlcjpwYXNz"))
        for password in [nil, "wrong-secret"] {
            let client = try client(
                proxy, server, user: password == nil ? nil : "who-am-i", password: password)
            let reason = try client.waitUntilClosed()
            #expect(proxyError(reason)?.kind == .authenticationRequired)
            #expect(reason.kind == .settings)
            let text = "\(reason)"
            #expect(text.contains("authentication") && text.contains("127.0.0.1:\(proxy.port)"))
            #expect(!text.contains("wrong-secret") && !text.contains("who-am-i"))
            client.stop()
        }
        proxy.stop()
    }

    @Test func unreachableTargetIsReportedWithTheProxysStatus() throws {
        let server = try ServerFixture()
        let proxy = try TestProxy(.tunnel(authorization: nil))
        let client = try client(proxy, server, port: freePort())
        let reason = try client.waitUntilClosed()
        #expect(proxyError(reason)?.kind == .refused(status: 502))
        #expect(reason.kind == .network)
        #expect("\(reason)".contains("502"))
        client.stop()
        proxy.stop()
    }

    @Test func badProxyAnswersAreReportedByKind() throws {
        let server = try ServerFixture()
        let table: [(TestProxy.Answer, ProxyError.Kind, ConnectionCloseReason.Kind)] = [
            (.close, .closed, .network),
            (.flood, .headerTooLong, .settings),
            (.pieces(["HTTP/1.1 403 Forbidden\r\n\r\n"]), .refused(status: 403), .settings),
            (.pieces(["SSH-2.0-OpenSSH_9\r\n"]), .notHTTP, .settings),
            (.pieces(["HTTP/1.1 200 OK\r\n\r\n\u{16}\u{3}\u{1}"]), .unexpectedBytes, .settings),
        ]
        for (answer, error, kind) in table {
            let proxy = try TestProxy(answer)
            let client = try client(proxy, server)
            let reason = try client.waitUntilClosed()
            #expect(proxyError(reason)?.kind == error, "\(reason)")
            #expect(reason.kind == kind)
            client.stop()
            proxy.stop()
        }
    }

    @Test func proxyAnswerInSingleBytesOpensTheTunnel() throws {
        let server = try ServerFixture()
        // The proxy closes the tunnel, so that the TLS handshake is cut.
        let answer = "HTTP/1.1 200 OK\r\nVia: x\r\n\r\n".map { String($0) }
        let proxy = try TestProxy(.piecesAndClose(answer))
        let client = try client(proxy, server)
        let reason = try client.waitUntilClosed()
        guard case .tls(let error) = reason else {
            Issue.record("\(reason)")
            return
        }
        #expect(error.kind == .connectionLost)
        #expect(reason.kind == .network)
        client.stop()
        proxy.stop()
    }

    @Test func silentProxyEndsInTheConnectTimeout() throws {
        let server = try ServerFixture()
        let proxy = try TestProxy(.silence)
        let client = try client(proxy, server, connectTimeout: .seconds(1))
        let reason = try client.waitUntilClosed()
        guard case .connectTimeout(.tunnelling) = reason else {
            Issue.record("\(reason)")
            return
        }
        #expect(reason.kind == .network)
        #expect("\(reason)".contains("proxy"))
        client.stop()
        proxy.stop()
    }

    @Test func unreachableProxyIsNamedInTheError() throws {
        let server = try ServerFixture()
        let port = try freePort()
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions)) {
            $0.connection.proxy = ProxyConfiguration(host: "127.0.0.1", port: port)
        }
        try eventually("an error") {
            client.read {
                $0.happened.contains { $0.contains("proxy 127.0.0.1:\(port): connect to 127.0.0.1:\(port)") }
            }
        }
        client.stop()
    }
}

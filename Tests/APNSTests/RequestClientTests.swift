import HTTP2
import SluiceModel
import TestSupport
import Testing

@testable import APNS

@Suite struct RequestClientTests {
    private func client(_ server: RequestServer, authorization: String? = "bearer abc") -> RequestClient {
        var tls = ClientTLSOptions()
        tls.trust = .authorities(.text(server.authority.certificatePEM))
        return RequestClient(
            host: "localhost", port: server.port, tls: tls,
            authorization: authorization.map { Array($0.utf8) })
    }

    private func failure(_ client: RequestClient, _ path: String = "/") throws -> RequestClient.Failure {
        try #require(throws: RequestClient.Failure.self) { try client.send(.init(.get, path)) }
    }

    @Test func requestArrivesWithItsHeadersAndTheAnswerWithItsFields() throws {
        let server = try RequestServer { request, connection in
            connection.answer(
                request, 201,
                [
                    ("apns-request-id", "123e4567-e89b-12d3-a456-426614174000"), ("apns-channel-id", "c-1"),
                    ("date", "d"),
                ])
        }
        let result = try client(server).send(
            .init(
                .post, "/1/apps/com.example.app/channels",
                headers: [.init("apns-request-id", "123e4567-e89b-12d3-a456-426614174000")],
                body: Array("{}".utf8)))
        #expect(
            server.log.requests == [
                """
                POST /1/apps/com.example.app/channels localhost:\(server.port)
                authorization: bearer abc
                apns-request-id: 123e4567-e89b-12d3-a456-426614174000
                {}
                """
            ])
        #expect(result.answer.status == 201)
        #expect(result.answer.channelID == "c-1")
        #expect(result.answer.requestID == APNSID(text: "123e4567-e89b-12d3-a456-426614174000"))
        #expect(result.answer.date == "d")
        #expect(result.answer.uniqueID == nil)
        #expect(result.progress.addresses.contains { "\($0)" == "127.0.0.1:\(server.port)" })
        #expect(result.progress.address.map { "\($0)" } == "127.0.0.1:\(server.port)")
        #expect(result.progress.tls?.hasPrefix("TLSv1.3 ") == true)
        #expect(result.progress.applicationProtocol == "h2")
        try eventually("the connection is closed") { server.log.closed == 1 }
    }

    @Test func methodsWithoutContentAreSent() throws {
        let server = try RequestServer { request, connection in connection.answer(request, 204) }
        for method in [RequestClient.Method.get, .delete] {
            #expect(try client(server, authorization: nil).send(.init(method, "/x")).answer.status == 204)
        }
        #expect(
            server.log.requests == ["GET", "DELETE"].map { "\($0) /x localhost:\(server.port)\n" })
    }

    @Test func answerWithAReasonIsNoFailure() throws {
        let server = try RequestServer { request, connection in
            connection.answer(
                request, 429, [("retry-after", "7")], body: #"{"reason":"TooManyRequests"}"#)
        }
        let answer = try client(server).send(.init(.get, "/x")).answer
        #expect(answer.status == 429)
        #expect(answer.reason == .tooManyRequests)
        #expect(answer.retryAfterSeconds == 7)
    }

    @Test func longAnswerArrivesWhole() throws {
        let text = String(repeating: "0123456789", count: 50_000)
        let server = try RequestServer { request, connection in
            connection.answer(request, 200, body: text)
        }
        var client = client(server)
        client.maximumBody = 1 << 20
        #expect(try client.send(.init(.get, "/x")).answer.body == Array(text.utf8))
    }

    @Test func unknownNameFailsInTheLookUp() throws {
        // A label of over 63 bytes needs no name server to be refused.
        let name = String(repeating: "x", count: 64) + ".invalid"
        let failure = try failure(RequestClient(host: name, port: 443))
        #expect(failure.stage == .resolve)
        #expect(failure.message.contains(name))
    }

    @Test func closedPortFailsInTCP() throws {
        let failure = try failure(RequestClient(host: "127.0.0.1", port: try freePort()))
        #expect(failure.stage == .connect)
        #expect(!failure.isTimeout)
        #expect(failure.progress.addresses.count == 1)
        #expect(failure.progress.address == nil)
    }

    @Test func foreignAuthorityFailsInTLS() throws {
        let server = try RequestServer { request, connection in connection.answer(request, 200) }
        var client = client(server)
        client.tls.trust = .authorities(.text(try CertificateAuthority().certificatePEM))
        let failure = try failure(client)
        #expect(failure.stage == .tls)
        #expect(failure.tlsKind == .unknownAuthority)
        #expect(failure.progress.address != nil)
        #expect(failure.progress.tls == nil)
    }

    @Test func certificateMustCarryTheServersName() throws {
        let server = try RequestServer { request, connection in connection.answer(request, 200) }
        var client = client(server)
        client.host = "127.0.0.1"
        #expect(try failure(client).tlsKind == .hostnameMismatch)
        client.serverName = "localhost"
        #expect(try client.send(.init(.get, "/x")).answer.status == 200)
    }

    @Test func missingClientCertificateFailsInTLS() throws {
        let server = try RequestServer { tls, authority in
            tls.clientCertificates = .require(.text(authority.certificatePEM))
        } respond: { request, connection in
            connection.answer(request, 200)
        }
        let failure = try failure(client(server))
        #expect(failure.stage == .tls)
        #expect(failure.tlsKind == .certificateRefused)
    }

    @Test func goAwayWithAReasonIsReportedWithTheFailure() throws {
        let server = try RequestServer { request, connection in
            connection.goAway(debugData: #"{"reason":"BadCertificateEnvironment"}"#)
            connection.reset(stream: request.stream, errorCode: 2)
        }
        let failure = try failure(client(server))
        #expect(failure.stage == .answer)
        #expect(failure.goAway?.reason == .badCertificateEnvironment)
        #expect(failure.message.contains("BadCertificateEnvironment"))
    }

    @Test func silentServerFailsWhenTheTimeIsUp() throws {
        let server = try RequestServer { _, _ in }
        var client = client(server)
        client.timeout = .milliseconds(300)
        let failure = try failure(client)
        #expect(failure.stage == .answer)
        #expect(failure.isTimeout)
        #expect(failure.progress.applicationProtocol == "h2")
        try eventually("the connection is closed") { server.log.closed == 1 }
    }

    @Test(arguments: ["no slash", "/a b", "/\u{e9}", "/x\r\ny", ""])
    func unusablePathIsRefusedBeforeAnythingIsSent(path: String) throws {
        let client = RequestClient(host: "127.0.0.1", port: 1)
        #expect(try failure(client, path).stage == .preparation)
    }

    @Test(arguments: [" x", "x ", "a\nb", "\u{e9}", String(repeating: "x", count: 2_000)])
    func unusableHeaderValueIsRefusedBeforeAnythingIsSent(value: String) throws {
        let client = RequestClient(host: "127.0.0.1", port: 1)
        let failure = try #require(throws: RequestClient.Failure.self) {
            try client.send(.init(.get, "/", headers: [.init("apns-channel-id", value)]))
        }
        #expect(failure.stage == .preparation)
    }
}

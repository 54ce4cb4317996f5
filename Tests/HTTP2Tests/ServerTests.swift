import EventLoop
import Glibc
import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

private typealias Frame = RawClient.Frame

@Suite struct ServerProtocolTests {
    @Test func firstSettingsFrameMatchesTheOptions() throws {
        let server = try ServerFixture()
        let client = try server.connect()
        try client.begin()
        let settings = try #require(try client.next(Frame.settings)).settings
        #expect(settings == [1: 4_096, 3: 1_000, 4: 65_535, 5: 16_384, 6: 8_000])
    }

    @Test func requestAndAnswerArriveWithHeadersAndBody() throws {
        let server = try ServerFixture(respond: { request, connection in
            let value: StaticString = "abc"
            let body: StaticString = "{\"reason\":\"BadPath\"}"
            withUnsafeTemporaryAllocation(of: ResponseField.self, capacity: 1) { fields in
                fields[0] = ResponseField(
                    "apns-id", UnsafeRawBufferPointer(start: value.utf8Start, count: 3), isIndexed: false)
                connection.respond(
                    stream: request.stream, status: 404, headers: UnsafeBufferPointer(fields),
                    body: UnsafeRawBufferPointer(start: body.utf8Start, count: body.utf8CodeUnitCount))
            }
        })
        let client = try server.connect()
        try client.begin()
        try client.send(
            RawClient.request(1, path: "/x", headers: [("apns-topic", "com.example")], body: "{\"aps\":{}}"))
        let head = try #require(try client.next(Frame.headers))
        #expect(head.status == 404)
        #expect(!head.endsStream)
        let body = try #require(try client.next(Frame.data))
        #expect(body.endsStream)
        #expect(body.text == "{\"reason\":\"BadPath\"}")
        let expected = ServerLog.Request(
            method: "POST", path: "/x", authority: "localhost", headers: ["apns-topic": "com.example"],
            body: "{\"aps\":{}}", bodyLength: 10)
        #expect(server.log.requests == [expected])
    }

    @Test func bodyInPiecesIsJoined() throws {
        let server = try ServerFixture()
        let client = try server.connect()
        try client.begin()
        try client.send(RawClient.post(1, endsStream: false))
        for piece in ["{", "\"aps\"", ":{}"] { try client.send(RawClient.frame(0, 0, 1, Array(piece.utf8))) }
        try client.send(RawClient.frame(0, 1, 1, Array("}".utf8)))
        #expect(try client.next(Frame.headers)?.status == 200)
        #expect(server.log.requests.first?.body == "{\"aps\":{}}")
    }

    @Test func interleavedRequestsKeepTheirOwnBodies() throws {
        let server = try ServerFixture()
        let client = try server.connect()
        try client.begin()
        for stream: UInt32 in [1, 3, 5] {
            try client.send(RawClient.post(stream, path: "/\(stream)", endsStream: false))
        }
        for stream: UInt32 in [5, 1, 3] {
            try client.send(RawClient.frame(0, 0, stream, Array("\(stream)".utf8)))
        }
        for stream: UInt32 in [3, 5, 1] { try client.send(RawClient.frame(0, 1, stream, Array("!".utf8))) }
        for _ in 0..<3 { #expect(try client.next(Frame.headers)?.status == 200) }
        #expect(server.log.requests.map(\.path) == ["/3", "/5", "/1"])
        #expect(server.log.requests.map(\.body) == ["3!", "5!", "1!"])
    }

    @Test func oversizedBodyIsTruncatedAnsweredAndReset() throws {
        let server = try ServerFixture(options: {
            $0.maximumBodySize = 100
        }) { request, connection in
            let body: StaticString = "too large"
            connection.respond(
                stream: request.stream, status: 413, headers: UnsafeBufferPointer(start: nil, count: 0),
                body: UnsafeRawBufferPointer(start: body.utf8Start, count: 9))
        }
        let client = try server.connect()
        try client.begin()
        try client.send(RawClient.post(1, endsStream: false))
        try client.send(RawClient.frame(0, 0, 1, [UInt8](repeating: 32, count: 101)))
        #expect(try client.next(Frame.headers)?.status == 413)
        // The request hasn't ended, so the server resets the stream with NO_ERROR.
        #expect(try client.next(Frame.reset)?.errorCode == 0)
        #expect(server.log.requests.first?.isCutOff == true)
        #expect(server.log.requests.first?.body.utf8.count == 100)
        // The connection stays open.
        try client.send(RawClient.request(3, body: "{}"))
        #expect(try client.next(Frame.headers) != nil)
        #expect(server.log.requests.count == 2)
    }

    @Test func longHeaderListIsAnsweredWith431() throws {
        let server = try ServerFixture()
        var client = try server.connect()
        try client.begin()
        let long = (0..<4).map { ("x-\($0)", String(repeating: "a", count: 2_000)) }
        try client.send(RawClient.request(1, headers: long, body: "{}"))
        #expect(try client.next(Frame.headers)?.status == 431)
        #expect(server.log.requests.isEmpty)
        // A new connection, because HPACK would encode the second answer's status as an index.
        client = try server.connect()
        try client.begin()
        let many = (0..<240).map { ("x-\($0)", "") }
        try client.send(RawClient.request(1, headers: many, body: "{}"))
        #expect(try client.next(Frame.headers)?.status == 431)
        try client.send(RawClient.request(3, headers: Array(many.prefix(150)), body: "{}"))
        #expect(try client.next(Frame.headers)?.status == 200)
        #expect(server.log.requests.first?.headers.count == 150)
    }

    @Test func pingIsAnsweredWithItsPayload() throws {
        let server = try ServerFixture()
        let client = try server.connect()
        try client.begin()
        try client.send(RawClient.frame(Frame.ping, 0, 0, [1, 2, 3, 4, 5, 6, 7, 8]))
        let answer = try #require(try client.next(Frame.ping))
        #expect(answer.flags == 1)
        #expect(answer.payload == [1, 2, 3, 4, 5, 6, 7, 8])
    }

    @Test func plainTextPrefaceEndsTheConnection() throws {
        let server = try ServerFixture()
        let client = try server.connect()
        try client.send(Array("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8))
        _ = try client.untilClosed()
        try eventually("the connection ended") { server.log.closed.count == 1 }
        guard case .protocolError(let text) = server.log.closed[0] else {
            Issue.record("ended by \(server.log.closed[0])")
            return
        }
        #expect(!text.isEmpty)
    }
}

@Suite struct ServerLimitTests {
    /// Before the client has acknowledged the limit, surplus streams are refused one by one.
    @Test func streamsAboveTheLimitAreRefused() throws {
        let held = HeldStreams()
        let server = try ServerFixture(options: {
            $0.maximumConcurrentStreams = 1
        }) { request, connection in held.hold(request, connection) }
        let client = try server.connect()
        try client.begin()
        for stream: UInt32 in [1, 3, 5] { try client.send(RawClient.request(stream, body: "{}")) }
        // The refusal of each stream is followed by that of its DATA.
        var codes: [UInt32: [UInt32]] = [:]
        for _ in 0..<4 {
            let reset = try #require(try client.next(Frame.reset, acknowledges: false))
            codes[reset.stream, default: []].append(reset.errorCode)
        }
        #expect(codes == [3: [7, 5], 5: [7, 5]])
        #expect(server.log.requests.count == 1)
        try client.send(RawClient.frame(Frame.settings, 1, 0, []))
        // Raising the limit on an open connection sends SETTINGS.
        server.loop.execute { held.all { $0.maximumConcurrentStreams = 1_000 } }
        #expect(try client.next(Frame.settings)?.settings[3] == 1_000)
        for stream: UInt32 in [7, 9] { try client.send(RawClient.request(stream, body: "{}")) }
        try eventually("two more requests") { server.log.requests.count == 3 }
        server.loop.execute { held.answerAll() }
        for _ in 0..<3 { #expect(try client.next(Frame.headers)?.status == 200) }
    }

    /// More resets than allowed end the connection (CVE-2023-44487).
    @Test func rapidResetsEndTheConnection() throws {
        let held = HeldStreams()
        let server = try ServerFixture(options: {
            $0.resetBurst = 20
            $0.resetRatePerSecond = 1
        }) { request, connection in held.hold(request, connection) }
        let client = try server.connect()
        try client.begin()
        var bytes: [UInt8] = []
        for stream in stride(from: UInt32(1), to: 101, by: 2) {
            bytes += RawClient.request(stream, body: "{}")
            bytes += RawClient.frame(Frame.reset, 0, stream, RawClient.big(8))
        }
        try client.send(bytes)
        let goAway = try #require(try client.untilClosed())
        #expect(goAway.errorCode != 0)
        try eventually("the connection ended") { server.log.closed.count == 1 }
        #expect(server.log.cancelled.count >= 20)
    }

    @Test func resetRequestIsReportedAndItsAnswerDropped() throws {
        let held = HeldStreams()
        let server = try ServerFixture(respond: { request, connection in held.hold(request, connection) })
        let client = try server.connect()
        try client.begin()
        try client.send(RawClient.request(1, body: "{}"))
        try eventually("the request") { server.log.requests.count == 1 }
        try client.send(RawClient.frame(Frame.reset, 0, 1, RawClient.big(8)))
        try eventually("the reset") { server.log.cancelled == [1] }
        server.loop.execute { held.answerAll() }
        try client.send(RawClient.frame(Frame.ping, 0, 0, [UInt8](repeating: 0, count: 8)))
        while let frame = try client.next(), frame.type != Frame.ping {
            #expect(frame.type != Frame.headers)
        }
    }

    @Test func handlersResetReachesTheClient() throws {
        let server = try ServerFixture(respond: { request, connection in
            connection.reset(stream: request.stream, errorCode: 7)
        })
        let client = try server.connect()
        try client.begin()
        try client.send(RawClient.request(1, body: "{}"))
        let reset = try #require(try client.next(Frame.reset))
        #expect(reset.stream == 1)
        #expect(reset.errorCode == 7)
    }

    /// Random frames may end their connection, but never the server.
    @Test func randomFramesLeaveTheServerServingOthers() throws {
        var random = SeededGenerator(seed: 20_240_601)
        let server = try ServerFixture()
        for _ in 0..<60 {
            let client = try server.connect()
            try client.begin()
            var bytes: [UInt8] = []
            for _ in 0..<20 {
                let payload = (0..<Int.random(in: 0...60, using: &random)).map { _ in
                    UInt8.random(in: .min ... .max, using: &random)
                }
                bytes += RawClient.frame(
                    .random(in: 0...10, using: &random), .random(in: .min ... .max, using: &random),
                    .random(in: 0...9, using: &random), payload)
            }
            // The server may close before everything is sent.
            try? client.send(bytes)
            client.transport.close()
        }
        let client = try server.connect()
        try client.begin()
        try client.send(RawClient.request(1, path: "/last", body: "{}"))
        #expect(try client.next(Frame.headers)?.status == 200)
        #expect(server.log.requests.last?.path == "/last")
        client.transport.close()
        try eventually("all connections ended") { server.log.closed.count == 61 }
    }

    /// The server stops reading while its output exceeds the limit, and resumes as the client reads.
    @Test func outputLimitLosesNoAnswersOfASlowReader() throws {
        let body = [UInt8](repeating: 0x61, count: 4_000)
        let server = try ServerFixture(options: {
            $0.outputLimit = 32 * 1_024
        }) { request, connection in
            body.withUnsafeBytes {
                connection.respond(
                    stream: request.stream, status: 200, headers: UnsafeBufferPointer(start: nil, count: 0),
                    body: $0)
            }
        }
        var options = server.tls.clientOptions
        options.maximumVersion = .tls13
        let client = try RawClient(
            port: server.listener.port, context: .client(options), receiveBuffer: 8_192)
        // The flow-control window of the connection is opened wide, so that only TCP limits the server.
        try client.begin()
        try client.send(RawClient.frame(Frame.windowUpdate, 0, 0, RawClient.big(1 << 30)))
        let count = 3_000
        var answers = 0
        var sent: UInt32 = 0
        var open = 0
        while answers < count {
            while open < 900, sent < count {
                try client.send(RawClient.request(sent * 2 + 1, body: "{}"))
                sent += 1
                open += 1
            }
            let frame = try #require(try client.next())
            if frame.type == Frame.settings, frame.flags & 1 == 0 {
                try client.send(RawClient.frame(Frame.settings, 1, 0, []))
            }
            if frame.type == Frame.data {
                #expect(frame.payload.count <= 4_000)
                if frame.endsStream {
                    answers += 1
                    open -= 1
                }
            }
        }
        #expect(server.log.requests.count == count)
    }

    @Test func connectionsAboveTheLimitAreTurnedAway() throws {
        let server = try ServerFixture(options: { $0.maximumConnections = 1 })
        let first = try server.connect()
        try first.begin()
        #expect(throws: TLSError.self) { try server.connect() }
        try first.send(RawClient.request(1, body: "{}"))
        #expect(try first.next(Frame.headers)?.status == 200)
        #expect(server.loop.runBlocking { server.listener.turnedAway } == 1)
    }
}

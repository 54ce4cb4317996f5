import EventLoop
import Glibc
import TestSupport
import Testing

@testable import HTTP2

private typealias Frame = RawClient.Frame

@Suite struct ServerExcessTests {
    /// Opens a connection with one stream allowed and open, and acknowledges the limit.
    private func atLimit(
        _ way: ExcessStreams
    ) throws -> (server: ServerFixture, client: RawClient, held: HeldStreams) {
        let held = HeldStreams()
        let server = try ServerFixture(options: {
            $0.maximumConcurrentStreams = 1
            $0.excessStreams = way
        }) { request, connection in held.hold(request, connection) }
        let client = try server.connect()
        try client.begin()
        #expect(try client.next(Frame.settings)?.settings[3] == 1)
        try client.send(RawClient.request(1, body: "{}"))
        try eventually("the first request") { server.log.requests.count == 1 }
        return (server, client, held)
    }

    @Test func streamAboveTheAcknowledgedLimitIsRefusedAndTheConnectionLives() throws {
        let (server, client, held) = try atLimit(.refuse)
        // DATA is answered with STREAM_CLOSED once, whatever number of frames.
        try client.send(RawClient.post(3, endsStream: false))
        for flags: UInt8 in [0, 1] { try client.send(RawClient.frame(Frame.data, flags, 3, [123, 125])) }
        // A stream without DATA meets the refusal alone.
        try client.send(RawClient.post(5, endsStream: true))
        var codes: [UInt32: [UInt32]] = [:]
        for _ in 0..<3 {
            let reset = try #require(try client.next(Frame.reset))
            codes[reset.stream, default: []].append(reset.errorCode)
        }
        #expect(codes == [3: [7, 5], 5: [7]])
        server.loop.execute { held.answerAll() }
        #expect(try client.next(Frame.headers)?.status == 200)
        try client.send(RawClient.request(7, body: "{}"))
        try eventually("the next request") { server.log.requests.count == 2 }
        server.loop.execute { held.answerAll() }
        let answer = try #require(try client.next())
        #expect(answer.type == Frame.headers)
        #expect(answer.stream == 7)
    }

    @Test func streamAboveTheAcknowledgedLimitEndsTheConnectionWhereThatIsChosen() throws {
        let (server, client, held) = try atLimit(.goAway)
        try client.send(RawClient.request(3, body: "{}"))
        let goAway = try #require(try client.next(Frame.goAway))
        #expect(goAway.errorCode == 7)
        #expect(goAway.number(0) == 1)
        #expect(goAway.debugData == "Maximum active streams violated for this endpoint.")
        server.loop.execute { held.answerAll() }
        #expect(try client.next(Frame.headers)?.stream == 1)
        #expect(try client.untilClosed() == nil)
        #expect(server.log.requests.count == 1)
    }

    @Test func streamAboveALimitThatTheClientCannotKnowIsOnlyRefused() throws {
        let held = HeldStreams()
        let server = try ServerFixture(options: {
            $0.maximumConcurrentStreams = 10
            $0.excessStreams = .goAway
        }) { request, connection in held.hold(request, connection) }
        let client = try server.connect()
        try client.begin()
        #expect(try client.next(Frame.settings)?.settings[3] == 10)
        for stream: UInt32 in [1, 3] { try client.send(RawClient.request(stream, body: "{}")) }
        try eventually("two requests") { server.log.requests.count == 2 }
        server.loop.execute { held.all { $0.maximumConcurrentStreams = 1 } }
        #expect(try client.next(Frame.settings, acknowledges: false)?.settings[3] == 1)
        try client.send(RawClient.post(5, endsStream: true))
        #expect(try client.next(Frame.reset)?.errorCode == 7)
        // Once the limit is acknowledged, the same is a violation.
        try client.send(RawClient.frame(Frame.settings, 1, 0, []))
        try client.send(RawClient.post(7, endsStream: true))
        #expect(try client.next(Frame.goAway)?.errorCode == 7)
        server.loop.execute { held.answerAll() }
    }

    /// A client that reads nothing can't make the server collect refusals without end.
    @Test func endlessStreamsAboveTheLimitEndTheConnection() throws {
        let (server, client, held) = try atLimit(.refuse)
        var stream: UInt32 = 3
        try eventually("the connection ended") {
            var batch: [UInt8] = []
            for _ in 0..<2_000 {
                batch += RawClient.frame(Frame.headers, 5, stream, [0x83, 0x87, 0x84, 0x41, 1, 0x61])
                stream += 2
            }
            _ = try? client.send(batch)
            return server.log.closed.count == 1
        }
        guard case .protocolError(let text) = server.log.closed[0] else {
            Issue.record("ended by \(server.log.closed[0])")
            return
        }
        #expect(text == "too many streams above the limit")
        #expect(server.log.requests.count == 1)
        withExtendedLifetime(held) {}
    }

    @Test func settingsThatNobodyAcknowledgesEndTheConnection() throws {
        let held = HeldStreams()
        let server = try ServerFixture(respond: { request, connection in held.hold(request, connection) })
        let client = try server.connect()
        try client.begin()
        try client.send(RawClient.request(1, body: "{}"))
        try eventually("the request") { server.log.requests.count == 1 }
        // Each turn sends one frame.
        for limit in 1...UInt32(ServerStreamLimit.mostUnacknowledged + 10) {
            server.loop.runBlocking { held.all { $0.maximumConcurrentStreams = limit } }
        }
        #expect(try client.untilClosed()?.errorCode == 4)
    }

    @Test func limitsOfATurnAreSentAsOneWithTheLastValue() throws {
        let held = HeldStreams()
        let server = try ServerFixture(respond: { request, connection in held.hold(request, connection) })
        let client = try server.connect()
        try client.begin()
        _ = try client.next(Frame.settings)
        try client.send(RawClient.request(1, body: "{}"))
        try eventually("the request") { server.log.requests.count == 1 }
        server.loop.runBlocking {
            held.all { connection in
                for limit in 1...UInt32(ServerStreamLimit.mostUnacknowledged + 10) {
                    connection.maximumConcurrentStreams = limit
                }
            }
        }
        // A limit that is back at the announced one needs no frame.
        server.loop.runBlocking {
            held.all { connection in
                let limit = connection.maximumConcurrentStreams
                connection.maximumConcurrentStreams = 1
                connection.maximumConcurrentStreams = limit
            }
        }
        server.loop.runBlocking { held.answerAll() }
        var limits: [UInt32?] = []
        while let frame = try client.next(), frame.type != Frame.headers {
            if frame.type == Frame.settings, frame.flags & 1 == 0 { limits.append(frame.settings[3]) }
        }
        #expect(limits == [UInt32(ServerStreamLimit.mostUnacknowledged + 10)])
    }

    @Test func answerToHEADHasNoContent() throws {
        let server = try ServerFixture(respond: { request, connection in
            let body: StaticString = "{}"
            connection.respond(
                stream: request.stream, status: 404, headers: UnsafeBufferPointer(start: nil, count: 0),
                body: UnsafeRawBufferPointer(start: body.utf8Start, count: 2))
        })
        let client = try server.connect()
        try client.begin()
        for (stream, method) in [(UInt32(1), "HEAD"), (3, "POST")] {
            let block = RawClient.headerBlock([
                (":method", method), (":scheme", "https"), (":path", "/"), (":authority", "localhost"),
            ])
            try client.send(RawClient.frame(Frame.headers, 5, stream, block))
            #expect(try client.next(Frame.headers)?.endsStream == (method == "HEAD"))
        }
        #expect(try client.next(Frame.data)?.text == "{}")
    }
}

/// Disturbances that the simulator's faults are made of.
@Suite struct ServerDisturbanceTests {
    @Test func silentConnectionAnswersNothingUntilTheSilenceEnds() throws {
        let held = HeldStreams()
        let server = try ServerFixture(respond: { request, connection in
            held.hold(request, connection)
            connection.isSilent = true
            connection.respond(stream: request.stream, status: 200)
        })
        let client = try server.connect()
        try client.begin()
        try client.send(RawClient.request(1, body: "{}"))
        try eventually("the request") { server.log.requests.count == 1 }
        try client.send(RawClient.request(3, body: "{}"))
        try client.send(RawClient.frame(Frame.ping, 0, 0, [1, 2, 3, 4, 5, 6, 7, 8]))
        // Turns of the loop later nothing of it was read.
        for _ in 0..<3 {
            let opened = server.log.opened
            server.loop.execute { server.log.add { $0.opened += 1 } }
            try eventually("a turn") { server.log.opened == opened + 1 }
        }
        #expect(server.log.requests.count == 1)
        server.loop.execute { held.all { $0.isSilent = false } }
        #expect(try client.next(Frame.headers)?.stream == 1)
        try eventually("the second request") { server.log.requests.count == 2 }
        server.loop.execute { held.all { $0.isSilent = false } }
        #expect(try client.next(Frame.ping)?.flags == 1)
    }

    @Test func silentConnectionEndsWithItsClientAndDropsTheUnreadBytes() throws {
        let held = HeldStreams()
        let server = try ServerFixture(respond: { request, connection in
            held.hold(request, connection)
            connection.isSilent = true
        })
        do {
            let client = try server.connect()
            try client.begin()
            try client.send(RawClient.request(1, body: "{}"))
            try eventually("the request") { server.log.requests.count == 1 }
            try client.send(RawClient.request(3, body: "{}"))
        }
        try eventually("the end") { server.log.closed.count == 1 }
        #expect(server.log.requests.count == 1)
        withExtendedLifetime(held) {}
    }

    @Test func readRateLimitsTheBytesThatAreReadAtOnce() throws {
        var pace = ReadPace(bytesPerSecond: 1_000)
        #expect(pace.mostBytes == 100)
        #expect(pace.read(100, now: 5_000_000_000) == 5_100_000_000)
        #expect(pace.read(100, now: 5_000_000_000) == 5_200_000_000)
        #expect(pace.read(100, now: 9_000_000_000) == 9_100_000_000)
        #expect(ReadPace(bytesPerSecond: 0).mostBytes == 1)
        #expect(ReadPace(bytesPerSecond: .max).mostBytes == TLSTransport.maximumRecordSize)
    }

    @Test func heldCreditArrivesAtOnceWhenItIsReleased() throws {
        let held = HeldStreams()
        let server = try ServerFixture(respond: { request, connection in
            held.hold(request, connection)
            connection.withholdsWindowUpdates = true
            connection.respond(stream: request.stream, status: 200)
        })
        let client = try server.connect()
        try client.begin()
        for stream in stride(from: UInt32(1), to: 9, by: 2) {
            try client.send(RawClient.request(stream, body: String(repeating: "x", count: 12_000)))
            let answer = try #require(try client.next())
            // Before the answer arrive SETTINGS and their acknowledgement only.
            var frame = answer
            while frame.type == Frame.settings { frame = try #require(try client.next()) }
            #expect(frame.type == Frame.headers)
        }
        server.loop.execute { held.all { $0.withholdsWindowUpdates = false } }
        let update = try #require(try client.next(Frame.windowUpdate))
        #expect(update.stream == 0)
        #expect(update.number(0) >= 32_768)
    }
}

@Suite struct ServerStreamLimitTests {
    @Test func limitIsViolatedOnlyWhenNoLimitOnItsWayAllowsTheStream() {
        var limit = ServerStreamLimit(10)
        #expect(!limit.isDue)
        limit.announce()
        #expect(!limit.isViolated(open: 1_000_000))
        limit.acknowledge()
        #expect(!limit.isViolated(open: 9))
        #expect(limit.isViolated(open: 10))
        for number: UInt32 in [1, 5] {
            limit.current = number
            #expect(limit.isDue)
            limit.announce()
            #expect(!limit.isDue)
        }
        #expect(limit.current == 5)
        #expect(!limit.isViolated(open: 9))
        limit.acknowledge()
        #expect(!limit.isViolated(open: 4))
        #expect(limit.isViolated(open: 5))
        limit.acknowledge()
        // An acknowledgement too many changes nothing.
        limit.acknowledge()
        #expect(limit.isViolated(open: 5))
        #expect(!limit.isViolated(open: 4))
    }

    @Test func outputFilterReplacesOnlyTheLimitOfUnsentSettings() {
        var filter = ServerOutputFilter()
        var output = ByteQueue(capacity: 64)
        let settings = RawClient.frame(4, 0, 0, [0, 1, 0, 0, 16, 0, 0, 3, 127, 255, 255, 255])
        let acknowledgement = RawClient.frame(4, 1, 0, [])
        let data = RawClient.frame(0, 0, 1, [0, 3, 1, 1, 1, 1])
        filter.replaceLimit(with: 0x0102_0304)
        #expect(filter.isActive)
        for frame in [data, acknowledgement, settings, settings] {
            frame.withUnsafeBytes { filter.pass($0, to: &output) }
        }
        #expect(!filter.isActive)
        let changed = RawClient.frame(4, 0, 0, [0, 1, 0, 0, 16, 0, 0, 3, 1, 2, 3, 4])
        #expect(Array(output.readable) == data + acknowledgement + changed + settings)
    }
}

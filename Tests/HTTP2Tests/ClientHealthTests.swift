import EventLoop
import TestSupport
import Testing

@testable import HTTP2

/// Tests connections that stall or go silent, by a proxy that stops forwarding.
@Suite(.serialized) struct ClientHealthTests {
    private func client(
        _ proxy: TestProxy, _ server: ServerFixture,
        _ change: (inout ClientConnection.Configuration) -> Void = { _ in }
    ) throws -> ConnectionClient {
        try ConnectionClient(
            addresses: [proxy.address], port: server.listener.port,
            context: .client(server.tls.clientOptions)
        ) {
            $0.connectTimeout = .seconds(60)
            $0.requestTimeout = .seconds(120)
            $0.suspicionInterval = .milliseconds(100)
            $0.pingTimeout = .seconds(60)
            $0.proxy = ProxyConfiguration(host: "127.0.0.1", port: proxy.port)
            change(&$0)
        }
    }

    @Test func firstPingMeasuresTheRoundTrip() throws {
        let server = try ServerFixture()
        let client = try ConnectionClient(
            addresses: [SocketAddress("127.0.0.1", port: server.listener.port)!],
            context: .client(server.tls.clientOptions))
        try eventually("a sample") { client.statistics.roundTrip.samples == 1 }
        let statistics = client.statistics
        #expect(statistics.pings == 1)
        #expect(statistics.roundTrip.smoothed > 0)
        #expect(statistics.roundTrip.minimum == statistics.roundTrip.last)
        client.stop()
    }

    /// The connection accepts no new requests during the stall.
    @Test func stallSuspendsTheConnectionUntilBytesArrive() throws {
        let server = try ServerFixture()
        let proxy = try TestProxy(.tunnel(authorization: nil))
        let client = try client(proxy, server)
        try client.waitUntilOpen()
        try eventually("a sample") { client.statistics.roundTrip.samples == 1 }
        proxy.pause()
        #expect(client.send(0..<5).allSatisfy { $0 == .submitted })
        try eventually("the connection is suspended") { client.statistics.suspensions == 1 }
        #expect(client.availableStreams == 0)
        #expect(client.read { $0.suspensions } == [true])
        #expect(client.send(5..<6) == [.noCapacity])
        proxy.resume()
        try eventually("all are answered") { client.read { $0.ends.count } == 5 }
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [200] } })
        try eventually("the connection takes requests again") { client.availableStreams > 0 }
        #expect(client.read { $0.suspensions } == [true, false])
        #expect(client.send(6..<7) == [.submitted])
        try eventually("request 6 is answered") { client.read { $0.ends[6] } == [200] }
        #expect(client.read { $0.closed.isEmpty })
        client.stop()
        proxy.stop()
    }

    @Test func silentConnectionIsClosedAndItsRequestsEndUnknown() throws {
        let server = try ServerFixture()
        let proxy = try TestProxy(.tunnel(authorization: nil))
        let client = try client(proxy, server) { $0.pingTimeout = .seconds(2) }
        try client.waitUntilOpen()
        proxy.pause()
        #expect(client.send(0..<5).allSatisfy { $0 == .submitted })
        let reason = try client.waitUntilClosed()
        guard case .unresponsive(.silent(let nanoseconds)) = reason else {
            Issue.record("\(reason)")
            return
        }
        // At least the PING timeout passes. The suspicion interval may have begun at the last byte.
        #expect(nanoseconds >= 2_000_000_000)
        #expect(reason.kind == .network)
        #expect("\(reason)".contains("unresponsive"))
        #expect(client.read { $0.ends.count } == 5)
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [0] } })
        client.stop()
        proxy.stop()
    }

    /// Without requests only the regular PING finds a dead connection.
    @Test func idleSilentConnectionIsClosedByItsPing() throws {
        let server = try ServerFixture()
        let proxy = try TestProxy(.tunnel(authorization: nil))
        let client = try client(proxy, server) {
            $0.pingInterval = .milliseconds(100)
            $0.pingTimeout = .seconds(2)
        }
        try client.waitUntilOpen()
        try eventually("several PINGs are answered") { client.statistics.roundTrip.samples >= 3 }
        #expect(client.read { $0.closed.isEmpty })
        proxy.pause()
        guard case .unresponsive(.silent) = try client.waitUntilClosed() else {
            Issue.record("closed for another reason")
            return
        }
        client.stop()
        proxy.stop()
    }

    @Test func threeUnansweredRequestsCloseAConnectionThatAnswersPings() throws {
        let server = try ServerFixture(respond: { request, connection in
            if request.stream == 1 { connection.respond(stream: request.stream, status: 200) }
        })
        let client = try ConnectionClient(
            addresses: [SocketAddress("127.0.0.1", port: server.listener.port)!],
            context: .client(server.tls.clientOptions)
        ) {
            $0.requestTimeout = .milliseconds(100)
            $0.pingTimeout = .seconds(60)
        }
        try client.waitUntilOpen()
        #expect(client.send(0..<1) == [.submitted])
        try eventually("the first answer arrives") { client.read { $0.ends[0] } == [200] }
        for number in UInt32(1)..<4 {
            try eventually("the connection takes requests") { client.availableStreams > 0 }
            #expect(client.send(number..<number + 1) == [.submitted])
            try eventually("the request ends") { client.read { $0.ends[number] } == [0] }
        }
        guard case .unresponsive(.requestsUnanswered(3)) = try client.waitUntilClosed() else {
            Issue.record("closed for another reason")
            return
        }
        #expect(client.statistics.expired == 3)
        client.stop()
    }

    /// The server never answers one request in `oneOf`.
    @Test(arguments: [1000, 100]) func fewUnansweredRequestsKeepTheConnectionOpen(oneOf: Int) throws {
        let server = try ServerFixture(respond: { request, connection in
            let path = String(decoding: request.path, as: UTF8.self)
            let number = Int(path.split(separator: "/").last ?? "") ?? 0
            if number % oneOf != oneOf / 2 { connection.respond(stream: request.stream, status: 200) }
        })
        let client = try ConnectionClient(
            addresses: [SocketAddress("127.0.0.1", port: server.listener.port)!],
            context: .client(server.tls.clientOptions)
        ) {
            $0.requestTimeout = .milliseconds(400)
        }
        try client.waitUntilOpen()
        let all = UInt32(20 * oneOf)
        var next: UInt32 = 0
        while next < all {
            let last = min(all, next + UInt32(max(1, min(50, client.availableStreams))))
            let sent = client.send(next..<last).count { $0 == .submitted }
            next += UInt32(sent)
            if sent < 50 { try eventually("the connection takes requests") { client.availableStreams > 0 } }
        }
        try eventually("each request has ended", timeout: .seconds(30)) {
            client.read { $0.ends.count } == Int(all)
        }
        let failed = client.read { $0.ends.filter { $0.value == [0] }.keys.map(Int.init) }
        #expect(failed.count == 20)
        #expect(failed.allSatisfy { $0 % oneOf == oneOf / 2 })
        #expect(client.statistics.expired == 20)
        #expect(client.read { $0.closed.isEmpty })
        client.stop()
    }

    /// The scheduler places nothing on a suspended connection until bytes arrive.
    @Test func poolPlacesNothingOnASuspendedConnection() throws {
        let server = try ServerFixture()
        let proxy = try TestProxy(.tunnel(authorization: nil))
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions)) {
            $0.connection.suspicionInterval = .milliseconds(300)
            $0.connection.pingTimeout = .seconds(60)
            $0.connection.requestTimeout = .seconds(120)
            $0.connection.proxy = ProxyConfiguration(host: "127.0.0.1", port: proxy.port)
        }
        client.send(0..<1)
        try eventually("an answer") { client.read { $0.ends.count } == 1 }
        proxy.pause()
        // Sending causes one report. Nothing can be read, so the next report comes from the suspension.
        let reports = client.read { $0.capacityReports }
        client.send(1..<3)
        try eventually("the connection is suspended") { client.read { $0.capacityReports } >= reports + 2 }
        client.send(3..<10)
        #expect(client.read { $0.mostInFlight } == 2)
        proxy.resume()
        try eventually("all are answered") { client.read { $0.ends.count } == 10 }
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [200] } })
        #expect(client.read { $0.happened } == ["opened"])
        client.stop()
        proxy.stop()
    }

    @Test func statisticsCountAnswersResetsAndTraffic() throws {
        let server = try ServerFixture(
            options: { $0.maximumConcurrentStreams = 20 },
            respond: { request, connection in
                let path = String(decoding: request.path, as: UTF8.self)
                switch Int(path.split(separator: "/").last ?? "") ?? 0 {
                case 0..<10: connection.respond(stream: request.stream, status: 200)
                case 10..<13: connection.respond(stream: request.stream, status: 410)
                case 13..<15: connection.respond(stream: request.stream, status: 503)
                case 15: connection.reset(stream: request.stream, errorCode: 7)
                default: break
                }
            })
        let client = try ConnectionClient(
            addresses: [SocketAddress("127.0.0.1", port: server.listener.port)!],
            context: .client(server.tls.clientOptions))
        try client.waitUntilOpen()
        try eventually("a sample") { client.statistics.roundTrip.samples == 1 }
        #expect(client.send(0..<17).allSatisfy { $0 == .submitted })
        try eventually("16 requests have ended") { client.read { $0.ends.count } == 16 }
        let statistics = client.statistics
        #expect(statistics.requests == 17)
        #expect(statistics.answers2xx == 10 && statistics.answers4xx == 3 && statistics.answers5xx == 2)
        #expect(statistics.answersOther == 0 && statistics.expired == 0)
        #expect(statistics.resetsReceived == 1 && statistics.goAwaysReceived == 0)
        #expect(statistics.inFlight == 1 && statistics.streamLimit == 20)
        // All requests were submitted in one turn, so one flush sent them.
        #expect(statistics.requestsPerFlush.buckets[5] == 1)
        #expect(statistics.requestsPerFlush.total == 1)
        #expect(statistics.bytesPerWrite.total == statistics.writes)
        #expect(statistics.writes >= 3 && statistics.reads >= 2)
        // 17 bodies of 100 bytes with two frame headers each, at least.
        #expect(statistics.bytesSent > 17 * 118)
        #expect(statistics.bytesReceived > 16 * 9)
        #expect(statistics.connectNanoseconds > 0)
        #expect(statistics.handshakeNanoseconds > 0)
        #expect(statistics.openedAtNanoseconds > 0)
        client.stop()
    }

    @Test func powerHistogramCountsValuesByPowerOfTwo() {
        var histogram = PowerHistogram()
        for value in [0, 1, 2, 3, 4, 7, 8, 16_384, Int.max, -1] { histogram.record(value) }
        var expected = [UInt64](repeating: 0, count: PowerHistogram.bucketCount)
        expected[0] = 2
        expected[1] = 1
        expected[2] = 2
        expected[3] = 2
        expected[4] = 1
        expected[15] = 1
        expected[19] = 1
        #expect(histogram.buckets == expected)
        #expect(histogram.total == 10)
    }
}

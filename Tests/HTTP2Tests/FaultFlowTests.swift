import EventLoop
import TestSupport
import Testing

@testable import HTTP2

/// Servers that do not give window, or do not read.
@Suite struct FaultFlowTests {
    /// Content of 5,000 bytes: the connection's first window takes 13 requests (RFC 9113 §6.9.2).
    private static let fitting = 13

    /// Nothing is lost on a connection whose window is used up: what waits goes to the one that gives some.
    @Test func aConnectionThatNeverGivesWindowIsPassedOver() throws {
        let server = try FaultServer { peer in
            peer.replenishes = peer.number > 0
            peer.limit(50)
            peer.serve()
        }
        let bed = try FaultBed(server, bodyBytes: 5000) { $0.connections = 2 }
        try eventually("both are open") { bed.client.openConnections == 2 }
        bed.client.send(0..<500)
        try eventually("500 ends") { bed.ended == 500 }
        bed.expectExactlyOnce(500)
        #expect(server.record.now.opened == 2)
        let requests = bed.client.snapshot.connections.map { Int($0.statistics.requests) }
        #expect(
            requests == [Self.fitting, 500 - Self.fitting] || requests == [500 - Self.fitting, Self.fitting])
        bed.stop()
    }

    /// With no other connection the rest waits; the pool grows by one that takes it.
    @Test func aPoolGrowsPastAUsedUpWindow() throws {
        let server = try FaultServer { peer in
            peer.replenishes = peer.number > 0
            peer.limit(50)
            peer.serve()
        }
        let bed = try FaultBed(server, bodyBytes: 5000) {
            $0.maximumConnections = 2
            $0.growthPatience = .milliseconds(10)
            $0.growthInterval = .zero
        }
        bed.client.send(0..<200)
        try eventually("200 ends") { bed.ended == 200 }
        bed.expectExactlyOnce(200)
        #expect(server.record.now.opened == 2)
        bed.stop()
    }

    /// And with none at all it waits: nothing is sent beyond the window, nothing ends.
    @Test func whatNoWindowTakesWaits() throws {
        let server = try FaultServer { peer in
            peer.replenishes = false
            peer.limit(50)
            var sum = 0
            while let request = peer.request() {
                sum += 1
                peer.accept(request)
                if sum == Self.fitting {
                    peer.roundTrip()
                    if peer.waiting > 0 { peer.record.note("a request beyond the window") }
                }
            }
        }
        let bed = try FaultBed(server, bodyBytes: 5000) { $0.connections = 2 }
        try eventually("both are open") { bed.client.openConnections == 2 }
        bed.client.send(0..<100)
        try eventually("two windows are used up") { bed.ended == 2 * Self.fitting }
        #expect(bed.client.read { $0.pool.scheduler.waiting } == 100 - 2 * Self.fitting)
        #expect(bed.client.read { $0.pool.inFlight } == 0)
        #expect(server.record.now.notes.isEmpty)
        // A new connection has a new window.
        let client = bed.client
        client.loop.runBlocking { client.pool.replace(0, .now) }
        try eventually("three windows") { bed.ended == 3 * Self.fitting }
        client.loop.runBlocking { client.pool.replace(1, .now) }
        try eventually("four windows") { bed.ended == 4 * Self.fitting }
        #expect(bed.client.read { $0.ends.values.allSatisfy { $0 == [200] } })
        #expect(server.record.now.accepted.values.allSatisfy { $0 == 1 })
        bed.stop()
    }

    /// The streams' windows stay shut: what is in flight ends by its deadline, and the connection with it.
    @Test func aStreamWindowThatNeverOpensEndsByItsDeadline() throws {
        let server = try FaultServer { peer in
            if peer.number > 0 {
                peer.limit(50)
                return peer.serve()
            }
            peer.settings([(3, 10), (4, 100)])
            peer.serve()
        }
        let bed = try FaultBed(server, bodyBytes: 5000) {
            // The other connection must keep it with 90 requests, however busy the machine is.
            $0.connection.requestTimeout = .seconds(3)
        }
        bed.client.send(0..<100)
        try eventually("100 ends") { bed.ended == 100 }
        bed.expectExactlyOnce(100, unknown: 10)
        #expect(bed.happened.contains { $0.contains("10 requests in a row had no answer in time") })
        #expect(server.record.now.opened == 2)
        bed.stop()
    }

    /// A server that reads nothing until the client's output is full, and then a few bytes at a time.
    @Test func aSlowReaderBoundsWhatIsWritten() throws {
        let full = BlockingFlag()
        let server = try FaultServer(receiveBuffer: 4096) { peer in
            peer.limit(1000)
            peer.write(Raw.windowUpdate(0, 0x7000_0000))
            peer.replenishes = false
            full.wait()
            peer.readSize = 37
            peer.serve()
        }
        let bed = try FaultBed(server, bodyBytes: 5000) {
            $0.connection.requestTimeout = .seconds(3600)
            $0.connection.pingTimeout = .seconds(3600)
        }
        // 5 MB, of which sockets take a part; the server says nothing meanwhile.
        bed.client.send(0..<2000)
        func output() -> Int { bed.client.read { $0.pool.connections[0]?.session.output.count ?? 0 } }
        try eventually("the output is full") { output() >= 256 * 1024 }
        #expect(bed.client.read { $0.pool.inFlight } < 1000)
        #expect(bed.client.read { $0.pool.connections[0]?.availableStreams } == 0)
        full.set()
        var most = 0
        try eventually("2000 ends") {
            most = max(most, output())
            return bed.ended == 2000
        }
        // One request beyond the limit at most, with the control frames.
        #expect(most < 256 * 1024 + 2 * 8192)
        bed.expectExactlyOnce(2000)
        #expect(server.record.now.opened == 1)
        bed.stop()
    }

    /// Answers that come a byte at a time, of several streams.
    @Test func answersInSingleBytes() throws {
        let server = try FaultServer { peer in
            peer.limit(20)
            while let first = peer.request() {
                var requests = [first]
                while requests.count < 20, let next = peer.requestAtHand() { requests.append(next) }
                for request in requests { peer.accept(request, inSingleBytes: true) }
            }
        }
        let bed = try FaultBed(server)
        bed.client.send(0..<200)
        try eventually("200 ends") { bed.ended == 200 }
        bed.expectExactlyOnce(200)
        bed.stop()
    }
}

import EventLoop
import TestSupport
import Testing

@testable import HTTP2

/// Tests servers that don't update windows, or don't read.
@Suite struct FaultFlowTests {
    /// Number of requests of 5,000 bytes that the connection's first window takes (RFC 9113 §6.9.2).
    private static let fitting = 13

    /// Requests beyond the used-up window use the other connection.
    @Test func requestsBypassAConnectionWithoutWindow() throws {
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

    /// The remaining requests wait until the pool has a second connection.
    @Test func poolGrowsWhenTheOnlyWindowIsUsedUp() throws {
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

    /// Nothing is sent beyond the windows, and no waiting request ends.
    @Test func requestsWaitWhenAllWindowsAreUsedUp() throws {
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

    /// Requests in flight end by their deadline, and so does the connection.
    @Test func requestsExpireWhenStreamWindowsNeverOpen() throws {
        let server = try FaultServer { peer in
            if peer.number > 0 {
                peer.limit(50)
                return peer.serve()
            }
            peer.settings([(3, 10), (4, 100)])
            peer.serve()
        }
        let bed = try FaultBed(server, bodyBytes: 5000) {
            // Long enough for 90 requests on the other connection, even on a busy machine.
            $0.connection.requestTimeout = .seconds(3)
        }
        bed.client.send(0..<100)
        try eventually("100 ends") { bed.ended == 100 }
        bed.expectExactlyOnce(100, unknown: 10)
        #expect(bed.happened.contains { $0.contains("10 requests in a row had no answer in time") })
        #expect(server.record.now.opened == 2)
        bed.stop()
    }

    /// The server reads nothing until the client's socket takes no more, then a few bytes at a time. Meanwhile requests
    /// wait with the scheduler, where they can still be replaced or dropped.
    @Test func outputStaysBoundedWhenTheServerReadsSlowly() throws {
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
        // 1000 streams hold 5 MB, a part of which fits into socket buffers.
        bed.client.send(0..<2000)
        func output() -> Int { bed.client.read { $0.pool.connections[0]?.session.output.count ?? 0 } }
        try eventually("the socket takes no more") {
            bed.client.read { $0.pool.connections[0]?.isBlocked } == true
        }
        #expect(bed.client.read { $0.pool.inFlight } < 1000)
        #expect(bed.client.read { $0.pool.connections[0]?.availableStreams } == 0)
        #expect(bed.client.read { $0.pool.scheduler.waiting } > 1000)
        full.set()
        var most = 0
        try eventually("2000 ends") {
            most = max(most, output())
            return bed.ended == 2000
        }
        // At most one request and the control frames exceed two records.
        #expect(most < ClientConnection.fullOutput + 2 * 8192)
        bed.expectExactlyOnce(2000)
        #expect(server.record.now.opened == 1)
        bed.stop()
    }

    @Test func answersOfManyStreamsInSingleBytesAreRead() throws {
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

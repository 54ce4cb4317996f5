import EventLoop
import Glibc
import TestSupport
import Testing

@testable import HTTP2

/// Answers that come faster than they are read.
@Suite(.serialized) struct ReadingTests {
    /// Answers, each in a TLS record of its own, while the client's loop stands still.
    private func server(_ count: Int, blocked: BlockingFlag, written: BlockingFlag) throws -> ScriptedServer {
        try ScriptedServer { peer in
            var streams: [UInt32] = []
            while streams.count < count, let stream = peer.nextRequest() { streams.append(stream) }
            blocked.wait()
            for stream in streams { peer.frame(1, 5, stream, [0x88]) }
            written.set()
            while let stream = peer.nextRequest() { peer.frame(1, 5, stream, [0x88]) }
        }
    }

    /// The process stood still for longer than the request timeout; the answers were there in time.
    @Test func answersThatHaveComeAreNotLate() throws {
        let blocked = BlockingFlag()
        let written = BlockingFlag()
        let server = try server(400, blocked: blocked, written: written)
        let client = try PoolClient(
            port: server.port, context: .client(server.tls.clientOptions), bodyBytes: 10
        ) {
            $0.connection.requestTimeout = .seconds(2)
        }
        client.send(0..<400)
        try eventually("all are in flight") { client.read { $0.mostInFlight } == 400 }
        client.send(400..<401) {
            blocked.set()
            written.wait()
            // What the test is about: the loop does nothing for longer than the timeout.
            usleep(2_100_000)
        }
        try eventually("all have ended") { client.read { $0.ends.count } == 401 }
        // The last one was sent late by the loop's own clock.
        #expect(client.read { client in (0..<400).allSatisfy { client.ends[$0] == [200] } })
        #expect(!client.read { $0.happened.contains { $0.hasPrefix("closed") } })
        client.stop()
        server.stop()
    }

    /// More records than a turn reads, again and again: each rest is read by one timer, not by more and more.
    @Test func readingOnLeavesNoTimersBehind() throws {
        let blocked = BlockingFlag()
        let written = BlockingFlag()
        let server = try server(800, blocked: blocked, written: written)
        let client = try PoolClient(
            port: server.port, context: .client(server.tls.clientOptions), bodyBytes: 10)
        client.send(0..<800)
        try eventually("all are in flight") { client.read { $0.mostInFlight } == 800 }
        client.send(800..<801) {
            blocked.set()
            written.wait()
        }
        try eventually("all have ended") { client.read { $0.ends.count } == 801 }
        // The connection's and the pool's.
        #expect(client.read { $0.loop.timerCount } <= 3)
        client.stop()
        server.stop()
    }
}

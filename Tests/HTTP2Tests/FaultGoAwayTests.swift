import EventLoop
import Synchronization
import TestSupport
import Testing

@testable import HTTP2

/// Tests GOAWAY (RFC 9113 §6.8) on real connections. Streams up to the last stream finish; higher streams are
/// retried elsewhere at once. No request is lost or repeated.
@Suite struct FaultGoAwayTests {
    struct GoAway: Sendable {
        /// The last of ten requests, counted from 1, that the server will act on; nil for 2³¹-1.
        var last: Int?
        var code: UInt32 = 0
        var debug = ""
    }

    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var goAways: [GoAway]
        /// Whether one write sends all GOAWAYs; otherwise the client handles each before the next.
        var together = false
        /// Whether the server closes the connection after the last answer, instead of the client.
        var closes = false
    }

    static let shutdown = "{\"reason\":\"Shutdown\"}"
    static let cases = [
        Case(
            testDescription: "six of ten, socket left open",
            goAways: [GoAway(last: 6, debug: shutdown)]),
        Case(testDescription: "without debug data", goAways: [GoAway(last: 6)]),
        Case(testDescription: "closed by the server", goAways: [GoAway(last: 6)], closes: true),
        Case(testDescription: "all ten", goAways: [GoAway(last: 10)]),
        Case(testDescription: "the first only", goAways: [GoAway(last: 1)]),
        Case(
            testDescription: "text as debug data",
            goAways: [GoAway(last: 9, code: 7, debug: "Maximum active streams violated for this endpoint.")]),
        Case(testDescription: "an error code", goAways: [GoAway(last: 3, code: 2)], closes: true),
        Case(testDescription: "twice, then lower", goAways: [GoAway(last: 8), GoAway(last: 6)]),
        Case(
            testDescription: "twice, then lower, at once", goAways: [GoAway(last: 8), GoAway(last: 6)],
            together: true),
        Case(testDescription: "twice the same", goAways: [GoAway(last: 6), GoAway(last: 6)]),
        Case(testDescription: "shutdown in two steps", goAways: [GoAway(), GoAway(last: 6)]),
        Case(
            testDescription: "shutdown in two steps, at once", goAways: [GoAway(), GoAway(last: 6)],
            together: true),
        Case(testDescription: "shutdown announced only", goAways: [GoAway()]),
        Case(
            testDescription: "three steps down",
            goAways: [GoAway(), GoAway(last: 9), GoAway(last: 2, debug: shutdown)]),
    ]

    @Test(arguments: cases) func goAwayFinishesLowerStreamsAndRetriesHigherOnes(_ row: Case) throws {
        let elsewhere = BlockingFlag()
        let last = row.goAways.compactMap(\.last).min() ?? 10
        let server = try FaultServer { peer in
            peer.limit(10)
            guard peer.number == 0 else {
                // Retried requests of the first ten arrive first; without any, waiting requests do.
                guard let requests = peer.requests(max(1, 10 - last)) else { return }
                elsewhere.set()
                for request in requests { peer.accept(request) }
                return peer.serve()
            }
            guard let requests = peer.requests(10) else { return }
            let frames = row.goAways.map { goAway in
                let stream = goAway.last.map { requests[$0 - 1].stream } ?? 0x7fff_ffff
                return Raw.goAway(stream, goAway.code, goAway.debug)
            }
            if row.together {
                peer.write(frames.flatMap(\.self))
            } else {
                for frame in frames {
                    peer.write(frame)
                    peer.roundTrip()
                }
            }
            // Lower streams are answered only after the retried requests have arrived elsewhere.
            elsewhere.wait()
            for request in requests.prefix(last) { peer.accept(request) }
            if row.closes { return }
            if !peer.awaitEnd() { peer.record.note("a request after GOAWAY") }
        }
        let bed = try FaultBed(server)
        bed.client.send(0..<15)
        try eventually("15 ends") { bed.ended == 15 }
        bed.expectExactlyOnce(15)
        try eventually("the first connection ends") { server.record.now.ended == 1 }
        let record = server.record.now
        #expect(record.notes.isEmpty)
        #expect(record.opened == 2)
        if !row.closes {
            // The client closes the connection itself, with close_notify.
            #expect(record.goAways[0] == [0])
            #expect(record.cleanEnds == [0])
        }
        // Unprocessed requests don't count as a failure.
        let counters = bed.counters
        #expect(counters.notProcessed == 10 - last)
        #expect(counters.unknown == 0)
        #expect(counters.openingsFailed == 0)
        #expect(counters.goAways == row.goAways.count)
        #expect(counters.lastGoAway == row.goAways.last?.code)
        #expect(String(decoding: counters.lastGoAwayReason, as: UTF8.self) == row.goAways.last?.debug)
        #expect(bed.client.snapshot.circuit == .closed)
        bed.stop()
    }

    /// A GOAWAY with the reason `BadCertificateEnvironment` has last stream 0, and the socket is closed.
    @Test func goAwayWithLastStreamZeroRetriesAllElsewhere() throws {
        let server = try FaultServer { peer in
            peer.limit(10)
            if peer.number > 0 { return peer.serve() }
            guard peer.requests(10) != nil else { return }
            peer.write(Raw.goAway(0, 0, "{\"reason\":\"BadCertificateEnvironment\"}"))
        }
        let bed = try FaultBed(server)
        bed.client.send(0..<15)
        try eventually("15 ends") { bed.ended == 15 }
        bed.expectExactlyOnce(15)
        #expect(bed.client.read { $0.refusals } == 10)
        #expect(bed.counters.unknown == 0)
        #expect(bed.happened.contains("goaway NO_ERROR {\"reason\":\"BadCertificateEnvironment\"}"))
        bed.stop()
    }

    /// Unanswered streams up to the last stream are unknown; higher streams are retried.
    @Test func cutAfterGoAwayLeavesUnansweredLowerStreamsUnknown() throws {
        let server = try FaultServer { peer in
            peer.limit(10)
            if peer.number > 0 { return peer.serve() }
            guard let requests = peer.requests(10) else { return }
            peer.write(Raw.goAway(requests[5].stream, 0))
            for request in requests.prefix(2) { peer.accept(request) }
            peer.roundTrip()
            peer.cut(.reset)
        }
        let bed = try FaultBed(server)
        bed.client.send(0..<15)
        try eventually("15 ends") { bed.ended == 15 }
        bed.expectExactlyOnce(15, unknown: 4)
        #expect(bed.client.read { $0.refusals } == 4)
        #expect(bed.client.read { client in (2..<6).allSatisfy { client.ends[$0] == [0] } })
        bed.stop()
    }

    /// The server ends each connection after a few requests, under full load.
    @Test func shortConnectionsUnderFullLoadLoseNoRequest() throws {
        let server = try FaultServer { peer in
            peer.limit(20)
            for _ in 0..<50 {
                guard let request = peer.request() else { return }
                peer.accept(request)
            }
            guard let first = peer.request(), peer.roundTrip(), peer.roundTrip() else { return }
            // Takes up to five requests without waiting, because there may be no further request.
            var last = [first]
            while last.count < 5, let next = peer.requestAtHand() { last.append(next) }
            let processed = last.prefix(3)
            peer.write(Raw.goAway(processed.last?.stream ?? 0, 0))
            for request in processed { peer.accept(request) }
            peer.awaitEnd()
        }
        let bed = try FaultBed(server) { $0.connections = 3 }
        bed.client.send(0..<1000)
        try eventually("1000 ends") { bed.ended == 1000 }
        bed.expectExactlyOnce(1000)
        #expect(server.record.now.opened >= 18)
        #expect(bed.client.read { $0.refusals } > 0)
        #expect(bed.counters.unknown == 0)
        bed.stop()
    }
}

import EventLoop
import SluiceModel
import TestSupport
import Testing

@testable import HTTP2

/// Tests changing stream limits, refusals and the single stream of a token connection, as a server sees them.
@Suite struct FaultLimitTests {
    /// The limit changes from 1000 to `low` and back, with 1000 requests in flight at each change.
    @Test(arguments: [0, 1, 7] as [UInt32]) func clientKeepsToALimitThatFallsAndRises(_ low: UInt32) throws {
        let server = try FaultServer { peer in
            peer.limit(1000)
            guard let first = peer.requests(1000) else { return }
            peer.limit(low)
            guard peer.roundTrip() else { return }
            for request in first.dropLast(Int(low)) { peer.accept(request) }
            guard peer.roundTrip() else { return }
            if peer.waiting > 0 { peer.record.note("\(peer.waiting) requests beyond the lowered limit") }
            var open = Array(first.suffix(Int(low)))
            // Each answer makes room for one request.
            for _ in 0..<(low == 0 ? 0 : 20) {
                peer.accept(open.removeFirst())
                guard let next = peer.request(), peer.roundTrip() else { return }
                if peer.waiting > 0 { peer.record.note("\(peer.waiting) requests at once") }
                open.append(next)
            }
            peer.limit(1000)
            guard let more = peer.requests(1000 - open.count) else { return }
            for request in open + more { peer.accept(request) }
            peer.serve()
        }
        let bed = try FaultBed(server)
        bed.client.send(0..<2500)
        try eventually("2500 ends") { bed.ended == 2500 }
        bed.expectExactlyOnce(2500)
        let record = server.record.now
        #expect(record.notes.isEmpty)
        #expect(record.violations.isEmpty)
        #expect(record.mostOpen == 1000)
        #expect(record.opened == 1)
        #expect(bed.client.read { $0.refusals } == 0)
        bed.stop()
    }

    @Test(arguments: 1...4 as ClosedRange<UInt64>) func clientKeepsToARandomlyChangingLimit(
        seed: UInt64
    ) throws {
        let server = try FaultServer { peer in
            var random = SeededGenerator(seed: seed &* 1000 &+ UInt64(peer.number))
            var open: [FaultPeer.Request] = []
            peer.limit(1000)
            while true {
                if open.isEmpty {
                    guard let request = peer.request() else { return }
                    open.append(request)
                } else if Int.random(in: 0..<4, using: &random) > 0, let request = peer.requestAtHand() {
                    open.append(request)
                } else {
                    peer.accept(open.remove(at: Int.random(in: 0..<open.count, using: &random)))
                }
                if Int.random(in: 0..<20, using: &random) == 0 {
                    peer.limit([1, 1, 2, 10, 300, 1000].randomElement(using: &random)!)
                }
            }
        }
        let bed = try FaultBed(server) { $0.connections = 2 }
        try eventually("both are open") { bed.client.openConnections == 2 }
        bed.client.send(0..<2000)
        try eventually("2000 ends") { bed.ended == 2000 }
        bed.expectExactlyOnce(2000)
        #expect(server.record.now.violations.isEmpty, "seed \(seed)")
        #expect(server.record.now.opened == 2)
        bed.stop()
    }

    // MARK: Refusals

    @Test(arguments: [1, 2] as [Int]) func manyRefusedStreamsAreRetriedOnTheSameConnections(
        connections: Int
    ) throws {
        let all = Gathering(of: connections)
        defer { all.release() }
        let server = try FaultServer { peer in
            peer.limit(100)
            guard let refused = peer.requests(100) else { return }
            for request in refused { peer.refuse(request) }
            for _ in 0..<400 {
                guard let request = peer.request() else { return }
                peer.refuse(request)
            }
            all.arrive()
            peer.serve()
        }
        let bed = try FaultBed(server) { $0.connections = connections }
        bed.client.send(0..<2000)
        try eventually("2000 ends") { bed.ended == 2000 }
        bed.expectExactlyOnce(2000)
        #expect(bed.client.read { $0.refusals } == 500 * connections)
        #expect(bed.counters.notProcessed == 500 * connections)
        // Refusals don't count as failures of a connection.
        #expect(server.record.now.opened == connections)
        #expect(bed.counters.openingsFailed == 0)
        #expect(server.record.now.mostOpen <= 100)
        bed.stop()
    }

    /// pushy #476: streams above a just-lowered limit get REFUSED_STREAM, and STREAM_CLOSED for their DATA.
    @Test func refusedStreamsWithASecondResetAreRetriedOnce() throws {
        let server = try FaultServer { peer in
            peer.limit(100)
            guard let requests = peer.requests(100) else { return }
            peer.limit(1)
            for request in requests.dropFirst() {
                peer.refuse(request, code: 7)
                peer.write(Raw.reset(request.stream, 5))
            }
            guard peer.roundTrip() else { return }
            if peer.waiting > 0 { peer.record.note("requests above the limit") }
            peer.accept(requests[0])
            for _ in 0..<50 {
                guard let request = peer.request() else { return }
                peer.accept(request)
            }
            peer.limit(100)
            peer.serve()
        }
        let bed = try FaultBed(server)
        bed.client.send(0..<500)
        try eventually("500 ends") { bed.ended == 500 }
        bed.expectExactlyOnce(500)
        let record = server.record.now
        #expect(record.notes.isEmpty)
        #expect(record.violations.isEmpty)
        #expect(record.opened == 1)
        #expect(bed.client.read { $0.refusals } == 99)
        #expect(bed.counters.unknown == 0)
        bed.stop()
    }

    /// With any code but REFUSED_STREAM the server may have acted on the request.
    @Test(arguments: [0, 1, 2, 5, 8, 11] as [UInt32]) func resetsWithOtherCodesEndRequestsUnknown(
        code: UInt32
    ) throws {
        let server = try FaultServer { peer in
            peer.limit(10)
            guard let requests = peer.requests(10) else { return }
            for request in requests.prefix(4) { peer.refuse(request, code: code) }
            for request in requests.dropFirst(4) { peer.accept(request) }
            peer.serve()
        }
        let bed = try FaultBed(server)
        bed.client.send(0..<50)
        try eventually("50 ends") { bed.ended == 50 }
        bed.expectExactlyOnce(50, unknown: 4)
        #expect(server.record.now.opened == 1)
        bed.stop()
    }

    /// Refusals count as a flood at some point, which ends the connection and delays the next opening.
    @Test func serverRefusingEverythingOpensTheCircuit() throws {
        let server = try FaultServer { peer in
            peer.limit(1000)
            while let request = peer.request() { peer.refuse(request) }
        }
        let bed = try FaultBed(server) {
            $0.circuitFailures = 2
            $0.reconnectInitial = .seconds(3600)
            $0.reconnectMaximum = .seconds(3600)
        }
        bed.client.send(0..<1000)
        // The first connection is replaced at once, as after a GOAWAY; the second isn't.
        try eventually("the circuit opens") {
            if case .open(_, .unreachable) = bed.client.snapshot.circuit { true } else { false }
        }
        #expect(bed.happened.count { $0.contains("closed: HTTP/2 ENHANCE_YOUR_CALM") } == 2)
        // Window updates count like refusals. Most requests wait again; those in flight at the end are unknown.
        let (waiting, ended) = bed.client.read { ($0.pool.scheduler.waiting, $0.ends.count) }
        #expect(waiting + ended == 1000)
        #expect(bed.client.read { $0.refusals } > ClientSession.maximumControlFrames / 3)
        #expect(server.record.now.accepted.isEmpty)
        #expect(server.record.now.accepts == 2)
        bed.stop()
    }

    // MARK: Token connections

    struct Beginning: Sendable, CustomTestStringConvertible {
        var testDescription: String
        /// Answers to a connection's first requests: a status, 0 for a refusal, or 2 for a reset.
        var answers: [UInt16]
    }

    static let beginnings = [
        Beginning(testDescription: "accepted at once", answers: [200]),
        Beginning(testDescription: "403 twice, then accepted", answers: [403, 403, 200]),
        Beginning(testDescription: "403, then another error", answers: [403, 410]),
        Beginning(testDescription: "refused, reset, accepted", answers: [0, 2, 200]),
    ]

    @Test(arguments: beginnings) func tokenConnectionHasOneStreamUntilANon403Answer(
        _ row: Beginning
    ) throws {
        let all = Gathering(of: 3)
        defer { all.release() }
        let server = try FaultServer { peer in
            peer.limit(20)
            for answer in row.answers {
                guard let request = peer.request(), peer.roundTrip() else { return }
                if peer.waiting > 0 || peer.open.count > 1 {
                    peer.record.note("\(peer.open.count) streams before the first accepted answer")
                }
                switch answer {
                case 0: peer.refuse(request)
                case 2: peer.refuse(request, code: 2)
                case 200: peer.accept(request)
                default:
                    peer.answer(request, answer)
                }
            }
            // From here on the client uses the server's limit.
            guard let rest = peer.requests(20) else { return }
            all.arrive()
            for request in rest { peer.accept(request) }
            peer.serve()
        }
        let bed = try FaultBed(server) {
            $0.connections = 3
            $0.connection.session.waitsForAuthentication = true
        }
        bed.client.send(0..<1000)
        try eventually("1000 ends") { bed.ended == 1000 }
        let expected = row.answers.reduce(into: [UInt16: Int]()) { $0[$1, default: 0] += 3 }
        bed.expectExactlyOnce(1000, unknown: expected[2] ?? 0, other: [403, 410])
        let ends = bed.client.read { $0.ends.values.map { $0[0] } }
        #expect(ends.count { $0 == 403 } == expected[403] ?? 0)
        #expect(ends.count { $0 == 410 } == expected[410] ?? 0)
        #expect(bed.client.read { $0.refusals } == expected[0] ?? 0)
        #expect(server.record.now.notes.isEmpty)
        #expect(server.record.now.violations.isEmpty)
        #expect(server.record.now.mostOpen == 20)
        #expect(server.record.now.opened == 3)
        bed.stop()
    }
}

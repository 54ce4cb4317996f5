import EventLoop
import Glibc
import TestSupport
import Testing

@testable import HTTP2

/// Tests connections that end midway or go silent. Requests in flight are unknown; the others use the next
/// connection.
@Suite struct FaultCutTests {
    struct Case: Sendable, CustomTestStringConvertible {
        /// Number of the answer's bytes before the cut: HEADERS take 10 with their frame header, then DATA.
        var part: Int
        var cut: FaultPeer.Cut
        var testDescription: String { "\(cut.rawValue) after \(part) bytes" }
    }

    static let cuts = FaultPeer.Cut.allCases.flatMap { cut in
        [0, 1, 5, 9, 10, 14, 22].map { Case(part: $0, cut: cut) }
    }

    /// A status that has arrived is an answer. The other requests in flight have none.
    @Test(arguments: cuts) func cutWithinAnAnswerLeavesRequestsInFlightUnknown(_ row: Case) throws {
        let server = try FaultServer { peer in
            peer.limit(20)
            if peer.number > 0 { return peer.serve() }
            guard let requests = peer.requests(20) else { return }
            for request in requests.prefix(5) { peer.accept(request) }
            // The client has read these answers and sent five more requests.
            guard peer.requests(5) != nil, peer.roundTrip() else { return }
            let stream = requests[5].stream
            let answer =
                Raw.frame(1, flags: 4, stream: stream, [0x8c]) + Raw.data(stream, "{\"reason\":\"x\"}")
            peer.write(Array(answer.prefix(row.part)))
            peer.cut(row.cut)
        }
        let bed = try FaultBed(server)
        bed.client.send(0..<40)
        try eventually("40 ends") { bed.ended == 40 }
        // A reset of the connection may take away what has arrived.
        let answered = bed.client.read { $0.ends.values.count { $0 == [400] } }
        if row.cut != .reset { #expect(answered == (row.part < 10 ? 0 : 1)) }
        bed.expectExactlyOnce(40, unknown: 20 - answered, other: [400])
        #expect(bed.client.read { $0.refusals } == 0)
        let expected =
            switch row.cut {
            case .reset: "Connection reset"
            case .withoutNotify: "cut by the server without close_notify"
            case .withNotify: "closed: closed by the server"
            case .withinRecord: "closed: "
            }
        #expect(bed.happened.contains { $0.contains(expected) }, "\(bed.happened)")
        #expect(server.record.now.opened == 2)
        bed.stop()
    }

    /// The client sends no request before the server's SETTINGS.
    @Test(arguments: FaultPeer.Cut.allCases) func cutBeforeSettingsLosesNoRequest(_ cut: FaultPeer.Cut) throws
    {
        let server = try FaultServer { peer in
            switch peer.number {
            case 0: peer.cut(cut)
            case 1:
                peer.write(Array(Raw.settings([(3, 10)]).prefix(12)))
                peer.cut(cut)
            default:
                peer.limit(10)
                peer.serve()
            }
        }
        let bed = try FaultBed(server)
        bed.client.send(0..<30)
        try eventually("30 ends") { bed.ended == 30 }
        bed.expectExactlyOnce(30)
        #expect(bed.client.read { $0.refusals } == 0)
        #expect(bed.counters.openingsFailed == 2)
        bed.stop()
    }

    /// After the cut the server's system answers further writes of the client with a TCP reset.
    @Test func repeatedCutsLoseAtMostTheRequestsInFlight() throws {
        let server = try FaultServer { peer in
            peer.limit(20)
            for _ in 0..<(peer.number >= 8 ? Int.max : 40) {
                guard let request = peer.request() else { return }
                peer.accept(request)
            }
            guard peer.roundTrip() else { return }
            peer.cut(FaultPeer.Cut.allCases[peer.number % 4])
        }
        let bed = try FaultBed(server) { $0.connections = 3 }
        bed.client.send(0..<1000)
        try eventually("1000 ends") { bed.ended == 1000 }
        let unknown = bed.client.read { $0.ends.values.count { $0 == [0] } }
        #expect(unknown <= 8 * 20)
        bed.expectExactlyOnce(1000, unknown: unknown)
        try eventually("three connections are open again") { bed.client.openConnections == 3 }
        bed.stop()
    }

    // MARK: Silence

    enum Silence: String, CaseIterable, Sendable {
        /// Neither reads nor writes.
        case blackHole
        /// Reads, and answers nothing, not even a PING.
        case mute
        /// Answers all PINGs after the client has closed the connection.
        case latePing
    }

    @Test(arguments: Silence.allCases) func silentConnectionIsReplacedAfterThePingTimeout(
        _ silence: Silence
    ) throws {
        let over = BlockingFlag()
        let server = try FaultServer { peer in
            peer.limit(10)
            if peer.number > 0 { return peer.serve() }
            guard let requests = peer.requests(10) else { return }
            for request in requests.prefix(3) { peer.accept(request) }
            guard peer.requests(3) != nil, peer.roundTrip() else { return }
            peer.answersPings = false
            switch silence {
            case .blackHole: over.wait()
            case .mute: peer.awaitEnd()
            case .latePing:
                peer.awaitEnd()
                for payload in peer.unansweredPings { peer.write(Raw.frame(6, flags: 1, payload)) }
            }
        }
        let bed = try FaultBed(server) {
            $0.connection.suspicionInterval = .milliseconds(50)
            // Long enough for the other connection to answer on a busy machine.
            $0.connection.pingTimeout = .seconds(2)
            // Too long to bound the silence.
            $0.connection.requestTimeout = .seconds(3600)
            $0.connection.pingInterval = .seconds(3600)
        }
        bed.client.send(0..<50)
        try eventually("50 ends") { bed.ended == 50 }
        over.set()
        bed.expectExactlyOnce(50, unknown: 10)
        #expect(
            bed.happened.contains { $0.contains("unresponsive: nothing was received for") }, "\(bed.happened)"
        )
        #expect(server.record.now.opened == 2)
        #expect(bed.client.read { $0.refusals } == 0)
        bed.stop()
    }

    /// The other connection takes all requests that aren't in flight on the silent connection.
    @Test func silentConnectionDelaysOnlyItsOwnRequests() throws {
        let over = BlockingFlag()
        let server = try FaultServer { peer in
            peer.limit(10)
            if peer.number > 0 { return peer.serve() }
            guard peer.requests(10) != nil else { return }
            over.wait()
        }
        let bed = try FaultBed(server) {
            $0.connections = 2
            $0.connection.suspicionInterval = .seconds(3600)
            $0.connection.requestTimeout = .seconds(3600)
        }
        try eventually("both are open") { bed.client.openConnections == 2 }
        bed.client.send(0..<500)
        try eventually("490 ends") { bed.ended == 490 }
        #expect(bed.client.read { $0.pool.inFlight } == 10)
        over.set()
        try eventually("500 ends") { bed.ended == 500 }
        bed.expectExactlyOnce(500, unknown: 10)
        bed.stop()
    }

    /// The server is silent until the client suspects the connection, then sends one sign of life.
    @Test(arguments: ["the answer to a PING", "an answer", "SETTINGS"])
    func signOfLifeEndsSuspicionAndKeepsTheConnection(_ sign: String) throws {
        let doubt = BlockingFlag()
        let rest = BlockingFlag()
        let server = try FaultServer { peer in
            peer.limit(10)
            guard var requests = peer.requests(10), peer.roundTrip() else { return }
            peer.answersPings = false
            while peer.unansweredPings.isEmpty { if peer.next() == nil { return } }
            doubt.wait()
            switch sign {
            case "an answer": peer.accept(requests.removeFirst())
            case "SETTINGS": peer.limit(10)
            default: peer.write(Raw.frame(6, flags: 1, peer.unansweredPings[0]))
            }
            peer.answersPings = true
            rest.wait()
            for request in requests { peer.accept(request) }
            peer.serve()
        }
        let bed = try FaultBed(server) {
            $0.connection.suspicionInterval = .milliseconds(50)
            $0.connection.pingTimeout = .seconds(3600)
            $0.connection.requestTimeout = .seconds(3600)
        }
        bed.client.send(0..<30)
        try eventually("the connection is suspected") {
            bed.client.snapshot.connections.first?.state == .suspected
        }
        doubt.set()
        try eventually("the connection is active again") {
            bed.client.snapshot.connections.first?.state == .active
        }
        rest.set()
        try eventually("30 ends") { bed.ended == 30 }
        bed.expectExactlyOnce(30)
        #expect(server.record.now.opened == 1)
        bed.stop()
    }

    /// The server stalls for 500 ms, and until the client has noticed.
    @Test func serverStallLosesNoRequestOrConnection() throws {
        let noticed = BlockingFlag()
        let server = try FaultServer { peer in
            peer.limit(1000)
            guard let first = peer.requests(500) else { return }
            usleep(500_000)
            noticed.wait()
            for request in first { peer.accept(request) }
            peer.serve()
        }
        let bed = try FaultBed(server) {
            $0.connection.suspicionInterval = .milliseconds(50)
            $0.connection.pingTimeout = .seconds(60)
            $0.maximumConnections = 1
        }
        bed.client.send(0..<3000)
        try eventually("the stall is noticed") {
            bed.client.snapshot.connections.contains { $0.statistics.suspensions > 0 }
        }
        noticed.set()
        try eventually("3000 ends") { bed.ended == 3000 }
        bed.expectExactlyOnce(3000)
        #expect(server.record.now.opened == 1)
        #expect(bed.client.snapshot.connections.map(\.state) == [.active])
        #expect(bed.happened == ["opened"])
        bed.stop()
    }
}

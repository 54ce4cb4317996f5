import EventLoop
import TestSupport
import Testing

@testable import HTTP2

/// Tests servers with a wrong identity or a broken protocol: clear errors, back-off, and recovery after repair.
@Suite struct FaultPeerTests {
    // MARK: Protocol

    /// The server breaks the protocol after the client's first request, on stream 1. With `seesGoAway` the
    /// server has to receive our GOAWAY.
    private func breach(_ name: String, _ bytes: [UInt8], _ code: HTTP2ErrorCode, seesGoAway: Bool) throws {
        let server = try FaultServer { peer in
            peer.limit(1)
            if peer.number > 0 { return peer.serve() }
            guard peer.request() != nil, peer.roundTrip() else { return }
            peer.write(bytes)
            peer.awaitEnd()
        }
        // The window cases in the tables assume bodies of ten bytes.
        let bed = try FaultBed(server, bodyBytes: 10)
        bed.client.send(0..<10)
        try eventually("10 ends") { bed.ended == 10 }
        let first = bed.client.read { $0.ends[0]?[0] ?? 1 }
        // Some cases answer or reset the request before the breach.
        #expect([0, 200, 400].contains(first), "\(name)")
        let ends = bed.client.read { $0.ends }
        #expect(ends.values.allSatisfy { $0.count == 1 }, "\(name)")
        #expect(ends.filter { $0.key > 0 }.values.allSatisfy { $0 == [200] || $0 == [0] }, "\(name)")
        #expect(ends.values.count { $0 == [0] } <= 2, "\(name)")
        #expect(
            bed.happened.contains { $0.hasPrefix("closed: HTTP/2 \(code)") }, "\(name): \(bed.happened)")
        try eventually("the first connection ends") { server.record.now.ended >= 1 }
        if seesGoAway { #expect(server.record.now.goAways[0] == [code.rawValue], "\(name)") }
        #expect(server.record.now.opened == 2, "\(name)")
        #expect(bed.counters.endedByProtocolBreach == 1, "\(name)")
        #expect(bed.client.read { $0.pool.inFlight } == 0)
        bed.stop()
    }

    @Test(arguments: ProtocolRulesTests.connectionErrors)
    func protocolBreachEndsTheConnectionWithItsErrorCode(_ violation: HostileServerTests.Case) throws {
        try breach(violation.testDescription, violation.bytes, violation.code, seesGoAway: true)
    }

    @Test(arguments: HostileServerTests.blocks)
    func badHeaderBlockEndsConnectionWithItsErrorCode(_ block: HostileServerTests.Case) throws {
        try breach(block.testDescription, block.bytes, block.code, seesGoAway: true)
    }

    /// A sample of the floods. The client closes with input unread, so that TCP resets the server. The server
    /// may never see our GOAWAY.
    @Test(
        arguments: stride(from: 0, to: HostileServerTests.floods.count, by: 4).map {
            HostileServerTests.floods[$0]
        })
    func floodEndsTheConnectionAndIsRecoveredFrom(_ flood: HostileServerTests.Case) throws {
        try breach(flood.testDescription, flood.bytes, flood.code, seesGoAway: false)
    }

    /// The server sends these bytes instead of SETTINGS.
    @Test(arguments: ProtocolRulesTests.beginnings)
    func badFirstFrameLosesNoRequest(_ beginning: HostileServerTests.Case) throws {
        let server = try FaultServer { peer in
            guard peer.number == 0 else {
                peer.limit(10)
                return peer.serve()
            }
            peer.write(beginning.bytes)
            peer.awaitEnd()
        }
        let bed = try FaultBed(server)
        bed.client.send(0..<20)
        try eventually("20 ends") { bed.ended == 20 }
        bed.expectExactlyOnce(20)
        #expect(bed.counters.openingsFailed == 1)
        try eventually("the first connection ends") { server.record.now.ended >= 1 }
        #expect(server.record.now.goAways[0] == [beginning.code.rawValue])
        bed.stop()
    }

    // MARK: Identity

    enum Identity: String, CaseIterable, Sendable {
        case expired, future, anotherHost, unknownAuthority, http1, noALPN

        func invalidate(_ options: inout ServerTLSOptions, _ tls: TLSFixture) throws {
            switch self {
            case .expired:
                options.identity = try tls.authority.issueServer(names: ["localhost"], validity: .expired)
                    .identity
            case .future:
                options.identity = try tls.authority.issueServer(names: ["localhost"], validity: .future)
                    .identity
            case .anotherHost:
                options.identity = try tls.authority.issueServer(names: ["push.example.com"]).identity
            case .unknownAuthority: options.identity = try TLSFixture().serverCertificate.identity
            case .http1: options.applicationProtocols = ["http/1.1"]
            case .noALPN: options.applicationProtocols = []
            }
        }

        var message: String {
            switch self {
            case .expired: "expired"
            case .future: "not yet valid"
            case .anotherHost: "not for"
            case .unknownAuthority: "CA file"
            case .http1, .noALPN: "ALPN"
            }
        }
    }

    /// A wrong identity needs a repair, so attempts are at least half of the longest back-off apart.
    @Test(arguments: Identity.allCases) func wrongIdentityIsRetriedSeldomUntilRepaired(
        _ identity: Identity
    ) throws {
        let server = try FaultServer { peer in
            peer.limit(10)
            peer.serve()
        }
        var options = server.tls.serverOptions
        try identity.invalidate(&options, server.tls)
        try server.use(options)
        let began = ContinuousClock.now
        let bed = try FaultBed(server) {
            $0.reconnectInitial = .milliseconds(1)
            $0.reconnectMaximum = .milliseconds(200)
        }
        bed.client.send(0..<20)
        try eventually("four attempts") { server.record.now.accepts >= 4 }
        let attempts = server.record.now.accepts
        // Holds on a slow machine, because the number of attempts is read first.
        #expect(ContinuousClock.now - began >= .milliseconds(100) * (attempts - 1))
        #expect(bed.ended == 0)
        #expect(bed.client.read { $0.refusals } == 0)
        #expect(server.record.now.opened == 0 || identity == .noALPN || identity == .http1)
        let reasons = bed.happened.filter { $0.hasPrefix("closed: ") }
        #expect(!reasons.isEmpty)
        #expect(reasons.allSatisfy { $0.contains(identity.message) }, "\(reasons)")
        try server.use(server.tls.serverOptions)
        try eventually("20 ends") { bed.ended == 20 }
        bed.expectExactlyOnce(20)
        #expect(bed.client.snapshot.circuit == .closed)
        bed.stop()
    }

    @Test func openConnectionKeepsServingAfterTheCertificateExpires() throws {
        let server = try FaultServer { peer in
            peer.limit(10)
            peer.serve()
        }
        let bed = try FaultBed(server)
        try eventually("open") { bed.client.openConnections == 1 }
        var options = server.tls.serverOptions
        try Identity.expired.invalidate(&options, server.tls)
        try server.use(options)
        bed.client.send(0..<100)
        try eventually("100 ends") { bed.ended == 100 }
        bed.expectExactlyOnce(100)
        #expect(server.record.now.accepts == 1)
        bed.stop()
    }

    // MARK: Names

    @Test func failedNameLookupsBackOffAndKeepRequestsWaiting() throws {
        let server = try FaultServer { $0.serve() }
        let began = ContinuousClock.now
        let bed = try FaultBed(server) {
            // An empty label, which no look-up sends to a name server.
            $0.host = "no..name"
            $0.reconnectInitial = .milliseconds(200)
            $0.reconnectMaximum = .milliseconds(200)
        }
        bed.client.send(0..<5)
        try eventually("three look-ups") { bed.counters.lookupsFailed >= 3 }
        let lookups = bed.counters.lookupsFailed
        // The back-off lasts for at least a tenth of its window.
        #expect(ContinuousClock.now - began >= .milliseconds(20) * (lookups - 1))
        #expect(bed.happened.contains("resolve failed"))
        #expect(bed.ended == 0)
        #expect(bed.client.read { $0.pool.scheduler.waiting } == 5)
        bed.stop()
    }
}

import EventLoop
import TestSupport
import Testing

@testable import HTTP2

/// Servers that are not who they should be, or break the protocol: a clear error, no busy loop, and all is well once
/// the server is mended.
@Suite struct FaultPeerTests {
    // MARK: Protocol

    /// Each breach comes after the client's first request, on stream 1. What the server sees is our GOAWAY.
    private func breach(_ name: String, _ bytes: [UInt8], _ code: HTTP2ErrorCode, seesGoAway: Bool) throws {
        let server = try FaultServer { peer in
            peer.limit(1)
            if peer.number > 0 { return peer.serve() }
            guard peer.request() != nil, peer.roundTrip() else { return }
            peer.write(bytes)
            peer.awaitEnd()
        }
        // So much content is what the tables' windows go by.
        let bed = try FaultBed(server, bodyBytes: 10)
        bed.client.send(0..<10)
        try eventually("10 ends") { bed.ended == 10 }
        let first = bed.client.read { $0.ends[0]?[0] ?? 1 }
        // Some answer or reset the request before the breach; then that is its end.
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
    func aBreachEndsTheConnectionWithItsCode(_ violation: HostileServerTests.Case) throws {
        try breach(violation.testDescription, violation.bytes, violation.code, seesGoAway: true)
    }

    @Test(arguments: HostileServerTests.blocks)
    func aBadHeaderBlockEndsTheConnectionWithItsCode(_ block: HostileServerTests.Case) throws {
        try breach(block.testDescription, block.bytes, block.code, seesGoAway: true)
    }

    /// One of each kind. The client closes with input unread, and TCP resets the server, which may never see our GOAWAY.
    @Test(
        arguments: stride(from: 0, to: HostileServerTests.floods.count, by: 4).map {
            HostileServerTests.floods[$0]
        })
    func aFloodEndsTheConnection(_ flood: HostileServerTests.Case) throws {
        try breach(flood.testDescription, flood.bytes, flood.code, seesGoAway: false)
    }

    /// In place of SETTINGS.
    @Test(arguments: ProtocolRulesTests.beginnings)
    func aBadBeginningCostsNoRequest(_ beginning: HostileServerTests.Case) throws {
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

        func spoil(_ options: inout ServerTLSOptions, _ tls: TLSFixture) throws {
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

    /// Such a fault stays until someone mends it: an attempt each half of the longest back-off at most.
    @Test(arguments: Identity.allCases) func aWrongServerIsTriedSeldomAndUsedWhenItIsMended(
        _ identity: Identity
    ) throws {
        let server = try FaultServer { peer in
            peer.limit(10)
            peer.serve()
        }
        var options = server.tls.serverOptions
        try identity.spoil(&options, server.tls)
        try server.use(options)
        let began = ContinuousClock.now
        let bed = try FaultBed(server) {
            $0.reconnectInitial = .milliseconds(1)
            $0.reconnectMaximum = .milliseconds(200)
        }
        bed.client.send(0..<20)
        try eventually("four attempts") { server.record.now.accepts >= 4 }
        let attempts = server.record.now.accepts
        // The attempts' number is read first, so this holds however slow the machine is.
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

    /// A connection that is up serves on when the certificate becomes a wrong one, and is not given up for it.
    @Test func whatIsOpenServesOn() throws {
        let server = try FaultServer { peer in
            peer.limit(10)
            peer.serve()
        }
        let bed = try FaultBed(server)
        try eventually("open") { bed.client.openConnections == 1 }
        var options = server.tls.serverOptions
        try Identity.expired.spoil(&options, server.tls)
        try server.use(options)
        bed.client.send(0..<100)
        try eventually("100 ends") { bed.ended == 100 }
        bed.expectExactlyOnce(100)
        #expect(server.record.now.accepts == 1)
        bed.stop()
    }

    // MARK: Names

    @Test func aNameWithoutAddressesIsAskedForSeldom() throws {
        let server = try FaultServer { $0.serve() }
        let began = ContinuousClock.now
        let bed = try FaultBed(server) {
            // An empty label: no look-up gets as far as a name server.
            $0.host = "no..name"
            $0.reconnectInitial = .milliseconds(200)
            $0.reconnectMaximum = .milliseconds(200)
        }
        bed.client.send(0..<5)
        try eventually("three look-ups") { bed.counters.lookupsFailed >= 3 }
        let lookups = bed.counters.lookupsFailed
        // A tenth of the window is waited at least.
        #expect(ContinuousClock.now - began >= .milliseconds(20) * (lookups - 1))
        #expect(bed.happened.contains("resolve failed"))
        #expect(bed.ended == 0)
        #expect(bed.client.read { $0.pool.scheduler.waiting } == 5)
        bed.stop()
    }
}

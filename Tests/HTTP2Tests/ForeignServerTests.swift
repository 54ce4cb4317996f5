import Foundation
import HTTP2
import TestSupport
import Testing

/// Tests our client against third-party servers. Each request is answered once, also when a connection ends
/// gracefully in between.
@Suite(.serialized) struct ForeignServerTests {
    private static func expectAnswers(
        _ client: PoolClient, _ count: Int, _ status: (UInt32) -> UInt16
    ) {
        let ends = client.read { $0.ends }
        #expect(ends.count == count)
        let wrong = ends.filter { $0.value != [status($0.key)] }
        #expect(wrong.isEmpty, "\(wrong.count), such as \(wrong.first!)")
    }

    @Test func nghttpdAnswersEveryRequestOnce() throws {
        let server = try ForeignServer.nghttpd(files: 2000)
        let client = try server.client { $0.connections = 2 }
        defer { client.stop() }
        client.send(0..<2000)
        try server.process.waits(for: "2000 answers") { client.read { $0.ends.count } == 2000 }
        Self.expectAnswers(client, 2000) { $0 % 2 == 0 ? 200 : 404 }
        #expect(client.read { $0.refusals } == 0)
        try server.stop()
    }

    @Test func nghttpxReloadUnderLoadLosesNoRequest() throws {
        let backend = try ForeignServer.nghttpd(files: 4000, tls: false)
        let server = try ForeignServer.nghttpx(backend: backend)
        let client = try server.client()
        defer { client.stop() }
        client.send(0..<1000)
        try server.process.waits(for: "1000 answers") { client.read { $0.ends.count } >= 1000 }
        #expect(client.read { $0.mostInFlight } <= 8)
        for round in 1...3 as ClosedRange<UInt32> {
            client.send(round * 1000..<(round + 1) * 1000, before: server.signals(SIGHUP))
            let wanted = Int(round + 1) * 1000
            try server.process.waits(for: "\(wanted) answers") { client.read { $0.ends.count } >= wanted }
            try server.process.waits(for: "GOAWAY \(round)") {
                client.read { $0.happened.count { $0.hasPrefix("goaway NO_ERROR") } } >= Int(round)
            }
        }
        Self.expectAnswers(client, 4000) { $0 % 2 == 0 ? 200 : 404 }
        try server.stop()
        try backend.stop()
    }

    @Test func nginxConnectionLimitLosesNoRequest() throws {
        let server = try ForeignServer.nginx(requestsPerConnection: 100)
        let client = try server.client { $0.connections = 2 }
        defer { client.stop() }
        client.send(0..<2000)
        try server.process.waits(for: "2000 answers") { client.read { $0.ends.count } >= 2000 }
        Self.expectAnswers(client, 2000) { $0 % 2 == 0 ? 200 : 410 }
        #expect(client.read { $0.happened.count { $0.hasPrefix("goaway NO_ERROR") } } >= 15)
        // Two connections, and two more that are being replaced.
        #expect(client.read { $0.mostInFlight } <= 4 * 8)
        try server.stop()
    }

    @Test func nginxReloadUnderLoadLosesNoRequest() throws {
        let server = try ForeignServer.nginx(requestsPerConnection: 1_000_000)
        let client = try server.client()
        defer { client.stop() }
        client.send(0..<500)
        try server.process.waits(for: "500 answers") { client.read { $0.ends.count } >= 500 }
        #expect(client.read { $0.mostInFlight } <= 8)
        client.send(500..<3000, before: server.signals(SIGHUP))
        try server.process.waits(for: "3000 answers") { client.read { $0.ends.count } >= 3000 }
        try server.process.waits(for: "the old worker's end") {
            client.read { $0.happened.contains { $0.hasPrefix("closed") } }
        }
        client.send(3000..<3500)
        try server.process.waits(for: "3500 answers") { client.read { $0.ends.count } >= 3500 }
        Self.expectAnswers(client, 3500) { $0 % 2 == 0 ? 200 : 410 }
        try server.stop()
    }

    @Test func h2oGracefulShutdownLosesNoAnswer() throws {
        let server = try ForeignServer.h2o()
        let client = try server.client()
        defer { client.stop() }
        client.send(0..<2000)
        try server.process.waits(for: "2000 answers") { client.read { $0.ends.count } >= 2000 }
        #expect(client.read { $0.mostInFlight } <= 100)
        // The last requests are sent as h2o stops. h2o answers them or declares them unprocessed.
        client.send(2000..<2008, before: server.signals(SIGTERM))
        try eventually("GOAWAY") { client.read { $0.happened.contains { $0.hasPrefix("goaway NO_ERROR") } } }
        try server.process.wait()
        let second = client.read { $0.ends.filter { $0.key >= 2000 } }
        #expect(second.allSatisfy { $0.value == [308] })
        let first = client.read { $0.ends.filter { $0.key < 2000 } }
        #expect(first.count == 2000 && first.allSatisfy { $0.value == [308] })
    }
}

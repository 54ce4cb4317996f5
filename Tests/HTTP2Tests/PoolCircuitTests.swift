import EventLoop
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import HTTP2

/// Runs a real pool against a server that refuses connections, hangs up, answers with errors, or doesn't
/// answer.
@Suite(.serialized) struct PoolCircuitTests {
    private func client(
        _ server: MoodyServer, _ change: (inout ConnectionPool.Configuration) -> Void = { _ in }
    ) throws -> PoolClient {
        try PoolClient(
            port: server.fixture.listener.port, context: .client(server.fixture.tls.clientOptions)
        ) {
            $0.connections = 2
            $0.circuitServerErrors = 20
            $0.circuitErrorTime = .zero
            change(&$0)
        }
    }

    private func circuits(_ client: PoolClient) -> [PoolCircuit] {
        client.read { $0.changes }.compactMap { if case .circuit(let new) = $0 { new } else { nil } }
    }

    private func openings(_ client: PoolClient, _ fault: PoolFault) -> Int {
        circuits(client).count { if case .open(_, fault) = $0 { true } else { false } }
    }

    private func probes(_ client: PoolClient) -> Int {
        circuits(client).count { if case .halfOpen = $0 { true } else { false } }
    }

    /// Records an issue for each transition that a circuit must not make.
    private func expectLegal(_ circuits: [PoolCircuit]) {
        var before = PoolCircuit.closed
        for circuit in circuits {
            switch (before, circuit) {
            case (.closed, .open), (.open, .halfOpen), (.halfOpen, .open), (.halfOpen, .closed): break
            case (.open(_, .unreachable), .closed): break
            default: Issue.record("\(before) became \(circuit)")
            }
            before = circuit
        }
    }

    @Test func refusedConnectionsOpenTheCircuitUntilTheServerReturns() throws {
        let port = try ReservedPort()
        let tls = try TLSFixture()
        let client = try PoolClient(port: port.number, context: .client(tls.clientOptions)) {
            $0.connections = 3
        }
        defer { client.stop() }
        client.send(0..<50)
        try eventually("three probes") { probes(client) >= 3 }
        #expect(openings(client, .unreachable) >= 3)
        #expect(client.read { $0.ends.isEmpty })
        #expect(client.snapshot.counters.opened == 0)
        #expect(client.snapshot.counters.openingsFailed >= 7)

        port.free()
        let loop = try EventLoop(name: "late-server")
        let log = ServerLog()
        let listener = try ServerListener(
            loop: loop, address: "127.0.0.1", port: port.number, tls: .server(tls.serverOptions),
            options: ServerOptions()
        ) { _ in RecordingHandler(log: log) { $1.respond(stream: $0.stream, status: 200) } }
        try listener.start()
        loop.start()
        try eventually("50 answers") { client.read { $0.ends.count } == 50 }
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [200] } })
        try eventually("all three") { client.openConnections == 3 }
        #expect(client.snapshot.circuit == .closed)
        expectLegal(circuits(client))
        loop.stop()
        loop.join()
    }

    @Test func serverErrorsOpenTheCircuitAndSingleRequestsProbe() throws {
        let server = try MoodyServer(.errors)
        let client = try client(server)
        defer { client.stop() }
        try eventually("both open") { client.openConnections == 2 }
        client.send(0..<500)
        try eventually("probes") { probes(client) >= 4 }
        let (received, probed) = client.read {
            ($0.ends.count, $0.changes.count { if case .circuit(.halfOpen) = $0 { true } else { false } })
        }
        // Twenty errors open the circuit, while at most twenty streams are in use. Each probe is one request.
        #expect(received >= 20)
        #expect(received <= 20 + 20 + probed)
        #expect(client.read { $0.pool.inFlight } <= 1)
        #expect(openings(client, .serverErrors) >= 4)

        server.mood.become(.well)
        try eventually("500 answers") { client.read { $0.ends.count } == 500 }
        #expect(client.snapshot.circuit == .closed)
        #expect(client.read { $0.ends.values.allSatisfy { $0.count == 1 } })
        expectLegal(circuits(client))
        // Connections stay open because the server answers on them.
        #expect(server.fixture.log.opened == 2)
        #expect(server.fixture.log.closed.isEmpty)
    }

    /// A request of an app without errors doesn't wait for the turn of the app that has them.
    @Test func anAppThatIsNotInTroubleProbesAtOnce() throws {
        let server = try ServerFixture(
            options: { $0.maximumConcurrentStreams = 100 },
            respond: { request, connection in
                let isOther = request.path.elementsEqual("/3/device/9".utf8)
                connection.respond(stream: request.stream, status: isOther ? 200 : 500)
            })
        let client = try PoolClient(
            port: server.listener.port, context: .client(server.tls.clientOptions)
        ) {
            $0.apps = 2
            $0.circuitServerErrors = 5
            $0.circuitErrorTime = .zero
            $0.reconnectInitial = .seconds(3600)
            $0.reconnectMaximum = .seconds(3600)
        }
        defer { client.stop() }
        client.send(10..<15)
        try eventually("the circuit opens") { openings(client, .serverErrors) == 1 }
        client.send(20..<25)
        client.send([9], app: 1)
        try eventually("the answer") { client.read { $0.ends[9] } == [200] }
        #expect(circuits(client).prefix(3).dropFirst() == [.halfOpen(.serverErrors), .closed])
    }

    @Test func connectionsClosedByTheServerOpenTheCircuit() throws {
        let server = try MoodyServer(.hangsUp)
        let client = try client(server) { $0.connections = 1 }
        defer { client.stop() }
        client.send(0..<300)
        try eventually("probes") { probes(client) >= 3 }
        // The pool may see the end of the probe's connection or that of its request first.
        #expect(openings(client, .unreachable) >= 1)
        #expect(openings(client, .unreachable) + openings(client, .serverErrors) >= 3)
        let lost = client.read { $0.ends.count }
        // Five connections lose ten requests each, and each probe loses one.
        #expect(lost <= 50 + probes(client))
        server.mood.become(.well)
        try eventually("300 ends") { client.read { $0.ends.count } == 300 }
        try eventually("all is well") { client.snapshot.circuit == .closed }
        expectLegal(circuits(client))
    }

    @Test func expiredProbesKeepTheCircuitOpen() throws {
        let server = try MoodyServer(.errors)
        let client = try client(server) {
            $0.connections = 1
            $0.connection.requestTimeout = .milliseconds(50)
        }
        defer { client.stop() }
        client.send(0..<300)
        try eventually("the circuit opens") { openings(client, .serverErrors) >= 1 }
        server.mood.become(.silent)
        let before = openings(client, .serverErrors)
        // A late error explains at most one of these openings; expired probes explain the others.
        try eventually("the circuit opens three more times") { openings(client, .serverErrors) >= before + 3 }
        try eventually("probes expire") { client.read { $0.ends.values.count { $0 == [0] } } >= 3 }
        try eventually("the circuit is open or half open") { client.snapshot.circuit != .closed }
        // Probes are single requests.
        #expect(client.read { $0.pool.inFlight } <= 1)
        server.mood.become(.well)
        try eventually("300 ends") { client.read { $0.ends.count } == 300 }
        try eventually("all is well") { client.snapshot.circuit == .closed }
        expectLegal(circuits(client))
    }

    @Test func stoppedPoolReportsReasonAndOpensNothingUntilRetry() throws {
        let server = try MoodyServer(.well)
        let client = try client(server) {
            $0.connections = 1
            $0.stopInitial = .seconds(3600)
            $0.stopMaximum = .seconds(3600)
        }
        defer { client.stop() }
        try eventually("open") { client.openConnections == 1 }
        client.send(0..<5)
        try eventually("5 answers") { client.read { $0.ends.count } == 5 }
        client.loop.runBlocking {
            client.pool.stop(reason: "BadCertificate")
            client.pool.replace(0, .now)
        }
        try eventually("the connection ends") { client.snapshot.connections.isEmpty }
        client.send(5..<10)
        #expect(client.snapshot.stopReason == "BadCertificate")
        #expect(client.read { $0.happened }.contains("stopped: BadCertificate"))
        #expect(client.snapshot.circuit == .closed)
        #expect(server.fixture.log.opened == 1)
        endStop(client)
        try eventually("10 answers") { client.read { $0.ends.count } == 10 }
        #expect(client.snapshot.stopReason == nil)
        #expect(server.fixture.log.opened == 2)
    }

    /// Ends a stop as its time does.
    private func endStop(_ client: PoolClient) {
        client.loop.runBlocking {
            client.pool.machine.endStop(now: client.loop.now.nanoseconds)
            client.pool.carryOut()
        }
    }

    /// The server demands a certificate, which the client doesn't have. Other faults of settings would delay the second
    /// opening for a quarter of an hour.
    @Test func refusedCertificateHasTheOrdinaryBackOff() throws {
        let server = try ServerFixture(demandsCertificate: true)
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions)) {
            $0.reconnectInitial = .milliseconds(1)
            $0.reconnectMaximum = .seconds(600)
        }
        defer { client.stop() }
        try eventually("eight openings fail") { client.snapshot.counters.openingsFailed >= 8 }
        #expect(client.read { $0.happened }.contains { $0.contains("certificate required") })
        #expect(client.read { $0.pool.machine.failures } >= 8)
    }

    @Test func stoppedPoolHoldsRequestsDespiteOpenConnections() throws {
        let server = try MoodyServer(.well)
        let client = try client(server) {
            $0.connections = 1
            $0.stopInitial = .seconds(3600)
            $0.stopMaximum = .seconds(3600)
        }
        defer { client.stop() }
        client.send(0..<5)
        try eventually("5 answers") { client.read { $0.ends.count } == 5 }
        client.loop.runBlocking {
            client.pool.stop(reason: "BadCertificate")
        }
        client.send(5..<10)
        #expect(client.read { $0.pool.scheduler.waiting } == 5)
        #expect(client.read { $0.pool.inFlight } == 0)
        #expect(client.openConnections == 1)
        endStop(client)
        try eventually("10 answers") { client.read { $0.ends.count } == 10 }
        #expect(server.fixture.log.opened == 1)
    }

    /// The owner replaces each connection at its first answer. Status 410 alone shows that the credential was
    /// accepted.
    @Test(arguments: [(403, 1), (429, 1), (410, 0)] as [(UInt16, Int)])
    func replacedConnectionIsAFailureUnlessCredentialWasAccepted(status: UInt16, failures: Int) throws {
        let server = try ServerFixture(respond: { request, connection in
            connection.respond(stream: request.stream, status: status)
        })
        let client = try PoolClient(
            port: server.listener.port, context: .client(server.tls.clientOptions)
        ) {
            $0.reconnectInitial = .seconds(600)
            $0.reconnectMaximum = .seconds(600)
        }
        defer { client.stop() }
        client.replaceConnections(thatAnswer: status)
        client.send(0..<1)
        try eventually("an answer") { client.read { $0.ends[0] } == [status] }
        #expect(client.read { $0.pool.machine.failures } == failures)
        try eventually("the connection is closed") { server.log.closed.count == 1 }
        if failures == 0 { try eventually("another connection is open") { client.openConnections == 1 } }
        #expect(server.log.opened == 2 - failures)
        #expect(client.snapshot.circuit == .closed)
    }

    @Test func snapshotIncludesCountersOfClosedConnections() throws {
        let next = Atomic<Int>(0)
        let server = try ServerFixture(respond: { request, connection in
            switch next.add(1, ordering: .relaxed).newValue {
            case 1...50: connection.respond(stream: request.stream, status: 200)
            case 51...60: connection.respond(stream: request.stream, status: 410)
            case 61: connection.reset(stream: request.stream, errorCode: 2)
            case 62:
                connection.respond(stream: request.stream, status: 500)
                connection.goAway(debugData: "{\"reason\":\"Shutdown\"}")
            default: connection.respond(stream: request.stream, status: 200)
            }
        })
        let client = try PoolClient(
            port: server.listener.port, context: .client(server.tls.clientOptions)
        ) {
            // A single stream, so that nothing else is open when the GOAWAY arrives.
            $0.connection.session.maximumStreams = 1
        }
        defer { client.stop() }
        client.send(0..<70)
        try eventually("70 ends") { client.read { $0.ends.count } == 70 }
        try eventually("the first connection is gone") {
            client.snapshot.connections.map(\.state) == [.active]
        }
        let snapshot = client.snapshot
        let counters = snapshot.counters
        #expect(counters.requests == 70)
        #expect(counters.answers2xx == 58)
        #expect(counters.answers4xx == 10)
        #expect(counters.answers5xx == 1)
        #expect(counters.resetsReceived == 1)
        #expect(counters.unknown == 1)
        #expect(counters.notProcessed == 0)
        #expect(counters.opened == 2)
        #expect(counters.endedByUs + counters.endedByServer == 1)
        #expect(counters.goAways == 1)
        #expect(String(decoding: counters.lastGoAwayReason, as: UTF8.self) == "{\"reason\":\"Shutdown\"}")
        #expect(snapshot.connections[0].statistics.requests == 8)
        #expect(snapshot.connections[0].address == "127.0.0.1:\(server.listener.port)")
        #expect(snapshot.inFlight == 0)
        #expect(snapshot.waiting == 0)
    }
}

/// Current behaviour of a server; any thread may change it.
private final class Mood: Sendable {
    enum Value: Int {
        case well, errors, hangsUp, silent
    }

    private let value: Atomic<Int>

    init(_ value: Value) { self.value = Atomic(value.rawValue) }

    func become(_ new: Value) { value.store(new.rawValue, ordering: .relaxed) }
    var current: Value { Value(rawValue: value.load(ordering: .relaxed)) ?? .well }
}

private final class MoodyServer: Sendable {
    let mood: Mood
    let fixture: ServerFixture

    init(_ value: Mood.Value) throws {
        let mood = Mood(value)
        self.mood = mood
        fixture = try ServerFixture(
            options: { $0.maximumConcurrentStreams = 10 },
            respond: { request, connection in
                switch mood.current {
                case .well: connection.respond(stream: request.stream, status: 200)
                case .errors: connection.respond(stream: request.stream, status: 503)
                case .hangsUp: connection.close()
                case .silent: break
                }
            })
    }
}

/// A reserved port of 127.0.0.1 that refuses connections until it is freed.
private final class ReservedPort {
    let number: UInt16
    private var descriptor: Int32

    init() throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = descriptor
        let bound = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
            }
        }
        guard bound else { throw SystemError(call: "bind") }
        number = UInt16(bigEndian: address.sin_port)
    }

    deinit { free() }

    func free() {
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
    }
}

import EventLoop
import Synchronization
import TestSupport
import Testing

@testable import HTTP2

/// Tests a real pool that grows, shrinks and rotates without losing or repeating a request.
@Suite(.serialized) struct PoolElasticityTests {
    private func client(
        _ server: ServerFixture, _ change: (inout ConnectionPool.Configuration) -> Void
    ) throws -> PoolClient {
        try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions), change)
    }

    /// Waits until `count` requests have ended, and expects a single 200 for each.
    private func expectAllAnswered(_ client: PoolClient, _ count: Int) throws {
        try eventually("\(count) answers") { client.read { $0.ends.count } == count }
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [200] } })
    }

    private func sizes(_ client: PoolClient) -> [Int] {
        client.read { $0.changes }.compactMap { if case .grew(let size, _) = $0 { size } else { nil } }
    }

    private func rotations(_ client: PoolClient, _ cause: PoolRotationCause) -> Int {
        client.read { $0.changes }.count { if case .rotates(_, cause) = $0 { true } else { false } }
    }

    private func reserveRequests(_ client: PoolClient) -> UInt64? {
        client.snapshot.connections.first { $0.state == .reserve }?.statistics.requests
    }

    @Test func poolGrowsUnderLoadAndShrinksWhenIdle() throws {
        let held = HeldRequests()
        let server = try ServerFixture(
            options: { $0.maximumConcurrentStreams = 10 }, respond: held.holdFurther)
        let client = try client(server) {
            $0.maximumConnections = 3
            $0.growthPatience = .milliseconds(10)
            $0.growthInterval = .milliseconds(20)
            $0.idleTimeout = .milliseconds(400)
        }
        defer { client.stop() }
        client.send(0..<300)
        // The server answers nothing until the pool has its maximum of connections and all of them are full.
        try eventually("three full connections") { client.read { $0.pool.inFlight } == 30 }
        try eventually("the server has the requests") { held.count(on: server.loop) == 30 }
        #expect(server.log.opened == 3)
        #expect(sizes(client) == [2, 3])
        held.answerAll(on: server.loop)
        try expectAllAnswered(client, 300)
        #expect(server.log.opened == 3, "the maximum holds")
        #expect(client.read { $0.mostInFlight } == 30)

        try eventually("one connection is left") { server.log.closed.count == 2 }
        try eventually("the pool has one connection") { client.snapshot.connections.count == 1 }
        let changes = client.read { $0.changes }
        #expect(changes.contains(.shrank(to: 2)))
        #expect(changes.last == .shrank(to: 1))
        #expect(client.snapshot.targetConnections == 1)
        // Ten requests fit into the connection, so the pool doesn't grow.
        client.send(300..<310)
        try expectAllAnswered(client, 310)
        #expect(server.log.opened == 3)
    }

    @Test func reserveIsRecalledBeforeAConnectionOpens() throws {
        let held = HeldRequests()
        let server = try ServerFixture(
            options: { $0.maximumConcurrentStreams = 10 }, respond: held.holdFurther)
        let client = try client(server) {
            $0.maximumConnections = 2
            $0.growthPatience = .milliseconds(10)
            $0.growthInterval = .zero
            // Long enough to keep the reserve until the test ends.
            $0.idleTimeout = .seconds(4)
        }
        defer { client.stop() }
        client.send(0..<40)
        try eventually("two full connections") { client.read { $0.pool.inFlight } == 20 }
        try eventually("the server has the requests") { held.count(on: server.loop) == 20 }
        held.answerAll(on: server.loop)
        try expectAllAnswered(client, 40)
        try eventually("a connection is in reserve") {
            client.snapshot.connections.contains { $0.state == .reserve }
        }
        // The active connection takes all requests that it has room for.
        let before = reserveRequests(client)
        for number in UInt32(40)..<50 {
            client.send(number..<(number + 1))
            try expectAllAnswered(client, Int(number) + 1)
        }
        #expect(reserveRequests(client) == before)
        held.holdAgain(on: server.loop)
        client.send(50..<90)
        try eventually("both are full") { client.read { $0.pool.inFlight } == 20 }
        try eventually("the reserve is recalled") {
            client.read { $0.changes }.contains { if case .recalled = $0 { true } else { false } }
        }
        try eventually("the server has the requests") { held.count(on: server.loop) == 20 }
        held.answerAll(on: server.loop)
        try expectAllAnswered(client, 90)
        #expect(server.log.opened == 2)
    }

    @Test func unauthenticatedConnectionDoesNotGrowThePool() throws {
        let held = HeldRequests()
        let server = try ServerFixture(
            options: { $0.maximumConcurrentStreams = 500 }, respond: held.hold)
        let client = try client(server) {
            $0.maximumConnections = 4
            $0.growthPatience = .zero
            $0.growthInterval = .zero
            $0.queueAgeTarget = .milliseconds(30)
            $0.idleTimeout = .milliseconds(80)
            $0.connection.session.waitsForAuthentication = true
        }
        defer { client.stop() }
        client.send(0..<200)
        try eventually("the first request") { held.count(on: server.loop) == 1 }
        // Waits for several times the patience and the queue age that would otherwise grow the pool.
        try eventually("time passes") {
            client.read { $0.pool.scheduler.oldestAge(.immediate, now: $0.loop.now.nanoseconds) ?? 0 }
                > 200_000_000
        }
        #expect(sizes(client) == [])
        held.answerAll(on: server.loop)
        try expectAllAnswered(client, 200)
    }

    @Test func ageRotationLosesNoRequest() throws {
        let server = try ServerFixture(options: { $0.maximumConcurrentStreams = 20 })
        let client = try client(server) {
            $0.connections = 2
            $0.maximumAge = .milliseconds(40)
            $0.idleTimeout = .milliseconds(80)
        }
        defer { client.stop() }
        var sent: UInt32 = 0
        while rotations(client, .age) < 6, sent < 9000 {
            client.send(sent..<(sent + 100))
            sent += 100
            try expectAllAnswered(client, Int(sent))
            // The idle pool rotates as well.
            if sent == 9000 { try eventually("connections rotate") { rotations(client, .age) >= 6 } }
        }
        #expect(rotations(client, .age) >= 6)
        #expect(server.log.opened >= 5)
        #expect(client.read { $0.refusals } == 0)
        #expect(server.log.requests.count == Int(sent))
    }

    @Test func connectionIsReplacedBeforeItsStreamIDsRunOut() throws {
        let server = try ServerFixture(options: { $0.maximumConcurrentStreams = 20 })
        let client = try client(server) {
            $0.idleTimeout = .milliseconds(80)
            $0.connection.session.maximumStreams = 20
            $0.connection.session.firstStreamID = Self.id(requestsLeft: 100_000)
            $0.leastStreamsLeft = 99_900
        }
        defer { client.stop() }
        var sent: UInt32 = 0
        while rotations(client, .streamIDs) < 3, sent < 9900 {
            client.send(sent..<(sent + 50))
            sent += 50
            try expectAllAnswered(client, Int(sent))
        }
        try eventually("connections rotate") { rotations(client, .streamIDs) >= 3 }
        try eventually("the old ones end") { server.log.closed.count >= 3 }
        #expect(client.read { $0.refusals } == 0)
        #expect(server.log.requests.count == Int(sent))
    }

    @Test func exhaustedStreamIDsLoseNoRequest() throws {
        let server = try ServerFixture(options: { $0.maximumConcurrentStreams = 20 })
        let client = try client(server) {
            $0.connection.session.maximumStreams = 20
            $0.connection.session.firstStreamID = Self.id(requestsLeft: 300)
            $0.leastStreamsLeft = 0
        }
        defer { client.stop() }
        client.send(0..<2000)
        try expectAllAnswered(client, 2000)
        #expect(server.log.opened >= 6)
        #expect(server.log.requests.count == 2000)
    }

    @Test func connectionsEndedByGoAwayAreReplaced() throws {
        let next = Atomic<Int>(0)
        let server = try ServerFixture(
            options: { $0.maximumConcurrentStreams = 20 },
            respond: { request, connection in
                connection.respond(stream: request.stream, status: 200)
                if next.add(1, ordering: .relaxed).newValue % 100 == 0 { connection.goAway() }
            })
        let client = try client(server) { $0.connections = 4 }
        defer { client.stop() }
        try eventually("all open") { client.openConnections == 4 }
        client.send(0..<1000)
        try expectAllAnswered(client, 1000)
        try eventually("four again") {
            client.snapshot.connections.count { $0.state == .active } == 4
        }
        #expect(client.snapshot.targetConnections == 4)
        #expect(sizes(client) == [])
    }

    /// The first stream ID with which a connection of 20 streams takes `requestsLeft` requests.
    private static func id(requestsLeft: Int) -> UInt32 {
        var configuration = ClientSession.Configuration()
        configuration.maximumStreams = 20
        let fresh = ClientSession(configuration: configuration, fields: StableFields())
        return 1 + 2 * UInt32(fresh.remainingStreams - requestsLeft)
    }
}

/// Requests that a server holds until `answerAll`. Later requests are answered at once.
// Sendable because only the server's loop uses the state.
final class HeldRequests: @unchecked Sendable {
    private var requests: [(stream: Int32, connection: ServerConnection)] = []
    private var holds = true

    func hold(_ request: ServerRequest, _ connection: ServerConnection) {
        guard holds else { return connection.respond(stream: request.stream, status: 200) }
        requests.append((request.stream, connection))
    }

    /// Answers the first request of each connection, and holds the others.
    func holdFurther(_ request: ServerRequest, _ connection: ServerConnection) {
        guard request.stream == 1 else { return hold(request, connection) }
        connection.respond(stream: request.stream, status: 200)
    }

    func count(on loop: EventLoop) -> Int { loop.runBlocking { [self] in requests.count } }

    func answerAll(on loop: EventLoop) {
        loop.runBlocking { [self] in
            holds = false
            for (stream, connection) in requests { connection.respond(stream: stream, status: 200) }
            requests = []
        }
    }

    func holdAgain(on loop: EventLoop) { loop.runBlocking { [self] in holds = true } }
}

import EventLoop
import Glibc
import StreamScheduling
import Synchronization
import TestSupport
import Testing

@testable import HTTP2

/// A pool on its own event loop. Its owner sends numbered requests, and retries those that weren't processed.
// Sendable because only the loop's thread uses the state.
final class PoolClient: ConnectionPoolDelegate, TurnEndHandler, @unchecked Sendable {
    let loop: EventLoop
    private(set) var pool: ConnectionPool!
    private let fields = StableFields()
    private let authority: StableFields.ID
    private let topic: StableFields.ID
    private let body: UnsafeMutableRawBufferPointer
    private var turnEndIsScheduled = false

    /// Final statuses by request number; 0 stands for an unknown outcome.
    private(set) var ends: [UInt32: [UInt16]] = [:]
    private(set) var refusals = 0
    private(set) var happened: [String] = []
    /// Changes that the pool reported, in order.
    private(set) var changes: [PoolChange] = []
    private(set) var mostInFlight = 0
    /// A status whose connection is replaced at once; nil when no status has this effect.
    private var statusToReplace: UInt16?
    /// Number of times the pool reported capacity.
    private(set) var capacityReports = 0

    init(
        port: UInt16, context: TLSContext, bodyBytes: Int = 250, resolver: AddressResolver = .system,
        _ change: (inout ConnectionPool.Configuration) -> Void = { _ in }
    ) throws {
        loop = try EventLoop(name: "client")
        authority = fields.add(name: ":authority", value: Array("localhost".utf8))
        topic = fields.add(name: "apns-topic", value: Array("com.example.app".utf8))
        body = .allocate(byteCount: bodyBytes, alignment: 8)
        body.initializeMemory(as: UInt8.self, repeating: UInt8(ascii: "b"))
        var configuration = ConnectionPool.Configuration(host: "localhost", port: port)
        configuration.connections = 1
        configuration.openInterval = .zero
        configuration.reconnectInitial = .milliseconds(5)
        configuration.reconnectMaximum = .milliseconds(20)
        configuration.connection.session.waitsForAuthentication = false
        change(&configuration)
        pool = ConnectionPool(
            configuration: configuration, context: context, fields: fields,
            notifications: NotificationTable(capacity: 10_000), loop: loop, delegate: self,
            resolver: resolver)
        loop.start()
        loop.execute { [self] in pool.start() }
    }

    deinit { body.deallocate() }

    func stop() {
        loop.runBlocking { [self] in pool.close() }
        loop.stop()
        loop.join()
    }

    func send(
        _ numbers: some Sequence<UInt32> & Sendable, app: UInt32 = 0,
        before: @escaping @Sendable () -> Void = {}
    ) {
        loop.runBlocking { [self] in
            before()
            for number in numbers { enqueue(number, app: app) }
            poolHasCapacity(pool)
        }
    }

    func pace(_ perSecond: Double) {
        loop.runBlocking { [self] in
            _ = pool.scheduler.setLimits(app: 0, .init(ratePerSecond: perSecond), now: loop.now.nanoseconds)
        }
    }

    func read<T: Sendable>(_ body: @escaping @Sendable (PoolClient) -> T) -> T {
        loop.runBlocking { [self] in body(self) }
    }

    func replaceConnections(thatAnswer status: UInt16) {
        loop.runBlocking { [self] in statusToReplace = status }
    }

    func drain() { loop.runBlocking { [self] in pool.drain() } }
    var snapshot: PoolSnapshot { loop.runBlocking { [self] in pool.snapshot() } }
    var openConnections: Int { loop.runBlocking { [self] in pool.openConnections } }

    private func enqueue(_ number: UInt32, app: UInt32 = 0, atFront: Bool = false) {
        pool.scheduler.enqueue(
            slot: number, app: app, priority: .immediate, bytes: body.count, now: loop.now.nanoseconds,
            atFront: atFront
        )
    }

    func turnEnded() {
        turnEndIsScheduled = false
        while let (slot, connection) = pool.nextAssignment() {
            let result = connection.submit(tag: slot, body: UnsafeRawBufferPointer(body)) { block in
                block.indexedStatic(3)
                block.indexedStatic(7)
                block.stable(authority)
                Array("\(slot)".utf8).withUnsafeBytes { block.path("/3/device/", $0) }
                block.stable(topic)
            }
            if result != .submitted {
                pool.withdraw(slot, from: connection)
                enqueue(slot, atFront: true)
            }
        }
        mostInFlight = max(mostInFlight, pool.inFlight)
    }

    func pool(
        _ pool: ConnectionPool, received events: UnsafeBufferPointer<ClientEvent>,
        on connection: ClientConnection
    ) {
        for event in events {
            switch event.kind {
            case .response:
                ends[event.tag, default: []].append(event.status)
                if event.status == statusToReplace { pool.replace(connection.number, .now) }
            case .failed where event.processed == .no:
                refusals += 1
                enqueue(event.tag, atFront: true)
            case .failed: ends[event.tag, default: []].append(0)
            default: break
            }
        }
    }

    func poolHasCapacity(_ pool: ConnectionPool) {
        capacityReports += 1
        guard !turnEndIsScheduled else { return }
        turnEndIsScheduled = true
        loop.atTurnEnd(self)
    }

    func pool(_ pool: ConnectionPool, happened event: PoolEvent) {
        switch event {
        case .opened: happened.append("opened")
        case .closed(_, _, let reason): happened.append("closed: \(reason)")
        case .goAway(_, _, let code, let data):
            happened.append("goaway \(code) \(String(decoding: data, as: UTF8.self))")
        case .resolveFailed: happened.append("resolve failed")
        case .resolver(let change): happened.append("resolver: \(change)")
        case .stopped(let reason, _): happened.append("stopped: \(reason)")
        case .changed(let change): changes.append(change)
        }
    }
}

/// Tests our client against nghttp2's server side, so that another implementation checks each end.
@Suite(.serialized) struct ConnectionPoolTests {
    /// Counts from 1, on any thread.
    private static func counter() -> @Sendable () -> Int {
        let count = Atomic<Int>(0)
        return { count.add(1, ordering: .relaxed).newValue }
    }

    private func expectAnswers(_ client: PoolClient, _ count: Int, exactlyOnce: Bool = true) throws {
        try eventually("\(count) answers") { client.read { $0.ends.count } == count }
        let ends = client.read { $0.ends }
        #expect(ends.values.allSatisfy { $0.count == 1 })
    }

    @Test func threeConnectionsAnswerEveryRequestOnce() throws {
        let server = try ServerFixture()
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions)) {
            $0.connections = 3
        }
        try eventually("all are open") { client.openConnections == 3 }
        client.send(0..<3000)
        try expectAnswers(client, 3000)
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [200] } })
        let requests = server.log.requests
        #expect(requests.count == 3000)
        #expect(Set(requests.map(\.path)).count == 3000)
        #expect(requests.allSatisfy { $0.bodyLength == 250 && $0.headers["apns-topic"] == "com.example.app" })
        #expect(requests.allSatisfy { $0.method == "POST" })
        // The third connection may open after the last answer.
        try eventually("three connections") { client.openConnections == 3 }
        #expect(server.log.opened == 3)
        client.drain()
        try eventually("connections end") { server.log.closed.count == 3 }
        client.stop()
    }

    @Test func largeBodiesArriveWholeThroughSmallWindows() throws {
        let server = try ServerFixture(options: { $0.initialWindowSize = 1000 })
        let client = try PoolClient(
            port: server.listener.port, context: .client(server.tls.clientOptions), bodyBytes: 5000)
        client.send(0..<300)
        try expectAnswers(client, 300)
        #expect(server.log.requests.allSatisfy { $0.bodyLength == 5000 })
        client.stop()
    }

    /// Nothing happens on the connection between two requests, so the pool's timer has to assign the next.
    @Test func pacedRequestsAreSentByThePoolsTimer() throws {
        let server = try ServerFixture()
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions))
        client.pace(100)
        client.send(0..<10)
        try expectAnswers(client, 10)
        client.stop()
    }

    @Test func requestsInFlightStayWithinTheServersStreamLimit() throws {
        let server = try ServerFixture(options: { $0.maximumConcurrentStreams = 7 })
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions))
        client.send(0..<500)
        try expectAnswers(client, 500)
        #expect(client.read { $0.mostInFlight } == 7)
        #expect(client.read { $0.refusals } == 0)
        client.stop()
    }

    @Test func goAwayUnderLoadLosesNoRequest() throws {
        let next = Self.counter()
        let server = try ServerFixture(respond: { request, connection in
            let number = next()
            connection.respond(stream: request.stream, status: 200)
            if number % 200 == 0 { connection.goAway(debugData: "{\"reason\":\"Shutdown\"}") }
        })
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions)) {
            $0.connections = 2
            $0.connection.session.maximumStreams = 50
        }
        client.send(0..<1000)
        try expectAnswers(client, 1000)
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [200] } })
        #expect(
            client.read { $0.happened.contains { $0.hasPrefix("goaway NO_ERROR {\"reason\":\"Shutdown\"}") } }
        )
        client.stop()
    }

    @Test func refusedStreamsAreRetried() throws {
        let next = Self.counter()
        let server = try ServerFixture(respond: { request, connection in
            let number = next()
            if number % 3 == 0 {
                connection.reset(stream: request.stream, errorCode: 7)
            } else {
                connection.respond(stream: request.stream, status: 200)
            }
        })
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions))
        client.send(0..<300)
        try expectAnswers(client, 300)
        #expect(client.read { $0.refusals } > 100)
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [200] } })
        client.stop()
    }

    @Test func cutConnectionIsReplacedAndItsRequestsEndUnknown() throws {
        let next = Self.counter()
        let server = try ServerFixture(respond: { request, connection in
            let number = next()
            if number == 50 { connection.close() }
            if number > 50 { connection.respond(stream: request.stream, status: 200) }
        })
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions)) {
            $0.connection.session.maximumStreams = 60
        }
        client.send(0..<200)
        try expectAnswers(client, 200)
        let ends = client.read { $0.ends.values.map { $0[0] } }
        // The first fifty got no answer. TCP decides about the ten behind them. Some may be answered before the
        // cut, or refused by a GOAWAY and retried.
        let unknown = ends.count { $0 == 0 }
        #expect((50...60).contains(unknown))
        #expect(ends.count { $0 == 200 } == 200 - unknown)
        #expect(client.read { $0.happened.filter { $0 == "opened" }.count } == 2)
        client.stop()
    }

    @Test func silentConnectionEndsAsUnresponsiveAndRequestsEndUnknown() throws {
        // The server's loop is blocked, so that it answers neither requests nor PINGs.
        let release = BlockingFlag()
        let server = try ServerFixture(respond: { _, _ in release.wait() })
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions)) {
            $0.connection.requestTimeout = .milliseconds(200)
            $0.connection.pingTimeout = .milliseconds(200)
            $0.connection.connectTimeout = .milliseconds(300)
        }
        client.send(0..<5)
        try expectAnswers(client, 5)
        try eventually("the connection is given up") {
            client.read { $0.happened.contains { $0.contains("unresponsive") } }
        }
        #expect(client.read { $0.ends.values.allSatisfy { $0 == [0] } })
        release.set()
        client.stop()
    }

    @Test func requestTimeoutResetsOnlyItsOwnStream() throws {
        let server = try ServerFixture(respond: { request, connection in
            if String(decoding: request.path, as: UTF8.self) != "/3/device/3" {
                connection.respond(stream: request.stream, status: 200)
            }
        })
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions)) {
            // Long enough for the nine other answers, even on a busy machine.
            $0.connection.requestTimeout = .seconds(3)
        }
        client.send(0..<10)
        try expectAnswers(client, 10)
        #expect(client.read { $0.ends[3] } == [0])
        #expect(client.read { $0.ends.values.count { $0 == [200] } } == 9)
        #expect(client.openConnections == 1)
        try eventually("the stream was reset") { server.log.cancelled.count == 1 }
        client.stop()
    }

    @Test func connectFailureNamesTheAddressAndBacksOff() throws {
        let server = try ServerFixture()
        let client = try PoolClient(port: server.listener.port, context: .client(server.tls.clientOptions)) {
            $0.host = "127.0.0.2"
            $0.reconnectInitial = .seconds(30)
            $0.reconnectMaximum = .seconds(30)
        }
        // Nothing listens on this address.
        try eventually("an error") {
            client.read { $0.happened.contains { $0.contains("connect to 127.0.0.2") } }
        }
        #expect(client.read { $0.happened.count } <= 2)
        client.stop()
    }

    @Test func untrustedCertificateIsReportedInTheCloseReason() throws {
        let server = try ServerFixture()
        var options = ClientTLSOptions()
        options.trust = .authorities(.text(try TLSFixture().authority.certificatePEM))
        let client = try PoolClient(port: server.listener.port, context: .client(options)) {
            $0.reconnectInitial = .seconds(30)
            $0.reconnectMaximum = .seconds(30)
        }
        try eventually("an error") { client.read { $0.happened.contains { $0.hasPrefix("closed: ") } } }
        #expect(
            client.read { $0.happened[0].lowercased().contains("certificate") },
            "\(client.read { $0.happened })")
        client.stop()
    }

    @Test func poolConnectsOnceALateServerListens() throws {
        // A bound port on which nothing listens yet.
        let probe = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                _ = bind(probe, $0, length)
                getsockname(probe, $0, &length)
            }
        }
        let port = UInt16(bigEndian: address.sin_port)
        let tls = try TLSFixture()
        let client = try PoolClient(port: port, context: .client(tls.clientOptions))
        client.send(0..<10)
        try eventually("a refused connection") {
            client.read { $0.happened.contains { $0.contains("connect to") } }
        }
        close(probe)
        let loop = try EventLoop(name: "late-server")
        let log = ServerLog()
        let listener = try ServerListener(
            loop: loop, address: "127.0.0.1", port: port, tls: .server(tls.serverOptions),
            options: ServerOptions()
        ) { _ in RecordingHandler(log: log) { $1.respond(stream: $0.stream, status: 200) } }
        try listener.start()
        loop.start()
        try expectAnswers(client, 10)
        client.stop()
        loop.stop()
        loop.join()
    }
}

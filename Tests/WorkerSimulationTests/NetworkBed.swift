import SimulatedEventLoop
import SimulatedHTTP2
import StreamScheduling

/// A pool in one process that pushes over the simulated network to a server in another.
// Sendable: one thread has the simulation.
final class NetworkBed: ConnectionPoolDelegate, TurnEndHandler, ServerRequestHandler, @unchecked Sendable {
    let scheduler: Scheduler
    let network: SimulatedNetwork
    let clientProcess = SimulatedProcess("client")
    let serverProcess = SimulatedProcess("server")
    private(set) var clientLoop: EventLoop!
    private var serverLoop: EventLoop!
    private var listener: ServerListener!
    private(set) var pool: ConnectionPool!
    private let fields = StableFields()
    private let authority: StableFields.ID
    private let body = UnsafeMutableRawBufferPointer.allocate(byteCount: 250, alignment: 8)
    private var isTurnEndDue = false

    /// Called for each request; answers with 200 by default.
    var answer: (ServerRequest, ServerConnection) -> Void = { $1.respond(stream: $0.stream, status: 200) }
    /// Paths of the received requests, with their times.
    private(set) var received: [(path: String, time: UInt64)] = []
    /// Ends of pushes by number: the status, 0 when unknown.
    private(set) var ends: [UInt32: [UInt16]] = [:]
    /// Pushes that certainly weren't processed, which were sent again.
    private(set) var refusals = 0
    /// Whether events are recorded.
    var keepsTrace = true
    /// Events with their times.
    private(set) var trace: [String] = []
    /// Times at which connections were dialled.
    private(set) var dials: [UInt64] = []

    static let tls = try! (
        client: {
            var options = ClientTLSOptions()
            options.verifiesPeer = false
            return try TLSContext.client(options)
        }(),
        server: TLSContext.server(
            ServerTLSOptions(identity: CertificateAuthority().issueServer(names: ["localhost"]).identity))
    )

    /// - Parameter listens: whether the server listens from the beginning.
    init(
        seed: UInt64, listens: Bool = true,
        _ change: (inout ConnectionPool.Configuration) -> Void = { _ in }
    ) throws {
        scheduler = Scheduler(seed: seed)
        network = SimulatedNetwork.of(scheduler)
        authority = fields.add(name: ":authority", value: Array("push.example".utf8))
        body.initializeMemory(as: UInt8.self, repeating: UInt8(ascii: "b"))
        network.names["push.example"] = .addresses(["10.0.0.1"])
        network.whenDialled = { [unowned self] _ in dials.append(scheduler.now) }
        try scheduler.run {
            if listens { try listen() }
            try clientProcess.run {
                clientLoop = try EventLoop(name: "client")
                var configuration = ConnectionPool.Configuration(host: "push.example", port: 443)
                configuration.connections = 1
                configuration.connection.session.waitsForAuthentication = false
                change(&configuration)
                pool = ConnectionPool(
                    configuration: configuration, context: Self.tls.client, fields: fields,
                    notifications: NotificationTable(capacity: 20_000), loop: clientLoop, delegate: self)
                clientLoop.start()
                clientLoop.execute { [self] in pool.start() }
            }
        }
    }

    deinit { body.deallocate() }

    func listen() throws {
        try serverProcess.run {
            serverLoop = try EventLoop(name: "server")
            listener = try ServerListener(
                loop: serverLoop, address: "10.0.0.1", port: 443, tls: Self.tls.server
            ) { [unowned self] _ in self }
            try listener.start()
            serverLoop.start()
        }
    }

    /// Ends the pool and breaks the cycles of references.
    func stop() {
        scheduler.run {
            clientProcess.kill()
            serverProcess.kill()
        }
        answer = { _, _ in }
    }

    /// Lets the time pass.
    func run(milliseconds: UInt64) {
        scheduler.run { scheduler.run(until: scheduler.now + milliseconds * 1_000_000) }
    }

    func send(_ numbers: Range<UInt32>) {
        scheduler.run {
            _ = clientLoop.execute { [self] in
                for number in numbers { enqueue(number) }
                poolHasCapacity(pool)
            }
        }
    }

    private func enqueue(_ number: UInt32, atFront: Bool = false) {
        pool.scheduler.enqueue(
            slot: number, app: 0, priority: .immediate, bytes: body.count, now: clientLoop.now.nanoseconds,
            atFront: atFront)
    }

    private func note(_ text: @autoclosure () -> String) {
        if keepsTrace { trace.append("\(scheduler.now) \(text())") }
    }

    /// Drops what was recorded so far.
    func forget() {
        (received, ends, trace) = ([], [:], [])
    }

    // MARK: Client

    func turnEnded() {
        isTurnEndDue = false
        while let (slot, connection) = pool.nextAssignment() {
            let result = connection.submit(tag: slot, body: UnsafeRawBufferPointer(body)) { block in
                block.indexedStatic(3)
                block.indexedStatic(7)
                block.stable(authority)
                Array("\(slot)".utf8).withUnsafeBytes { block.path("/3/device/", $0) }
            }
            if result != .submitted {
                pool.withdraw(slot, from: connection)
                enqueue(slot, atFront: true)
            }
        }
    }

    func pool(
        _ pool: ConnectionPool, received events: UnsafeBufferPointer<ClientEvent>,
        on connection: ClientConnection
    ) {
        for event in events {
            switch event.kind {
            case .response: ends[event.tag, default: []].append(event.status)
            case .failed where event.processed == .no:
                refusals += 1
                enqueue(event.tag, atFront: true)
            case .failed: ends[event.tag, default: []].append(0)
            default: continue
            }
            note("\(connection.number) \(event.kind) \(event.tag) \(event.status)")
        }
    }

    func poolHasCapacity(_ pool: ConnectionPool) {
        guard !isTurnEndDue else { return }
        isTurnEndDue = true
        clientLoop.atTurnEnd(self)
    }

    func pool(_ pool: ConnectionPool, happened event: PoolEvent) {
        switch event {
        case .opened(let number, let address, _, _): note("opened \(number) \(address)")
        case .closed(let number, _, let reason): note("closed \(number) \(reason)")
        case .goAway(let number, _, let code, _): note("goaway \(number) \(code)")
        case .changed(let change): note("changed \(change)")
        default: note("\(event)")
        }
    }

    // MARK: Server

    func requestReceived(_ request: ServerRequest, on connection: ServerConnection) {
        received.append((String(decoding: request.path, as: UTF8.self), scheduler.now))
        answer(request, connection)
    }

    func connectionClosed(_ connection: ServerConnection, reason: ServerCloseReason) {
        note("server: closed \(reason)")
    }
}

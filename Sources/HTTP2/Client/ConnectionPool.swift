import DeliveryCore
import EventLoop

/// What happens in a pool, for logs and metrics.
public enum PoolEvent: Sendable {
    case opened(connection: UInt32, address: String, tls: String, handshakeNanoseconds: UInt64)
    case closed(connection: UInt32, reason: ConnectionCloseReason)
    /// The server announced the end of a connection; `debugData` at most 256 bytes of its reason.
    case goAway(connection: UInt32, code: HTTP2ErrorCode, debugData: [UInt8])
    case resolveFailed(ResolverError)
    /// No connection will be opened for a while; see ``ConnectionPool/stop(reason:retryAfter:)``.
    case stopped(reason: String)
}

/// Told what a pool's connections bring. Loop's thread.
public protocol ConnectionPoolDelegate: AnyObject {
    /// Ends of requests, as one batch a read; tags are the scheduler's slots. Valid during the call.
    func pool(
        _ pool: ConnectionPool, received events: UnsafeBufferPointer<ClientEvent>,
        on connection: ClientConnection)
    /// There may be room for requests again: take assignments at the end of this turn.
    func poolHasCapacity(_ pool: ConnectionPool)
    func pool(_ pool: ConnectionPool, happened event: PoolEvent)
}

/// The connections to one server with one credential on one event loop, and the scheduler that places
/// notifications on them. A fixed number of connections is kept open; one that ends is replaced at once, with
/// back-off while opening fails. Loop's thread only.
public final class ConnectionPool: ClientConnectionOwner, TimerHandler {
    public struct Configuration: Sendable {
        public var host: String
        public var port: UInt16
        /// Connections to keep open.
        public var connections = 2
        /// Between two openings; APNs takes many at once for an attack (CON, TRB).
        public var openInterval: Duration = .milliseconds(200)
        /// Before an opening is tried again after a failure: doubled each time, with full jitter, up to the maximum.
        public var reconnectInitial: Duration = .milliseconds(250)
        public var reconnectMaximum: Duration = .seconds(30)
        /// A connection is not replaced for mere suspicion before this age.
        public var leastAgeToReplace: Duration = .seconds(30)
        public var connection = ClientConnection.Configuration()
        /// Apps that the scheduler tells apart.
        public var apps = 1
        /// The seed of the jitter.
        public var seed: UInt64 = 1

        public init(host: String, port: UInt16) {
            self.host = host
            self.port = port
        }
    }

    public let configuration: Configuration
    /// Values that repeat in the headers of this pool's requests.
    public let fields: StableFields
    /// What waits and where it goes.
    public var scheduler: StreamScheduler
    /// Why no connection is opened for the time being.
    public private(set) var stopReason: String?

    private let context: TLSContext
    private let loop: EventLoop
    private unowned let delegate: any ConnectionPoolDelegate
    /// By number; twice as many as are kept, so that draining ones have room beside their successors.
    private var connections: [ClientConnection?]
    private var openingStarted: [MonotonicTime]
    /// Connections that serve until their successor is open.
    private var retiring: [Bool]
    private var addressOrder = AddressOrder()
    private var resolving = 0
    private var isClosing = false
    private var failures = 0
    private var lastOpening: MonotonicTime?
    private var notBefore: MonotonicTime?
    private var timer: TimerID?
    /// Goes off when an app that was held back by its pace may go on.
    private var paceTimer: TimerID?
    private var paceTimerAt = UInt64.max
    private var generator: SeededGenerator

    public init(
        configuration: Configuration, context: TLSContext, fields: StableFields,
        notifications: NotificationTable, loop: EventLoop, delegate: any ConnectionPoolDelegate
    ) {
        self.configuration = configuration
        self.context = context
        self.fields = fields
        self.loop = loop
        self.delegate = delegate
        let numbers = 2 * configuration.connections
        scheduler = StreamScheduler(
            .init(connections: numbers, apps: configuration.apps), notifications: notifications)
        connections = Array(repeating: nil, count: numbers)
        openingStarted = Array(repeating: loop.now, count: numbers)
        retiring = Array(repeating: false, count: numbers)
        generator = SeededGenerator(seed: configuration.seed)
    }

    // MARK: Life

    /// Begins to open connections.
    public func start() {
        maintain()
    }

    /// Opens no more and lets the open ones end their requests.
    public func drain() {
        isClosing = true
        for connection in connections { connection?.drain() }
    }

    /// Closes all at once; open requests end as unknown.
    public func close() {
        isClosing = true
        if let timer { loop.cancel(timer) }
        timer = nil
        if let paceTimer { loop.cancel(paceTimer) }
        paceTimer = nil
        for connection in connections { connection?.close() }
    }

    /// Stops opening connections, as it would not help (a certificate that the server refuses), until `retryAfter`
    /// has passed: someone may have mended it by then.
    public func stop(reason: String, retryAfter: Duration) {
        stopReason = reason
        notBefore = loop.now + retryAfter
        delegate.pool(self, happened: .stopped(reason: reason))
        maintain()
    }

    /// Connections that take requests.
    public var openConnections: Int {
        connections.reduce(0) { $0 + (($1?.isOpen ?? false) ? 1 : 0) }
    }

    /// Requests in flight.
    public var inFlight: Int {
        connections.reduce(0) { $0 + ($1?.openStreams ?? 0) }
    }

    // MARK: Placing

    /// The next waiting slot and the connection it goes to; nil when nothing that may go waits or nothing has room,
    /// which ends the run of assignments that one connection gets. The caller submits it there at once, or calls
    /// ``withdraw(_:from:)`` and enqueues the slot again or drops it.
    public func nextAssignment() -> (slot: UInt32, connection: ClientConnection)? {
        guard let assignment = scheduler.nextAssignment(now: loop.now.nanoseconds) else {
            scheduler.endRun()
            armPaceTimer()
            return nil
        }
        guard let connection = connections[Int(assignment.connection)] else {
            preconditionFailure("the scheduler knows connection \(assignment.connection), the pool does not")
        }
        return (assignment.slot, connection)
    }

    /// Takes back an assignment that was not submitted: the slot is idle, and its app and the connection have what
    /// was booked for it.
    public func withdraw(_ slot: UInt32, from connection: ClientConnection) {
        scheduler.withdrawn(slot: slot, now: loop.now.nanoseconds)
        report(connection)
    }

    private func armPaceTimer() {
        guard !isClosing, let wake = scheduler.nextWake else { return }
        if let paceTimer {
            guard wake < paceTimerAt else { return }
            loop.cancel(paceTimer)
        }
        paceTimerAt = wake
        paceTimer = loop.schedule(at: MonotonicTime(nanoseconds: wake), handler: self)
    }

    /// How soon a connection that is to be replaced stops taking requests.
    public enum Replacement: Sendable {
        /// At once: it is of no more use, as its credential's state on the server is spoilt.
        case now
        /// When its successor is open: it may be worn out (a server error, a server about to shut down). Left
        /// alone while it is young, as a fresh one was no better.
        case whenSuccessorIsOpen
    }

    /// Drains one connection and opens another in its place.
    public func replace(_ number: UInt32, _ replacement: Replacement) {
        guard let connection = connections[Int(number)], !connection.isEnding else { return }
        switch replacement {
        case .now:
            connection.drain()
            report(connection)
        case .whenSuccessorIsOpen:
            let age = loop.now.nanoseconds(since: openingStarted[Int(number)])
            guard age >= configuration.leastAgeToReplace.wholeNanoseconds else { return }
            retiring[Int(number)] = true
        }
        maintain()
    }

    /// A new connection is open: one that was to be replaced has done its service.
    private func drainRetired() {
        guard let number = retiring.firstIndex(of: true) else { return }
        retiring[number] = false
        guard let connection = connections[number] else { return }
        connection.drain()
        report(connection)
    }

    private func report(_ connection: ClientConnection) {
        let state: StreamScheduler.ConnectionState =
            connection.isEnding ? .draining : connection.isOpen ? .ready : .suspended
        scheduler.connectionChanged(
            connection.number, inFlight: connection.openStreams, streamsFree: connection.availableStreams,
            windowFree: connection.sendWindow, state: state)
    }

    // MARK: Opening

    private func maintain() {
        guard !isClosing else { return }
        var live = resolving
        for (connection, isRetiring) in zip(connections, retiring) {
            if let connection, !connection.isEnding, !isRetiring { live += 1 }
        }
        guard live < configuration.connections, connections.contains(where: { $0 == nil }) else { return }
        let paced = lastOpening.map { $0 + configuration.openInterval } ?? loop.now
        let earliest = max(paced, notBefore ?? paced)
        guard earliest <= loop.now else {
            if let timer { loop.cancel(timer) }
            timer = loop.schedule(at: earliest, handler: self)
            return
        }
        stopReason = nil
        lastOpening = loop.now
        resolving += 1
        // The closure runs on this loop, which owns the pool; the box only carries the reference there.
        let box = LoopConfined(self)
        let proxy = configuration.connection.proxy
        AddressResolver.resolve(
            host: proxy?.host ?? configuration.host, port: proxy?.port ?? configuration.port, on: loop
        ) { result in box.value.resolved(result) }
        maintain()
    }

    public func timerFired(_ timer: TimerID) {
        if timer == paceTimer {
            paceTimer = nil
            return delegate.poolHasCapacity(self)
        }
        self.timer = nil
        maintain()
    }

    private func resolved(_ result: Result<[SocketAddress], ResolverError>) {
        resolving -= 1
        guard !isClosing else { return }
        switch result {
        case .failure(let error):
            openingFailed()
            delegate.pool(self, happened: .resolveFailed(error))
        case .success(let addresses):
            guard let number = connections.firstIndex(where: { $0 == nil }) else { return }
            let ordered = addressOrder.next(
                addresses, inUse: connections.compactMap { $0?.address }, now: loop.now.nanoseconds)
            let connection = ClientConnection(
                number: UInt32(number), addresses: ordered, serverName: configuration.host,
                port: configuration.port, context: context, fields: fields,
                configuration: configuration.connection, loop: loop, owner: self)
            connections[number] = connection
            openingStarted[number] = loop.now
            connection.connect()
        }
        maintain()
    }

    private func openingFailed() {
        failures += 1
        guard stopReason == nil else { return }
        let step = min(failures - 1, 20)
        let initial = configuration.reconnectInitial.wholeNanoseconds
        let window = min(initial << UInt64(step), configuration.reconnectMaximum.wholeNanoseconds)
        let wait = UInt64.random(in: 0...max(window, 1), using: &generator)
        notBefore = MonotonicTime(nanoseconds: loop.now.nanoseconds + wait)
    }

    // MARK: Connections

    private func learnAddresses(of connection: ClientConnection) {
        for address in connection.failedAddresses { addressOrder.failed(address, now: loop.now.nanoseconds) }
    }

    public func connectionAvailabilityChanged(_ connection: ClientConnection) {
        report(connection)
        delegate.poolHasCapacity(self)
    }

    public func connectionOpened(_ connection: ClientConnection) {
        learnAddresses(of: connection)
        addressOrder.connected(connection.address)
        drainRetired()
        report(connection)
        delegate.pool(
            self,
            happened: .opened(
                connection: connection.number, address: "\(connection.address)",
                tls: connection.tlsDescription,
                handshakeNanoseconds: loop.now.nanoseconds(since: openingStarted[Int(connection.number)])))
        delegate.poolHasCapacity(self)
    }

    public func connection(
        _ connection: ClientConnection, received events: UnsafeBufferPointer<ClientEvent>
    ) {
        var isGoingAway = false
        for event in events where event.kind == .goAway {
            isGoingAway = true
            delegate.pool(
                self,
                happened: .goAway(
                    connection: connection.number, code: HTTP2ErrorCode(rawValue: event.code),
                    debugData: Array(event.body.prefix(256))))
        }
        if failures > 0, connection.hasAnswered {
            failures = 0
            if stopReason == nil { notBefore = nil }
        }
        report(connection)
        // The apps' places in flight are free, and the slots idle, before the owner enqueues any of them again.
        for event in events where event.kind == .response || event.kind == .failed {
            scheduler.ended(slot: event.tag, now: loop.now.nanoseconds)
        }
        delegate.pool(self, received: events, on: connection)
        delegate.poolHasCapacity(self)
        if isGoingAway { maintain() }
    }

    public func connectionClosed(_ connection: ClientConnection, reason: ConnectionCloseReason) {
        learnAddresses(of: connection)
        connections[Int(connection.number)] = nil
        retiring[Int(connection.number)] = false
        scheduler.connectionRemoved(connection.number)
        // A server that takes connections and ends them unused must not be called again and again.
        let age = loop.now.nanoseconds(since: openingStarted[Int(connection.number)])
        if !connection.hasAnswered, age < 60_000_000_000 { openingFailed() }
        delegate.pool(self, happened: .closed(connection: connection.number, reason: reason))
        maintain()
    }
}

/// Carries a value that belongs to one event loop through a `@Sendable` closure that runs on that loop.
// Sendable: the value is only used on the loop that it was taken from.
struct LoopConfined<Value>: @unchecked Sendable {
    let value: Value
    init(_ value: Value) { self.value = value }
}

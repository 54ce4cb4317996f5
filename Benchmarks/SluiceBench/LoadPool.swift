import DeliveryCore
import EventLoop
import HTTP2
import SluiceModel
import StreamScheduling

/// The pool and its scheduler as a load uses them. Only this type knows their interfaces.
struct LoadPool {
    let pool: ConnectionPool

    init(
        _ settings: PushLoad.Settings, fields: StableFields, loop: EventLoop,
        delegate: any ConnectionPoolDelegate
    ) throws {
        var options = ClientTLSOptions()
        options.trust = .authorities(settings.trust)
        options.minimumVersion = .tls13
        var configuration = ConnectionPool.Configuration(host: settings.host, port: settings.port)
        configuration.connections = settings.connections
        configuration.maximumConnections = settings.maximumConnections
        // A growing pool keeps the interval of normal service.
        if settings.maximumConnections == nil { configuration.openInterval = .zero }
        configuration.apps = Int(settings.sources.map(\.app).max() ?? 0) + 1
        configuration.connection.session.maximumStreams = settings.inFlight
        if let timeout = settings.requestTimeout { configuration.connection.requestTimeout = timeout }
        let slots = settings.sources.reduce(0) { $0 + $1.slots }
        pool = ConnectionPool(
            configuration: configuration, context: try TLSContext.client(options), fields: fields,
            notifications: NotificationTable(capacity: slots), loop: loop, delegate: delegate)
        for source in settings.sources {
            pool.scheduler.setLimits(
                app: source.app, AppLimits(weight: source.weight), now: loop.now.nanoseconds)
        }
    }

    @inline(__always)
    func enqueue(
        _ slot: UInt32, of source: LoadSource.Configuration, bytes: Int, now: UInt64, atFront: Bool = false
    ) {
        pool.scheduler.enqueue(
            slot: slot, app: source.app, priority: source.priority, bytes: bytes, now: now, atFront: atFront)
    }

    @inline(__always)
    func nextAssignment() -> (slot: UInt32, connection: ClientConnection)? {
        pool.nextAssignment()
    }

    /// Returns a slot to the scheduler that its connection didn't take.
    func notSubmitted(
        _ slot: UInt32, of source: LoadSource.Configuration, bytes: Int, on connection: ClientConnection,
        now: UInt64
    ) {
        pool.withdraw(slot, from: connection)
        enqueue(slot, of: source, bytes: bytes, now: now, atFront: true)
    }

    var openConnections: Int { pool.openConnections }
    var inFlight: Int { pool.inFlight }
}

import DeliveryCore
import EventLoop
import HTTP2
import SluiceModel

/// The pool and its scheduler as a load uses them: all that knows their interfaces is here.
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
        configuration.openInterval = .zero
        configuration.slots = settings.sources.reduce(0) { $0 + $1.slots }
        configuration.connection.session.maximumStreams = settings.inFlight
        pool = ConnectionPool(
            configuration: configuration, context: try TLSContext.client(options), fields: fields, loop: loop,
            delegate: delegate)
    }

    @inline(__always)
    func enqueue(
        _ slot: UInt32, of source: LoadSource.Configuration, bytes: Int, now: UInt64, atFront: Bool = false
    ) {
        pool.scheduler.enqueue(
            slot: slot, priority: source.priority, bytes: bytes, now: now, atFront: atFront)
    }

    @inline(__always)
    func nextAssignment(now: UInt64) -> (slot: UInt32, connection: ClientConnection)? {
        pool.nextAssignment()
    }

    /// A push ended, with whatever result.
    @inline(__always)
    func ended(_ slot: UInt32) {}

    /// An assignment was not submitted.
    func notSubmitted(
        _ slot: UInt32, of source: LoadSource.Configuration, bytes: Int, on connection: ClientConnection,
        now: UInt64
    ) {
        pool.reportCapacity(of: connection)
        enqueue(slot, of: source, bytes: bytes, now: now, atFront: true)
    }

    var openConnections: Int { pool.openConnections }
    var inFlight: Int { pool.inFlight }
}

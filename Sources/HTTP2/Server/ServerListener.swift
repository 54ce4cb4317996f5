import CNghttp2
import EventLoop
import Glibc

/// Accepts HTTP/2 connections on one address and serves them on one loop.
// Sendable: the socket and the constants are set in init. Everything else is used only on the loop's thread, or before
// the loop is started, as the methods demand.
public final class ServerListener: ReadinessHandler, TimerHandler, @unchecked Sendable {
    /// Loop that serves the connections.
    public let loop: EventLoop
    /// The bound port, which the system chose if 0 was requested.
    public let port: UInt16
    public let options: ServerOptions
    /// TLS of connections that arrive from now on. Changed on the loop's thread.
    public var tls: TLSContext
    private let makeHandler: (ServerConnection) -> any ServerRequestHandler
    /// Descriptor of the socket, owned; closed by `stop`, or in deinit at the latest.
    private var fileDescriptor: Int32
    private var registration: Registration?
    private var connections: [ObjectIdentifier: ServerConnection] = [:]
    private var whenStopped: (() -> Void)?
    let sessions: ServerSessionFactory
    /// Plaintext of one record; all connections of the loop read through it in turn.
    let readBuffer: UnsafeMutableRawBufferPointer

    /// Number of accepted connections.
    public private(set) var accepted = 0
    /// Number of connections refused at the limit.
    public private(set) var turnedAway = 0

    private static let acceptsPerTurn = 64

    /// Binds and listens; accepts nothing before ``start()``.
    /// - Parameters:
    ///   - address: an IPv4 or IPv6 address; `0.0.0.0` and `::` stand for all.
    ///   - port: 0 lets the system choose.
    ///   - reusesPort: sets SO_REUSEPORT. Several listeners, each on its own loop, then share address and port, and the
    ///     system spreads the connections over them.
    ///   - makeHandler: called on the loop for each accepted connection.
    public init(
        loop: EventLoop, address: String, port: UInt16, reusesPort: Bool = false, tls: TLSContext,
        options: ServerOptions = ServerOptions(),
        makeHandler: @escaping (ServerConnection) -> any ServerRequestHandler
    ) throws(ServerError) {
        let (descriptor, bound) = try Self.listen(address, port, reusesPort: reusesPort)
        fileDescriptor = descriptor
        self.port = bound
        self.loop = loop
        self.tls = tls
        self.options = options
        self.makeHandler = makeHandler
        sessions = ServerSessionFactory(options: options)
        readBuffer = .allocate(byteCount: TLSTransport.maximumRecordSize, alignment: 64)
    }

    deinit {
        if fileDescriptor >= 0 { close(fileDescriptor) }
        readBuffer.deallocate()
    }

    /// Begins to accept. Call on the loop's thread, or before the loop is started.
    public func start() throws(SystemError) {
        registration = try loop.register(fileDescriptor, interest: .read, handler: self)
    }

    /// Closes the listening socket and ends all connections with GOAWAY. Call on the loop's thread.
    /// - Parameters:
    ///   - debugData: debug data of the GOAWAY.
    ///   - completion: called on the loop once the last connection is gone, at the latest after the drain timeout.
    public func stop(debugData: String = "", completion: @escaping () -> Void) {
        if let registration { loop.deregister(registration) }
        registration = nil
        if fileDescriptor >= 0 { close(fileDescriptor) }
        fileDescriptor = -1
        whenStopped = completion
        for connection in connections.values { connection.goAway(debugData: debugData) }
        if connections.isEmpty { completeStop() }
    }

    /// The open connections. Read on the loop's thread.
    public var openConnections: [ServerConnection] { Array(connections.values) }

    private func completeStop() {
        let completion = whenStopped
        whenStopped = nil
        completion?()
    }

    func remove(_ connection: ServerConnection) {
        connections[ObjectIdentifier(connection)] = nil
        if connections.isEmpty, whenStopped != nil { completeStop() }
    }

    // MARK: - Loop

    public func ready(_ readiness: Readiness) {
        for _ in 0..<Self.acceptsPerTurn {
            let descriptor = sluice_accept_nonblocking(fileDescriptor)
            if descriptor >= 0 {
                admit(descriptor)
                continue
            }
            switch errno {
            case EINTR, ECONNABORTED: continue
            case EMFILE, ENFILE, ENOBUFS, ENOMEM: pauseAccepting()
            default: break
            }
            return
        }
    }

    /// Pauses accepting when descriptors run out. The socket would stay ready, and the loop would spin.
    private func pauseAccepting() {
        guard let registration else { return }
        loop.modify(registration, interest: [])
        loop.schedule(after: .milliseconds(100), handler: self)
    }

    public func timerFired(_ timer: TimerID) {
        guard let registration else { return }
        loop.modify(registration, interest: .read)
    }

    private func admit(_ descriptor: Int32) {
        guard connections.count < options.maximumConnections else {
            turnedAway += 1
            close(descriptor)
            return
        }
        var yes: Int32 = 1
        setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, 4)
        // A connection that cannot be set up is dropped: its client sees the close, and the others are served.
        guard let transport = try? TLSTransport(context: tls, acceptedFileDescriptor: descriptor) else {
            return
        }
        let connection = ServerConnection(listener: self, transport: transport)
        guard (try? connection.start()) != nil else { return }
        connection.handler = makeHandler(connection)
        connections[ObjectIdentifier(connection)] = connection
        accepted += 1
    }

    // MARK: - Socket

    /// Opens a listening socket that doesn't block. The caller owns the descriptor.
    package static func listen(
        _ address: String, _ port: UInt16, reusesPort: Bool
    ) throws(ServerError) -> (descriptor: Int32, port: UInt16) {
        let endpoint = address.contains(":") ? "[\(address)]:\(port)" : "\(address):\(port)"
        guard let name = SocketAddress(address, port: port) else {
            throw ServerError(
                endpoint: endpoint, reason: "not an IP address",
                hint: "use for example 127.0.0.1, 0.0.0.0 or ::")
        }
        func failure(_ call: String) -> ServerError {
            let code = errno
            let hint =
                switch code {
                case EADDRINUSE: "another process uses the port; choose another port, or 0"
                case EACCES: "ports below 1024 need privileges; choose a port from 1024 on"
                case EADDRNOTAVAIL: "this machine does not have the address; choose one of its addresses"
                default: "see \(call)(2)"
                }
            return ServerError(endpoint: endpoint, reason: String(cString: strerror(code)), hint: hint)
        }
        let descriptor = socket(
            name.family,
            Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw failure("socket") }
        var yes: Int32 = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, 4)
        if reusesPort { setsockopt(descriptor, SOL_SOCKET, SO_REUSEPORT, &yes, 4) }
        guard name.withPointer({ bind(descriptor, $0, $1) }) == 0, Glibc.listen(descriptor, 4_096) == 0,
            let bound = SocketAddress.port(of: descriptor)
        else {
            let error = failure("bind")
            close(descriptor)
            throw error
        }
        return (descriptor, bound)
    }
}

import CNghttp2
import EventLoop

/// Accepts simulated HTTP/2 connections on one address and serves them on one loop.
// Sendable: as `Scheduler`.
public final class ServerListener: ReadinessHandler, @unchecked Sendable {
    public let loop: EventLoop
    public let options: ServerOptions
    public var tls: TLSContext
    private let makeHandler: (ServerConnection) -> any ServerRequestHandler
    private let listener: SimulatedListener
    private var registration: Registration?
    /// The open connections, in the order of their arrival.
    public private(set) var openConnections: [ServerConnection] = []
    private var whenStopped: (() -> Void)?
    let sessions: ServerSessionFactory
    let readBuffer: UnsafeMutableRawBufferPointer

    /// Number of accepted connections.
    public private(set) var accepted = 0
    /// Number of connections refused at the limit.
    public private(set) var turnedAway = 0

    public init(
        loop: EventLoop, address: String, port: UInt16, reusesPort: Bool = false, tls: TLSContext,
        options: ServerOptions = ServerOptions(),
        makeHandler: @escaping (ServerConnection) -> any ServerRequestHandler
    ) throws(ServerError) {
        listener = try SimulatedNetwork.current.listen(address, port, reusesPort: reusesPort)
        self.loop = loop
        self.tls = tls
        self.options = options
        self.makeHandler = makeHandler
        sessions = ServerSessionFactory(options: options)
        readBuffer = .allocate(byteCount: TLSTransport.maximumRecordSize, alignment: 64)
    }

    deinit {
        listener.close()
        readBuffer.deallocate()
    }

    /// The bound port.
    public var port: UInt16 { listener.port }

    public func start() throws(SystemError) {
        registration = try loop.register(listener.descriptor, interest: .read, handler: self)
    }

    public func stop(debugData: String = "", completion: @escaping () -> Void) {
        if let registration { loop.deregister(registration) }
        registration = nil
        listener.close()
        whenStopped = completion
        for connection in openConnections { connection.goAway(debugData: debugData) }
        completeStop()
    }

    func remove(_ connection: ServerConnection) {
        openConnections.removeAll { $0 === connection }
        completeStop()
    }

    private func completeStop() {
        guard openConnections.isEmpty, let completion = whenStopped else { return }
        whenStopped = nil
        completion()
    }

    public func ready(_ readiness: Readiness) {
        while let descriptor = SimulatedNetwork.current.accept(listener) { admit(descriptor) }
    }

    private func admit(_ descriptor: Int32) {
        guard openConnections.count < options.maximumConnections else {
            turnedAway += 1
            return ClientSocket.close(descriptor)
        }
        guard let transport = try? TLSTransport(context: tls, acceptedFileDescriptor: descriptor) else {
            return
        }
        let connection = ServerConnection(listener: self, transport: transport)
        guard (try? connection.start()) != nil else { return }
        connection.handler = makeHandler(connection)
        openConnections.append(connection)
        accepted += 1
    }
}

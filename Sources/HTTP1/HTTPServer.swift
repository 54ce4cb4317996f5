import DequeModule
import EventLoop
import Glibc
import HTTP2

/// A small HTTP/1.1 server on an event loop. Connections, heads, bodies, waits and times are bounded.
///
/// Each connection carries one request after another. A stream gives its bytes only as fast as the client reads them.
// Sendable: the address is set in init. Everything else is used on the loop's thread only, or before the loop is started.
package final class HTTPServer: ReadinessHandler, TimerHandler, @unchecked Sendable {
    package struct Limits: Sendable {
        /// Most connections at once, and at most an eighth of the process's open files. A further one replaces an idle or
        /// slow connection, or waits for a connection's end.
        package var connections = 256
        /// Most answers in parts at once.
        package var streams = 64
        /// Most requests that wait for a condition at once.
        package var waiters = 128
        /// Time in which a new connection without a byte does not give way to further connections.
        package var grace: Duration = .milliseconds(20)
        /// Time after which an unfinished request, or an answer that is not read, may be given up for further connections.
        package var patience: Duration = .milliseconds(500)
        /// Time for a request's head to arrive, from its first byte.
        package var head: Duration = .seconds(10)
        /// Time for a request's body to arrive.
        package var body: Duration = .seconds(30)
        /// Time between two requests of a connection.
        package var idle: Duration = .seconds(60)
        /// Time within which a client must read some bytes of its answer.
        package var stall: Duration = .seconds(30)
        /// Time from the end of an answer to the end of the connection, if the client does not close.
        package var linger: Duration = .seconds(2)
        /// Most bytes of answers that the clients of all connections have not read. A connection beyond ends.
        package var unsent = 256 << 20
        /// Time between signs of life on a stream without news.
        package var heartbeat: Duration = .seconds(15)
        package var parser = HTTPRequestParser.Limits()

        package init() {}

        /// These limits with the share of the process's open files. The rest is for other connections, such as to APNs.
        /// - Parameter files: most open files of the process.
        func within(files: Int) -> Limits {
            var limits = self
            limits.connections = min(connections, max(4, files / 8))
            return limits
        }
    }

    package let loop: EventLoop
    /// Bound port, which the system chose if 0 was requested.
    package let port: UInt16
    package let limits: Limits
    package let handler: any HTTPHandler
    /// Descriptor of the listening socket, owned; closed by `stop`, or in deinit at the latest. -1 once closed.
    private var descriptor: Int32
    /// File of the listening socket, removed by `stop`; nil for a socket of TCP.
    private let file: LocalSocket.File?
    private var registration: Registration?
    private var connections: [ObjectIdentifier: HTTPConnection] = [:]
    /// Connections in the order in which they are asked to give way, and ended ones until the next tidying.
    private var order: Deque<HTTPConnection> = []
    /// Bytes of answers that the system has not taken yet, of all connections.
    private var unsent = 0
    private var isPaused = false
    private(set) var isStopping = false
    private var timer: TimerID?
    private var armedFor = MonotonicTime.distantFuture
    /// Bytes of a read, for all connections in turn.
    let readBuffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 32 << 10, alignment: 16)

    private static let acceptsPerTurn = 64
    /// Most connections that are asked to give way for a new one.
    private static let mostAsked = 64

    /// Binds and listens; accepts nothing before ``start()``.
    package init(
        loop: EventLoop, address: String, port: UInt16, limits: Limits = Limits(), handler: any HTTPHandler
    ) throws(ServerError) {
        self.loop = loop
        self.limits = limits.within(files: ProcessFiles.limit)
        self.handler = handler
        (descriptor, self.port) = try ServerListener.listen(address, port, reusesPort: false)
        file = nil
    }

    /// Binds a socket in the file system, which only this process's user may open, and listens; accepts nothing before
    /// ``start()``.
    package init(
        loop: EventLoop, socket path: String, limits: Limits = Limits(), handler: any HTTPHandler
    ) throws(ServerError) {
        self.loop = loop
        self.limits = limits.within(files: ProcessFiles.limit)
        self.handler = handler
        port = 0
        (descriptor, file) = try LocalSocket(path).take()
    }

    /// Most bytes of a socket's path.
    package static var mostPathBytes: Int { LocalSocket.mostBytes }

    deinit {
        if descriptor >= 0 { close(descriptor) }
        readBuffer.deallocate()
    }

    /// Begins to accept. Loop's thread, or before the loop is started.
    package func start() throws(SystemError) {
        registration = try loop.register(descriptor, interest: .read, handler: self)
    }

    /// Ends all connections and the listening socket at once. Requests that wait are answered with 503. Loop's thread.
    package func stop() {
        isStopping = true
        if let registration { loop.deregister(registration) }
        registration = nil
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
        file?.remove()
        for connection in connections.values { connection.stop() }
        connections = [:]
        order = []
        if let timer { loop.cancel(timer) }
        timer = nil
    }

    /// Lets waiting requests and idle streams look for news. Loop's thread.
    package func pump() {
        for connection in connections.values where connection.isExpectingNews { connection.pump() }
    }

    /// Whether a request waits for news. Loop's thread.
    package var isExpectingNews: Bool { connections.values.contains { $0.isExpectingNews } }

    /// Number of open connections. Loop's thread.
    package var connectionCount: Int { connections.count }

    func hasRoom(forStream: Bool) -> Bool {
        forStream
            ? connections.values.count { $0.isStreaming } < limits.streams
            : connections.values.count { $0.isWaiting } < limits.waiters
    }

    func remove(_ connection: HTTPConnection) {
        connections[ObjectIdentifier(connection)] = nil
        if order.count > 2 * connections.count + Self.mostAsked { order.removeAll { $0.isClosed } }
        resume()
    }

    /// Counts bytes of answers that wait for their client, or that no longer wait.
    func noteUnsent(_ change: Int) { unsent += change }

    var hasTooMuchUnsent: Bool { unsent > limits.unsent }

    /// Accepts again, because a connection has ended or may give way.
    func resume() {
        guard isPaused, let registration else { return }
        isPaused = false
        loop.modify(registration, interest: .read)
    }

    // MARK: Times

    /// Ensures that deadlines are checked at this time.
    func arm(_ deadline: MonotonicTime) {
        guard deadline < armedFor, !isStopping else { return }
        if let timer { loop.cancel(timer) }
        armedFor = deadline
        timer = loop.schedule(at: deadline, handler: self)
    }

    package func timerFired(_ id: TimerID) {
        timer = nil
        armedFor = .distantFuture
        resume()
        for connection in connections.values where connection.deadline <= loop.now {
            connection.deadlinePassed()
        }
        if let next = connections.values.map(\.deadline).min() { arm(next) }
    }

    // MARK: Accepting

    package func ready(_ readiness: Readiness) {
        for index in 0..<Self.acceptsPerTurn {
            // Only the first connection of a turn is known to wait, so that none gives way without need.
            if index > 0, connections.count >= limits.connections { return }
            guard makeRoom() else { return pause() }
            let socket = accept(descriptor, nil, nil)
            if socket >= 0 {
                admit(socket)
                continue
            }
            switch errno {
            case EINTR, ECONNABORTED: continue
            case EMFILE, ENFILE, ENOBUFS, ENOMEM: pause()
            default: break
            }
            return
        }
    }

    /// Leaves new connections to the system for a while, or until a connection ends.
    private func pause() {
        guard let registration else { return }
        isPaused = true
        loop.modify(registration, interest: [])
        arm(loop.now + .milliseconds(20))
    }

    private func makeRoom() -> Bool {
        guard connections.count >= limits.connections else { return true }
        // Few are asked, so that a flood of connections costs the same for each, however many there are.
        for _ in 0..<min(Self.mostAsked, order.count) {
            let connection = order.removeFirst()
            if connection.isReplaceable {
                connection.close()
                return true
            }
            if !connection.isClosed { order.append(connection) }
        }
        return false
    }

    private func admit(_ socket: Int32) {
        _ = fcntl(socket, F_SETFD, FD_CLOEXEC)
        _ = fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK)
        var yes: Int32 = 1
        setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, 4)
        let connection = HTTPConnection(server: self, descriptor: socket)
        connections[ObjectIdentifier(connection)] = connection
        order.append(connection)
        connection.start()
    }
}

import Configuration
import FlyingSocks
import Foundation
import Gateway

/// Reason for which the admin endpoint could not begin: the fault, its place, and the remedy.
public struct AdminError: Error, Sendable, CustomStringConvertible {
    public var description: String
}

/// A small HTTP/1.1 server for operators' tools: GET only, one request on each connection, everything bounded. Reads a
/// request's head and nothing else.
///
/// The server has a thread of its own; ``start(_:)`` and ``stop()`` may be called on any other.
public actor AdminServer {
    /// Answers a request. Several requests may be handled at the same time.
    public typealias Handler = @Sendable (AdminRequest) async -> AdminResponse

    /// Limits of connections and times.
    public struct Limits: Sendable {
        /// Most connections at once. A further connection waits for another one's end. It may also replace the slowest
        /// connection whose request or answer has taken longer than ``patience``.
        public var connections = 32
        /// Time after which a connection may be replaced because further connections wait.
        public var patience: Duration = .milliseconds(500)
        /// Time for a request's head to arrive, and for an answer to be received.
        public var transfer: Duration = .seconds(5)
        /// Time for an answer to be found; the summary of a large store takes long.
        public var handling: Duration = .seconds(600)
        /// Time for the server's end when the worker ends.
        public var stop: Duration = .seconds(2)

        public init() {}
    }

    /// Address that the server listens at, with the actual port.
    public nonisolated let address: ListenAddress
    nonisolated let executor = AdminExecutor()
    /// Executor of the server's own thread.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    let limits: Limits
    let hosts: AllowedHosts
    let refusedHosts: AdminCounter
    let listener: Socket
    let pool: SocketPool<ePoll> = .ePoll()
    var routes: [String: Handler] = [:]
    /// Connections in the order of their arrival.
    var connections: [UInt64: Connection] = [:]
    var admitted: UInt64 = 0
    private var isListening = true
    private(set) var isStopping = false
    private var incoming: (any DispatchSourceRead)?
    /// Whether `incoming` is suspended.
    private var isPausing = false
    private var isArmed = false
    private var polling: Task<Void, Never>?
    private nonisolated let stopped = DispatchSemaphore(value: 0)

    /// Binds the address. Connections that arrive before the start wait.
    /// - Parameters:
    ///   - hosts: hosts that requests may be meant for; nil for the hosts of the address and this machine's name.
    ///   - refusedHosts: counts requests that are meant for other hosts.
    public init(
        _ address: ListenAddress, hosts: AllowedHosts? = nil, refusedHosts: AdminCounter = AdminCounter(),
        limits: Limits = Limits()
    ) throws(AdminError) {
        self.limits = limits
        self.hosts = hosts ?? AllowedHosts(listen: address, hostName: AllowedHosts.hostName)
        self.refusedHosts = refusedHosts
        do {
            listener = try Self.listen(address)
        } catch {
            throw Self.refusal(address, error)
        }
        switch try? listener.sockname() {
        case .ip4(let host, let port), .ip6(let host, let port):
            self.address = ListenAddress(host: host, port: port)
        default: self.address = address
        }
    }

    private static func listen(_ address: ListenAddress) throws -> Socket {
        let socket = try Socket(domain: address.isIPv6 ? AF_INET6 : AF_INET, type: .stream)
        do {
            _ = fcntl(socket.file.rawValue, F_SETFD, FD_CLOEXEC)
            try socket.setFlags(.nonBlocking)
            try socket.setValue(true, for: .localAddressReuse)
            if address.isIPv6 {
                try socket.bind(to: .inet6(ip6: address.host, port: address.port))
            } else {
                try socket.bind(to: .inet(ip4: address.host, port: address.port))
            }
        } catch {
            try? socket.close()
            throw error
        }
        try socket.listen(maxPendingConnection: 64)
        return socket
    }

    private static func refusal(_ address: ListenAddress, _ error: any Error) -> AdminError {
        let what = "admin.listen: can't listen at \(address)"
        guard case .failed(_, let code, let message)? = error as? SocketError else {
            return AdminError(description: "\(what): \(error)")
        }
        return switch code {
        case EADDRINUSE:
            AdminError(
                description:
                    "\(what): another process has this port. Set another port (0: any free port), or `off`"
            )
        case EADDRNOTAVAIL:
            AdminError(
                description:
                    "\(what): this machine has no such address. Set an address of this machine, 0.0.0.0 for all addresses, or `off`"
            )
        case EACCES:
            AdminError(description: "\(what): no permission for this port. Set a port from 1024 on, or `off`")
        default: AdminError(description: "\(what): \(message)")
        }
    }

    /// Begins to answer. Call it once.
    public nonisolated func start(_ routes: [String: Handler]) {
        // A client's disconnect must be an error of the write, not the end of the process.
        signal(SIGPIPE, SIG_IGN)
        Task(executorPreference: executor) { await self.serve(routes) }
    }

    private func serve(_ routes: [String: Handler]) async {
        guard !isStopping else { return }
        self.routes = routes
        do {
            try await pool.prepare()
        } catch {
            // The system has no descriptor left. The server can't answer, and the probes will show it.
            return
        }
        guard !isStopping else { return }
        polling = Task(executorPreference: executor) { [pool] in try? await pool.run() }
        // Not the pool's source, because it doesn't always report a listening socket that was shut down.
        let incoming = DispatchSource.makeReadSource(
            fileDescriptor: listener.file.rawValue, queue: executor.queue)
        incoming.setEventHandler { [weak self] in self?.assumeIsolated { $0.accept() } }
        incoming.setCancelHandler { self.assumeIsolated { $0.closeListener() } }
        incoming.resume()
        self.incoming = incoming
    }

    private func accept() {
        do {
            while !isStopping {
                guard makeRoom() else { return pause() }
                admit(try AsyncSocket(socket: Socket(file: listener.accept().file), pool: pool))
            }
        } catch SocketError.blocked {
            // All waiting connections were accepted.
        } catch {
            // The system has no descriptors left, for instance. Other connections may free some.
            pause()
        }
    }

    /// Leaves new connections to the system until the next tick or a connection's end.
    private func pause() {
        guard !isPausing else { return }
        incoming?.suspend()
        isPausing = true
        arm()
    }

    func resume() {
        guard isPausing else { return }
        incoming?.resume()
        isPausing = false
    }

    /// Schedules a tick while there are connections, or while accepting is paused.
    func arm() {
        guard !isArmed, isPausing || !connections.isEmpty else { return }
        isArmed = true
        executor.queue.asyncAfter(deadline: .now() + .milliseconds(50)) {
            self.assumeIsolated { $0.tick() }
        }
    }

    private func tick() {
        isArmed = false
        closeLate()
        resume()
        arm()
    }

    private func closeListener() {
        try? listener.close()
        isListening = false
        checkEnd()
    }

    /// Ends all connections and the server. Blocks until both have ended, for ``Limits/stop`` at most.
    /// - Returns: whether both have ended.
    @discardableResult
    public nonisolated func stop() -> Bool {
        Task(executorPreference: executor) { await self.close() }
        let patience = Int(limits.stop / .nanoseconds(1))
        guard stopped.wait(timeout: .now() + .nanoseconds(patience)) == .success else { return false }
        stopped.signal()
        return true
    }

    private func close() {
        guard !isStopping else { return }
        isStopping = true
        for id in connections.keys { cut(id) }
        // A suspended source never reports its cancellation.
        resume()
        if let incoming { incoming.cancel() } else { closeListener() }
    }

    func checkEnd() {
        guard isStopping, !isListening, connections.isEmpty else { return }
        incoming = nil
        polling?.cancel()
        routes = [:]
        stopped.signal()
    }
}

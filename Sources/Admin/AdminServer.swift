import Configuration
import EventLoop
import HTTP1
import HTTP2
import Synchronization

/// Reason for which the admin endpoint could not begin: the fault, its place, and the remedy.
public struct AdminError: Error, Sendable, CustomStringConvertible {
    public var description: String
}

/// HTTP server for operators' tools and probes, on an event loop of its own. Connections, requests, answers under way
/// and times are bounded.
///
/// ``start()`` and ``stop()`` may be called on any thread.
public final class AdminServer: Sendable {
    /// Finds the answer to a request. Several requests may be handled at the same time; all on the server's thread,
    /// as far as they do not await something else.
    public typealias Handler = @Sendable (AdminRequest) async -> AdminResponse

    /// Limits of connections, answers under way and times.
    public struct Limits: Sendable {
        /// Most connections at once, and at most an eighth of the process's open files. A further connection replaces an idle or slow one, or waits for a connection's end.
        public var connections = 2_048
        /// Most probes that wait for their answer at once. Other requests do not count.
        public var probes = 128
        /// Most other requests that wait for their answer at once.
        public var others = 16
        /// Time after which an unfinished request, or an answer that is not read, may be given up for others.
        public var patience: Duration = .milliseconds(500)
        /// Time for a request's head to arrive, and within which a client must read some of its answer.
        public var transfer: Duration = .seconds(5)
        /// Time for an answer to be found; the summary of a large store takes long.
        public var handling: Duration = .seconds(600)
        /// Time for the server's end when the worker ends.
        public var stop: Duration = .seconds(2)

        public init() {}

        var server: HTTPServer.Limits {
            var limits = HTTPServer.Limits()
            limits.connections = connections
            limits.waiters = probes + others
            limits.patience = patience
            limits.head = transfer
            limits.body = transfer
            limits.stall = transfer
            limits.unsent = 64 << 20
            limits.parser.head = 8 << 10
            // No request has a body. A small body is read so that its request can be refused by name.
            limits.parser.body = 64 << 10
            return limits
        }
    }

    /// Address that the server listens at, with the actual port; nil at a socket of the file system.
    public let address: ListenAddress?
    private let limits: Limits
    private let server: HTTPServer
    private let loop: EventLoop
    private let ended = BlockingFlag()

    private enum State {
        case bound, running, stopped
    }
    private let state = Mutex(State.bound)

    /// Binds the address. Connections that arrive before the start wait.
    /// - Parameters:
    ///   - routes: handlers of GET by path.
    ///   - commands: handlers of POST by path.
    ///   - hosts: hosts that requests may be meant for; nil for the hosts of the address and this machine's name.
    ///   - access: who may give commands.
    ///   - refusedHosts: counts requests that are meant for other hosts.
    public init(
        _ address: ListenAddress, routes: [String: Handler], commands: [String: Handler] = [:],
        hosts: AllowedHosts? = nil, access: AdminAccess = .none,
        refusedHosts: AdminCounter = AdminCounter(), limits: Limits = Limits()
    ) throws(AdminError) {
        self.limits = limits
        loop = try Self.makeLoop("admin.listen")
        let hosts = hosts ?? AllowedHosts(listen: address, hostName: AllowedHosts.hostName)
        let handler = AdminHandler(
            loop: loop, routes: routes, commands: commands, hosts: hosts, access: access,
            refusedHosts: refusedHosts, limits: limits)
        do throws(ServerError) {
            server = try HTTPServer(
                loop: loop, address: address.host, port: address.port, limits: limits.server,
                handler: handler)
        } catch {
            throw AdminError(
                description:
                    "admin.listen: can't listen at \(address): \(error.reason); \(error.hint), or `off`")
        }
        self.address = ListenAddress(host: address.host, port: server.port)
    }

    /// Binds a socket in the file system, which only this process's user may open. All commands are allowed there.
    public init(
        socket path: String, routes: [String: Handler], commands: [String: Handler], limits: Limits = Limits()
    ) throws(AdminError) {
        self.limits = limits
        loop = try Self.makeLoop("admin.socket")
        let handler = AdminHandler(
            loop: loop, routes: routes, commands: commands, hosts: nil, access: .socket,
            refusedHosts: AdminCounter(), limits: limits)
        do throws(ServerError) {
            server = try HTTPServer(loop: loop, socket: path, limits: limits.server, handler: handler)
        } catch {
            throw AdminError(
                description: "admin.socket: can't listen at \(path): \(error.reason); \(error.hint)")
        }
        address = nil
    }

    private static func makeLoop(_ setting: String) throws(AdminError) -> EventLoop {
        do throws(SystemError) {
            return try EventLoop(name: "admin")
        } catch {
            throw AdminError(description: "\(setting): \(error)")
        }
    }

    /// Begins to answer. Later calls change nothing.
    public func start() {
        let isFirst = state.withLock { state in
            guard state == .bound else { return false }
            state = .running
            return true
        }
        guard isFirst else { return }
        // Runs as the loop's first work.
        loop.execute { [server] in
            // The system has no memory or watches left. The server can't answer, and probes will show it.
            try? server.start()
        }
        loop.start()
    }

    /// Ends all connections and the server. Blocks until both have ended, for ``Limits/stop`` at most.
    /// - Returns: whether both have ended.
    @discardableResult
    public func stop() -> Bool {
        let wasRunning = state.withLock { state in
            defer { state = .stopped }
            return state
        }
        switch wasRunning {
        case .bound:
            server.stop()
            ended.set()
        case .running:
            loop.execute { [server, ended, loop] in
                server.stop()
                ended.set()
                loop.stop()
            }
        case .stopped: break
        }
        return ended.wait(milliseconds: Int(limits.stop / .milliseconds(1)))
    }
}

import Configuration
import DeviceModel
import EventLoop
import HTTP1
import HTTP2
import Synchronization

/// Settings of the devices' thread and of the HTTP API.
public struct DeviceServiceOptions: Sendable {
    /// IP address of the API. Another address than a loopback address needs a token.
    public var address = "127.0.0.1"
    /// Port of the API; 0 lets the system choose, nil serves no API.
    public var port: UInt16? = 8080
    /// Further names that requests may be meant for.
    public var hosts: [String] = []
    /// Token that each request needs; nil when none is needed.
    public var token: APIToken?
    /// Receiver of all events; nil for none.
    public var tap: DeviceEventTap?
    var limits = HTTPServer.Limits()
    var fetches = AttachmentFetcher.Limits()

    public init() {}

    /// Whether the API is for this machine alone.
    public var isLocal: Bool { IPAddress(address)?.isLoopback ?? false }
}

/// The devices' thread: lets time pass for them, serves the HTTP API, and runs the model's work.
public final class DeviceService: Sendable {
    public let registry: DeviceRegistry
    /// Port of the API; nil when none is served.
    public var port: UInt16? { server?.port }
    private let loop: EventLoop
    private let server: HTTPServer?
    private let driver: DeviceDriver
    private let fetcher: AttachmentFetcher

    private enum State {
        case ready, running, stopped
    }
    private let state = Mutex(State.ready)

    /// Prepares everything and binds the API's port; requests are answered after ``start()``.
    /// - Parameter simulators: servers of the devices, whose faults the API reads and replaces.
    /// - Throws: `SimulatorError`, `ServerError` or `SystemError`, which name the setting that can't be used.
    public init(
        _ registry: DeviceRegistry, options: DeviceServiceOptions, facts: SimulatorFacts,
        simulators: [Simulator] = []
    ) throws {
        var facts = facts
        facts.hasFaults = !simulators.isEmpty
        facts.takesAnyKey = !simulators.isEmpty && simulators.allSatisfy { $0.options.acceptsAnyKey }
        guard options.isLocal || options.token != nil || options.port == nil else {
            throw SimulatorError(
                "\(options.address) can be reached by other machines, so that the API needs a token")
        }
        self.registry = registry
        let loop = try EventLoop(name: "devices")
        var fetches = options.fetches
        fetches.bytes = min(fetches.bytes, registry.read { world, _ in world.settings.largestAttachment })
        let fetcher = try AttachmentFetcher(limits: fetches)
        let driver = DeviceDriver(registry: registry, loop: loop, fetcher: fetcher, tap: options.tap)
        if let port = options.port {
            let listen = ListenAddress(host: options.address, port: port)
            let hosts = AllowedHosts(listen: listen, hostName: AllowedHosts.hostName, more: options.hosts)
            let api = DeviceAPI(
                registry: registry, loop: loop, access: APIAccess(hosts: hosts, token: options.token),
                facts: facts, more: FaultRoutes(simulators: simulators).routes)
            let server = try HTTPServer(
                loop: loop, address: options.address, port: port, limits: options.limits, handler: api)
            try server.start()
            driver.onNews = { [unowned server] in server.pump() }
            self.server = server
        } else {
            server = nil
        }
        self.loop = loop
        self.fetcher = fetcher
        self.driver = driver
    }

    deinit { stop() }

    public func start() {
        let isFirst = state.withLock { state in
            guard state == .ready else { return false }
            state = .running
            return true
        }
        guard isFirst else { return }
        driver.start()
        loop.start()
    }

    /// Ends the API with all its streams, and the thread. Blocks until then, for less than two seconds.
    public func stop() {
        let wasRunning = state.withLock { state in
            defer { state = .stopped }
            return state == .running
        }
        fetcher.stop()
        guard wasRunning else { return }
        loop.execute { [server, driver] in
            server?.stop()
            driver.stop()
        }
        loop.stop()
        loop.join()
    }
}

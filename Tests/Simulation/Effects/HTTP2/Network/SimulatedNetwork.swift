import EventLoop
import Glibc

/// The network of a simulation: names, listeners and connections.
// Sendable: as `Scheduler`.
public final class SimulatedNetwork: @unchecked Sendable {
    unowned let scheduler: Scheduler
    /// Treatment of new connections to addresses without a route of their own.
    public var route = SimulatedRoute()
    /// Treatment of new connections by address.
    public var routes: [SocketAddress: SimulatedRoute] = [:]
    /// Names that can be resolved.
    public var names: [String: SimulatedName] = [:]
    /// Nanoseconds that an answer of the name servers takes, at least half and at most all of them.
    public var lookupTime: UInt64 = 2_000_000
    /// Called for each attempt to connect, so that the world can plan its faults.
    public var whenDialled: ((SimulatedLink) -> Void)?

    /// Connection that a listener has taken last.
    public private(set) weak var lastAccepted: SimulatedLink?

    private var listeners: [SimulatedListener] = []
    /// Sockets by descriptor.
    private var sockets: [Int32: SimulatedSocket] = [:]
    private var all: [SimulatedLink] = []
    private var lastNumber = 0
    private var nextPort: UInt16 = 40_000
    /// Processes whose death ends sockets and listeners.
    private var watched: [SimulatedProcess] = []

    private init(_ scheduler: Scheduler) { self.scheduler = scheduler }

    /// The network of the thread's simulation.
    public static var current: SimulatedNetwork { of(.current) }

    /// The network of a simulation, made at the first use.
    public static func of(_ scheduler: Scheduler) -> SimulatedNetwork {
        let key = ObjectIdentifier(SimulatedNetwork.self)
        if let known = scheduler.parts[key] as? SimulatedNetwork { return known }
        let network = SimulatedNetwork(scheduler)
        scheduler.parts[key] = network
        return network
    }

    /// Connections that are not over at both ends, in the order of their dialling.
    public var links: [SimulatedLink] {
        all.removeAll { $0.isOver }
        return all
    }

    // MARK: Names

    /// Looks a name up; `completion` receives the result later.
    func lookUp(
        _ host: String, port: UInt16, completion: @escaping (Result<[SocketAddress], ResolverError>) -> Void
    ) {
        let result: Result<[SocketAddress], ResolverError>
        if let address = SocketAddress(host, port: port) {
            result = .success([address])
        } else {
            switch names[host] ?? .failing(isTemporary: false) {
            case .silent: return
            case .failing(let isTemporary):
                let reason =
                    isTemporary ? "Temporary failure in name resolution" : "Name or service not known"
                result = .failure(ResolverError(host: host, reason: reason, isTemporary: isTemporary))
            case .addresses(let texts):
                let first = Int(scheduler.below(UInt64(max(texts.count, 1))))
                result = .success(
                    (texts[first...] + texts[..<first]).map { text in
                        guard let address = SocketAddress(text, port: port) else {
                            preconditionFailure("\(text) is no numeric address")
                        }
                        return address
                    })
            }
        }
        scheduler.schedule(after: lookupTime / 2 + scheduler.below(lookupTime / 2 + 1)) { completion(result) }
    }

    // MARK: Sockets

    func connect(to address: SocketAddress, userTimeout: UInt64) throws(SystemError) -> Int32 {
        let process = scheduler.process
        guard process?.isAlive != false else { throw SystemError(call: "socket", code: EMFILE) }
        lastNumber += 1
        let link = SimulatedLink(
            number: lastNumber, address: address, route: routes[address] ?? route, network: self)
        link.client.userTimeout = userTimeout
        link.client.process = process
        whenDialled?(link)
        if link.opening == .unreachable { throw SystemError(call: "connect", code: ENETUNREACH) }
        all.removeAll { $0.isOver }
        all.append(link)
        open(link.client)
        if link.opening != .unanswered { link.client.put(.open) }
        return link.client.descriptor
    }

    func socket(_ descriptor: Int32) -> SimulatedSocket? { sockets[descriptor] }

    /// Gives the socket a descriptor.
    private func open(_ socket: SimulatedSocket) {
        socket.descriptor = scheduler.openDescriptor()
        sockets[socket.descriptor] = socket
        watch(socket.process)
    }

    func closed(_ descriptor: Int32) {
        sockets[descriptor] = nil
        scheduler.closeDescriptor(descriptor)
    }

    private func watch(_ process: SimulatedProcess?) {
        guard let process, !watched.contains(where: { $0 === process }) else { return }
        watched.append(process)
        process.atDeath { [weak self, unowned process] in self?.died(process) }
    }

    private func died(_ process: SimulatedProcess) {
        watched.removeAll { $0 === process }
        for listener in listeners where listener.process === process { listener.close() }
        let left = sockets.values.filter { $0.process === process }
        for socket in left.sorted(by: { $0.descriptor < $1.descriptor }) { socket.close() }
    }

    // MARK: Listeners

    func listen(
        _ address: String, _ port: UInt16, reusesPort: Bool
    ) throws(ServerError) -> SimulatedListener {
        var port = port
        if port == 0 {
            port = nextPort
            nextPort += 1
        }
        let endpoint = "\(address):\(port)"
        guard let name = SocketAddress(address, port: port) else {
            throw ServerError(endpoint: endpoint, reason: "not an IP address", hint: "")
        }
        guard listeners.allSatisfy({ $0.address != name || $0.reusesPort && reusesPort }) else {
            throw ServerError(endpoint: endpoint, reason: "Address already in use", hint: "")
        }
        let listener = SimulatedListener(
            address: name, port: port, reusesPort: reusesPort, descriptor: scheduler.openDescriptor(),
            network: self)
        listeners.append(listener)
        watch(listener.process)
        return listener
    }

    func closed(_ listener: SimulatedListener) {
        listeners.removeAll { $0 === listener }
        scheduler.closeDescriptor(listener.descriptor)
    }

    /// The server's system receives an attempt to connect.
    func arrived(_ link: SimulatedLink) {
        var fitting = listeners.filter { $0.address == link.address }
        if fitting.isEmpty { fitting = listeners.filter { $0.isWildcard(for: link.address) } }
        guard !fitting.isEmpty, link.opening == .accepted else { return link.server.refuse() }
        let chosen = fitting.count == 1 ? fitting[0] : fitting[Int(scheduler.below(UInt64(fitting.count)))]
        link.server.process = chosen.process
        link.server.opened()
        link.server.put(.opened)
        chosen.append(link.server)
    }

    /// Takes the next connection that waits at a listener; nil when there is none.
    func accept(_ listener: SimulatedListener) -> Int32? {
        guard let socket = listener.take() else { return nil }
        open(socket)
        socket.updateReadiness()
        lastAccepted = socket.link
        return socket.descriptor
    }
}

/// A listening socket.
final class SimulatedListener {
    let address: SocketAddress
    let port: UInt16
    let reusesPort: Bool
    let descriptor: Int32
    let process: SimulatedProcess?
    private weak var network: SimulatedNetwork?
    /// Connections that were not accepted yet.
    private var waiting: [SimulatedSocket] = []

    init(
        address: SocketAddress, port: UInt16, reusesPort: Bool, descriptor: Int32, network: SimulatedNetwork
    ) {
        self.address = address
        self.port = port
        self.reusesPort = reusesPort
        self.descriptor = descriptor
        self.network = network
        process = network.scheduler.process
    }

    /// Whether the listener stands for all addresses and so for this one.
    func isWildcard(for other: SocketAddress) -> Bool {
        let wildcard = other.family == AF_INET6 ? "::" : "0.0.0.0"
        return other.port == port && address == SocketAddress(wildcard, port: port)
    }

    func append(_ socket: SimulatedSocket) {
        waiting.append(socket)
        network?.scheduler.setReadiness(.read, of: descriptor)
    }

    func take() -> SimulatedSocket? {
        let socket = waiting.isEmpty ? nil : waiting.removeFirst()
        if waiting.isEmpty { network?.scheduler.setReadiness([], of: descriptor) }
        return socket
    }

    /// Closes the socket; connections that wait are reset.
    func close() {
        for socket in waiting {
            socket.resetsOnClose = true
            socket.close()
        }
        waiting = []
        network?.closed(self)
        network = nil
    }
}

extension SocketAddress {
    /// The port, which lies at the same place in both families.
    var port: UInt16 {
        withUnsafeBytes(of: storage) { UInt16(bigEndian: $0.load(fromByteOffset: 2, as: UInt16.self)) }
    }
}

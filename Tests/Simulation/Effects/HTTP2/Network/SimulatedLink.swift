/// A simulated TCP connection from a client's dialling to the end of both sides.
// Sendable: as `Scheduler`.
public final class SimulatedLink: @unchecked Sendable {
    /// Number in the order of dialling, from 1.
    public let number: Int
    /// Address that was dialled.
    public let address: SocketAddress
    /// Answer to the attempt to connect, which can be changed until it has arrived.
    public var opening: SimulatedRoute.Opening
    /// Course of the handshake, which can be changed until the client's hello has arrived.
    public var handshake: SimulatedRoute.Handshake
    public let client: SimulatedSocket
    public let server: SimulatedSocket
    weak var network: SimulatedNetwork?
    /// TLS settings of the client, whose certificate the server sees; nil before the handshake.
    var clientContext: TLSContext?

    init(number: Int, address: SocketAddress, route: SimulatedRoute, network: SimulatedNetwork) {
        self.number = number
        self.address = address
        self.network = network
        opening = route.opening
        handshake = route.handshake
        client = SimulatedSocket(isClient: true, route.toServer)
        server = SimulatedSocket(isClient: false, route.toClient)
        client.link = self
        server.link = self
    }

    /// Whether both sides have ended and nothing is on its way.
    var isOver: Bool { client.isOver && (server.isOver || !server.isOpened && client.isClosed) }

    /// Whether TCP is up as far as both sides know.
    public var isOpen: Bool { client.isUp && server.isUp }

    // MARK: Faults

    /// Makes all packets of both directions vanish, or ends that: what living systems sent then arrives.
    public var isBlackHole: Bool {
        get { client.path.isBlackHole && server.path.isBlackHole }
        set {
            client.path.isBlackHole = newValue
            server.path.isBlackHole = newValue
        }
    }

    /// Cuts the connection now: the named sides receive a reset. The other side learns of the cut when its next bytes
    /// are answered by a reset.
    public func cut(client isClient: Bool = true, server isServer: Bool = true) {
        if isClient { client.accept(.reset) }
        if isServer { server.accept(.reset) }
    }

    /// Ends the streams to the named sides now, as a middlebox does that closes in the peer's place. The peer learns of
    /// it by a reset, once it sends.
    public func end(client isClient: Bool = true, server isServer: Bool = true) {
        if isClient { client.accept(.end) }
        if isServer { server.accept(.end) }
    }
}

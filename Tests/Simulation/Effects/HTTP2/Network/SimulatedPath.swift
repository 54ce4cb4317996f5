/// Conditions of one direction of a connection, from its sender's send buffer to its receiver's buffer.
public struct SimulatedPath: Sendable, Equatable {
    /// Nanoseconds that a packet takes.
    public var latency: UInt64 = 500_000
    /// Most nanoseconds by which a packet is late. Packets stay in order.
    public var jitter: UInt64 = 200_000
    /// Bytes that pass in a second; nil for no limit.
    public var bytesPerSecond: UInt64?
    /// Most bytes of a packet.
    public var packet = 65_536
    /// Bytes that the sender's system accepts before the receiver's has acknowledged them.
    public var sendBuffer = 262_144
    /// Bytes that the receiver's system accepts before they are read; so many are on their way at most. A smaller
    /// window counts once the larger one is used up.
    public var window = 262_144
    /// Whether nothing arrives. Packets of a living system are sent again once the hole has ended.
    public var isBlackHole = false

    public init() {}
}

/// Treatment of new connections to an address.
public struct SimulatedRoute: Sendable {
    /// Answer to the attempt to connect.
    public enum Opening: Sendable {
        /// The listener's system accepts; without a listener it refuses.
        case accepted
        case refused
        /// No answer comes.
        case unanswered
        /// The client's own system has no route.
        case unreachable
    }

    /// Course of the TLS handshake.
    public enum Handshake: Sendable, Equatable {
        case completed
        /// The side that would notice the fault ends the handshake.
        case failing(TLSError.Kind)
        /// The server never answers the client's hello.
        case hanging
    }

    public var opening = Opening.accepted
    public var handshake = Handshake.completed
    /// Path of the client's bytes.
    public var toServer = SimulatedPath()
    /// Path of the server's bytes.
    public var toClient = SimulatedPath()

    public init() {}
}

/// Answer of the name servers for a name.
public enum SimulatedName: Sendable {
    /// These numeric addresses, beginning with any of them.
    case addresses([String])
    /// An error. A temporary one proves nothing about the name.
    case failing(isTemporary: Bool)
    /// No answer comes.
    case silent
}

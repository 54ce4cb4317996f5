import EventLoop

/// Looks names up in the simulated network. Each look-up is one of its own.
public final class AddressResolver: Sendable {
    typealias Answer = Result<[SocketAddress], ResolverError>
    typealias Completion = @Sendable (Answer) -> Void

    /// The resolver of the running simulation.
    public static let system = AddressResolver()

    func resolve(host: String, port: UInt16, completion: @escaping Completion) -> LookupPlan.Ticket {
        SimulatedNetwork.current.lookUp(host, port: port, completion: completion)
        return 0
    }

    /// The look-up's owner ignores an answer that it no longer waits for.
    func withdraw(_ ticket: LookupPlan.Ticket) {}
}

/// A pool's knowledge of its server's addresses, for the times when the resolver gives no answer, and whether it gives
/// any. Pure; what it remembers is bounded.
struct KnownAddresses: Sendable {
    /// Addresses that are remembered at most.
    static let capacity = 32

    /// Addresses that a connection was open with, the last one first.
    private var worked: [SocketAddress] = []
    /// The resolver's last answer.
    private var answered: [SocketAddress] = []
    /// Since its last failure the resolver has not answered.
    private var isSilent = false

    /// The consequences of the end of a look-up.
    struct Step {
        /// Addresses to try, none if there are none.
        var addresses: [SocketAddress] = []
        /// The resolver fell silent, or answers again.
        var change: ResolverChange?
        /// The name can't be resolved.
        var error: ResolverError?
    }

    mutating func connected(_ address: SocketAddress) {
        worked.removeAll { $0 == address }
        worked.insert(address, at: 0)
        if worked.count > Self.capacity { worked.removeLast() }
    }

    /// - Parameters:
    ///   - host: the name that was looked up.
    ///   - milliseconds: for how long it was.
    mutating func take(_ end: LookupEnd, host: String, afterMilliseconds milliseconds: UInt64) -> Step {
        var step = Step()
        switch end {
        case .addresses(let addresses):
            answered = Array(addresses.prefix(Self.capacity))
            step.addresses = addresses
            step.change = isSilent ? .answers(host: host) : nil
            isSilent = false
        case .failed(let error) where !error.isTemporary:
            step.error = error
            step.change = isSilent ? .answers(host: host) : nil
            isSilent = false
        case .failed, .late:
            step.addresses = worked + answered.filter { !worked.contains($0) }
            if !isSilent {
                var reason = "no answer in \(milliseconds) ms"
                if case .failed(let error) = end { reason = error.reason }
                step.change = .silent(host: host, reason: reason, known: step.addresses.count)
            }
            isSilent = true
        }
        return step
    }
}

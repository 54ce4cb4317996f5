/// Addresses of a pool's server for times when the resolver does not answer, and whether it answers. The value is pure
/// and its memory bounded.
struct KnownAddresses: Sendable {
    /// Highest number of addresses in each list.
    static let capacity = 32

    /// Addresses that a connection was open with, the most recent first.
    private var worked: [SocketAddress] = []
    /// The resolver's last answer.
    private var answered: [SocketAddress] = []
    /// The resolver has not answered since its last failure.
    private var isSilent = false

    /// Consequences of a finished look-up.
    struct Step {
        /// Addresses to try; empty when none are known.
        var addresses: [SocketAddress] = []
        /// Set when the resolver fell silent or answers again, else nil.
        var change: ResolverChange?
        /// Set when the name can't be resolved, else nil.
        var error: ResolverError?
    }

    mutating func connected(_ address: SocketAddress) {
        worked.removeAll { $0 == address }
        worked.insert(address, at: 0)
        if worked.count > Self.capacity { worked.removeLast() }
    }

    /// - Parameters:
    ///   - host: the name that was looked up.
    ///   - milliseconds: the duration of the look-up.
    mutating func apply(_ end: LookupEnd, host: String, afterMilliseconds milliseconds: UInt64) -> Step {
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

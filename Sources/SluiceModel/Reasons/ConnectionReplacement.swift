/// How soon a connection that is to be replaced stops taking requests.
public enum ConnectionReplacement: Sendable {
    /// At once: the connection is of no more use, because its credential's state on the server is spoilt. If the
    /// connection never was of use, the replacement counts as a failed opening, with its back-off.
    case now
    /// When the successor is open, because the connection may be worn out (a server error, a server about to shut
    /// down). A young connection stays, because a fresh one was no better.
    case whenSuccessorIsOpen
    /// When the successor is open, however young the connection is. The connection stays while openings wait for
    /// their back-off. A server that asks for this on each connection would otherwise have each one replaced.
    case ifOpeningsAreAllowed
}

extension ResponseVerdict {
    /// Returns what follows for the connection that has brought the answer.
    /// - Parameters:
    ///   - isOpen: whether the connection still takes requests.
    ///   - isOnly: whether the pool has no other open connection.
    /// - Returns: `replacement`: nil when the connection stays. `pushWaits`: true when the connection is unfit for the
    ///   push but stays in use because there is no other. The push waits for a successor, because a retry would use the
    ///   same connection.
    public func remedy(isOpen: Bool, isOnly: Bool) -> (replacement: ConnectionReplacement?, pushWaits: Bool) {
        // Servers in trouble answer so on each connection. Replacing all connections at once would only cost throughput.
        if reason == .internalServerError { return (.whenSuccessorIsOpen, false) }
        guard isOpen else { return (nil, false) }
        guard `class` == .connection else {
            // The server refuses the credential on this connection for as long as the connection lives.
            return (reason.replacesConnection ? .now : nil, false)
        }
        // There is no hurry, because the server still answers on this connection.
        if reason == .shutdown { return (.ifOpeningsAreAllowed, isOnly) }
        return (isOnly ? .whenSuccessorIsOpen : .now, isOnly)
    }
}

/// Decides when a connection is replaced because APNs answers ExpiredProviderToken on it. Pure.
///
/// A single such answer doesn't speak against the connection. Pushes in flight may have had an old token, or a server
/// may be wrong. But APNs was seen to refuse everything on the connection afterwards. The connection is replaced when
/// requests fail there again and again, although the token is fresh.
struct ExpiredTokenRuns {
    /// Number of failures in a row after which a connection is replaced.
    static let longest = 8

    /// Failures since the last accepted answer, by the number of a connection on which APNs has refused a token as
    /// expired. Has no more entries than there are connections.
    private var runs: [UInt32: Int] = [:]

    /// Whether no connection has an answer ExpiredProviderToken as its last word.
    var isEmpty: Bool { runs.isEmpty }

    /// Records an answer ExpiredProviderToken. Returns true when the connection is to be replaced.
    /// - Parameter isFresh: the request's token is the newest, and too young to be renewed.
    mutating func refused(_ connection: UInt32, isFresh: Bool) -> Bool {
        note(connection, failures: (runs[connection] ?? 0) + (isFresh ? 1 : 0))
    }

    /// Records a read that ends requests without an answer. Returns true when the connection is to be replaced. A
    /// read counts once, because a server that lowers its stream limit resets all further streams together.
    mutating func failed(_ connection: UInt32) -> Bool {
        guard let failures = runs[connection] else { return false }
        return note(connection, failures: failures + 1)
    }

    /// Records that APNs has accepted a token on the connection, or that the connection is gone.
    mutating func ended(_ connection: UInt32) { runs[connection] = nil }

    private mutating func note(_ connection: UInt32, failures: Int) -> Bool {
        let isSpoilt = failures >= Self.longest
        runs[connection] = isSpoilt ? nil : failures
        return isSpoilt
    }
}

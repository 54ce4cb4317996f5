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
    private var runs: [UInt32: Run] = [:]

    private struct Run {
        var failures = 0
        /// Time of the last refusal that counts, in nanoseconds.
        var at: UInt64 = 0
    }

    /// Whether no connection has an answer ExpiredProviderToken as its last word.
    var isEmpty: Bool { runs.isEmpty }

    /// Records an answer ExpiredProviderToken. Returns true when the connection is to be replaced.
    /// - Parameters:
    ///   - isFresh: the request's token is the newest, and too young to be renewed.
    ///   - sentAt: time at which the request was sent, in nanoseconds. Refusals of requests that were sent together count
    ///     once, because APNs refuses faster than it accepts.
    mutating func refused(_ connection: UInt32, isFresh: Bool, sentAt: UInt64, at now: UInt64) -> Bool {
        var run = runs[connection] ?? Run()
        if isFresh, sentAt >= run.at {
            run.failures += 1
            run.at = now
        }
        return note(connection, run)
    }

    /// Records a read that ends requests without an answer. Returns true when the connection is to be replaced. A
    /// read counts once, because a server that lowers its stream limit resets all further streams together.
    mutating func failed(_ connection: UInt32) -> Bool {
        guard var run = runs[connection] else { return false }
        run.failures += 1
        return note(connection, run)
    }

    /// Records that APNs has accepted a token on the connection, or that the connection is gone.
    mutating func ended(_ connection: UInt32) { runs[connection] = nil }

    private mutating func note(_ connection: UInt32, _ run: Run) -> Bool {
        let isSpoilt = run.failures >= Self.longest
        runs[connection] = isSpoilt ? nil : run
        return isSpoilt
    }
}

/// Limits and times that a pool's decisions follow. Durations are in nanoseconds.
public struct PoolLimits: Sendable, Equatable {
    /// Least number of connections that stay open, from 1.
    public var minimum = 2
    /// Highest number of connections. A connection that drains, serves until its successor is open, or is suspect does
    /// not count.
    public var maximum = 16
    /// Least time between two openings that replace lost connections or raise the pool to its minimum.
    public var openInterval: UInt64 = 200_000_000
    /// Least time between two connections by which the pool grows. APNs regards many connections at once as an attack,
    /// and advises "a few seconds".
    public var growthInterval: UInt64 = 2_000_000_000
    /// Time for which all connections are full, with requests waiting, before the pool grows.
    public var growthPatience: UInt64 = 100_000_000
    /// Waiting time of requests after which the pool grows too, if no connection accepts them, full or not.
    public var queueAgeTarget: UInt64 = 500_000_000
    /// Period over which load is judged, and without a reason to grow, before a connection moves to the reserve. An
    /// idle connection in reserve closes after half this time.
    public var idleTimeout: UInt64 = 300_000_000_000
    /// Age at which a connection is replaced, plus or minus a tenth; 0 means never.
    public var maximumAge: UInt64 = 0
    /// Age below which a connection is not replaced on mere suspicion.
    public var leastAgeToReplace: UInt64 = 30_000_000_000
    /// Back-off before an opening is retried after a failure: doubles each time, with jitter, up to the maximum.
    public var reconnectInitial: UInt64 = 250_000_000
    /// Longest back-off between failed openings, in nanoseconds.
    public var reconnectMaximum: UInt64 = 10_000_000_000
    /// Length of the first stop because the server refuses the credential, in nanoseconds. Further stops in a row
    /// double it.
    public var stopInitial: UInt64 = 5_000_000_000
    /// Longest stop because the server refuses the credential, in nanoseconds.
    public var stopMaximum: UInt64 = 300_000_000_000
    /// Number of openings in a row that fail, while no connection serves, before the circuit opens.
    public var circuitFailures = 5
    /// Number of answers that the circuit needs before it opens. Either so many answers in a row show a server in
    /// trouble. Or at least so many arrive within ``AnswerWindow``'s ten seconds, and half or more show trouble. In
    /// both cases the trouble lasts at least ``circuitErrorTime``.
    public var circuitServerErrors = 100
    /// Nanoseconds that trouble must last before the circuit opens.
    public var circuitErrorTime: UInt64 = 1_000_000_000
    /// Longest pause between probes of a server that answers with errors.
    public var probeMaximum: UInt64 = 5_000_000_000
    /// Age below which a connection's end makes it *short-lived*: its successors open ever more seldom.
    public var leastLife: UInt64 = 20_000_000_000
    /// Number of good answers after which a connection is not short-lived, whatever its age.
    public var leastAnswers = 1_000
    /// Longest pause between openings while connections are short-lived.
    public var shortLifeMaximum: UInt64 = 15_000_000_000
    /// Time for which a connection may accept no request and have none in flight, with requests waiting, before
    /// replacement.
    public var progressTimeout: UInt64 = 15_000_000_000
    /// Time after which a connection without any answer is suspect, and another is opened beside it.
    var answerPatience: UInt64 { min(3_000_000_000, progressTimeout / 5) }

    public init() {}

    /// Number of connection numbers: the maximum for connections that serve, as many for connections that drain, and
    /// two more.
    var numbers: Int { 2 * maximum + 2 }
}

/// Whether a pool sends at all.
public enum PoolCircuit: Sendable, Equatable, CustomStringConvertible {
    /// No fault is known.
    case closed
    /// The server fails: nothing is sent and nothing opened until `until`.
    case open(until: UInt64, PoolFault)
    /// A single connection sends one request at a time, and that request decides.
    case halfOpen(PoolFault)

    public var description: String {
        switch self {
        case .closed: "closed"
        case .open(_, let fault): "open: \(fault)"
        case .halfOpen(let fault): "half open: \(fault)"
        }
    }
}

/// Why a circuit opened.
public enum PoolFault: String, Sendable, Equatable, CustomStringConvertible {
    case unreachable = "no connection to the server can be opened"
    case serverErrors = "the server answers with errors"
    case noProgress = "the server leaves no stream or window for requests"
    case noAnswer = "the server answers no request"

    public var description: String { rawValue }
}

/// Changes that a pool made by itself, and their causes.
public enum PoolChange: Sendable, Equatable {
    /// The pool has grown to this number of connections.
    case grew(to: Int, PoolGrowthCause)
    /// A connection is out of use until load returns or the connection closes.
    case reserved(connection: UInt32)
    /// Load has returned: a connection is in use again.
    case recalled(connection: UInt32)
    /// A connection that was out of use is closed.
    case shrank(to: Int)
    /// A connection hasn't answered its first request yet. Another is opened.
    case suspects(connection: UInt32)
    /// A connection is replaced before it ends by itself.
    case rotates(connection: UInt32, PoolRotationCause)
    /// The circuit has changed to this state.
    case circuit(PoolCircuit)
}

/// Cause of a pool's growth.
public enum PoolGrowthCause: String, Sendable, Equatable, CustomStringConvertible {
    case connectionsFull = "all connections are full"
    case queueAge = "requests wait too long"
    public var description: String { rawValue }
}

/// Cause of a connection's replacement.
public enum PoolRotationCause: String, Sendable, Equatable, CustomStringConvertible {
    case age = "its age"
    case streamIDs = "its stream ids are nearly used up"
    case doubt = "a server error"
    case renewal = "the credential was renewed"
    case noProgress = "the server leaves it no stream or window for requests"
    public var description: String { rawValue }
}

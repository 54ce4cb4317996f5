/// What a pool's decisions go by. Durations in nanoseconds.
public struct PoolLimits: Sendable, Equatable {
    /// Connections that are kept open, from 1.
    public var minimum = 2
    /// Connections at most. One that ends its last requests, or serves until its successor is open, is beyond it.
    public var maximum = 16
    /// Between two openings that replace lost connections or bring the pool to its minimum.
    public var openInterval: UInt64 = 200_000_000
    /// Between two connections by which the pool grows. APNs takes many at once for an attack; "a few seconds" is the
    /// advice (CON, DTS).
    public var growthInterval: UInt64 = 2_000_000_000
    /// For how long all connections are full, with requests waiting, before the pool grows.
    public var growthPatience: UInt64 = 100_000_000
    /// The pool grows also when requests wait for so long that no connection takes, full or not.
    public var queueAgeTarget: UInt64 = 500_000_000
    /// Load is judged over this time before a connection is taken out of use, and there was no reason to grow during
    /// it; one out of use closes after half of it.
    public var idleTimeout: UInt64 = 300_000_000_000
    /// A connection is replaced at this age, give or take a tenth; 0 means never.
    public var maximumAge: UInt64 = 0
    /// A connection is not replaced for mere suspicion before this age.
    public var leastAgeToReplace: UInt64 = 30_000_000_000
    /// Before an opening is tried again after a failure: doubled each time, with full jitter, up to the maximum.
    public var reconnectInitial: UInt64 = 250_000_000
    public var reconnectMaximum: UInt64 = 10_000_000_000
    /// Openings that failed in a row, while no connection serves, until the circuit opens.
    public var circuitFailures = 5
    /// Answers that are looked at before the circuit opens: so many in a row that speak of a server in trouble, or at least
    /// half of so many or more within ``AnswerWindow``'s ten seconds. In both cases over at least ``circuitErrorTime``.
    public var circuitServerErrors = 100
    public var circuitErrorTime: UInt64 = 1_000_000_000
    /// The longest pause between probes of a server that answers, with errors.
    public var probeMaximum: UInt64 = 5_000_000_000
    /// A connection that ends before this age is *short-lived*: its successors open ever more seldom.
    public var leastLife: UInt64 = 20_000_000_000
    /// A connection that has brought so many good answers is not short-lived, whatever its age.
    public var leastAnswers = 1_000
    /// The longest pause between openings while connections are short-lived.
    public var shortLifeMaximum: UInt64 = 15_000_000_000
    /// For how long a connection may take no request and have none in flight, with requests waiting, before it is replaced.
    public var progressTimeout: UInt64 = 15_000_000_000

    public init() {}

    /// Numbers that connections have: the maximum, and as many that end their last requests.
    var numbers: Int { 2 * maximum + 2 }
}

/// Whether a pool sends at all.
public enum PoolCircuit: Sendable, Equatable, CustomStringConvertible {
    /// All is well, as far as is known.
    case closed
    /// The server fails: nothing is sent and nothing opened until then.
    case open(until: UInt64, PoolFault)
    /// One connection, one request at a time: its fate decides.
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
    case unreachable = "no connection comes about that answers"
    case serverErrors = "the server answers with errors"
    case noProgress = "the server leaves no stream or window for requests"

    public var description: String { rawValue }
}

/// What a pool changed by itself, and why.
public enum PoolChange: Sendable, Equatable {
    case grew(to: Int, PoolGrowthCause)
    /// A connection is out of use until load comes back or it closes.
    case reserved(connection: UInt32)
    /// Load is back: a connection is in use again.
    case recalled(connection: UInt32)
    /// A connection that was out of use is closed.
    case shrank(to: Int)
    /// A connection is replaced before its time is over.
    case rotates(connection: UInt32, PoolRotationCause)
    case circuit(PoolCircuit)
}

public enum PoolGrowthCause: String, Sendable, Equatable, CustomStringConvertible {
    case connectionsFull = "all connections are full"
    case queueAge = "requests wait too long"
    public var description: String { rawValue }
}

public enum PoolRotationCause: String, Sendable, Equatable, CustomStringConvertible {
    case age = "its age"
    case streamIDs = "its stream ids come to an end"
    case doubt = "a server error"
    case noProgress = "the server leaves it no stream or window for requests"
    public var description: String { rawValue }
}

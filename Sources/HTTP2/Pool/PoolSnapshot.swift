import SluiceModel

/// Counts of a pool since its start, in plain integers.
public struct PoolCounters: Sendable, Equatable {
    /// Connections that opened.
    public internal(set) var opened = 0
    /// Openings that did not end in an open connection, including failed look-ups of the name.
    public internal(set) var openingsFailed = 0
    public internal(set) var lookupsFailed = 0
    /// Open connections that ended, by ``ConnectionCloseReason/Kind``.
    public internal(set) var endedByNetwork = 0
    public internal(set) var endedBySettings = 0
    public internal(set) var endedByProtocolBreach = 0
    public internal(set) var endedByServer = 0
    public internal(set) var endedByUs = 0
    public internal(set) var goAways = 0
    /// Code of the last GOAWAY (nil before the first) and its debug data, at most 256 bytes.
    public internal(set) var lastGoAway: UInt32?
    public internal(set) var lastGoAwayReason: [UInt8] = []
    /// Requests that ended without an answer: certainly not processed (`notProcessed`) or perhaps processed
    /// (`unknown`).
    public internal(set) var notProcessed = 0
    public internal(set) var unknown = 0
    /// Requests that failed alone: the server reset or refused the stream, or sent an unreadable answer.
    public internal(set) var streamErrors = 0
    /// Connections that were replaced because the server left them no stream or window.
    public internal(set) var stuck = 0
    /// How often the circuit opened.
    public internal(set) var circuitOpened = 0

    // Sums of the connections' ConnectionStatistics.
    public internal(set) var requests: UInt64 = 0
    public internal(set) var answers2xx: UInt64 = 0
    public internal(set) var answers4xx: UInt64 = 0
    public internal(set) var answers5xx: UInt64 = 0
    public internal(set) var answersOther: UInt64 = 0
    public internal(set) var expired: UInt64 = 0
    public internal(set) var resetsReceived: UInt64 = 0
    public internal(set) var bytesSent: UInt64 = 0
    public internal(set) var bytesReceived: UInt64 = 0

    public init() {}

    /// Adds the counts of a connection that is gone.
    mutating func add(_ statistics: ConnectionStatistics, endedBy kind: ConnectionCloseReason.Kind) {
        add(statistics)
        guard statistics.openedAtNanoseconds > 0 else {
            openingsFailed += 1
            return
        }
        switch kind {
        case .network: endedByNetwork += 1
        case .settings: endedBySettings += 1
        case .protocolBreach: endedByProtocolBreach += 1
        case .endedByServer: endedByServer += 1
        case .endedByUs: endedByUs += 1
        }
    }

    mutating func add(_ statistics: ConnectionStatistics) {
        requests += statistics.requests
        answers2xx += statistics.answers2xx
        answers4xx += statistics.answers4xx
        answers5xx += statistics.answers5xx
        answersOther += statistics.answersOther
        expired += statistics.expired
        resetsReceived += statistics.resetsReceived
        bytesSent += statistics.bytesSent
        bytesReceived += statistics.bytesReceived
    }
}

/// State of a pool at one moment, for operators.
public struct PoolSnapshot: Sendable {
    public enum ConnectionState: String, Sendable, CustomStringConvertible {
        case opening
        /// Accepts requests.
        case active
        /// Accepts requests only when the active connections are full; closes when idle.
        case reserve
        /// Serves until its successor is open.
        case retiring
        /// Ends its last requests and accepts no new ones.
        case draining
        /// Silent after a PING: accepts no requests until it receives a sign of life.
        case suspected

        public var description: String { rawValue }
    }

    public struct Connection: Sendable {
        public var number: UInt32
        public var state: ConnectionState
        /// Numeric address; the proxy's if there is a proxy.
        public var address: String
        public var statistics: ConnectionStatistics
    }

    /// Waiting requests of one priority.
    public struct Queue: Sendable {
        public var priority: Priority
        public var depth: Int
        /// Age of the first waiting request, in nanoseconds; nil when none waits.
        public var oldestAgeNanoseconds: UInt64?
    }

    public var circuit: PoolCircuit
    public var stopReason: String?
    /// Limit on requests in flight on each connection after the circuit was open because of errors; nil when there is
    /// none.
    public var streamShare: Int?
    /// Number of connections that the pool aims at.
    public var targetConnections: Int
    public var inFlight: Int
    public var waiting: Int
    public var queues: [Queue]
    public var connections: [Connection]
    /// Counts that include connections that are gone.
    public var counters: PoolCounters

    /// Number of connections that accept requests.
    public var openConnections: Int {
        connections.count { $0.state == .active || $0.state == .reserve || $0.state == .retiring }
    }
}

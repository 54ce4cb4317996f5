import SluiceModel

/// What a pool has done so far, in plain integers.
public struct PoolCounters: Sendable, Equatable {
    /// Connections that came to be open.
    public internal(set) var opened = 0
    /// Openings that were begun and did not end in an open connection, failed look-ups of the name included.
    public internal(set) var openingsFailed = 0
    public internal(set) var lookupsFailed = 0
    /// Open connections that ended, by ``ConnectionCloseReason/Kind``.
    public internal(set) var endedByNetwork = 0
    public internal(set) var endedBySettings = 0
    public internal(set) var endedByProtocolBreach = 0
    public internal(set) var endedByServer = 0
    public internal(set) var endedByUs = 0
    public internal(set) var goAways = 0
    /// The code of the last GOAWAY, and its debug data, at most 256 bytes.
    public internal(set) var lastGoAway: UInt32?
    public internal(set) var lastGoAwayReason: [UInt8] = []
    /// Requests that ended without an answer: certainly not processed, and perhaps processed.
    public internal(set) var notProcessed = 0
    public internal(set) var unknown = 0
    /// Requests that the server failed alone: it reset or refused the stream, or answered what can't be read.
    public internal(set) var streamErrors = 0
    /// Connections that were replaced as the server left them no stream or window.
    public internal(set) var stuck = 0
    /// How often the circuit opened.
    public internal(set) var circuitOpened = 0

    // Of ConnectionStatistics, summed.
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

    /// Adds up a connection that is gone.
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

/// One pool at a moment, for operators.
public struct PoolSnapshot: Sendable {
    public enum ConnectionState: String, Sendable, CustomStringConvertible {
        case opening
        /// Takes requests.
        case active
        /// Takes requests only when the active ones are full; closes when idle.
        case reserve
        /// Serves until its successor is open.
        case retiring
        /// Ends its last requests.
        case draining
        /// Silent after a PING: takes no requests until it shows a sign of life.
        case suspected

        public var description: String { rawValue }
    }

    public struct Connection: Sendable {
        public var number: UInt32
        public var state: ConnectionState
        /// Numeric; of the proxy if there is one.
        public var address: String
        public var statistics: ConnectionStatistics
    }

    /// Waiting requests of one class.
    public struct Queue: Sendable {
        public var priority: Priority
        public var depth: Int
        /// Of the first that waits, in nanoseconds; nil when none does.
        public var oldestAgeNanoseconds: UInt64?
    }

    public var circuit: PoolCircuit
    public var stopReason: String?
    /// Requests that each connection may have in flight after the circuit was open for errors; nil: no limit.
    public var streamShare: Int?
    /// Connections that the pool means to have.
    public var targetConnections: Int
    public var inFlight: Int
    public var waiting: Int
    public var queues: [Queue]
    public var connections: [Connection]
    /// Connections that are gone included.
    public var counters: PoolCounters

    /// Connections that take requests.
    public var openConnections: Int {
        connections.count { $0.state == .active || $0.state == .reserve || $0.state == .retiring }
    }
}

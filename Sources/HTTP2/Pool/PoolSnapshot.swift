import SluiceModel

/// Counts of a pool since its start, in plain integers.
public struct PoolCounters: Sendable, Equatable {
    /// Connections that opened.
    public internal(set) var opened = 0
    /// Openings that did not end in an open connection, including failed look-ups of the name.
    public internal(set) var openingsFailed = 0
    /// Look-ups of the host's addresses that failed.
    public internal(set) var lookupsFailed = 0
    /// Open connections that ended because of the network. The kinds are those of ``ConnectionCloseReason/Kind``.
    public internal(set) var endedByNetwork = 0
    /// Open connections that ended because of settings or credentials.
    public internal(set) var endedBySettings = 0
    /// Open connections that ended because of a breach of TLS or HTTP/2.
    public internal(set) var endedByProtocolBreach = 0
    /// Open connections that the server ended in an orderly way.
    public internal(set) var endedByServer = 0
    /// Open connections that this side ended.
    public internal(set) var endedByUs = 0
    /// GOAWAY frames from the server.
    public internal(set) var goAways = 0
    /// Code of the last GOAWAY; nil before the first.
    public internal(set) var lastGoAway: UInt32?
    /// Debug data of the last GOAWAY, at most 256 bytes; empty before the first.
    public internal(set) var lastGoAwayReason: [UInt8] = []
    /// Requests that ended without an answer and that the server certainly has not processed.
    public internal(set) var notProcessed = 0
    /// Requests that ended without an answer and that the server may have processed.
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

extension PoolCounters {
    /// Adds the counts of another pool. The last GOAWAY of either pool stays.
    public static func += (left: inout PoolCounters, right: PoolCounters) {
        left.opened += right.opened
        left.openingsFailed += right.openingsFailed
        left.lookupsFailed += right.lookupsFailed
        left.endedByNetwork += right.endedByNetwork
        left.endedBySettings += right.endedBySettings
        left.endedByProtocolBreach += right.endedByProtocolBreach
        left.endedByServer += right.endedByServer
        left.endedByUs += right.endedByUs
        left.goAways += right.goAways
        if right.lastGoAway != nil {
            left.lastGoAway = right.lastGoAway
            left.lastGoAwayReason = right.lastGoAwayReason
        }
        left.notProcessed += right.notProcessed
        left.unknown += right.unknown
        left.streamErrors += right.streamErrors
        left.stuck += right.stuck
        left.circuitOpened += right.circuitOpened
        left.requests += right.requests
        left.answers2xx += right.answers2xx
        left.answers4xx += right.answers4xx
        left.answers5xx += right.answers5xx
        left.answersOther += right.answersOther
        left.expired += right.expired
        left.resetsReceived += right.resetsReceived
        left.bytesSent += right.bytesSent
        left.bytesReceived += right.bytesReceived
    }
}

/// State of a pool at one moment, for operators.
public struct PoolSnapshot: Sendable {
    /// State of a connection.
    public enum ConnectionState: String, Sendable, CustomStringConvertible {
        /// Dials, or waits for TLS or the server's SETTINGS.
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

    /// A connection of the pool.
    public struct Connection: Sendable {
        /// Number of the connection, which later connections reuse.
        public var number: UInt32
        public var state: ConnectionState
        /// Numeric address; the proxy's if there is a proxy.
        public var address: String
        public var statistics: ConnectionStatistics
    }

    /// Waiting requests of one priority.
    public struct Queue: Sendable {
        public var priority: Priority
        /// Number of waiting requests.
        public var depth: Int
        /// Age of the first waiting request, in nanoseconds; nil when none waits.
        public var oldestAgeNanoseconds: UInt64?
    }

    public var circuit: PoolCircuit
    /// Reason why nothing is opened or sent for the time being; nil when the pool is not stopped.
    public var stopReason: String?
    /// Limit on requests in flight on each connection after the circuit was open because of errors; nil when there is
    /// none.
    public var streamShare: Int?
    /// Number of connections that the pool aims at.
    public var targetConnections: Int
    /// Requests in flight on all connections.
    public var inFlight: Int
    /// Requests that wait for a connection.
    public var waiting: Int
    /// Waiting requests by priority.
    public var queues: [Queue]
    /// Connections that exist, in any state.
    public var connections: [Connection]
    /// Counts that include connections that are gone.
    public var counters: PoolCounters

    /// Number of connections that accept requests.
    public var openConnections: Int {
        connections.count { $0.state == .active || $0.state == .reserve || $0.state == .retiring }
    }
}

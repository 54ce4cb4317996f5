/// Reason for closing a connection although nothing showed that the connection had ended.
public enum UnresponsiveCause: Sendable, Equatable {
    /// Not a byte arrived for so many nanoseconds, though a PING asked for one.
    case silent(nanoseconds: UInt64)
    /// So many requests expired, and no answer arrived since the first of them was sent.
    case requestsUnanswered(Int)
    /// So many requests expired before the server's system had acknowledged their bytes. The system would go on sending
    /// them after their end.
    case requestsUnderWay(Int)
}

/// Decides when a PING is due, when a connection accepts no new requests, and when it is closed. The value is pure: the
/// caller reports events and their times. At the time that ``nextTick(openStreams:)`` names, the caller calls
/// ``tick(now:openStreams:)`` and carries out the result. Times are in nanoseconds of the monotonic clock.
///
/// A PING (RFC 9113 §6.7) is sent in four cases. The connection has just opened. `pingInterval` has passed since the
/// last PING. Requests are open and nothing was read for `suspicionInterval`. A request has expired without any answer
/// since it was sent. A request that expires while others are answered proves nothing about the connection. A request
/// that expires on its way to the server ends the connection, because nothing else keeps it from arriving later.
///
/// Any byte that arrives after the PING is a sign of life. Without a sign of life, no new requests are placed after a
/// grace of four round trips. After `pingTimeout` the connection is closed. With requests open that is at most
/// `suspicionInterval` + `pingTimeout` after the last byte.
public struct ConnectionHealth: Sendable {
    /// Intervals and limits, in nanoseconds.
    public struct Configuration: Sendable {
        /// Nanoseconds between two PINGs.
        public var pingInterval: UInt64
        /// Nanoseconds without a byte after a PING before the connection is closed.
        public var pingTimeout: UInt64
        /// Nanoseconds without a byte, with requests open, before a PING is sent.
        public var suspicionInterval: UInt64

        public init(pingInterval: UInt64, pingTimeout: UInt64, suspicionInterval: UInt64) {
            self.pingInterval = pingInterval
            self.pingTimeout = pingTimeout
            self.suspicionInterval = suspicionInterval
        }
    }

    /// Action that is due.
    public enum Action: Sendable, Equatable {
        /// Nothing is due.
        case none
        /// Send a PING with this number.
        case ping(UInt32)
        /// Place no new requests until ``isSuspended`` is false again.
        case suspend
        /// Close the connection.
        case close(UnresponsiveCause)
    }

    /// Number of requests that expire, without an answer since they were sent, before the connection is closed, PINGs
    /// or not. A connection without any answer so far is closed after the first.
    public static let maximumExpired = 3
    /// Least grace, in nanoseconds, so that a stall of the network or of the server does not count as its end.
    static let leastGrace: UInt64 = 250_000_000
    /// Grace in nanoseconds while no round trip has been measured; the initial timeout of RFC 6298 §2.1.
    static let initialGrace: UInt64 = 1_000_000_000

    public let configuration: Configuration
    /// Round-trip time of PINGs so far.
    public private(set) var roundTrip = RoundTripEstimate()
    /// Whether new requests must use other connections for the moment.
    public private(set) var isSuspended = false
    /// Number of requests that expired since the last answer.
    public private(set) var expiredSinceAnswer = 0

    /// Time of the last answer, or of the connection's opening.
    public private(set) var lastAnswer: UInt64
    private var hasAnswered = false
    private var lastRead: UInt64
    private var busySince: UInt64
    /// Send time of a PING after which nothing has been read; nil when there is none.
    private var probeSentAt: UInt64?
    /// PING whose acknowledgement would be a sample; nil when there is none.
    private var outstanding: (number: UInt32, sentAt: UInt64)?
    private var lastPing: UInt64?
    private var lastNumber: UInt32 = 0
    /// A request expired, and nothing was read since.
    private var expiryIsFresh = false
    /// Number of requests that expired on their way to the server.
    private var expiredUnderWay = 0

    /// - Parameter now: when the connection opened.
    public init(configuration: Configuration, now: UInt64) {
        self.configuration = configuration
        lastAnswer = now
        lastRead = now
        busySince = now
    }

    /// Time that a PING may be unacknowledged before no new requests are placed, in nanoseconds. The time is four round
    /// trips, at least 250 ms and at most half of `pingTimeout`.
    public var grace: UInt64 {
        let wanted = roundTrip.samples == 0 ? Self.initialGrace : roundTrip.smoothed &* 4
        return min(max(wanted, Self.leastGrace), configuration.pingTimeout / 2)
    }

    // MARK: Events

    /// Reports that bytes arrived, which is a sign of life.
    public mutating func bytesRead(now: UInt64) {
        lastRead = now
        probeSentAt = nil
        isSuspended = false
        expiryIsFresh = false
    }

    /// Reports that a request was sent while none was open.
    public mutating func streamsOpened(now: UInt64) {
        busySince = now
    }

    /// Reports a whole answer.
    public mutating func answered(now: UInt64) {
        lastAnswer = now
        hasAnswered = true
        expiredSinceAnswer = 0
    }

    /// Reports the acknowledgement of a PING. Only the acknowledgement of the last PING is a sample; others belong to
    /// an earlier doubt.
    public mutating func pingAnswered(number: UInt32, now: UInt64) {
        guard let ping = outstanding, ping.number == number else { return }
        outstanding = nil
        roundTrip.add(now > ping.sentAt ? now - ping.sentAt : 0)
    }

    /// Reports expired requests that were sent after ``lastAnswer``. No new requests are placed until the connection
    /// receives a sign of life.
    /// - Parameter underWay: expired requests, sent at any time, that may not have reached the server's system.
    public mutating func requestsExpired(_ count: Int, underWay: Int = 0) {
        expiredUnderWay += underWay
        guard count > 0 else { return }
        expiredSinceAnswer += count
        expiryIsFresh = true
        isSuspended = true
    }

    // MARK: Decisions

    /// Returns the action that is due now. Called at ``nextTick(openStreams:)`` at the latest.
    public mutating func tick(now: UInt64, openStreams: Int) -> Action {
        if expiredUnderWay > 0 { return .close(.requestsUnderWay(expiredUnderWay)) }
        if expiredSinceAnswer >= (hasAnswered ? Self.maximumExpired : 1) {
            return .close(.requestsUnanswered(expiredSinceAnswer))
        }
        if let probeSentAt {
            if now >= probeSentAt &+ configuration.pingTimeout {
                return .close(.silent(nanoseconds: now &- lastRead))
            }
            guard !isSuspended, now >= probeSentAt &+ grace else { return .none }
            isSuspended = true
            return .suspend
        }
        guard now >= nextPing(openStreams: openStreams) else { return .none }
        lastNumber &+= 1
        outstanding = (lastNumber, now)
        probeSentAt = now
        lastPing = now
        return .ping(lastNumber)
    }

    /// Returns the time when ``tick(now:openStreams:)`` has work, unless an event happens before.
    public func nextTick(openStreams: Int) -> UInt64 {
        guard let probeSentAt else { return nextPing(openStreams: openStreams) }
        let end = probeSentAt &+ configuration.pingTimeout
        return isSuspended ? end : min(probeSentAt &+ grace, end)
    }

    private func nextPing(openStreams: Int) -> UInt64 {
        guard let lastPing, !expiryIsFresh else { return 0 }
        let regular = lastPing &+ configuration.pingInterval
        guard openStreams > 0 else { return regular }
        return min(regular, max(lastRead, busySince) &+ configuration.suspicionInterval)
    }
}

/// A smoothed round-trip time and its variation, as TCP estimates them (RFC 6298 §2), in nanoseconds.
public struct RoundTripEstimate: Sendable, Equatable {
    /// Exponentially weighted mean; 0 without a sample.
    public private(set) var smoothed: UInt64 = 0
    /// Exponentially weighted mean deviation.
    public private(set) var variation: UInt64 = 0
    /// Last sample; 0 without a sample.
    public private(set) var last: UInt64 = 0
    /// Shortest sample; 0 without a sample.
    public private(set) var minimum: UInt64 = 0
    /// Number of samples.
    public private(set) var samples: UInt64 = 0

    public init() {}

    /// Adds a sample in nanoseconds.
    public mutating func add(_ sample: UInt64) {
        last = sample
        if samples == 0 {
            smoothed = sample
            variation = sample / 2
            minimum = sample
        } else {
            let deviation = smoothed > sample ? smoothed - sample : sample - smoothed
            // The order matters, because the variation refers to the mean before the sample.
            variation = variation - variation / 4 + deviation / 4
            smoothed = smoothed - smoothed / 8 + sample / 8
            minimum = min(minimum, sample)
        }
        samples += 1
    }
}

/// Why a connection was given up although nothing said that it had ended.
public enum UnresponsiveCause: Sendable, Equatable {
    /// Not a byte came for so many nanoseconds, though a PING asked for one.
    case silent(nanoseconds: UInt64)
    /// So many requests ran out of time, and nothing was answered since the first of them was sent.
    case requestsUnanswered(Int)
}

/// Decides whether a connection is well: when a PING is due, when no new requests are to be placed on it, when it is
/// to be given up. Pure: the caller tells what happens and when, asks with ``tick(now:openStreams:)`` at the time
/// that ``nextTick(openStreams:)`` names, and does what it says. Times in nanoseconds of the monotonic clock.
///
/// A PING (RFC 9113 §6.7) goes out as soon as the connection is open, every `pingInterval`, when requests are open
/// and nothing was read for `suspicionInterval`, and when a request has run out of time without any answer since it was
/// sent. A request that runs out of time while others are answered says nothing of the connection. Any byte that comes after
/// it is a sign of life. Without one no new requests are placed after a grace of four round trips, and after
/// `pingTimeout` the connection is given up: with requests open at most `suspicionInterval` + `pingTimeout` after
/// the last byte.
public struct ConnectionHealth: Sendable {
    public struct Configuration: Sendable {
        public var pingInterval: UInt64
        public var pingTimeout: UInt64
        public var suspicionInterval: UInt64

        public init(pingInterval: UInt64, pingTimeout: UInt64, suspicionInterval: UInt64) {
            self.pingInterval = pingInterval
            self.pingTimeout = pingTimeout
            self.suspicionInterval = suspicionInterval
        }
    }

    public enum Action: Sendable, Equatable {
        case none
        /// Send a PING with this number.
        case ping(UInt32)
        /// Place no new requests until ``isSuspended`` is false again.
        case suspend
        case close(UnresponsiveCause)
    }

    /// Requests that run out of time without an answer since they were sent, until the connection is given up, PINGs or
    /// not.
    public static let maximumExpired = 3
    /// The grace is never shorter, so that a stall of the network or of the server is not taken for its end.
    static let leastGrace: UInt64 = 250_000_000
    /// The grace while no round trip has been measured; the initial timeout of RFC 6298 §2.1.
    static let initialGrace: UInt64 = 1_000_000_000

    public let configuration: Configuration
    public private(set) var roundTrip = RoundTripEstimate()
    /// Whether new requests are to be placed elsewhere for the moment.
    public private(set) var isSuspended = false
    /// Requests that ran out of time since the last answer.
    public private(set) var expiredSinceAnswer = 0

    /// When the last answer came, or the connection opened.
    public private(set) var lastAnswer: UInt64
    private var lastRead: UInt64
    private var busySince: UInt64
    /// A PING after which nothing has been read: when it was sent.
    private var probeSentAt: UInt64?
    /// The PING whose answer would be a sample.
    private var outstanding: (number: UInt32, sentAt: UInt64)?
    private var lastPing: UInt64?
    private var lastNumber: UInt32 = 0
    /// A request ran out of time and nothing was read since.
    private var expiryIsFresh = false

    /// - Parameter now: when the connection opened.
    public init(configuration: Configuration, now: UInt64) {
        self.configuration = configuration
        lastAnswer = now
        lastRead = now
        busySince = now
    }

    /// How long a PING may be without an answer before no new requests are placed: four round trips, at least 250 ms,
    /// at most half of `pingTimeout`.
    public var grace: UInt64 {
        let wanted = roundTrip.samples == 0 ? Self.initialGrace : roundTrip.smoothed &* 4
        return min(max(wanted, Self.leastGrace), configuration.pingTimeout / 2)
    }

    // MARK: Events

    public mutating func bytesRead(now: UInt64) {
        lastRead = now
        probeSentAt = nil
        isSuspended = false
        expiryIsFresh = false
    }

    /// A request was sent while none was open.
    public mutating func streamsOpened(now: UInt64) {
        busySince = now
    }

    /// A whole answer has come.
    public mutating func answered(now: UInt64) {
        lastAnswer = now
        expiredSinceAnswer = 0
    }

    /// An answer to a PING. Only that to the last one is a sample; others come from an earlier doubt.
    public mutating func pingAnswered(number: UInt32, now: UInt64) {
        guard let ping = outstanding, ping.number == number else { return }
        outstanding = nil
        roundTrip.add(now > ping.sentAt ? now - ping.sentAt : 0)
    }

    /// Requests ran out of time that were sent after ``lastAnswer``. No new ones are placed until the connection shows a
    /// sign of life.
    public mutating func requestsExpired(_ count: Int) {
        guard count > 0 else { return }
        expiredSinceAnswer += count
        expiryIsFresh = true
        isSuspended = true
    }

    // MARK: Decisions

    public mutating func tick(now: UInt64, openStreams: Int) -> Action {
        if expiredSinceAnswer >= Self.maximumExpired {
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

    /// When ``tick(now:openStreams:)`` has something to do, unless something happens before.
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

/// A smoothed round-trip time and its variation, as TCP estimates them (RFC 6298 §2). Nanoseconds.
public struct RoundTripEstimate: Sendable, Equatable {
    /// Exponentially weighted mean; 0 without a sample.
    public private(set) var smoothed: UInt64 = 0
    /// Exponentially weighted mean deviation.
    public private(set) var variation: UInt64 = 0
    public private(set) var last: UInt64 = 0
    public private(set) var minimum: UInt64 = 0
    public private(set) var samples: UInt64 = 0

    public init() {}

    public mutating func add(_ sample: UInt64) {
        last = sample
        if samples == 0 {
            smoothed = sample
            variation = sample / 2
            minimum = sample
        } else {
            let deviation = smoothed > sample ? smoothed - sample : sample - smoothed
            // In this order: the variation is about the mean before the sample.
            variation = variation - variation / 4 + deviation / 4
            smoothed = smoothed - smoothed / 8 + sample / 8
            minimum = min(minimum, sample)
        }
        samples += 1
    }
}

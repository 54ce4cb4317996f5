/// Treatment of streams above SETTINGS_MAX_CONCURRENT_STREAMS.
public enum ExcessStreams: String, Sendable, CaseIterable {
    /// RST_STREAM with REFUSED_STREAM. A second RST_STREAM with STREAM_CLOSED answers the DATA that follows HEADERS
    /// without END_STREAM, and doesn't wait for it.
    case refuse
    /// GOAWAY with REFUSED_STREAM and a text. A client that can't know a lower limit yet meets ``refuse``.
    case goAway = "goaway"
}

/// Limit of a connection's streams, and the limits that its client may still act on. Pure.
///
/// nghttp2 ends a connection at the first stream above an acknowledged limit. So nghttp2 learns of no limit, and the
/// connection enforces this limit.
struct ServerStreamLimit {
    /// The limit in force.
    var current: UInt32
    /// The limit of the last SETTINGS frame; nil before the first.
    private var announced: UInt32?
    /// The limit that the client has acknowledged last; the highest number before the first acknowledgement.
    private var acknowledged = UInt32.max
    /// Limits that were sent since, in the order of sending.
    private var unacknowledged: [UInt32] = []

    /// Most SETTINGS that a client may leave unacknowledged; further ones end the connection.
    static let mostUnacknowledged = 1_000
    /// Most refusals that may wait for the socket; further streams above the limit end the connection.
    static let mostUnsentRefusals = 10_000

    /// Whether the client leaves too many SETTINGS unacknowledged.
    var isOverdue: Bool { unacknowledged.count > Self.mostUnacknowledged }

    /// Whether the client is to learn of the limit in force by a further SETTINGS frame.
    var isDue: Bool { announced != nil && announced != current }

    init(_ limit: UInt32) { current = limit }

    /// Records that a SETTINGS frame carries the limit in force to the client.
    mutating func announce() {
        announced = current
        unacknowledged.append(current)
    }

    /// Records the client's acknowledgement of the oldest unacknowledged SETTINGS.
    mutating func acknowledge() {
        if !unacknowledged.isEmpty { acknowledged = unacknowledged.removeFirst() }
    }

    /// Returns whether a further stream breaks each limit that the client may act on.
    /// - Parameter open: number of open streams.
    func isViolated(open: Int) -> Bool {
        open >= Int(max(acknowledged, unacknowledged.max() ?? 0))
    }
}

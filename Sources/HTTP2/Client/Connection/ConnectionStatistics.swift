/// What a connection has done so far, in plain integers. Cheap enough to be always on.
public struct ConnectionStatistics: Sendable {
    /// Payload of TLS, without its own overhead.
    public internal(set) var bytesSent: UInt64 = 0
    public internal(set) var bytesReceived: UInt64 = 0

    public internal(set) var requests: UInt64 = 0
    /// Whole answers with a 2xx, 4xx, 5xx and any other status.
    public internal(set) var answers2xx: UInt64 = 0
    public internal(set) var answers4xx: UInt64 = 0
    public internal(set) var answers5xx: UInt64 = 0
    public internal(set) var answersOther: UInt64 = 0
    /// Requests that ran out of time.
    public internal(set) var expired: UInt64 = 0
    /// RST_STREAM for open streams, and GOAWAY frames, from the server.
    public internal(set) var resetsReceived: UInt64 = 0
    public internal(set) var goAwaysReceived: UInt64 = 0

    /// Reads that brought bytes; each is at most one TLS record.
    public internal(set) var reads: UInt64 = 0
    /// TLS records written; up to two leave in one system call.
    public internal(set) var writes: UInt64 = 0
    /// Records written by their bytes.
    public internal(set) var bytesPerWrite = PowerHistogram()
    /// Ends of turns with requests to send, by the number of requests.
    public internal(set) var requestsPerFlush = PowerHistogram()

    /// From the beginning until TCP was up, proxy excluded. Nanoseconds, as all times here.
    public internal(set) var connectNanoseconds: UInt64 = 0
    /// From TCP until TLS was up and the server's SETTINGS were there, proxy included.
    public internal(set) var handshakeNanoseconds: UInt64 = 0
    /// When the server's SETTINGS had come, on the monotonic clock; 0 before.
    public internal(set) var openedAtNanoseconds: UInt64 = 0

    /// Of PINGs.
    public internal(set) var roundTrip = RoundTripEstimate()
    /// PINGs sent, and those among them after which new requests were held back.
    public internal(set) var pings: UInt64 = 0
    public internal(set) var suspensions: UInt64 = 0

    /// Streams that may be open at once, at the time of asking.
    public internal(set) var streamLimit = 0
    /// Streams that are open, at the time of asking.
    public internal(set) var inFlight = 0

    public init() {}

    mutating func count(status: UInt16) {
        switch status / 100 {
        case 2: answers2xx += 1
        case 4: answers4xx += 1
        case 5: answers5xx += 1
        default: answersOther += 1
        }
    }
}

/// Counts of values by powers of two: bucket 0 counts zeros, bucket n values of 2^(n-1) to 2^n - 1, the last one all
/// that are larger.
public struct PowerHistogram: Sendable {
    public static let bucketCount = 20
    private var counts = InlineArray<20, UInt64>(repeating: 0)

    public init() {}

    public var buckets: [UInt64] { counts.indices.map { counts[$0] } }

    /// Values counted.
    public var total: UInt64 { buckets.reduce(0, +) }

    mutating func record(_ value: Int) {
        let bits = Int.bitWidth - max(value, 0).leadingZeroBitCount
        counts[min(bits, Self.bucketCount - 1)] += 1
    }
}

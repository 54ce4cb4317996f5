/// Counts of a connection since its start, in plain integers. The counts are cheap enough to be always on.
public struct ConnectionStatistics: Sendable {
    /// Bytes of TLS payload sent, without TLS's own overhead.
    public internal(set) var bytesSent: UInt64 = 0
    /// Bytes of TLS payload received.
    public internal(set) var bytesReceived: UInt64 = 0

    /// Requests submitted.
    public internal(set) var requests: UInt64 = 0
    /// Whole answers with a 2xx status.
    public internal(set) var answers2xx: UInt64 = 0
    /// Whole answers with a 4xx status.
    public internal(set) var answers4xx: UInt64 = 0
    /// Whole answers with a 5xx status.
    public internal(set) var answers5xx: UInt64 = 0
    /// Whole answers with any other status.
    public internal(set) var answersOther: UInt64 = 0
    /// Requests that expired.
    public internal(set) var expired: UInt64 = 0
    /// RST_STREAM frames from the server, for open streams.
    public internal(set) var resetsReceived: UInt64 = 0
    /// GOAWAY frames from the server.
    public internal(set) var goAwaysReceived: UInt64 = 0

    /// Reads that delivered bytes; each is at most one TLS record.
    public internal(set) var reads: UInt64 = 0
    /// TLS records written; one system call sends up to two.
    public internal(set) var writes: UInt64 = 0
    /// Histogram of written records by their bytes.
    public internal(set) var bytesPerWrite = PowerHistogram()
    /// Histogram of loop turns that sent requests, by the number of requests.
    public internal(set) var requestsPerFlush = PowerHistogram()

    /// Time from the beginning until TCP was up, proxy excluded. All times here are in nanoseconds.
    public internal(set) var connectNanoseconds: UInt64 = 0
    /// Time from TCP until TLS was up and the server's SETTINGS had arrived, proxy included.
    public internal(set) var handshakeNanoseconds: UInt64 = 0
    /// Time when the server's SETTINGS arrived, on the monotonic clock; 0 before.
    public internal(set) var openedAtNanoseconds: UInt64 = 0

    /// Round-trip time of PINGs.
    public internal(set) var roundTrip = RoundTripEstimate()
    /// Number of PINGs sent.
    public internal(set) var pings: UInt64 = 0
    /// Number of suspensions, when new requests were held back after a PING.
    public internal(set) var suspensions: UInt64 = 0

    /// Highest number of streams that may be open at once, at the time of the call.
    public internal(set) var streamLimit = 0
    /// Number of open streams, at the time of the call.
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

/// Counts of values by powers of two. Bucket 0 counts zeros, bucket n counts values of 2^(n-1) to 2^n - 1, and the last
/// counts all larger values.
public struct PowerHistogram: Sendable {
    public static let bucketCount = 20
    private var counts = InlineArray<20, UInt64>(repeating: 0)

    public init() {}

    /// Counts by bucket, ``bucketCount`` in number.
    public var buckets: [UInt64] { counts.indices.map { counts[$0] } }

    /// Number of values counted.
    public var total: UInt64 { buckets.reduce(0, +) }

    mutating func record(_ value: Int) {
        let bits = Int.bitWidth - max(value, 0).leadingZeroBitCount
        counts[min(bits, Self.bucketCount - 1)] += 1
    }
}

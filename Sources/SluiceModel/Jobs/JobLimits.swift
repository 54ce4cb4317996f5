/// Limits and defaults of job fields. The schemas name the same numbers, and a test compares them.
public enum JobLimits {
    /// Largest record value in bytes, in each mode.
    public static let maximumDocumentSize = JSONValidator.capacity
    /// Deepest nesting of a payload or document.
    public static let maximumDepth = JSONScanner.maximumDepth
    /// Longest `apns-collapse-id`, in bytes (APNs: 64).
    public static let maximumCollapseIdentifierLength = 64
    /// Longest channel identifier in base64; APNs leaves the length open.
    public static let maximumChannelIdentifierLength = 256
    /// `ttl` in seconds: a year. APNs itself keeps a notification for 30 days at most; Sluice may hold it
    /// longer.
    public static let timeToLive: ClosedRange<Int64> = 0...31_536_000
    /// `apns-expiration` in UNIX seconds, beside 0: 2001 to 2106. A smaller number is a duration, a larger
    /// one milliseconds.
    public static let expiration: ClosedRange<Int64> = 1_000_000_000...4_294_967_295
    /// Instants in milliseconds since the epoch: 2001 to 2106. A smaller number is seconds, a larger one
    /// microseconds.
    public static let instant: ClosedRange<Int64> = 1_000_000_000_000...4_294_967_295_000
    /// Milliseconds by which a producer's clock may be ahead of the worker's, unless a setting says otherwise.
    public static let clockToleranceMilliseconds: Int64 = 300_000
    /// Most bytes of the headers that a job's outcome gets, with three bytes for each header.
    public static let maximumPassedHeaderBytes = 1024
    /// Most milliseconds from a broadcast's creation to its `deliver-at`: a minute. The store keeps no broadcasts, so a
    /// waiting broadcast holds its partition's offsets.
    public static let broadcastLead: Int64 = 60_000
    /// `receipt-timeout` in seconds.
    public static let receiptTimeout: ClosedRange<Int64> = 1...86_400
    /// `receipt-timeout` of a job with `delivery: confirm` that names none.
    public static let defaultReceiptTimeout: UInt32 = 60
}

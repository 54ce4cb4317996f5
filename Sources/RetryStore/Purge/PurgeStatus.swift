/// State of the purges of a store.
public struct PurgeStatus: Sendable, Equatable {
    /// End of a purge.
    public struct End: Sendable, Equatable {
        public var partition: Int32
        /// Time of the end, in milliseconds since the epoch.
        public var milliseconds: Int64
        /// Duration in milliseconds.
        public var duration: Int64
        /// Cause of a failure; nil: the partition's files have no bytes of entries removed before the begin.
        public var failure: RetryStoreError?
    }

    /// A partition that needs a purge.
    public struct Pending: Sendable, Equatable {
        /// Time of the first removal that no purge has covered, in milliseconds since the epoch.
        public var since: Int64
        /// Whether the purge was requested, and begins without delay.
        public var isRequested: Bool
    }

    /// Name of the store's opening: 16 hexadecimal digits, random. Requests and counts end with the opening.
    public var opening = ""
    /// Longest time between a removal and the begin of its purge, in milliseconds.
    public var delay: Int64 = 0
    /// Partitions that need a purge, the one under way included.
    public var pending: [Int32: Pending] = [:]
    /// Partition that is being purged; nil: none is.
    public var current: Int32?
    /// Purges that have succeeded since the opening.
    public var completed = 0
    /// Purges that have failed since the opening.
    public var failed = 0
    /// The last purge's end; nil: none has ended since the opening.
    public var last: End?

    public init() {}
}

/// Partitions of a requested purge.
public enum PurgeScope: Sendable, Equatable {
    /// Partitions with a removal that no purge covers.
    case pending
    /// All partitions of the store.
    case all
}

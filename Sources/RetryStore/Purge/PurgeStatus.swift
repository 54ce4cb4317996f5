/// State of the purges of a store.
public struct PurgeStatus: Sendable, Equatable {
    /// Outcome of a purge.
    public enum Outcome: Sendable, Equatable {
        /// The partition's files have no bytes of entries removed before the begin.
        case purged
        /// The partition and its files were gone before the end. The store may have made the partition anew.
        case dropped
        /// The files can still have the bytes. The purge is repeated after a pause.
        case failed(RetryStoreError)
    }

    /// End of a purge.
    public struct End: Sendable, Equatable {
        public var partition: Int32
        /// Time of the end, in milliseconds since the epoch.
        public var milliseconds: Int64
        /// The same time, on a clock that nobody sets.
        public var instant: ContinuousClock.Instant
        /// Duration in milliseconds.
        public var duration: Int64
        public var outcome: Outcome

        /// Cause of a failure; nil: the purge has not failed.
        public var failure: RetryStoreError? {
            guard case .failed(let failure) = outcome else { return nil }
            return failure
        }
    }

    /// A partition that needs a purge.
    public struct Pending: Sendable, Equatable {
        /// Time of the first removal that no purge has covered, in milliseconds since the epoch.
        public var since: Int64
        /// Whether the purge was requested, and begins without delay.
        public var isRequested: Bool
        /// Purges of the partition that have failed in succession; 30 stands for any number from 30 on.
        public var failures: Int
        /// Time of the first of these failures, in milliseconds since the epoch; nil: the last purge hasn't failed.
        public var failingSince: Int64?
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
    /// Purges since the opening whose partition was gone before the end, by partition.
    public var dropped: [Int32: Int] = [:]
    /// See ``PurgeSchedule/failingSince``.
    public var failingSince: Int64?
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

extension IntakeGate {
    /// Limits of jobs, bytes and times.
    public struct Limits: Sendable, Equatable {
        /// Jobs taken and not finished, at least 1.
        public var jobs: Int
        /// Bytes of jobs taken and not finished, at least 1.
        public var bytes: Int
        /// Bytes that the consumer may have fetched ahead, at least 1.
        public var bytesAhead: Int
        /// Part of either limit that the long-held jobs of one partition may take, 0…1. At 1 no partition is paused
        /// alone.
        public var partitionShare: Double
        /// Nanoseconds after which a job is long-held. The gate counts the job as long-held after at most twice as
        /// many.
        public var longHold: UInt64
        /// Nanoseconds at the limit after which all partitions are paused.
        public var stall: UInt64

        public init(
            jobs: Int, bytes: Int, bytesAhead: Int = 128 << 20, partitionShare: Double = 0.5,
            longHold: UInt64 = 2_000_000_000,
            stall: UInt64 = 500_000_000
        ) {
            self.jobs = max(1, jobs)
            self.bytes = max(1, bytes)
            self.bytesAhead = max(1, bytesAhead)
            self.partitionShare = min(max(0, partitionShare), 1)
            self.longHold = longHold
            self.stall = stall
        }
    }

    /// Reasons of a partition's pause.
    public struct Reason: OptionSet, Sendable, Hashable {
        public let rawValue: UInt8
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// The worker is at its limit of jobs or bytes.
        public static let limit = Reason(rawValue: 1)
        /// An old job holds the partition's watermark, and the partition's window of offsets is full.
        public static let window = Reason(rawValue: 2)
        /// The partition's long-held jobs take more than one partition's share of the limit.
        public static let share = Reason(rawValue: 4)
        /// The store can't take what has to wait.
        public static let store = Reason(rawValue: 8)
        /// An operator has paused all sending, or the switches aren't known yet.
        public static let allPaused = Reason(rawValue: 16)
        /// Kafka takes the outcome or dead letter of one of the partition's records in no form.
        public static let refused = Reason(rawValue: 32)
    }

    /// Orders to the owner, in the order of ``nextAction()``.
    public enum Action: Sendable, Equatable {
        /// Pauses the partition of this number, for the reason that arose first.
        case pause(Int, Reason)
        /// Resumes the partition of this number.
        case resume(Int)
    }

    /// Jobs and their bytes.
    public struct Load: Sendable, Equatable {
        public var jobs = 0
        public var bytes = 0

        public init(jobs: Int = 0, bytes: Int = 0) {
            self.jobs = jobs
            self.bytes = bytes
        }

        mutating func add(_ other: Load) {
            jobs += other.jobs
            bytes += other.bytes
        }

        /// Subtracts a load. The result is never below zero and has no bytes without jobs, because parts of a
        /// partition's load are estimates.
        /// - Returns: the load that was taken off.
        @discardableResult
        mutating func subtract(_ other: Load) -> Load {
            let before = self
            jobs = max(0, jobs - other.jobs)
            bytes = jobs == 0 ? 0 : max(0, bytes - other.bytes)
            return Load(jobs: before.jobs - jobs, bytes: before.bytes - bytes)
        }
    }
}

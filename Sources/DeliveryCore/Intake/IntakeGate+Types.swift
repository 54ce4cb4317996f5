extension IntakeGate {
    public struct Limits: Sendable, Equatable {
        /// Jobs taken and not finished, at least 1.
        public var jobs: Int
        /// Likewise in bytes, at least 1.
        public var bytes: Int
        /// Part of either limit that the long-held jobs of one partition may take, 0…1. At 1 none is paused alone.
        public var partitionShare: Double
        /// A job is long-held after so many nanoseconds, and counted as such after at most twice as many.
        public var longHold: UInt64
        /// At the limit for so many nanoseconds: pause.
        public var stall: UInt64

        public init(
            jobs: Int, bytes: Int, partitionShare: Double = 0.5, longHold: UInt64 = 2_000_000_000,
            stall: UInt64 = 500_000_000
        ) {
            self.jobs = max(1, jobs)
            self.bytes = max(1, bytes)
            self.partitionShare = min(max(0, partitionShare), 1)
            self.longHold = longHold
            self.stall = stall
        }
    }

    /// Why a partition is paused.
    public struct Reason: OptionSet, Sendable, Hashable {
        public let rawValue: UInt8
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// The worker is at its limit of jobs or bytes.
        public static let limit = Reason(rawValue: 1)
        /// An old job holds the partition's watermark, and its window of offsets is full.
        public static let window = Reason(rawValue: 2)
        /// The partition's long-held jobs take more than one partition's share of the limit.
        public static let share = Reason(rawValue: 4)
        /// The store can't take what has to wait.
        public static let store = Reason(rawValue: 8)
    }

    /// What to do; in the order of ``nextAction()``.
    public enum Action: Sendable, Equatable {
        case pause(Int, Reason)
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

        /// Never below zero, and without jobs there are no bytes: parts of a partition's load are known by estimate.
        /// - Returns: what it took off.
        @discardableResult
        mutating func subtract(_ other: Load) -> Load {
            let before = self
            jobs = max(0, jobs - other.jobs)
            bytes = jobs == 0 ? 0 : max(0, bytes - other.bytes)
            return Load(jobs: before.jobs - jobs, bytes: before.bytes - bytes)
        }
    }
}

/// Decides where reading begins when the group's offset lies beyond the end of a partition's log.
///
/// | log | cause | reading begins |
/// |---|---|---|
/// | shorter | the log has lost its end, as after an unclean election | at the first record that wasn't read |
/// | new | the topic was deleted and created again | at the log's first record |
/// | unknown | nothing shows either | not at all, until the group has another offset |
///
/// The evidence is the time of the newest record that was read, which ``CommitMetadata`` carries. A new log has only
/// records after that time. A shorter log still begins with records from before.
///
/// An empty log needs no evidence, because both begin at its end.
public enum LogEvidence {
    /// Milliseconds by which a record's time may be ahead of the worker's clock. Other times are no evidence.
    public static let clockTolerance: Int64 = 600_000

    /// Answers of the partition's leader about the log's records, by their times.
    public struct Answers: Sendable, Equatable {
        /// Offset of the log's first record; nil when the leader finds no records by time.
        public var first: Int64?
        /// Offset of the first record after the evidence; nil: there is none.
        public var newer: Int64?

        public init(first: Int64?, newer: Int64?) {
            self.first = first
            self.newer = newer
        }
    }

    /// Relation of a log to the group's offset.
    enum Log: Equatable {
        /// The offset lies in the log, or there is none.
        case same
        case shorter(from: Int64)
        case new(from: Int64)
        case unknown
    }

    /// - Parameter answers: nil: there is no evidence, or the leader hasn't answered.
    static func log(committed: Int64?, start: Int64, end: Int64?, _ answers: Answers?) -> Log {
        guard let committed, let end, committed > end else { return .same }
        guard end > start else { return end == 0 ? .new(from: 0) : .shorter(from: end) }
        guard let answers, let first = answers.first else { return .unknown }
        guard let newer = answers.newer else { return .shorter(from: end) }
        return newer <= first ? .new(from: start) : .shorter(from: newer)
    }
}

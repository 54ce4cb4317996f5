/// Times of a job that were later than the worker's clock, and count as an earlier time: the outcome's `adjusted`.
public struct JobAdjustments: OptionSet, Hashable, BitwiseCopyable, Sendable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// `created-at` counts as the record's timestamp.
    public static let createdAt = JobAdjustments(rawValue: 1 << 0)
    /// `occurred-at` counts as the job's creation.
    public static let occurredAt = JobAdjustments(rawValue: 1 << 1)
    /// `registered-at` counts as the job's creation.
    public static let registeredAt = JobAdjustments(rawValue: 1 << 2)
    /// The record's timestamp counts as the time of reading.
    public static let timestamp = JobAdjustments(rawValue: 1 << 3)

    /// All adjustments with their names in outcomes.
    static let names: [(JobAdjustments, StaticString)] = [
        (.createdAt, "created-at"), (.occurredAt, "occurred-at"), (.registeredAt, "registered-at"),
        (.timestamp, "timestamp"),
    ]
}

/// Times of one record against the worker's clock.
///
/// A producer with a wrong clock or unit must neither prolong a `ttl` nor make its report of a device the last for years.
/// A time that is later than the clock by more than the tolerance is treated as if it were absent.
struct JobTimes {
    /// Creation by the record itself: its timestamp, or the time of reading. Milliseconds since the epoch.
    private let recorded: Int64
    /// Latest time that is taken as it is, in milliseconds since the epoch.
    private let latest: Int64
    private let isTimestampLate: Bool
    private(set) var adjustments = JobAdjustments()

    /// - Parameters:
    ///   - timestamp: the record's timestamp in milliseconds since the epoch.
    ///   - now: worker's clock, in milliseconds since the epoch.
    ///   - tolerance: milliseconds by which a producer's clock may be ahead.
    init(timestamp: Int64, now: Int64, tolerance: Int64) {
        latest = now.addingReportingOverflow(tolerance).overflow ? .max : now + tolerance
        let isPlausible = JobLimits.instant.contains(timestamp)
        isTimestampLate = isPlausible && timestamp > latest
        recorded = isPlausible && !isTimestampLate ? timestamp : now
    }

    /// Returns the job's creation, of which `stated` is what the producer says.
    mutating func created(_ stated: Int64?) -> Int64 {
        if let stated, stated <= latest { return stated }
        if stated != nil { adjustments.insert(.createdAt) }
        if isTimestampLate { adjustments.insert(.timestamp) }
        return recorded
    }

    /// Returns another time that the producer states. A late one counts as the job's creation.
    mutating func past(_ stated: Int64?, created: Int64, _ adjustment: JobAdjustments) -> Int64? {
        guard let stated, stated > latest else { return stated }
        adjustments.insert(adjustment)
        return created
    }
}

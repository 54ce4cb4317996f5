/// Times in which faults and their consequences excuse what would otherwise break a promise.
struct Disturbances {
    private var intervals: [ClosedRange<UInt64>] = []
    /// Nanoseconds at which the last of them ends; 0: there was none.
    private(set) var until: UInt64 = 0

    /// Nanoseconds in which a fault may have consequences, such as a lost membership.
    private static let aftermath: UInt64 = 30_000_000_000

    /// Nanoseconds in which workers do what faults have delayed.
    private static let calm: UInt64 = 10_000_000_000

    /// A fault begins at a time, and lasts for a while.
    /// - Parameter forgets: true when the fault also concerns what was known before.
    mutating func add(at now: UInt64, nanoseconds: UInt64, forgets: Bool) {
        let end = now + nanoseconds + Self.aftermath
        let begin = forgets ? 0 : now
        until = max(until, end)
        // What a fault has delayed may not be done when the next one begins.
        guard let last = intervals.last, begin <= last.upperBound + Self.calm else {
            return intervals.append(begin...end)
        }
        intervals[intervals.count - 1] = min(begin, last.lowerBound)...until
    }

    /// Whether faults concern anything between two times.
    func concern(from begin: UInt64, to end: UInt64) -> Bool {
        intervals.contains { $0.lowerBound <= end && $0.upperBound >= begin }
    }
}

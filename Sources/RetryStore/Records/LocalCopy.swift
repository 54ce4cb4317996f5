/// Copy of a changelog's partition in the store, as the worker left it.
public struct LocalCopy: Equatable, Sendable {
    /// Number of the partition.
    public var partition: Int32
    /// Changelog position and time of an orderly leave; nil: there was none.
    public var position: ChangelogCheckpoint?

    public init(partition: Int32, position: ChangelogCheckpoint?) {
        self.partition = partition
        self.position = position
    }

    /// Returns whether the partition would be restored from the beginning, and not from the copy on.
    /// - Parameters:
    ///   - now: milliseconds since the epoch.
    ///   - longestAbsence: age in milliseconds from which on a copy is of no use.
    public func isObsolete(at now: Int64, longestAbsence: Int64) -> Bool {
        guard let left = position?.reachedMilliseconds else { return true }
        let (age, overflow) = now.subtractingReportingOverflow(left)
        // A clock that was set back by much gives no age, and would keep a copy for ever.
        return overflow || age >= longestAbsence || age < -longestAbsence
    }

    /// Returns the partitions whose copies are obsolete, in order.
    /// - Parameter kept: partitions that the worker has, or that are on their way to it.
    public static func obsolete(
        among copies: [LocalCopy], kept: Set<Int32>, at now: Int64, longestAbsence: Int64
    ) -> [Int32] {
        copies.filter {
            !kept.contains($0.partition) && $0.isObsolete(at: now, longestAbsence: longestAbsence)
        }.map(\.partition).sorted()
    }
}

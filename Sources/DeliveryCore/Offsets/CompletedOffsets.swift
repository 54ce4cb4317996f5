/// Set of finished offsets of one partition, as sorted ranges that neither overlap nor touch.
///
/// It carries the commit metadata at assignment into the ``OffsetTracker``; it isn't meant for the per-record path.
public struct CompletedOffsets: Sendable, Equatable {
    /// Ascending, disjoint, with at least one offset between neighbours.
    public let ranges: [Range<Int64>]

    /// Set without offsets.
    public static let none = CompletedOffsets([])

    /// Creates a set from ranges in any order; overlapping and touching ranges are joined, empty ones dropped.
    public init(_ ranges: [Range<Int64>]) {
        var joined: [Range<Int64>] = []
        for range in ranges.sorted(by: { $0.lowerBound < $1.lowerBound }) where !range.isEmpty {
            if let last = joined.last, range.lowerBound <= last.upperBound {
                joined[joined.count - 1] = last.lowerBound..<max(last.upperBound, range.upperBound)
            } else {
                joined.append(range)
            }
        }
        self.ranges = joined
    }

    /// Offsets in the set.
    public var count: Int64 {
        ranges.reduce(0) { $0 + ($1.upperBound - $1.lowerBound) }
    }

    public var isEmpty: Bool { ranges.isEmpty }

    /// Returns whether the offset is in the set. O(log n) in the number of ranges.
    public func contains(_ offset: Int64) -> Bool {
        var low = 0
        var high = ranges.count
        while low < high {
            let middle = (low + high) / 2
            if ranges[middle].upperBound <= offset { low = middle + 1 } else { high = middle }
        }
        return low < ranges.count && ranges[low].lowerBound <= offset
    }

    /// Returns the part of the set at or above `offset`.
    func from(_ offset: Int64) -> CompletedOffsets {
        CompletedOffsets(
            ranges.compactMap { $0.upperBound <= offset ? nil : max($0.lowerBound, offset)..<$0.upperBound })
    }
}

extension OffsetTracker {
    /// Keeps commits from passing a record that was ``Tracking/alreadyCompleted``, until its effect was repeated. The
    /// earlier process may have applied the effect only to its memory. A commit past the record, followed by a crash,
    /// would leave older items without that effect, because the record would not be read again. The record still
    /// counts as finished.
    ///
    /// Offsets come in ascending order. O(1), amortised.
    public mutating func retain(_ offset: Int64) {
        guard offset >= start, offset < end else { return }
        retained.append(offset)
    }

    /// Releases a retained record, because its effect is done and will outlive the process with the next commit.
    /// O(log n) for n retained records.
    ///
    /// - Returns: true when the offset was retained.
    @discardableResult
    public mutating func release(_ offset: Int64) -> Bool { retained.remove(offset) }

    /// Next offset to commit: the watermark, or the first retained offset below it.
    public var committable: Int64 { min(watermark, retained.first ?? watermark) }
}

/// Offsets in ascending order. Offsets removed from the middle stay marked until they are the first.
struct RetainedOffsets: Sendable {
    private var offsets: [(offset: Int64, isRetained: Bool)] = []
    private var head = 0

    var first: Int64? { head < offsets.count ? offsets[head].offset : nil }

    mutating func append(_ offset: Int64) {
        guard offset > offsets.last?.offset ?? .min else { return }
        offsets.append((offset, true))
    }

    mutating func remove(_ offset: Int64) -> Bool {
        var (low, high) = (head, offsets.count)
        while low < high {
            let middle = (low + high) / 2
            if offsets[middle].offset < offset { low = middle + 1 } else { high = middle }
        }
        guard low < offsets.count, offsets[low].offset == offset, offsets[low].isRetained else {
            return false
        }
        offsets[low].isRetained = false
        while head < offsets.count, !offsets[head].isRetained { head += 1 }
        if head == offsets.count {
            offsets.removeAll(keepingCapacity: true)
            head = 0
        }
        return true
    }
}

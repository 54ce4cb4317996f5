import Synchronization

/// Pushes that the shards of a worker may begin, and counts that the worker's ``PushWindow`` needs. Any thread.
///
/// A shard claims some pushes at once, and gives back at the end of its turn what it hasn't begun. Its counts become
/// visible there too. No single push touches the shared counts.
final class PushAllowance: Sendable {
    /// Pushes begun since the start, or claimed.
    private let begun = Atomic<Int>(0)
    /// Pushes that may have been begun since the start.
    private let limit = Atomic<Int>(0)
    private let endedCount = Atomic<Int>(0)
    private let recordCount = Atomic<Int>(0)
    private let isWanted = Atomic<Bool>(false)

    /// Pushes begun that are not in flight any more. To be read before ``records``.
    var ended: Int { endedCount.load(ordering: .acquiring) }
    /// Records that shards keep for an abort, or that wait there.
    var records: Int { recordCount.load(ordering: .acquiring) }
    /// Whether a shard has found nothing to claim since the last ``takeWanted()``.
    var wants: Bool { isWanted.load(ordering: .relaxed) }

    /// Sets the number of pushes that may have been begun since the start. A lower number than before is possible.
    func allow(_ count: Int) { limit.store(count, ordering: .sequentiallyConsistent) }

    /// Claims pushes.
    /// - Returns: `most` or fewer; 0: a later ``allow(_:)`` or ``giveBack(_:)`` is awaited, and the worker wakes the shards.
    func claim(atMost most: Int) -> Int {
        let claimed = tryToClaim(most)
        guard claimed == 0, most > 0 else { return claimed }
        isWanted.store(true, ordering: .sequentiallyConsistent)
        // The limit may have risen before the wish was visible.
        return tryToClaim(most)
    }

    private func tryToClaim(_ most: Int) -> Int {
        var present = begun.load(ordering: .relaxed)
        while true {
            let claimed = min(most, limit.load(ordering: .sequentiallyConsistent) - present)
            guard claimed > 0 else { return 0 }
            let (isDone, found) = begun.compareExchange(
                expected: present, desired: present + claimed, ordering: .acquiringAndReleasing)
            if isDone { return claimed }
            present = found
        }
    }

    /// Gives back pushes that were claimed and not begun.
    func giveBack(_ count: Int) {
        if count > 0 { begun.subtract(count, ordering: .sequentiallyConsistent) }
    }

    /// Adds the changes of a shard's counts in one turn.
    func count(ended: Int, records: Int) {
        // In this order: a push that has ended never lacks its record.
        if records != 0 { recordCount.add(records, ordering: .acquiringAndReleasing) }
        if ended != 0 { endedCount.add(ended, ordering: .acquiringAndReleasing) }
    }

    /// Returns whether shards are to be woken, because one has found nothing to claim and there is something now.
    func takeWanted() -> Bool {
        guard
            begun.load(ordering: .sequentiallyConsistent) < limit.load(ordering: .sequentiallyConsistent)
        else { return false }
        return isWanted.exchange(false, ordering: .sequentiallyConsistent)
    }
}

import Synchronization

/// Cached knowledge of a partition's next due entry. The cache makes repeated scans free where nothing is due. Without
/// the cache each scan sorts the memtable.
// Written and read on the store's thread.
final class NextDueCache: Sendable {
    private struct State {
        /// Cursor at which the last recorded scan ended; not set: nothing is known.
        var after: DueCursor??
        /// Time before which no entry behind the cursor is due, in milliseconds since the epoch.
        var quietUntil = Int64.min
    }

    private let state = Mutex(State())

    /// Records that no entry after `cursor` is due before `next`.
    func found(after cursor: DueCursor?, next: Int64) {
        state.withLock { $0 = State(after: cursor, quietUntil: next) }
    }

    /// Records that an entry has been put.
    func put(due: Int64) {
        state.withLock { $0.quietUntil = min($0.quietUntil, due) }
    }

    /// Discards all knowledge.
    func forget() { state.withLock { $0 = State() } }

    /// Returns whether no entry behind the cursor is due by `through`.
    func isQuiet(after cursor: DueCursor?, through: Int64) -> Bool {
        state.withLock { $0.after == .some(cursor) && through < $0.quietUntil }
    }
}

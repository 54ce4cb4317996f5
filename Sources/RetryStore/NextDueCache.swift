import Synchronization

/// What is known of a partition's due entries without looking, so that looking again and again where nothing is due costs
/// nothing: each look puts what is in the memtable in order.
// Written and read on the store's thread.
final class NextDueCache: Sendable {
    private struct State {
        /// Where the scan ended that has found this; not set: nothing is known.
        var after: DueCursor??
        /// What follows the cursor isn't due before; in milliseconds since the epoch.
        var quietUntil = Int64.min
    }

    private let state = Mutex(State())

    /// After `cursor` there is nothing before `next`.
    func found(after cursor: DueCursor?, next: Int64) {
        state.withLock { $0 = State(after: cursor, quietUntil: next) }
    }

    /// An entry has been put.
    func put(due: Int64) {
        state.withLock { $0.quietUntil = min($0.quietUntil, due) }
    }

    /// Nothing is known any more.
    func forget() { state.withLock { $0 = State() } }

    /// Nothing follows the cursor that is due by then.
    func isQuiet(after cursor: DueCursor?, through: Int64) -> Bool {
        state.withLock { $0.after == .some(cursor) && through < $0.quietUntil }
    }
}

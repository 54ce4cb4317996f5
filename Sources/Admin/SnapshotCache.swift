import Gateway
import Synchronization

/// Snapshots of a worker's loops that requests share. Polling can't burden the loops: they are asked once at a time,
/// and not again within ``freshness``.
final class SnapshotCache: Sendable {
    typealias Clock = @Sendable () -> ContinuousClock.Instant

    let source: AdminSource
    /// Whether the loops are asked for details.
    private let isDetailed: Bool
    private let patience: Duration
    /// Time for which a snapshot serves later requests.
    private let freshness: Duration
    private let now: Clock
    private let state = Mutex(State())

    private struct State {
        var latest: (snapshot: WorkerSnapshot, end: ContinuousClock.Instant)?
        /// Requests that wait for the snapshot under way; nil when none is.
        var waiting: [Reply<WorkerSnapshot>]?
    }

    private enum Step {
        case take(WorkerSnapshot)
        case wait(Reply<WorkerSnapshot>)
        case ask
    }

    init(
        _ source: AdminSource, isDetailed: Bool, patience: Duration, freshness: Duration, now: @escaping Clock
    ) {
        self.source = source
        self.isDetailed = isDetailed
        self.patience = patience
        self.freshness = freshness
        self.now = now
    }

    /// Requests that wait for another request's snapshot.
    var waitingCount: Int { state.withLock { $0.waiting?.count ?? 0 } }

    /// Waits for the loops' answers, `patience` at most.
    func snapshot() async -> WorkerSnapshot {
        switch state.withLock({ next(&$0) }) {
        case .take(let snapshot): return snapshot
        // Nil when the request is cancelled; its answer then doesn't matter.
        case .wait(let reply): return await reply.waitUnlessCancelled() ?? WorkerSnapshot()
        case .ask:
            // Continues when the request is cancelled, because other requests may wait for it.
            let snapshot = await source.snapshot(for: patience, isDetailed: isDetailed)
            let waiting = state.withLock { state in
                state.latest = (snapshot, now())
                return exchange(&state.waiting, with: nil) ?? []
            }
            for reply in waiting { reply.give(snapshot) }
            return snapshot
        }
    }

    private func next(_ state: inout State) -> Step {
        if state.waiting != nil {
            let reply = Reply<WorkerSnapshot>()
            state.waiting!.append(reply)
            return .wait(reply)
        }
        if let latest = state.latest, now() - latest.end < freshness { return .take(latest.snapshot) }
        state.waiting = []
        return .ask
    }
}

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
        var latest: (taken: Taken, end: ContinuousClock.Instant)?
        /// Requests that wait for the snapshot under way; nil when none is.
        var waiting: [Reply<Taken>]?
    }

    private struct Taken: Sendable {
        var snapshot: WorkerSnapshot
        /// Time at which the loops were asked.
        var begin: ContinuousClock.Instant

        func isBegun(after earliest: ContinuousClock.Instant?) -> Bool {
            earliest.map { begin >= $0 } ?? true
        }
    }

    private enum Step {
        case take(WorkerSnapshot)
        case wait(Reply<Taken>)
        case ask(begin: ContinuousClock.Instant)
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

    /// Waits for the loops' answers, `patience` at most, and as long before for those to a request under way.
    /// - Parameter earliest: time after which the loops must have been asked, in the past; nil: ``freshness`` alone counts.
    func snapshot(begunAfter earliest: ContinuousClock.Instant? = nil) async -> WorkerSnapshot {
        while true {
            switch state.withLock({ next(&$0, earliest) }) {
            case .take(let snapshot): return snapshot
            case .wait(let reply):
                // Nil when the request is cancelled; its answer then doesn't matter.
                guard let taken = await reply.waitUnlessCancelled() else { return WorkerSnapshot() }
                if taken.isBegun(after: earliest) { return taken.snapshot }
            case .ask(let begin):
                // Continues when the request is cancelled, because other requests may wait for it.
                let taken = Taken(
                    snapshot: await source.snapshot(for: patience, isDetailed: isDetailed), begin: begin)
                let waiting = state.withLock { state in
                    state.latest = (taken, now())
                    return exchange(&state.waiting, with: nil) ?? []
                }
                for reply in waiting { reply.give(taken) }
                return taken.snapshot
            }
        }
    }

    private func next(_ state: inout State, _ earliest: ContinuousClock.Instant?) -> Step {
        if state.waiting != nil {
            let reply = Reply<Taken>()
            state.waiting!.append(reply)
            return .wait(reply)
        }
        let begin = now()
        if let latest = state.latest, begin - latest.end < freshness, latest.taken.isBegun(after: earliest) {
            return .take(latest.taken.snapshot)
        }
        state.waiting = []
        return .ask(begin: begin)
    }
}

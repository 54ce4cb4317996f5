import Synchronization

/// Observations of a worker's loops that requests share. Polling can't burden the loops: they are asked once at a time,
/// and not again within ``freshness``.
final class SharedObservations: Sendable {
    typealias Clock = @Sendable () -> ContinuousClock.Instant

    let source: AdminSource
    private let patience: Duration
    /// Time for which an observation serves later requests.
    private let freshness: Duration
    private let now: Clock
    private let state = Mutex(State())

    private struct State {
        var latest: (observation: Observation, end: ContinuousClock.Instant)?
        /// Requests that wait for the observation under way; nil when none is.
        var waiting: [Reply<Observation>]?
    }

    private enum Step {
        case take(Observation)
        case wait(Reply<Observation>)
        case ask
    }

    init(_ source: AdminSource, patience: Duration, freshness: Duration, now: @escaping Clock) {
        self.source = source
        self.patience = patience
        self.freshness = freshness
        self.now = now
    }

    /// Requests that wait for another request's observation.
    var waitingCount: Int { state.withLock { $0.waiting?.count ?? 0 } }

    /// Waits for the loops' answers, `patience` at most.
    func observe() async -> Observation {
        switch state.withLock({ next(&$0) }) {
        case .take(let observation): return observation
        // Nil when the request is cancelled; its answer then doesn't matter.
        case .wait(let reply): return await reply.waitUnlessCancelled() ?? Observation()
        case .ask:
            // Continues when the request is cancelled, because other requests may wait for it.
            let observation = await source.observe(for: patience)
            let waiting = state.withLock { state in
                state.latest = (observation, now())
                return exchange(&state.waiting, with: nil) ?? []
            }
            for reply in waiting { reply.give(observation) }
            return observation
        }
    }

    private func next(_ state: inout State) -> Step {
        if state.waiting != nil {
            let reply = Reply<Observation>()
            state.waiting!.append(reply)
            return .wait(reply)
        }
        if let latest = state.latest, now() - latest.end < freshness { return .take(latest.observation) }
        state.waiting = []
        return .ask
    }
}

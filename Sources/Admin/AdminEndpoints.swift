import Gateway
import RetryStore
import Synchronization

/// What the admin endpoint answers. It can be asked from the start of the process on; a worker is told of as soon as there
/// is one.
public final class AdminEndpoints: Sendable {
    private let attached = Mutex<SharedObservations?>(nil)
    /// A summary is under way.
    let isSummarizing = Atomic<Bool>(false)
    /// Loops that take longer than this to answer don't turn.
    private let patience: Duration
    /// Requests share an observation of the loops for so long.
    private let freshness: Duration
    private let now: @Sendable () -> ContinuousClock.Instant
    /// Requests refused for their `Host`.
    private let refusedHosts: AdminCounter

    public init(
        patience: Duration = .seconds(3), freshness: Duration = .milliseconds(200),
        refusedHosts: AdminCounter = AdminCounter(),
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.patience = patience
        self.freshness = freshness
        self.refusedHosts = refusedHosts
        self.now = now
    }

    /// There is a worker now, and it has been started.
    public func attach(_ source: AdminSource) {
        let shared = SharedObservations(source, patience: patience, freshness: freshness, now: now)
        attached.withLock { $0 = shared }
    }

    /// The worker has ended. Its store is closed, and nothing here keeps it.
    public func detach() { attached.withLock { $0 = nil } }

    var worker: SharedObservations? { attached.withLock { $0 } }

    public var routes: [String: AdminServer.Handler] {
        [
            "/livez": { [self] _ in await live() },
            "/readyz": { [self] _ in await ready() },
            "/metrics": { [self] _ in await metrics() },
            "/store": { [self] _ in await store() },
            "/store/summary": { [self] request in await summary(request) },
            "/store/device": { [self] request in await device(request) },
        ]
    }

    private func live() async -> AdminResponse {
        guard let worker else { return Liveness.starting }
        // Loops may block meanwhile, so they aren't asked.
        if worker.source.stop()?.isInTime == true { return Liveness.stopping }
        return Liveness(await worker.observe(), loops: worker.source.loops).response
    }

    private func ready() async -> AdminResponse {
        guard let worker else { return Readiness.starting }
        return Readiness(await worker.observe(), loops: worker.source.loops).response
    }

    private func metrics() async -> AdminResponse {
        await withWorker { [refusedHosts] source, observation in
            WorkerMetrics.response(
                observation, ready: Readiness(observation, loops: source.loops).reasons.isEmpty,
                refusedHosts: refusedHosts.count,
                store: source.store.map { $0.statistics(of: observation.counted(in: $0)) })
        }
    }

    private func store() async -> AdminResponse {
        await withWorker { source, observation in
            guard let store = source.store else { return Self.noStore }
            return StoreDocument.response(
                observation, store.statistics(of: observation.counted(in: store)),
                isChangelogBacked: store.isChangelogBacked)
        }
    }

    static let noStore = AdminResponse.error(
        404, "this worker has no store: the configuration has no section `store`")
    static let starting = AdminResponse.error(503, "the worker is starting, or has ended")

    /// With what all loops have to say: sums without one of them would be wrong.
    private func withWorker(_ body: (AdminSource, Observation) -> AdminResponse) async -> AdminResponse {
        guard let worker else { return Self.starting }
        let observation = await worker.observe()
        let missing = observation.missing(of: worker.source.loops)
        guard missing.isEmpty else { return .error(503, missing.joined(separator: "; ")) }
        return body(worker.source, observation)
    }
}

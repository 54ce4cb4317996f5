import Gateway
import RetryStore
import Synchronization

/// Answers of the admin endpoint. The endpoint answers from the process's start on, and about a worker once there is
/// one.
public final class AdminEndpoints: Sendable {
    private let attached = Mutex<Attached?>(nil)
    /// Whether a summary is under way.
    let isSummarizing = Atomic<Bool>(false)
    /// Whether a search for a push is under way.
    let isTracing = Atomic<Bool>(false)
    /// Time within which a loop must answer; a slower loop counts as stuck.
    let patience: Duration
    /// Time for which requests share an snapshot of the loops.
    private let freshness: Duration
    private let now: @Sendable () -> ContinuousClock.Instant
    /// Count of requests refused for their `Host`.
    private let refusedHosts: AdminCounter
    /// Commands to the process; nil where it takes none.
    let process: ProcessControl?

    public init(
        patience: Duration = .seconds(3), freshness: Duration = .milliseconds(200),
        refusedHosts: AdminCounter = AdminCounter(), process: ProcessControl? = nil,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.patience = patience
        self.freshness = freshness
        self.refusedHosts = refusedHosts
        self.process = process
        self.now = now
    }

    /// Attaches a worker that has been started.
    public func attach(_ source: AdminSource) {
        func cache(isDetailed: Bool) -> SnapshotCache {
            SnapshotCache(
                source, isDetailed: isDetailed, patience: patience, freshness: freshness, now: now)
        }
        let new = Attached(probes: cache(isDetailed: false), details: cache(isDetailed: true))
        attached.withLock { $0 = new }
    }

    /// Detaches the worker, which has ended. The store is closed, and the endpoint no longer holds it.
    public func detach() { attached.withLock { $0 = nil } }

    /// A worker that answers, asked for details or, for probes, without.
    private struct Attached {
        var probes: SnapshotCache
        var details: SnapshotCache
    }

    var worker: SnapshotCache? { attached.withLock { $0?.details } }
    var probed: SnapshotCache? { attached.withLock { $0?.probes } }

    /// Handlers by path, for ``AdminServer``.
    public var routes: [String: AdminServer.Handler] {
        [
            "/livez": { [self] _ in await live() },
            "/readyz": { [self] _ in await ready() },
            "/metrics": { [self] in await metrics($0) },
            "/store": { [self] _ in await store() },
            "/store/summary": { [self] request in await summary(request) },
            "/store/device": { [self] request in await device(request) },
            "/switches": { [self] _ in switches() },
            "/trace": { [self] request in await trace(request) },
        ]
    }

    /// Handlers of commands by path, for ``AdminServer``.
    public var commands: [String: AdminServer.Handler] {
        [
            "/switches/pause": { [self] in await change($0, isPaused: true) },
            "/switches/resume": { [self] in await change($0, isPaused: false) },
            "/store/purge": { [self] in await purge($0) },
            "/drain": { [self] in drain($0) },
            "/log-level": { [self] in setLogLevel($0) },
        ]
    }

    /// Whether `/livez` answers 200. Any thread.
    public func isLive() async -> Bool { await live().status == 200 }

    private func live() async -> AdminResponse {
        guard let worker = probed else { return Liveness.starting }
        // The loops aren't asked, because they may block meanwhile.
        if worker.source.stop()?.isInTime == true { return Liveness.stopping }
        return Liveness(await worker.snapshot(), loops: worker.source.loops).response
    }

    private func ready() async -> AdminResponse {
        guard let worker = probed else { return Readiness.starting }
        let readiness = Readiness(await worker.snapshot(), loops: worker.source.loops)
        return readiness.response(worker.source.switches?.status())
    }

    private func metrics(_ request: AdminRequest) async -> AdminResponse {
        await withWorker { [refusedHosts] source, snapshot in
            var facts = WorkerMetrics.Facts()
            facts.isReady = Readiness(snapshot, loops: source.loops).reasons.isEmpty
            facts.refusedHosts = refusedHosts.count
            facts.store = source.store.map { $0.statistics(of: snapshot.counted(in: $0)) }
            facts.storeKeys = source.storeKeys()
            facts.purges = source.store?.purges
            facts.freeBytes = source.store.flatMap(\.freeBytes)
            facts.process = ProcessFigures.read()
            facts.switches = source.switches?.status()
            return WorkerMetrics.response(snapshot, facts, in: .accepted(by: request.accept))
        }
    }

    private func store() async -> AdminResponse {
        guard let worker else { return Self.starting }
        // Read before the partitions. A partition that the worker lost before a purge's end is then missing.
        let purges = worker.source.store?.purges
        return await answer(of: worker, begunAfter: purges?.last?.instant) { source, snapshot in
            guard let store = source.store, let purges else { return Self.noStore }
            return StoreDocument.response(
                snapshot, store.statistics(of: snapshot.counted(in: store)), purges,
                isChangelogBacked: store.isChangelogBacked, source.storeKeys())
        }
    }

    static let noStore = AdminResponse.error(
        404, "this worker has no store: the configuration has no section `store`")
    static let starting = AdminResponse.error(503, "the worker is starting, or has ended")

    /// Calls `body` when all loops have answered, because sums without a loop would be wrong.
    private func withWorker(_ body: (AdminSource, WorkerSnapshot) -> AdminResponse) async -> AdminResponse {
        guard let worker else { return Self.starting }
        return await answer(of: worker, body)
    }

    private func answer(
        of worker: SnapshotCache, begunAfter earliest: ContinuousClock.Instant? = nil,
        _ body: (AdminSource, WorkerSnapshot) -> AdminResponse
    ) async -> AdminResponse {
        let snapshot = await worker.snapshot(begunAfter: earliest)
        let missing = snapshot.missing(of: worker.source.loops)
        guard missing.isEmpty else { return .error(503, missing.joined(separator: "; ")) }
        return body(worker.source, snapshot)
    }
}

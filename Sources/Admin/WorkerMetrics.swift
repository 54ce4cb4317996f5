import Foundation
import Gateway
import Metrics
import RetryStore

/// Answer to `/metrics`: a worker's state and counts. Deploy/metrics.md has each family.
enum WorkerMetrics {
    /// Facts beside the loops' answers.
    struct Facts {
        var isReady = false
        /// Requests to the endpoint that named another host.
        var refusedHosts = 0
        /// Nil without a store.
        var store: StoreStatistics?
        /// State of the store's keys; nil without encryption.
        var storeKeys: StoreKeyReport?
        /// Nil without a store.
        var purges: PurgeStatus?
        /// Free bytes of the store's file system; nil without a store, and when the system does not have them.
        var freeBytes: Int?
        /// Nil where the worker has no switches.
        var switches: SwitchStatus?
        /// Nil where the system does not have it.
        var process: ProcessFigures?
    }

    static func response(
        _ snapshot: WorkerSnapshot, _ facts: Facts, in format: MetricsFormat = .text
    ) -> AdminResponse {
        AdminResponse(
            status: 200, contentType: format.contentType, body: Data(format.encode(families(snapshot, facts)))
        )
    }

    /// Returns all families in the order of the document.
    static func families(_ snapshot: WorkerSnapshot, _ facts: Facts) -> [MetricFamily] {
        var metrics = MetricFamilies()
        let intake = snapshot.intake ?? IntakeSnapshot()
        let totals = snapshot.totals
        addJobs(intake, totals, to: &metrics)
        addPushes(totals, to: &metrics)
        addConnections(totals, to: &metrics)
        addCredentials(totals, to: &metrics)
        addKafka(intake, to: &metrics)
        if let switches = facts.switches { addSwitches(switches, totals, to: &metrics) }
        if let store = facts.store {
            addStore(store, totals, intake, facts.freeBytes, facts.purges ?? PurgeStatus(), to: &metrics)
            addStoreKeys(facts.storeKeys, totals, to: &metrics)
        }
        addWorker(snapshot, intake, totals, facts, to: &metrics)
        return metrics.list
    }

    private static func addWorker(
        _ snapshot: WorkerSnapshot, _ intake: IntakeSnapshot, _ totals: ShardCounters, _ facts: Facts,
        to metrics: inout MetricFamilies
    ) {
        metrics.gauge("ready", "1 when /readyz answers 200.", facts.isReady ? 1 : 0)
        let loops = (intake.loop.map { [$0] } ?? []) + totals.loops
        metrics.counter(
            "loop_busy_seconds",
            "Time in which a loop's thread was not waiting. Its growth in a second is its load.",
            loops.map { .init(["loop": $0.name], .number($0.busy)) })
        metrics.histogram(
            "loop_turn_seconds", "Durations of a loop's turns, without their waits.", -16...2,
            loops.map { .init(["loop": $0.name], .histogram($0.turns)) })
        metrics.counter(
            "worker_restarts", "Restarts of the worker within this process after a failure.",
            intake.counters.restarts)
        metrics.counter(
            "broken_invariants",
            "Checks that found a broken invariant. Above 0 the worker has a bug: see the log.",
            totals.brokenInvariants + intake.counters.brokenInvariants)
        metrics.gauge(
            "jobs_unaccounted", "Pushes that the worker has lost track of. Above 0 the worker has a bug.",
            totals.unaccounted)
        metrics.counter(
            "admin_refused_hosts",
            "Requests to the admin endpoint that were refused because they named another host.",
            facts.refusedHosts)
        let libraries = BuildInfo.libraries.map {
            MetricFamily.Label($0.name.lowercased(), $0.version)
        }
        metrics.gauge(
            "build_info", "Version, commit and libraries of the executable; always 1.",
            [
                .init(
                    [.init("version", BuildInfo.version), .init("commit", BuildInfo.commit ?? "")]
                        + libraries,
                    .integer(1))
            ])
        if let process = facts.process { process.add(to: &metrics) }
    }
}

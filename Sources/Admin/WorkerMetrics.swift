import DeliveryCore
import Foundation
import Gateway
import RetryStore
import SluiceModel

/// Answer to `/metrics`: a worker's counters, as they are in its log.
enum WorkerMetrics {
    static func response(
        _ snapshot: WorkerSnapshot, ready: Bool, refusedHosts: Int, store: StoreStatistics?
    ) -> AdminResponse {
        let text = text(snapshot, ready: ready, refusedHosts: refusedHosts, store: store)
        return AdminResponse(status: 200, contentType: MetricsText.contentType, body: Data(text.utf8))
    }

    static func text(
        _ snapshot: WorkerSnapshot, ready: Bool, refusedHosts: Int, store: StoreStatistics?
    ) -> String {
        var metrics = MetricsText()
        let intake = snapshot.intake ?? IntakeSnapshot()
        let totals = snapshot.totals
        metrics.gauge("ready", "1 when /readyz answers 200.", ready ? 1 : 0)
        metrics.counter(
            "admin_refused_hosts",
            "Requests to this endpoint that were refused because they named another host.",
            refusedHosts)
        add(intake, to: &metrics)
        add(totals, to: &metrics)
        metrics.counter(
            "broken_invariants",
            "Checks that found a broken invariant. Above 0 the worker has a bug: see the log.",
            totals.brokenInvariants + intake.counters.brokenInvariants)
        if let store { add(store, totals, intake, to: &metrics) }
        if intake.changelog != nil {
            metrics.gauge(
                "restore_partitions", "Assigned partitions that are being opened or restored.",
                intake.opening.count + intake.restoring.count)
            metrics.counter("restore_records", "Records restored from the changelog.", intake.restoredRecords)
            metrics.gauge(
                "restore_records_remaining", "Records of the changelog that remain to be restored.",
                intake.remainingRecords)
        }
        if let transactions = intake.transactions {
            metrics.counter("transactions_begun", "Transactions begun.", transactions.begun)
            metrics.counter("transactions_aborted", "Transactions aborted.", transactions.aborted)
        }
        return metrics.text
    }

    private static func add(_ intake: IntakeSnapshot, to metrics: inout MetricsText) {
        metrics.gauge(
            "partitions_assigned", "Partitions of the jobs topic that are assigned to this worker.",
            intake.partitions.count)
        metrics.gauge(
            "partitions_paused", "Assigned partitions that are not being read.",
            intake.partitions.count { !$0.pauseReasons.isEmpty })
        let oldest = intake.partitions.map(\.headOfLineAge).max() ?? .zero
        metrics.gauge(
            "head_of_line_seconds", "Age of the oldest unfinished job that holds a committed offset back.",
            oldest / .seconds(1))
        let counters = intake.counters
        metrics.counter(
            "worker_restarts", "Restarts of the worker within this process after a failure.",
            counters.restarts)
        metrics.counter("jobs", "Records read from the jobs topic.", counters.records)
        metrics.counter(
            "jobs_finished", "Records whose outcome or dead letter Kafka has acknowledged.", counters.finished
        )
        metrics.counter(
            "jobs_already_completed", "Records that were finished before a restart.",
            counters.alreadyCompleted)
        metrics.gauge(
            "jobs_outstanding", "Jobs read from Kafka that have no outcome yet.", intake.outstanding)
        metrics.gauge("bytes_in_flight", "Bytes of records that the worker holds.", intake.bytesInFlight)
        metrics.counter(
            "outcomes_repeated", "Outcomes that had to be produced again.", counters.undelivered)
        metrics.counter(
            "commits", "Commits of offsets, or transactions that were committed.", counters.commits)
        metrics.counter(
            "commit_errors", "Commits that failed, or transactions that were aborted.", counters.commitErrors)
        metrics.counter("rebalances", "Assignments and revocations of the group.", counters.rebalances)
        metrics.counter("limit_pauses", "Pauses at the limit of jobs or bytes in flight.", counters.pauses)
        metrics.counter(
            "partition_pauses", "Pauses of a single partition because its jobs were held for long.",
            counters.partitionPauses)
        metrics.counter("kafka_errors", "Errors that the Kafka consumer reported.", counters.kafkaErrors)
    }

    private static func add(_ totals: ShardCounters, to metrics: inout MetricsText) {
        metrics.counter("pushes", "Requests sent to APNs, repeats included.", totals.sent)
        metrics.counter("push_retries", "Requests sent again.", totals.retried)
        metrics.counter("pushes_unanswered", "Requests that ended without an answer.", totals.unanswered)
        metrics.counter(
            "apns_errors", "Answers other than 2xx, by APNs' reason.", by: "reason",
            Reason.allCases.filter { totals.reasons[Int($0.rawValue)] > 0 }.map {
                ("\($0.name)", totals.reasons[Int($0.rawValue)])
            })
        let ended = Reason.allCases.filter { totals.goAways[Int($0.rawValue)] > 0 }
        metrics.counter(
            "apns_goaways",
            "Connections that APNs ended, by APNs' reason; `other` stands for unknown reasons.",
            by: "reason", ended.map { (GoAwayReason.label($0), totals.goAways[Int($0.rawValue)]) })
        metrics.gauge(
            "apns_last_goaway_seconds",
            "Time at which APNs last ended a connection for a reason, in seconds since the epoch.",
            by: "reason",
            ended.map { (GoAwayReason.label($0), Int(totals.lastGoAways[Int($0.rawValue)] / 1000)) })
        metrics.counter(
            "outcomes", "Outcomes, by kind.", by: "kind",
            OutcomeKind.allCases.map { ("\($0.name)", totals.count(of: $0)) })
        metrics.counter("dead_letters", "Records that were not valid jobs.", totals.deadLetters)
        metrics.counter(
            "foreign_headers", "Headers of records that are no fields of a job.",
            totals.decoding.foreignHeaders)
        metrics.counter(
            "passed_headers_dropped",
            "Headers that did not return on an outcome because they were too large together.",
            totals.decoding.droppedHeaders)
        metrics.counter(
            "adjusted_jobs", "Jobs with a time beyond the worker's clock, which counted as earlier.",
            totals.decoding.adjustedJobs)
        metrics.counter(
            "jobs_abandoned",
            "Jobs that were unfinished when their partition was revoked or the worker stopped.",
            totals.abandoned)
        metrics.counter(
            "topic_stops",
            "Topics stopped because APNs refused the credential, the topic or most device tokens.",
            totals.stops)
        metrics.counter(
            "topic_stops_for_tokens",
            "Topics stopped because APNs refused most of their device tokens: check environment and topic.",
            totals.tokenStops)
        metrics.counter(
            "apns_unknown_reasons", "Answers with an unknown reason, by its text.",
            by: "reason", totals.unknownReasons.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
        metrics.counter(
            "apns_circuits_opened", "Times that a pool's circuit opened because APNs failed.",
            totals.circuitsOpened)
        metrics.counter(
            "apns_stream_errors", "Requests that APNs reset or refused, or answered in breach of HTTP/2.",
            totals.streamErrors)
        metrics.counter(
            "apns_connections_stuck",
            "Connections replaced because APNs left them no stream or window while pushes waited.",
            totals.stuckConnections)
        metrics.gauge(
            "jobs_held", "Jobs in memory, by what they wait for.", by: "state",
            ItemState.allCases.filter(\.isLive).map { ("\($0)", totals.count(in: $0)) })
        metrics.gauge("apns_connections", "Open connections to APNs.", totals.openConnections)
        add(totals.credentials.values.sorted { $0.report.name < $1.report.name }, to: &metrics)
        metrics.gauge(
            "jobs_unaccounted", "Pushes that the worker has lost track of. Above 0 the worker has a bug.",
            totals.unaccounted)
    }

    private static func add(
        _ store: StoreStatistics, _ totals: ShardCounters, _ intake: IntakeSnapshot,
        to metrics: inout MetricsText
    ) {
        metrics.counter("store_puts", "Items written to the store.", totals.store.puts)
        metrics.counter("store_removals", "Items removed from the store.", totals.store.removals)
        metrics.counter("store_loads", "Lookups of a device's items in the store.", totals.store.loads)
        metrics.counter("store_loaded_items", "Items that lookups found.", totals.store.loaded)
        metrics.counter(
            "store_forgotten_devices", "Devices whose expired presence was removed.",
            totals.store.forgotten)
        metrics.counter("store_damaged_items", "Items that could not be read.", totals.store.damaged)
        metrics.counter(
            "store_unsendable_items",
            "Items that exceeded a limit of this version and ended as undeliverable.",
            totals.store.unsendable)
        metrics.counter("store_failures", "Times that the store failed.", intake.counters.storeFailures)
        metrics.gauge(
            "store_failing", "1 when reading is stopped because the store failed.",
            intake.isStoreFailing ? 1 : 0)
        metrics.gauge(
            "store_items", "Items in the store, estimated.", by: "partition",
            store.estimatedItemsByPartition.sorted { $0.key < $1.key }.map { ("\($0.key)", $0.value) })
        metrics.gauge(
            "store_copies", "Partitions in the store that were revoked or are being restored.",
            store.copies.count)
        metrics.gauge(
            "store_resident_items", "Items in memory that came from the store.", totals.residentItems)
        metrics.gauge(
            "store_devices", "Devices that may have items in the store but not in memory.",
            totals.evictedDevices)
        metrics.gauge(
            "store_devices_awaiting_turn",
            "Online devices whose items wait in the store for room in memory.",
            totals.devicesAwaitingTurn)
        metrics.gauge("store_disk_bytes", "Bytes on disk, without the write-ahead log.", store.diskBytes)
        metrics.gauge(
            "store_memtable_bytes", "Bytes in memtables that are not flushed yet.", store.memtableBytes)
        metrics.gauge("store_cache_bytes", "Bytes in the block cache.", store.cacheBytes)
        metrics.gauge(
            "store_queued_bytes", "Bytes that are submitted but not written yet.", store.queuedBytes)
        metrics.gauge(
            "store_pending_compaction_bytes", "Bytes that compactions have yet to rewrite.",
            store.pendingCompactionBytes)
        metrics.gauge(
            "store_write_stopped", "1 when writes wait for compactions.", store.isWriteStopped ? 1 : 0)
        metrics.gauge(
            "store_background_errors", "Flushes and compactions that failed.", store.backgroundErrors)
    }
}

/// Figures of one worker, or sums of several, between two scrapes. Nil stands for a figure that the worker lacks.
///
/// Rates are per second, ages and latencies in seconds.
struct WorkerFigures: Sendable {
    var jobs: Double?
    var pushes: Double?
    var retries: Double?
    var unanswered: Double?
    var outcomes: [String: Double] = [:]
    var deadLetters: Double?
    var commits: Double?

    var jobLatency: HistogramIncrease?
    var pickupLatency: HistogramIncrease?
    var pushLatency: HistogramIncrease?

    var outstanding: Double?
    var outstandingLimit: Double?
    var bytes: Double?
    var bytesLimit: Double?
    /// Jobs in memory by the state that they wait in.
    var held: [String: Double] = [:]

    var pools: [PoolKey: PoolFigures] = [:]
    /// Pushes that wait for a stream, by priority, with the age of the oldest.
    var priorities: [String: (depth: Double, oldest: Double?)] = [:]
    /// Pushes that wait, and pushes in flight, by app.
    var apps: [String: (waiting: Double, inFlight: Double)] = [:]
    var partitions: [PartitionFigures] = []
    var assigned: Double?
    /// Paused partitions by cause.
    var paused: [String: Double] = [:]
    /// Scopes that an operator has paused, such as `app news`; of several workers, those of any.
    var operatorPauses: Set<String> = []
    /// Workers that begin no push, because they can't commit.
    var heldWorkers: Double?
    /// Stopped topics; of several workers, the most of any.
    var topicsStopped: Double?

    var store: StoreFigures?
    /// Share of the time in which a loop's thread works, 0 to 1, by worker and loop.
    var loops: [(name: String, busy: Double)] = []
    /// Errors by their family and reason: rate, and total since the worker's start.
    var errors: [ErrorKey: (rate: Double?, total: Double)] = [:]

    /// Cores in use.
    var cpu: Double?
    var memory: Double?
    var descriptors: Double?
    var descriptorsLimit: Double?
    var version: String?
    /// Seconds since the epoch.
    var started: Double?
    var restarts: Double?

    struct PoolKey: Hashable, Comparable, Sendable {
        var credential: String
        var environment: String

        static func < (a: PoolKey, b: PoolKey) -> Bool {
            (a.credential, a.environment) < (b.credential, b.environment)
        }
    }

    /// Pools of a credential for one environment, of all shards.
    struct PoolFigures: Sendable {
        /// Connections by state; without a state in the metrics, all under an empty name.
        var connections: [String: Double] = [:]
        var target: Double?
        var streamsInUse: Double?
        var streamsFree: Double?
        var openCircuits: Double?
        var stopped: Double?
        var waiting: Double?
        var oldest: Double?
        var latency: HistogramIncrease?
        /// Time of issue of the oldest provider token, in seconds since the epoch.
        var tokenIssued: Double?
        var resting: Double?
        /// Seconds since the epoch.
        var expiry: Double?
        var faulty: Double?
    }

    struct PartitionFigures: Sendable {
        var worker: String
        var topic: String
        var partition: String
        var lag: Double?
        var lagSeconds: Double?
        var uncommitted: Double?
        var headOfLine: Double?
    }

    struct StoreFigures: Sendable {
        var items: Double?
        var disk: Double?
        var free: Double?
        var queued: Double?
        var isFailing: Bool
        var isWriteStopped: Bool
        var restoring: Double?
        var remaining: Double?
    }

    struct ErrorKey: Hashable, Comparable, Sendable {
        var family: String
        var reason: String

        static func < (a: ErrorKey, b: ErrorKey) -> Bool { (a.family, a.reason) < (b.family, b.reason) }
    }
}

extension WorkerFigures {
    private static let prefix = "sluice_"

    /// Families of errors with the words for them, and the label that has the reason; nil when there is none.
    private static let errorFamilies: [(name: String, words: String, label: String?)] = [
        ("apns_errors_total", "APNs answered", "reason"),
        ("apns_unknown_reasons_total", "APNs answered (unknown)", "reason"),
        ("apns_goaways_total", "connection ended by APNs", "reason"),
        ("apns_connections_closed_total", "connection closed", "cause"),
        ("apns_connections_failed_total", "connection failed", nil),
        ("apns_stream_errors_total", "stream error", nil),
        ("apns_connections_stuck_total", "connection stuck", nil),
        ("apns_circuits_opened_total", "circuit opened", nil),
        ("dead_letters_by_rule_total", "dead letter", "rule"),
        ("credential_refusals_total", "credential refused", nil),
        ("credential_renewal_failures_total", "credential renewal failed", nil),
        ("topic_stops_total", "topic stopped", nil),
        ("kafka_errors_total", "Kafka error", nil),
        ("commit_errors_total", "commit failed", nil),
        ("outcomes_repeated_total", "outcome produced again", nil),
        ("transactions_aborted_total", "transaction aborted", nil),
        ("store_failures_total", "store failed", nil),
        ("store_background_errors_total", "store flush or compaction failed", nil),
        ("worker_restarts_total", "worker restarted", nil),
        ("broken_invariants_total", "BROKEN INVARIANT", nil),
        ("jobs_unaccounted", "JOB UNACCOUNTED", nil),
    ]

    init(_ window: MetricsWindow, worker: String) {
        func name(_ name: String) -> String { Self.prefix + name }
        jobs = window.rate(name("jobs_total"))
        pushes = window.rate(name("pushes_total"))
        retries = window.rate(name("push_retries_total"))
        unanswered = window.rate(name("pushes_unanswered_total"))
        outcomes = window.rates(name("outcomes_total"), by: "kind")
        deadLetters = window.rate(name("dead_letters_total"))
        commits = window.rate(name("commits_total"))
        jobLatency = window.histogram(name("job_latency_seconds"))
        pickupLatency = window.histogram(name("job_pickup_latency_seconds"))
        pushLatency = window.histogram(name("push_latency_seconds"))
        outstanding = window.sum(name("jobs_outstanding"))
        outstandingLimit = window.sum(name("jobs_outstanding_limit"))
        bytes = window.sum(name("in_flight_bytes"))
        bytesLimit = window.sum(name("in_flight_limit_bytes"))
        held = window.sums(name("jobs_held"), by: "state")
        readPools(window)
        readQueues(window)
        readPartitions(window, worker)
        readStore(window)
        for (loop, busy) in window.rates(name("loop_busy_seconds_total"), by: "loop").sorted(by: {
            $0.key < $1.key
        }) {
            loops.append((loop, min(busy, 1)))
        }
        readErrors(window)
        cpu = window.rate("process_cpu_seconds_total")
        memory = window.sum("process_resident_memory_bytes")
        descriptors = window.sum("process_open_fds")
        descriptorsLimit = window.sum("process_max_fds")
        version = window.now[name("build_info")].first.map { $0["version"] }
        started = window.sum("process_start_time_seconds")
        restarts = window.sum(name("worker_restarts_total"))
    }

    private mutating func readPools(_ window: MetricsWindow) {
        /// Adds a gauge's samples to a figure of their pools.
        func add(
            _ name: String, _ figure: WritableKeyPath<PoolFigures, Double?>,
            _ combine: (Double, Double) -> Double = (+)
        ) {
            for sample in window.now[Self.prefix + name] where sample.value.isFinite {
                let key = PoolKey(credential: sample["credential"], environment: sample["environment"])
                let before = pools[key, default: PoolFigures()][keyPath: figure]
                pools[key, default: PoolFigures()][keyPath: figure] =
                    before.map { combine($0, sample.value) } ?? sample.value
            }
        }
        for sample in window.now[Self.prefix + "apns_connections"] where sample.value.isFinite {
            let key = PoolKey(credential: sample["credential"], environment: sample["environment"])
            pools[key, default: PoolFigures()].connections[sample["state"], default: 0] += sample.value
        }
        add("apns_connections_target", \.target)
        add("apns_streams_in_use", \.streamsInUse)
        add("apns_streams_free", \.streamsFree)
        add("apns_circuit_open", \.openCircuits)
        add("apns_pools_stopped", \.stopped)
        add("queue_depth", \.waiting)
        add("queue_oldest_age_seconds", \.oldest, max)
        add("provider_token_issued_timestamp_seconds", \.tokenIssued, min)
        add("credential_resting", \.resting, max)
        add("credential_expiry_timestamp_seconds", \.expiry, min)
        add("credential_faulty", \.faulty, max)
        for key in pools.keys {
            pools[key]?.latency = window.histogram(Self.prefix + "push_latency_seconds") {
                $0["credential"] == key.credential && $0["environment"] == key.environment
            }
        }
    }

    private mutating func readQueues(_ window: MetricsWindow) {
        for sample in window.now[Self.prefix + "queue_depth"] where sample.value.isFinite {
            priorities[sample["priority"], default: (0, nil)].depth += sample.value
        }
        for sample in window.now[Self.prefix + "queue_oldest_age_seconds"] where sample.value.isFinite {
            let before = priorities[sample["priority"]]?.oldest ?? 0
            priorities[sample["priority"], default: (0, nil)].oldest = max(before, sample.value)
        }
        for (app, depth) in window.sums(Self.prefix + "app_queue_depth", by: "app") {
            apps[app, default: (0, 0)].waiting += depth
        }
        for (app, count) in window.sums(Self.prefix + "app_in_flight", by: "app") {
            apps[app, default: (0, 0)].inFlight += count
        }
    }

    private mutating func readPartitions(_ window: MetricsWindow, _ worker: String) {
        var found: [String: PartitionFigures] = [:]
        func add(_ name: String, _ figure: WritableKeyPath<PartitionFigures, Double?>) {
            for sample in window.now[Self.prefix + name] where sample.value.isFinite {
                // A worker without partitions by label reports one figure for all.
                let partition = sample["partition"].isEmpty ? "all" : sample["partition"]
                let new = PartitionFigures(worker: worker, topic: sample["topic"], partition: partition)
                found[partition, default: new][keyPath: figure] = sample.value
                if !sample["topic"].isEmpty { found[partition]?.topic = sample["topic"] }
            }
        }
        add("kafka_lag_records", \.lag)
        add("kafka_lag_seconds", \.lagSeconds)
        add("kafka_uncommitted_records", \.uncommitted)
        add("head_of_line_seconds", \.headOfLine)
        partitions = found.values.sorted {
            ($0.partition.count, $0.partition) < ($1.partition.count, $1.partition)
        }
        assigned = window.sum(Self.prefix + "partitions_assigned")
        paused = window.sums(Self.prefix + "partitions_paused", by: "cause").filter { $0.value > 0 }
        topicsStopped = window.sum(Self.prefix + "topics_stopped")
        heldWorkers = window.sum(Self.prefix + "pushes_held")
        for sample in window.now[Self.prefix + "paused"] where sample.value > 0 {
            let scope = sample["scope"]
            operatorPauses.insert(scope == "all" ? "all sending" : "\(scope) \(sample["name"])")
        }
    }

    private mutating func readStore(_ window: MetricsWindow) {
        func sum(_ name: String) -> Double? { window.sum(Self.prefix + name) }
        guard let items = sum("store_items") ?? sum("store_disk_bytes") else { return }
        store = StoreFigures(
            items: sum("store_items") ?? (items > 0 ? nil : 0), disk: sum("store_disk_bytes"),
            free: sum("store_disk_free_bytes"),
            queued: sum("store_queued_bytes"), isFailing: sum("store_failing") ?? 0 > 0,
            isWriteStopped: sum("store_write_stopped") ?? 0 > 0,
            restoring: sum("restore_partitions"), remaining: sum("restore_records_remaining"))
    }

    private mutating func readErrors(_ window: MetricsWindow) {
        for family in Self.errorFamilies {
            let samples = window.now[Self.prefix + family.name].filter {
                $0.value.isFinite && $0.value > 0
            }
            for sample in samples {
                let key = ErrorKey(family: family.words, reason: family.label.map { sample[$0] } ?? "")
                errors[key, default: (nil, 0)].total += sample.value
            }
            guard family.name.hasSuffix("_total"), !samples.isEmpty else { continue }
            for key in errors.keys where key.family == family.words {
                errors[key]?.rate = window.rate(Self.prefix + family.name) { sample in
                    family.label.map { sample[$0] } ?? "" == key.reason
                }
            }
        }
    }
}

// MARK: Sums

extension WorkerFigures {
    /// Adds another worker's figures.
    /// - Parameter worker: begins the names of the worker's loops, if there is more than one worker.
    mutating func add(_ other: WorkerFigures, worker: String?) {
        func plus(_ path: WritableKeyPath<WorkerFigures, Double?>) {
            self[keyPath: path] = Self.combine(self[keyPath: path], other[keyPath: path], +)
        }
        for path in [
            \.jobs, \.pushes, \.retries, \.unanswered, \.deadLetters, \.commits, \.outstanding,
            \.outstandingLimit,
            \.bytes, \.bytesLimit, \.assigned, \.cpu, \.memory, \.descriptors,
            \.descriptorsLimit,
            \.restarts, \.heldWorkers,
        ] as [WritableKeyPath<WorkerFigures, Double?>] {
            plus(path)
        }
        // Each worker stops the same topics.
        topicsStopped = Self.combine(topicsStopped, other.topicsStopped, max)
        for path in [\.jobLatency, \.pickupLatency, \.pushLatency]
            as [WritableKeyPath<WorkerFigures, HistogramIncrease?>]
        {
            self[keyPath: path] = Self.combine(self[keyPath: path], other[keyPath: path])
        }
        outcomes.merge(other.outcomes, uniquingKeysWith: +)
        held.merge(other.held, uniquingKeysWith: +)
        paused.merge(other.paused, uniquingKeysWith: +)
        operatorPauses.formUnion(other.operatorPauses)
        for (key, pool) in other.pools { pools[key, default: PoolFigures()].add(pool) }
        priorities.merge(other.priorities) {
            ($0.depth + $1.depth, Self.combine($0.oldest, $1.oldest, max))
        }
        apps.merge(other.apps) { ($0.waiting + $1.waiting, $0.inFlight + $1.inFlight) }
        partitions += other.partitions
        loops += other.loops.map { loop in (worker.map { "\($0) \(loop.name)" } ?? loop.name, loop.busy) }
        errors.merge(other.errors) { (Self.combine($0.rate, $1.rate, +), $0.total + $1.total) }
        if let store = other.store {
            self.store = self.store.map { $0.adding(store) } ?? store
        }
        version = version ?? other.version
        started = Self.combine(started, other.started, min)
    }

    static func combine(_ a: Double?, _ b: Double?, _ body: (Double, Double) -> Double) -> Double? {
        guard let a, let b else { return a ?? b }
        return body(a, b)
    }

    static func combine(_ a: HistogramIncrease?, _ b: HistogramIncrease?) -> HistogramIncrease? {
        guard var a else { return b }
        if let b { a.add(b) }
        return a
    }
}

extension WorkerFigures.PoolFigures {
    fileprivate mutating func add(_ other: Self) {
        connections.merge(other.connections, uniquingKeysWith: +)
        for path in [\.target, \.streamsInUse, \.streamsFree, \.openCircuits, \.stopped, \.waiting]
            as [WritableKeyPath<Self, Double?>]
        {
            self[keyPath: path] = WorkerFigures.combine(self[keyPath: path], other[keyPath: path], +)
        }
        for path in [\.oldest, \.resting, \.faulty] as [WritableKeyPath<Self, Double?>] {
            self[keyPath: path] = WorkerFigures.combine(self[keyPath: path], other[keyPath: path], max)
        }
        expiry = WorkerFigures.combine(expiry, other.expiry, min)
        tokenIssued = WorkerFigures.combine(tokenIssued, other.tokenIssued, min)
        latency = WorkerFigures.combine(latency, other.latency)
    }
}

extension WorkerFigures.StoreFigures {
    /// Sums of two stores. The free space is the lesser, because each store has a file system of its own.
    fileprivate func adding(_ other: Self) -> Self {
        func plus(_ path: KeyPath<Self, Double?>) -> Double? {
            WorkerFigures.combine(self[keyPath: path], other[keyPath: path], +)
        }
        return Self(
            items: plus(\.items), disk: plus(\.disk), free: WorkerFigures.combine(free, other.free, min),
            queued: plus(\.queued),
            isFailing: isFailing || other.isFailing,
            isWriteStopped: isWriteStopped || other.isWriteStopped,
            restoring: plus(\.restoring), remaining: plus(\.remaining))
    }
}

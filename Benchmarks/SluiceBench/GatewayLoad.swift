import CAllocationCounter
import Configuration
import DeliveryCore
import Gateway
import Glibc
import Logging
import SluiceModel

/// Measures the whole gateway: a worker in this process takes a backlog that another process has produced.
struct GatewayLoad {
    var surroundings: WorkerSurroundings
    var backlog: Backlog
    var topics: BenchmarkTopics
    var connections = 2
    var shards = 1
    /// Directory of the store; nil without a store.
    var storeDirectory: String?
    /// Whether the store's changes are written to a changelog too.
    var hasChangelog = false
    /// Whether changes, outcomes and offsets are committed together. The embedded cluster can't.
    var hasTransactions = false
    /// Whether jobs are sent at once after the worker has its partitions and the store is quiet. Otherwise they are
    /// there before the worker starts.
    var isSettled = false
    /// Seconds between the settled worker and the jobs, during which the worker is watched.
    var watchSeconds = 0
    /// Whether a profiler measures instead. The worker is then asked for its counts rarely, and Kafka's statistics are off.
    var isProfiled = false

    /// Whether the processor time of each thread is read.
    var readsThreads = false

    /// Whether all jobs are measured, from the first finished ones on, and have room at once. Settled runs always are.
    var isWhole = false

    /// Shares of the jobs that are finished when the measurement begins and ends. Tables and caches have their size at
    /// its beginning. At its end the consumer still has as many records ahead as at its beginning. It has then fetched
    /// as many as were finished meanwhile.
    private static let (warmUp, end) = (0.5, 0.8)

    /// Count of finished jobs, and what they have cost so far.
    private struct Sample {
        var finished: Int
        var cpuSeconds: Double
        var time: Double
        /// Processor seconds of the process's threads, by name; empty unless they are read.
        var threads: [String: Double] = [:]
    }

    struct Result {
        var jobs: Int
        var seconds: Double
        /// Processor time of each job, in microseconds.
        var cpuMicroseconds: Double
        var accepted: Int
        var residentMegabytes: Double
        /// Resident megabytes after all jobs and the store's scan.
        var residentNowMegabytes: Double
        /// Seconds that the worker's initialiser took.
        var readySeconds: Double
        var puts: Int
        /// Writes of items per hour while the worker was watched.
        var watchedPutsPerHour: Double
        var loaded: Int
        var devicesInStore: Int
        /// Jobs per second until the store's scans ended; nil when they ended before the measurement.
        var rebuildJobsPerSecond: Double?
        /// Processor time of a job by thread, in microseconds; empty unless threads are read.
        var threadMicroseconds: [String: Double]
    }

    struct Allocations {
        var jobs: Int
        var swift: Int
        /// Swift's on the shards' threads; the others belong to commits and other work that isn't for each job.
        var shards: Int
        /// Callers of Swift's allocations, the most frequent first.
        var callers: String
    }

    func run() throws -> Result {
        let jobs = backlog.jobs
        let production = try BacklogProcess(
            backlog, topics, bootstrapServers: surroundings.bootstrapServers, isHeld: isSettled)
        if !isSettled { try production.finish() }
        let logger = Logger(label: "bench", factory: { _ in SwiftLogNoOpLogHandler() })
        let opening = Self.now()
        let worker = try Worker(configuration: configuration, logger: logger)
        let opened = Self.now()
        worker.start()
        var watchedPuts = 0.0
        if isSettled {
            worker.waitUntilSettled(partitions: 1)
            // Opening a store after a crash leaves work for flushes and compactions.
            var quietLooks = 0
            while let store = worker.store, quietLooks < 10 {
                quietLooks = store.statistics().backgroundWork == 0 ? quietLooks + 1 : 0
                usleep(100_000)
            }
            let before = worker.snapshot().totals.store.puts
            let watched = Self.now()
            if watchSeconds > 0 { sleep(UInt32(watchSeconds)) }
            watchedPuts =
                Double(worker.snapshot().totals.store.puts - before) / max(1, Self.now() - watched) * 3600
            try production.finish()
        } else {
            let first = isWhole ? jobs / 20 : Int(Self.warmUp * Double(jobs))
            while worker.snapshot().counters.finished < first { waitForNextLook() }
        }
        let from = sample(worker.snapshot())
        // Settled workers take all jobs from the first on. At the end itself the worker has been idle for an unknown time.
        let last = isSettled || isWhole ? jobs : Int(Self.end * Double(jobs))
        guard isProfiled || from.finished < last * 9 / 10 else {
            throw LoadError(description: "the jobs were done too soon for a measurement: more are needed")
        }
        var until = from
        var rebuild: Double?
        var isRebuilding = true
        while true {
            waitForNextLook()
            let snapshot = worker.snapshot()
            let now = sample(snapshot)
            if now.finished < last || until.finished - from.finished < jobs / 8 { until = now }
            if isRebuilding {
                isRebuilding = snapshot.totals.store.scansUnderWay > 0 && now.finished < jobs
                if isRebuilding || rebuild != nil {
                    rebuild = Double(now.finished - from.finished) / (now.time - from.time)
                }
            }
            if now.finished >= jobs { break }
        }
        var cpu = (until.cpuSeconds - from.cpuSeconds) / Double(max(1, until.finished - from.finished))
        if backlog.storedPercent > 0 {
            // CPU time of stored jobs counts until they are sent, but not while they wait.
            sleep(2)
            let waiting = ProcessUsage.read().cpuSeconds
            while worker.snapshot().totals.store.loaded == 0,
                worker.snapshot().totals.count(of: .accepted) < jobs
            { usleep(20_000) }
            let waited = ProcessUsage.read().cpuSeconds - waiting
            while worker.snapshot().totals.count(of: .accepted) < jobs { usleep(20_000) }
            cpu =
                (ProcessUsage.read().cpuSeconds - waited - from.cpuSeconds) / Double(jobs - from.finished)
        }
        let resident = residentBytes()
        let counters = worker.snapshot().totals
        worker.requestStop()
        let ended = worker.waitUntilStopped()
        return Result(
            jobs: until.finished - from.finished, seconds: until.time - from.time,
            cpuMicroseconds: cpu * 1e6,
            accepted: ended.snapshot.totals.count(of: .accepted),
            residentMegabytes: ProcessUsage.read().maximumResidentMegabytes,
            residentNowMegabytes: Double(resident) / 1e6, readySeconds: opened - opening,
            puts: counters.store.puts, watchedPutsPerHour: watchedPuts, loaded: counters.store.loaded,
            devicesInStore: counters.evictedDevices,
            rebuildJobsPerSecond: rebuild,
            threadMicroseconds: Dictionary(
                uniqueKeysWithValues: until.threads.map { name, seconds in
                    let jobs = Double(max(1, until.finished - from.finished))
                    return (name, (seconds - from.threads[name, default: 0]) * 1e6 / jobs)
                }))
    }

    /// Counts the allocations of Swift on all threads of the worker, after `warmUp` jobs, for about `measured` jobs.
    /// Meanwhile the worker isn't asked for anything, because its answers allocate.
    func countAllocations(warmUp: Int, measured: Int) throws -> Allocations {
        try BacklogProcess(
            backlog, topics, bootstrapServers: surroundings.bootstrapServers, isHeld: false
        ).finish()
        let logger = Logger(label: "bench", factory: { _ in SwiftLogNoOpLogHandler() })
        var configuration = configuration
        // A pool that grows isn't in its steady state.
        configuration.apns.maxConnections = connections
        let worker = try Worker(configuration: configuration, logger: logger)
        worker.start()
        var first: Sample?
        var last: Sample
        repeat {
            waitForNextLook()
            last = sample(worker.snapshot())
            if first == nil, last.finished > 0 { first = last }
        } while last.finished < warmUp
        let elapsed = last.time - first!.time
        guard elapsed > 0 else {
            throw LoadError(description: "the warm-up was over at the first look: more jobs are needed")
        }
        let rate = Double(last.finished - first!.finished) / elapsed
        sluice_allocations_begin_all(16_384, "shard-")
        usleep(UInt32(Double(measured) / rate * 1e6))
        let counts = sluice_allocations_end_all()
        let finished = worker.snapshot().counters.finished
        usleep(10_000)
        let callers = counts.swift > 0 ? AllocationsCommand.callers() : ""
        worker.requestStop()
        _ = worker.waitUntilStopped()
        guard finished < backlog.jobs, finished - last.finished >= measured / 2 else {
            throw LoadError(
                description:
                    "\(finished - last.finished) of \(measured) jobs were done during the count, \(finished) of "
                    + "\(backlog.jobs) in all: the count needs a busy worker")
        }
        return Allocations(
            jobs: finished - last.finished, swift: Int(counts.swift), shards: Int(counts.named),
            callers: callers)
    }

    private var configuration: Configuration {
        var configuration = surroundings.configuration(connections: connections)
        if let storeDirectory {
            configuration.store = .init(
                directory: storeDirectory, after: .seconds(5), changelog: hasChangelog ? .on : .off,
                transactions: hasTransactions ? .on : .off)
        }
        topics.apply(to: &configuration.kafka)
        configuration.delivery.shards = shards
        if isSettled || isWhole {
            configuration.delivery.maxInFlight = 100_000
            configuration.delivery.maxInFlightBytes = 1 << 30
        }
        // A fetch of the embedded cluster that finds nothing waits for the whole time.
        configuration.kafka.properties = [
            .init(name: "fetch.wait.max.ms", value: isProfiled ? "500" : "10")
        ]
        if isProfiled {
            // Under a profiler the worker is slow. With these limits, jobs spend as little time in the worker as without a
            // profiler. With the usual ones the intake stalls, pauses its partitions, and fetches their records again.
            configuration.delivery.maxInFlight = 1_000
            configuration.kafka.properties += [
                .init(name: "queued.min.messages", value: "2000"),
                .init(name: "statistics.interval.ms", value: "0"),
            ]
        }
        return configuration
    }

    /// A look at the worker costs as much as several jobs.
    private func waitForNextLook() { usleep(isProfiled ? 500_000 : 20_000) }

    private func sample(_ snapshot: WorkerSnapshot) -> Sample {
        Sample(
            finished: snapshot.counters.finished, cpuSeconds: ProcessUsage.read().cpuSeconds,
            time: Self.now(), threads: readsThreads ? ProcessUsage.threadSeconds() : [:])
    }

    private static func now() -> Double {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
}

import DeliveryCore
import Gateway
import Glibc
import Kafka
import Logging
import SluiceModel
import StreamScheduling

/// Measures the whole gateway: produces a backlog of jobs to Kafka, then runs a worker in this process.
struct GatewayLoad {
    var surroundings: WorkerSurroundings
    var jobs = 100_000
    var payloadBytes = 250
    var connections = 2
    /// Directory of the store; nil without a store.
    var storeDirectory: String?
    /// Percentage of jobs that are due later and are stored until then.
    var storedPercent = 0
    /// Whether jobs are produced at once after the worker has its partitions and the store is quiet. Otherwise
    /// they are produced before the worker starts.
    var isSettled = false
    /// Number of the first of the four apps whose topics the jobs have.
    var firstApp = 0
    /// Seconds between the settled worker and the jobs, during which the worker is watched.
    var watchSeconds = 0

    /// Seconds from the worker's start until stored jobs are due; long enough for the jobs to leave memory.
    private static let delaySeconds: Int64 = 16

    struct Result {
        var jobs: Int
        var seconds: Double
        var cpuSeconds: Double
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
    }

    func run() throws -> Result {
        let producer = try makeProducer()
        try produce(producer)
        if !isSettled { try producer.flush(timeoutMilliseconds: 60_000) }
        var configuration = surroundings.configuration(connections: connections)
        if let storeDirectory {
            configuration.store = .init(directory: storeDirectory, after: .seconds(5), changelog: .off)
        }
        configuration.delivery.maxInFlight = 100_000
        configuration.delivery.maxInFlightBytes = 1 << 30
        configuration.kafka.properties = [.init(name: "fetch.wait.max.ms", value: "10")]
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
            try producer.flush(timeoutMilliseconds: 60_000)
        } else {
            // The group's first assignment takes seconds; the measurement begins with the first finished jobs.
            while worker.snapshot().counters.finished < jobs / 20 { usleep(1000) }
        }
        producer.close()
        let from = (
            count: worker.snapshot().counters.finished, cpu: ProcessUsage.read().cpuSeconds, time: Self.now()
        )
        guard from.count < jobs * 9 / 10 else {
            throw LoadError(description: "the jobs were done before they were all there: more are needed")
        }
        var finished = from.count
        var rebuild: Double?
        var isRebuilding = true
        while finished < jobs {
            usleep(1000)
            let snapshot = worker.snapshot()
            finished = snapshot.counters.finished
            if isRebuilding {
                isRebuilding = snapshot.totals.store.scansUnderWay > 0 && finished < jobs
                if isRebuilding || rebuild != nil {
                    rebuild = Double(finished - from.count) / (Self.now() - from.time)
                }
            }
        }
        let until = Self.now()
        var cpu = ProcessUsage.read().cpuSeconds
        if storedPercent > 0 {
            // CPU time of stored jobs counts until they are sent, but not while they wait.
            sleep(2)
            cpu = ProcessUsage.read().cpuSeconds
            while worker.snapshot().totals.store.loaded == 0,
                worker.snapshot().totals.count(of: .accepted) < jobs
            { usleep(20_000) }
            let waited = ProcessUsage.read().cpuSeconds - cpu
            while worker.snapshot().totals.count(of: .accepted) < jobs { usleep(20_000) }
            cpu = ProcessUsage.read().cpuSeconds - waited
        }
        let resident = residentBytes()
        let counters = worker.snapshot().totals
        worker.requestStop()
        let ended = worker.waitUntilStopped()
        return Result(
            jobs: finished - from.count, seconds: until - from.time, cpuSeconds: cpu - from.cpu,
            accepted: ended.snapshot.totals.count(of: .accepted),
            residentMegabytes: ProcessUsage.read().maximumResidentMegabytes,
            residentNowMegabytes: Double(resident) / 1e6, readySeconds: opened - opening,
            puts: counters.store.puts, watchedPutsPerHour: watchedPuts, loaded: counters.store.loaded,
            devicesInStore: counters.evictedDevices,
            rebuildJobsPerSecond: rebuild)
    }

    /// A producer whose queue keeps all jobs until it is flushed, so that they are sent at once.
    private func makeProducer() throws -> KafkaProducer {
        var properties = KafkaProperties(bootstrapServers: surroundings.bootstrapServers)
        if isSettled {
            properties["linger.ms"] = "250000"
            properties["queue.buffering.max.messages"] = "\(jobs + 1)"
            properties["queue.buffering.max.kbytes"] = "1048576"
            properties["batch.num.messages"] = "1000000"
            properties["batch.size"] = "4000000"
            properties["message.max.bytes"] = "4000000"
        }
        return try KafkaProducer(properties: properties)
    }

    /// Produces jobs in binary mode, with the headers of a real sender and distinct device tokens.
    private func produce(_ producer: KafkaProducer) throws {
        let topic = try producer.topic("sluice.jobs")
        var random = SeededGenerator(seed: 11)
        let start = #"{"aps":{"alert":{"title":"Benchmark","body":""#
        let payload = Array(
            (start + String(repeating: "x", count: max(0, payloadBytes - start.utf8.count - 4)) + "\"}}}")
                .utf8)
        let digits = Array("0123456789abcdef".utf8)
        let dueMilliseconds = (Int64(time(nil)) + 10 + Self.delaySeconds) * 1000
        for number in 0..<jobs {
            let token = (0..<64).map { _ in digits[Int(random.next() & 15)] }
            let identifier = APNSID(high: random.next(), low: random.next())
            var headers: [(name: String, value: [UInt8]?)] = [
                ("apns-topic", Array("com.example.app\(firstApp + number % (4 - firstApp))".utf8)),
                ("apns-push-type", Array("alert".utf8)),
                ("apns-priority", Array("10".utf8)), ("apns-expiration", Array("1900000000".utf8)),
                ("apns-collapse-id", Array("score-\(number % 1000)".utf8)),
                ("apns-id", Array("\(identifier)".utf8)),
            ]
            if number % 100 < storedPercent {
                headers.append(("deliver-at", Array("\(dueMilliseconds)".utf8)))
            }
            while true {
                let result = token.withUnsafeBytes { token in
                    payload.withUnsafeBytes { payload in
                        producer.produce(topic, key: token, value: payload, headers: headers, opaque: 0)
                    }
                }
                if case .queued = result { break }
                if case .failed(let error) = result { throw error }
                producer.pollDeliveryReports(timeoutMilliseconds: 10) { _ in }
            }
            if number % 1000 == 0 { producer.pollDeliveryReports { _ in } }
        }
    }

    private static func now() -> Double {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
}

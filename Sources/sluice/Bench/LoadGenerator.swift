import EventLoop
import Foundation
import Kafka
import LoadTest
import SluiceModel
import Synchronization

/// Producers of a load and the reader of its outcomes, each a thread of its own.
///
/// A producer of an open loop never waits for an outcome: each job has an intended time, from which its latency counts
/// even if the producer is late.
final class LoadGenerator {
    struct Plan: Sendable {
        var scenario: LoadScenario
        /// Traces of the loads that have one, by index of the load.
        var traces: [Int: ArrivalTrace] = [:]
        var names: TokenNames
        var cluster: KafkaProperties
        var bootstrapServers: String
        var topics: StagePlan.Topics
        /// Whether the topics have only records of this run.
        var isOwnCluster: Bool
        /// Number of the run, which its jobs have in their identifiers.
        var run: UInt64
    }

    private let plan: Plan
    private let exchange: LoadExchange
    private let ledger = LedgerBox()

    /// Ledger of the reader once it has ended.
    private final class LedgerBox: Sendable {
        let ledger = Mutex<JobLedger?>(nil)
        let isFilled = DispatchSemaphore(value: 0)
    }

    /// Starts all threads. Producers of loads wait for the beginning of the first phase.
    init(_ plan: Plan) {
        self.plan = plan
        let exchange = LoadExchange(producers: plan.scenario.producers, loads: plan.scenario.loads.count)
        self.exchange = exchange
        let ledger = ledger
        Self.thread("outcomes", exchange) {
            var reader = OutcomeReader(plan, exchange)
            defer {
                ledger.ledger.withLock { $0 = reader.ledger }
                ledger.isFilled.signal()
            }
            try reader.run()
        }
        for index in 0..<plan.scenario.producers {
            Self.thread("producer \(index + 1)", exchange) {
                defer { exchange.producerEnded() }
                var producer = try LoadProducer(plan, index, exchange)
                try producer.run()
            }
        }
    }

    private static func thread(
        _ name: String, _ exchange: LoadExchange, _ body: @escaping @Sendable () throws -> Void
    ) {
        let thread = Thread {
            do {
                try body()
            } catch let failure as CommandFailure {
                exchange.fail(failure)
            } catch {
                exchange.fail(CommandFailure(.unavailable, "the load generator: \(error)"))
            }
        }
        thread.name = name
        thread.stackSize = 4 << 20
        thread.start()
    }

    /// Throws when a thread has failed.
    func check() throws(CommandFailure) {
        if let failure = exchange.failure { throw failure }
    }

    var progress: LoadExchange.Progress { exchange.progress }

    /// Whether all events before the first phase have been processed.
    var isPrepared: Bool { exchange.isPrepared && exchange.progress.openPresence == 0 && exchange.isReading }

    /// Begins the first phase at a time of the monotonic clock.
    func begin(at start: MonotonicTime, milliseconds: Int64) {
        exchange.begin(nanoseconds: start.nanoseconds, milliseconds: milliseconds)
    }

    /// Whether all jobs have been produced.
    var hasProducedAll: Bool { exchange.runningProducers == 0 }

    /// Ends all threads, and returns the ledger.
    func end() -> JobLedger? {
        exchange.stopProducers()
        let deadline = ContinuousClock.now + .seconds(15)
        while exchange.runningProducers > 0, ContinuousClock.now < deadline { usleep(2_000) }
        exchange.stopReader()
        guard ledger.isFilled.wait(timeout: .now() + 15) == .success else { return nil }
        return ledger.ledger.withLock { $0 }
    }

    var fullSeconds: Double { exchange.fullSeconds }
}

/// Reads outcomes and dead letters, and keeps the ledger.
private struct OutcomeReader {
    private let plan: LoadGenerator.Plan
    private let exchange: LoadExchange
    var ledger: JobLedger

    init(_ plan: LoadGenerator.Plan, _ exchange: LoadExchange) {
        self.plan = plan
        self.exchange = exchange
        ledger = JobLedger(plan.scenario, run: plan.run)
    }

    private func reader(_ topic: String, _ cluster: KafkaCluster) throws(CommandFailure) -> TopicReader {
        var start = TopicReader.Start.beginning
        if !plan.isOwnCluster {
            let count = try cluster.partitionCount(of: topic)
            var ends: [Int64] = []
            do throws(KafkaError) {
                let admin = try KafkaAdmin(properties: cluster.properties)
                for partition in 0..<Int32(count) {
                    ends.append(try admin.watermarks(of: TopicPartition(topic, partition)).high)
                }
                start = .offsets(ends)
            } catch {
                throw CommandFailure(kafka: error)
            }
        }
        return try TopicReader(topic: topic, start: start, stopsAtEnd: false, cluster: cluster)
    }

    mutating func run() throws {
        var cluster = KafkaCluster(bootstrapServers: plan.bootstrapServers)
        cluster.properties = plan.cluster
        // The embedded cluster answers an empty fetch only after this.
        if cluster.properties["fetch.wait.max.ms"] == nil { cluster.properties["fetch.wait.max.ms"] = "5" }
        let outcomes = try reader(plan.topics.outcomes, cluster)
        let deadLetters = try reader(plan.topics.deadLetters, cluster)
        defer {
            outcomes.close()
            deadLetters.close()
        }
        exchange.setReading()
        var read: [(outcome: OutcomeSummary?, time: Int64, delay: Int64?)] = []
        var dead: [(id: APNSID?, rule: String, time: Int64, delay: Int64?)] = []
        var readDelay = ReadingDelay()
        var deadDelay = ReadingDelay()
        var end: ContinuousClock.Instant?
        while true {
            // Records that have arrived when the run ends still count.
            let isLast = exchange.readerStops
            if isLast, end == nil { end = .now + .seconds(1) }
            let beginning = exchange.beginning
            let begin = beginning?.nanoseconds
            try outcomes.poll(timeoutMilliseconds: 2) { record in
                let outcome = record.value.flatMap { OutcomeSummary(json: $0) }
                let time = Self.time(since: begin)
                let delay = beginning.map {
                    readDelay.delay(stamped: Self.timestamp(of: record, since: $0.milliseconds), readAt: time)
                }
                read.append((outcome, time, delay))
            }
            // The first record of a poll is read as soon as the poll is over.
            if outcomes.isDrained { readDelay.noteEmpty(at: read.first?.time ?? Self.time(since: begin)) }
            try deadLetters.poll(timeoutMilliseconds: 0) { record in
                let (id, rule) = Self.job(of: record)
                let time = Self.time(since: begin)
                let delay = beginning.map {
                    deadDelay.delay(stamped: Self.timestamp(of: record, since: $0.milliseconds), readAt: time)
                }
                dead.append((id, rule, time, delay))
            }
            if deadLetters.isDrained { deadDelay.noteEmpty(at: dead.first?.time ?? Self.time(since: begin)) }
            let news = exchange.take()
            for entry in news.entries { ledger.add(entry) }
            for number in news.refused { ledger.refuse(number) }
            for job in news.notProduced { ledger.addNotProduced(load: job.load, intended: job.intended) }
            for (outcome, time, delay) in read { ledger.add(outcome, at: time, delay: delay) }
            for (id, rule, time, delay) in dead {
                ledger.addDeadLetter(id, rule: rule, at: time, delay: delay)
            }
            exchange.publish(ledger)
            if isLast, (read.isEmpty && dead.isEmpty) || end.map({ $0 < .now }) == true { return }
            read.removeAll(keepingCapacity: true)
            dead.removeAll(keepingCapacity: true)
        }
    }

    private static func time(since begin: UInt64?) -> Int64 {
        guard let begin else { return 0 }
        return (Int64(MonotonicTime.read().nanoseconds) - Int64(begin)) / 1_000
    }

    /// Timestamp of a record in microseconds since the beginning of the first phase; nil without one.
    private static func timestamp(of record: ConsumedRecord, since beginning: Int64) -> Int64? {
        let milliseconds = record.timestampMilliseconds
        // Bounds exclude an overflow by a foreign timestamp.
        guard (0..<1 << 50).contains(milliseconds) else { return nil }
        return (milliseconds - beginning) * 1_000
    }

    private static func job(of record: ConsumedRecord) -> (APNSID?, String) {
        var id: APNSID?
        var rule = "?"
        record.forEachHeader { name, value in
            switch String(decoding: name, as: UTF8.self) {
            case "apns-id": id = value.flatMap { APNSID(anyCase: $0) }
            case DeadLetter.Header.rule.rawValue:
                rule = value.map { String(decoding: $0, as: UTF8.self) } ?? "?"
            default: break
            }
        }
        // Records without the header have the identifier in their value.
        return (id ?? record.value.flatMap { APNSID(jobValue: $0) }, rule)
    }
}

/// A producer: its share of all open loops, and the closed loops that are its own.
private struct LoadProducer {
    /// Open loop of a load, or the returns of devices.
    private struct Source {
        /// Index of the load; nil: returns of devices.
        var load: Int?
        var arrivals: Arrivals
        /// Number of the next job within its load, of all producers.
        var sequence = 0
        var next: Double?
    }

    private struct ClosedLoop {
        var load: Int
        var inFlight: Int
        var sequence = 0
        var spans: [ClosedRange<Double>]
    }

    private let plan: LoadGenerator.Plan
    private let index: Int
    private let exchange: LoadExchange
    private let producer: KafkaProducer
    private let topic: KafkaTopic
    private var makers: [JobMaker]
    private let presence: PresenceEvents?
    private var sources: [Source] = []
    private var closed: [ClosedLoop] = []
    /// Numbers of this producer's next jobs.
    private var numbers = 0..<0
    /// Beginning of the first main phase in seconds since the beginning of the first phase.
    private let mainBegin: Double
    private var entries: [JobLedger.Entry] = []
    private var jobs: [EncodedJob] = []
    private static let batch = 200

    init(_ plan: LoadGenerator.Plan, _ index: Int, _ exchange: LoadExchange) throws {
        self.plan = plan
        self.index = index
        self.exchange = exchange
        var properties = plan.cluster
        if properties["linger.ms"] == nil { properties["linger.ms"] = "1" }
        producer = try KafkaProducer(properties: properties)
        topic = try producer.topic(plan.topics.jobs)
        let scenario = plan.scenario
        mainBegin = scenario.mainSpans.first?.lowerBound ?? 0
        let population = DevicePopulation(scenario.devices, seed: scenario.seed)
        makers = scenario.loads.indices.map {
            JobMaker(scenario, load: $0, population: population, names: plan.names)
        }
        let needsPresence = scenario.loads.contains { $0.delivery == .holdWhileOffline }
        presence =
            index == 0 && needsPresence
            ? PresenceEvents(scenario, population: population, names: plan.names) : nil
        for (load, settings) in scenario.loads.enumerated() {
            if case .closed(let inFlight) = settings.arrival {
                guard load % scenario.producers == index else { continue }
                closed.append(
                    ClosedLoop(
                        load: load, inFlight: inFlight, spans: settings.phases.map { scenario.spans[$0] }))
            } else if let arrivals = scenario.arrivals(of: load, trace: plan.traces[load]) {
                sources.append(Source(load: load, arrivals: arrivals))
                advance(sources.count - 1)
            }
        }
        if let presence {
            sources.append(
                Source(load: nil, arrivals: Arrivals(at: presence.returns.map(\.at)), sequence: -1))
            advance(sources.count - 1)
        }
    }

    /// Moves a source to its next job that is this producer's.
    private mutating func advance(_ source: Int) {
        guard sources[source].load != nil else {
            sources[source].sequence += 1
            sources[source].next = sources[source].arrivals.next()
            return
        }
        while true {
            sources[source].next = sources[source].arrivals.next()
            sources[source].sequence += 1
            guard sources[source].next != nil,
                (sources[source].sequence - 1) % plan.scenario.producers != index
            else { return }
        }
    }

    mutating func run() throws {
        if let presence {
            // Outcomes before the reader's beginning would be missed.
            while !exchange.isReading {
                if exchange.isStopping { return }
                usleep(500)
            }
            try prepare(presence)
        }
        exchange.setPrepared()
        var beginning = exchange.beginning
        while beginning == nil {
            if exchange.isStopping { return }
            usleep(500)
            takeReports()
            beginning = exchange.beginning
        }
        guard let beginning else { return }
        while !exchange.isStopping {
            let now = Self.now(since: beginning.nanoseconds)
            let next = try collect(now, beginning.milliseconds)
            if !jobs.isEmpty { try hand(milliseconds: 0) }
            takeReports()
            guard let next else { break }
            let wait = min(next - Self.now(since: beginning.nanoseconds), 0.001)
            if wait > 20e-6 { usleep(UInt32(wait * 1e6)) }
        }
        if exchange.isStopping { countNotProduced(until: Self.now(since: beginning.nanoseconds)) }
        var refused: [Int] = []
        try? producer.flush(timeoutMilliseconds: 10_000) { report in
            if !report.isDelivered { refused.append(Int(report.opaque)) }
        }
        exchange.refuse(refused)
        takeReports()
        producer.close()
    }

    /// Reports the jobs that are due and were not produced. Gives up after some seconds, when millions are reported.
    private mutating func countNotProduced(until now: Double) {
        let end = ContinuousClock.now + .seconds(5)
        var jobs: [LoadExchange.NotProduced] = []
        for index in sources.indices {
            guard let load = sources[index].load else { continue }
            while let time = sources[index].next, time <= now {
                jobs.append(.init(load: UInt8(load), intended: Int64(time * 1e6)))
                advance(index)
                guard jobs.count == 10_000 else { continue }
                exchange.addNotProduced(jobs)
                jobs.removeAll(keepingCapacity: true)
                if ContinuousClock.now > end { return }
            }
        }
        exchange.addNotProduced(jobs)
    }

    /// Collects the jobs that are due. Returns the time of the next one; nil after the last one.
    private mutating func collect(_ now: Double, _ epoch: Int64) throws(CommandFailure) -> Double? {
        var next: Double?
        while jobs.count < Self.batch {
            next = nil
            var first: Int?
            for index in sources.indices {
                guard let time = sources[index].next, time < next ?? .infinity else { continue }
                next = time
                first = index
            }
            guard let first, let time = next, time <= now else { break }
            if let load = sources[first].load {
                try add(load, sources[first].sequence - 1, intended: time, now, epoch)
            } else if let presence {
                let job = try CommandFailure.ofJobs { () throws(JobError) in
                    try presence.job(
                        sources[first].sequence, isOnline: true, milliseconds: epoch + Int64(time * 1_000))
                }
                let number = try takeNumber()
                add(job, number, load: JobLedger.presence, intended: time, due: time, now)
            }
            advance(first)
        }
        for index in closed.indices {
            let loop = closed[index]
            guard let end = loop.spans.last?.upperBound, now < end else { continue }
            next = min(next ?? .infinity, now + 0.001)
            guard loop.spans.contains(where: { $0.contains(now) }) else { continue }
            let room = loop.inFlight - (loop.sequence - exchange.finished(loop.load))
            for _ in 0..<max(0, min(room, Self.batch)) {
                // A job of a closed loop is due at the moment at which there is room for it.
                try add(loop.load, closed[index].sequence, intended: now, now, epoch)
                closed[index].sequence += 1
            }
        }
        return next
    }

    private mutating func takeNumber() throws(CommandFailure) -> Int {
        if numbers.isEmpty { numbers = try exchange.reserveNumbers() }
        return numbers.removeFirst()
    }

    private mutating func add(
        _ load: Int, _ sequence: Int, intended: Double, _ now: Double, _ epoch: Int64
    ) throws(CommandFailure) {
        let number = try takeNumber()
        let id = APNSID(high: plan.run, low: UInt64(number))
        let made = try CommandFailure.ofJobs { () throws(JobError) in
            try makers[load].make(sequence, intended: intended, id: id, epoch: epoch)
        }
        add(made.job, number, load: UInt8(load), intended: intended, due: made.due, now)
    }

    private mutating func add(
        _ job: EncodedJob, _ number: Int, load: UInt8, intended: Double, due: Double, _ now: Double
    ) {
        entries.append(
            JobLedger.Entry(
                number: number, load: load, intended: Int64(intended * 1e6),
                due: Int64(due * 1e6), produced: Int64(now * 1e6),
                token: load == JobLedger.presence ? String(decoding: job.key, as: UTF8.self) : nil))
        jobs.append(job)
    }

    /// Hands the collected jobs to Kafka; waits for room when the queue is full.
    private mutating func hand(milliseconds: Int32) throws {
        exchange.add(entries)
        for (job, entry) in zip(jobs, entries) {
            var headers = HeaderList(capacity: job.headers.count)
            for header in job.headers { headers.append(header.name, header.value) }
            var list: HeaderList? = headers
            var full: MonotonicTime?
            while true {
                let result = job.key.withUnsafeBytes { key in
                    job.value.withUnsafeBytes { value in
                        if let ready = list.take() {
                            return producer.produce(
                                topic, key: key, value: value, headers: ready, opaque: UInt(entry.number))
                        }
                        return producer.produce(
                            topic, key: key, value: value, headers: job.headers.map { ($0.name, $0.value) },
                            opaque: UInt(entry.number))
                    }
                }
                if case .queueFull = result {
                    if full == nil { full = MonotonicTime.read() }
                    if exchange.isStopping {
                        exchange.refuse([entry.number])
                        break
                    }
                    takeReports(milliseconds: 10)
                    continue
                }
                if case .failed(let error) = result { throw CommandFailure(kafka: error) }
                break
            }
            if let full { noteFull(since: full) }
        }
        entries.removeAll(keepingCapacity: true)
        jobs.removeAll(keepingCapacity: true)
    }

    /// Counts the time in which the queue was full, from the first main phase on: the time before it is not judged.
    private func noteFull(since full: MonotonicTime) {
        guard let beginning = exchange.beginning else { return }
        let from = max(Double(full.nanoseconds) - Double(beginning.nanoseconds), mainBegin * 1e9) / 1e9
        let seconds = Self.now(since: beginning.nanoseconds) - from
        if seconds > 0 { exchange.wasFull(seconds: seconds) }
    }

    /// Produces the events of the devices that are offline at the beginning.
    private mutating func prepare(_ presence: PresenceEvents) throws {
        let wall = Int64(Date().timeIntervalSince1970 * 1_000)
        for event in presence.returns.indices {
            if exchange.isStopping { return }
            let job = try presence.job(event, isOnline: false, milliseconds: wall)
            add(job, try takeNumber(), load: JobLedger.presence, intended: 0, due: 0, 0)
            if jobs.count == Self.batch { try hand(milliseconds: 10) }
        }
        try hand(milliseconds: 10)
    }

    private func takeReports(milliseconds: Int32 = 0) {
        var refused: [Int] = []
        producer.pollDeliveryReports(timeoutMilliseconds: milliseconds) { report in
            if !report.isDelivered { refused.append(Int(report.opaque)) }
        }
        exchange.refuse(refused)
    }

    private static func now(since begin: UInt64) -> Double {
        (Double(MonotonicTime.read().nanoseconds) - Double(begin)) / 1e9
    }
}

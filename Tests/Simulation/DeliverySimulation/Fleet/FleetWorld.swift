import DeliveryCore
import SluiceModel

/// Whole workers in a simulated world: Kafka, APNs, disks, clocks, and processes that are killed, stopped and started.
/// Workers are ``WorkerMachine``, the machines of their shards, and nothing else that decides.
final class FleetWorld {
    let seed: UInt64
    let scenario: FleetScenario
    let kafka: KafkaModel
    private(set) var draw: Draw
    private(set) var now: UInt64 = 1_000_000_000
    private(set) var processes: [WorkerProcess] = []
    private var hosts: [FleetHost] = []
    private(set) var jobs: [FleetJob] = []
    private(set) var outputs: [FleetOutput] = []
    private(set) var keys: [DeviceKey] = []
    private(set) var isHealthy = false
    private(set) var trace: Trace
    var auditor = FleetAuditor()
    var counts = FleetCounts()
    private let events: Int

    /// A machine that runs one worker after the other.
    private struct FleetHost {
        var process: WorkerProcess?
        /// Milliseconds by which the wall clock is wrong.
        var clockError: Int64 = 0
        /// Nanoseconds at which the next process starts.
        var startsAt: UInt64 = 0
        var resumesAt: UInt64 = 0
    }

    init(seed: UInt64, events: Int, mode: StoreMode, printsTrace: Bool) {
        self.seed = seed
        self.events = events
        draw = Draw(seed: seed)
        scenario = FleetScenario(&draw, mode: mode)
        trace = Trace(prints: printsTrace)
        var configuration = KafkaModel.Configuration()
        configuration.partitions = scenario.partitions
        configuration.assignor = scenario.isCooperative ? .cooperative : .eager
        configuration.sessionTimeout = scenario.session
        configuration.heartbeatInterval = 500_000_000
        configuration.rebalanceTimeout = 60_000_000_000
        configuration.initialRebalanceDelay = 100_000_000
        configuration.metadataLimit = scenario.metadataBytes
        configuration.queueLimit = draw.chance(200) ? draw.among(8...64) : 10_000
        configuration.deliveryTimeout = 15_000_000_000
        configuration.answerLostPerMille = draw.chance(300) ? 20 : 0
        configuration.refusesCommitsWhileJoining = draw.chance(300)
        kafka = KafkaModel(seed: draw.generator.next(), configuration: configuration, now: now)
        for _ in 0..<scenario.tokens {
            keys.append(DeviceKey(high: draw.generator.next(), low: draw.generator.next()))
        }
        hosts = (0..<scenario.workers).map { _ in FleetHost() }
    }

    // MARK: Time

    /// Milliseconds since the epoch, by a true clock.
    var trueMilliseconds: Int64 { 1_700_000_000_000 + Int64(now / 1_000_000) }

    func wallMilliseconds(_ host: Int) -> Int64 { trueMilliseconds + hosts[host].clockError }

    func chance(_ perMille: Int) -> Bool { draw.chance(perMille) }
    func below(_ count: Int) -> Int { draw.below(count) }
    func random() -> UInt64 { draw.generator.next() }

    func note(_ text: Trace.Text, _ a: Int = 0, _ b: Int = 0, _ c: Int = 0, place: Int = -1) {
        trace.add(text, a, b, c, at: now, place: place)
    }

    // MARK: Running

    /// - Returns: the first broken promise; nil when all are kept.
    func run() -> FleetViolation? {
        for host in hosts.indices { start(host) }
        while counts.events < events, auditor.violation == nil { step() }
        if auditor.violation == nil { heal() }
        return auditor.violation
    }

    func broken(_ promise: Promise, _ what: @autoclosure () -> String) {
        guard auditor.violation == nil else { return }
        auditor.violation = FleetViolation(
            seed: seed, mode: scenario.mode, promise: promise, what: what(), events: counts.events,
            trace: trace.lines)
    }

    private func step() {
        let drawn = draw.below(1000)
        if drawn < 120 {
            produce(draw.among(1...4))
        } else if drawn < 400 {
            passTime()
        } else if drawn < 400 + scenario.faultsPerMille {
            fault()
        } else {
            turnSome()
        }
        audit()
    }

    private func turnSome() {
        guard let process = hosts[draw.below(hosts.count)].process, process.isRunning else { return }
        process.turn(draw.below(process.actors))
    }

    private func passTime() {
        let drawn = draw.below(100)
        let length: UInt64
        if drawn < 60 {
            length = UInt64(draw.below(3_000_000))
        } else if drawn < 90 {
            length = UInt64(draw.below(60)) * 1_000_000
        } else if drawn < 99 {
            length = UInt64(draw.below(1000)) * 1_000_000
        } else {
            length = UInt64(draw.below(20_000)) * 1_000_000
        }
        pass(length)
    }

    /// Lets time pass in small steps, in which every process has its turns.
    private func pass(_ length: UInt64) {
        let end = now + length
        repeat {
            now = min(end, now + 40_000_000)
            kafka.advance(to: now)
            for host in hosts.indices {
                if let process = hosts[host].process, process.isRunning {
                    let first = draw.below(process.actors)
                    for actor in 0..<process.actors { process.turn((first + actor) % process.actors) }
                }
                attend(host)
            }
        } while now < end && auditor.violation == nil
    }

    /// Starts what is to be started, and wakes what is to be woken.
    private func attend(_ host: Int) {
        if let process = hosts[host].process {
            if let end = process.end {
                counts.ends += 1
                if end.isClean { counts.cleanEnds += 1 }
                hosts[host].process = nil
                hosts[host].startsAt = now + UInt64(draw.below(2000)) * 1_000_000
            } else if process.isStopped, now >= hosts[host].resumesAt {
                note("worker # goes on", host)
                process.resume()
            }
        } else if now >= hosts[host].startsAt {
            start(host)
        }
    }

    private func start(_ host: Int) {
        let process = WorkerProcess(self, host: host, serial: processes.count)
        note("worker # starts as process #", host, process.serial)
        processes.append(process)
        hosts[host].process = process
        process.start()
        counts.starts += 1
    }

    /// Workers that run or are stopped.
    var living: [WorkerProcess] { hosts.compactMap(\.process) }

    // MARK: The service

    private func produce(_ count: Int) {
        for _ in 0..<count {
            let token = draw.below(scenario.tokens)
            let number = jobs.count
            var kind = FleetJob.Kind.push
            if draw.chance(30) {
                kind = .cancel
            } else if draw.chance(scenario.invalidPerMille) {
                kind = .invalid
            }
            let now = trueMilliseconds
            var facts = PushFacts(
                device: keys[token],
                collapseKey: draw.chance(700) ? UInt64(draw.among(1...scenario.collapses)) : 0,
                notificationKey: UInt64(number + 1), topic: 0, partition: 0, offset: 0,
                createdMilliseconds: now)
            let life = draw.below(100)
            if life < 30 {
                facts.expirationMilliseconds = now + Int64(draw.below(20_000))
            } else if life < 40 {
                facts.isOnce = true
            }
            if draw.chance(80) { facts.deliverAtMilliseconds = now + Int64(draw.spread(1...20_000)) }
            facts.priority = draw.chance(300) ? .powerAware : .immediate
            facts.duplicates = draw.chance(300) ? .avoid : .allow
            var job = FleetJob(
                kind: kind, token: token, partition: token % kafka.partitionCount(.jobs), facts: facts)
            job.occurred = now
            job.target = .collapseKey(UInt64(draw.among(1...scenario.collapses)), topic: 0)
            if kind == .invalid, scenario.hasLargeRecords, draw.chance(300) { job.size = .tooLargeForTopic }
            let log = kafka.log(.jobs, job.partition)
            job.offset = log.end
            job.incarnation = log.incarnation
            job.facts.offset = job.offset
            jobs.append(job)
            auditor.appended(number, job)
            kafka.append(
                .init(payload: number, key: token, kind: kind.rawValue), to: .jobs, job.partition)
            counts.events += 1
            counts.jobs += 1
        }
    }

    func output(of job: Int) -> Int {
        outputs.append(FleetOutput(job: job, producedAt: now))
        return outputs.count - 1
    }

    func pushed(_ job: Int) { jobs[job].pushes += 1 }

    /// The job of a record.
    func job(_ partition: Int, _ offset: Int64) -> Int { auditor.job(partition, offset) }

    /// A disk, or with a changelog Kafka, has the item of a job.
    func isKept(_ job: Int) -> Bool { false }

    // MARK: Faults

    private func fault() {
        let host = draw.below(hosts.count)
        counts.faults += 1
        switch draw.below(100) {
        case 0..<18: kill(host)
        case 18..<34: freeze(host)
        case 34..<48: stop(host)
        case 48..<62: togglePartition()
        case 62..<70: toggle { kafka.setGroupCoordinator(isAway: $0) }
        case 70..<78: toggle { kafka.setTransactionCoordinator(isAway: $0) }
        case 78..<86: toggle { kafka.isSlow = $0 }
        case 86..<92: hosts[host].clockError = Int64(draw.spread(1...200_000)) * (draw.chance(500) ? 1 : -1)
        case 92..<96: kafka.compact(.changelog, draw.below(kafka.partitionCount(.changelog)))
        default: break
        }
    }

    private func toggle(_ body: (Bool) -> Void) { body(draw.chance(500)) }

    private func togglePartition() {
        let topics: [KafkaModel.Topic] = [.jobs, .outcomes, .changelog]
        let topic = topics[draw.below(topics.count)]
        kafka.setLeader(topic, draw.below(kafka.partitionCount(topic)), isAway: draw.chance(500))
    }

    private func kill(_ host: Int) {
        guard let process = hosts[host].process else { return }
        note("worker # is killed", host)
        counts.kills += 1
        process.kill()
        hosts[host].process = nil
        hosts[host].startsAt = now + UInt64(draw.spread(1...20_000)) * 1_000_000
    }

    private func freeze(_ host: Int) {
        guard let process = hosts[host].process, process.isRunning else { return }
        let length = UInt64(draw.spread(10...60_000)) * 1_000_000
        note("worker # is stopped for # ms", host, Int(length / 1_000_000))
        counts.freezes += 1
        process.freeze()
        hosts[host].resumesAt = now + length
    }

    private func stop(_ host: Int) {
        guard let process = hosts[host].process, process.isRunning else { return }
        note("worker # is asked to stop", host)
        counts.stops += 1
        process.stop()
    }

    // MARK: Health

    /// All faults end, and then everything must.
    private func heal() {
        isHealthy = true
        note("all is well from here on")
        kafka.setGroupCoordinator(isAway: false)
        kafka.setTransactionCoordinator(isAway: false)
        kafka.isSlow = false
        for topic in KafkaModel.Topic.allCases {
            for partition in 0..<kafka.partitionCount(topic) {
                kafka.setLeader(topic, partition, isAway: false)
            }
        }
        for host in hosts.indices {
            hosts[host].clockError = 0
            hosts[host].resumesAt = now
            hosts[host].startsAt = min(hosts[host].startsAt, now)
        }
        // What lives longest is a push with the longest expiration that is given to a store, or comes late.
        let limit = now + 2_000_000_000_000
        var quiet = 0
        while auditor.violation == nil, now < limit {
            pass(500_000_000)
            audit()
            quiet = isQuiet ? quiet + 1 : 0
            if quiet == 4 { return auditEnd() }
        }
        if auditor.violation == nil {
            broken(.progress, "the world is healthy, and something doesn't end: \(unfinished)")
        }
    }

    private var isQuiet: Bool {
        for partition in 0..<kafka.partitionCount(.jobs) {
            guard max(0, kafka.committedOffset(partition).offset) >= kafka.log(.jobs, partition).end else {
                return false
            }
        }
        return living.allSatisfy { $0.isIdle }
    }

    private var unfinished: String {
        let offsets = (0..<kafka.partitionCount(.jobs)).map {
            "\(kafka.committedOffset($0).offset)/\(kafka.log(.jobs, $0).end)"
        }
        return "offsets \(offsets), " + living.map(\.summary).joined(separator: "; ")
    }

    // MARK: The auditor's part

    private func audit() {
        auditor.follow(self, &jobs)
    }

    private func auditEnd() {
        for (number, job) in jobs.enumerated() where !job.isExempt && job.outcomes == 0 {
            return broken(.nothingLost, "job \(number) of partition \(job.partition) has no outcome")
        }
    }
}

/// How often what happened.
public struct FleetCounts: Sendable {
    public var events = 0
    public var jobs = 0
    public var pushes = 0
    public var outcomes = 0
    public var repeatedOutcomes = 0
    public var starts = 0
    public var ends = 0
    public var cleanEnds = 0
    public var kills = 0
    public var freezes = 0
    public var stops = 0
    public var faults = 0
    public var commits = 0

    public init() {}

    public mutating func add(_ other: FleetCounts) {
        events += other.events
        jobs += other.jobs
        pushes += other.pushes
        outcomes += other.outcomes
        repeatedOutcomes += other.repeatedOutcomes
        starts += other.starts
        ends += other.ends
        cleanEnds += other.cleanEnds
        kills += other.kills
        freezes += other.freezes
        stops += other.stops
        faults += other.faults
        commits += other.commits
    }
}

/// A broken promise of a fleet.
public struct FleetViolation: Error, Sendable, CustomStringConvertible {
    public var seed: UInt64
    public var mode: StoreMode
    public var promise: Promise
    public var what: String
    /// Steps of the run before it.
    public var events: Int
    /// The last steps.
    public var trace: [String]

    public var description: String {
        "seed \(seed), \(mode), event \(events): \"\(promise.rawValue)\" is broken: \(what)"
    }
}

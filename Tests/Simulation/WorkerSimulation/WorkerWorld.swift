import Configuration
import DeliveryCore
import EventLoop
import Gateway
import HTTP2
import Kafka
import RetryStore
import SluiceModel

/// Whole workers in a simulated world: the `Gateway` that ships, over simulated brokers, network, disks and clocks.
///
/// All of a world follows from its seed.
final class WorkerWorld {
    let seed: UInt64
    let scenario: WorkerScenario
    private let scheduler: Scheduler
    private let kafka: KafkaCluster
    private var apns: SimulatedAPNS!
    private var hosts: [WorkerHost] = []
    private var auditor: WorkerAuditor!
    private(set) var counts = WorkerCounts()
    private(set) var violation: WorkerViolation?
    private let printsTrace: Bool
    private var trace: [String] = []
    private var service: WorkerService!
    private var answers: WorkerAnswers!
    private var faults: WorkerFaults!
    /// Whether the world has made its last step, and no more faults begin.
    private var isHealthy = false
    /// Whether nothing is left to do, or nothing more is waited for.
    private var isOver = false
    /// Nanoseconds from which devices report again that they are online, at the end.
    private var reportsAt: UInt64 = 0
    /// Next offsets of the topics with outcomes and dead letters to look at, by partition.
    private var read: [String: [Int]] = [:]

    static let jobsTopic = "jobs"
    static let outcomes = "outcomes"
    static let deadLetters = "dead"
    static let changelog = "changelog"
    static let switches = "switches"
    private static let second: UInt64 = 1_000_000_000

    private init(
        seed: UInt64, mode: StoreMode, withoutFaults: Bool, scheduler: Scheduler, files: SimulationFiles,
        printsTrace: Bool
    ) throws {
        self.seed = seed
        self.scheduler = scheduler
        self.printsTrace = printsTrace
        scenario = WorkerScenario(scheduler, mode: mode, withoutFaults: withoutFaults)
        var settings = KafkaCluster.Settings()
        (settings.jobs, settings.outcomes) = (Self.jobsTopic, Self.outcomes)
        settings.changelog = Self.changelog
        if withoutFaults { settings.slowPerMille = 0 }
        if scenario.faults.contains(.lostAnswers), !withoutFaults { settings.lostAnswersPerMille = 20 }
        kafka = KafkaCluster(scheduler, settings)
        kafka.createTopic(Self.jobsTopic, partitions: scenario.partitions)
        kafka.createTopic(Self.outcomes, partitions: 2)
        kafka.createTopic(Self.deadLetters, partitions: 1)
        if let bytes = scenario.deadLetterBytes {
            let limit = { [kafka] in kafka.configure(Self.deadLetters, "max.message.bytes", "\(bytes)") }
            if scenario.deadLetterBytesAfter == 0 {
                limit()
            } else {
                scheduler.schedule(after: scenario.deadLetterBytesAfter, limit)
            }
        }
        if hasSwitchesTopic {
            kafka.createTopic(
                Self.changelog, partitions: scenario.partitions,
                configuration: [(name: "cleanup.policy", value: "compact")])
            kafka.createTopic(
                Self.switches, partitions: 1, configuration: [(name: "cleanup.policy", value: "compact")])
        }
        apns = try SimulatedAPNS(
            scheduler, tls: files.server, receive: { [unowned self] in received($0) },
            closed: { [unowned self] in auditor.closed($0) })
        auditor = WorkerAuditor(
            scenario, scheduler, runs: { [unowned self] in hosts[$0].runs },
            report: { [unowned self] in broken($0, $1) })
        service = WorkerService(
            scenario, scheduler, partitions: { [kafka] in kafka.partitionCount(of: Self.jobsTopic) },
            produce: { [kafka] record, partition in
                kafka.produce(
                    to: Self.jobsTopic, partition, key: record.key, value: record.value,
                    headers: record.headers.map { ($0.name, $0.value) })
            }, produced: { [unowned self] in appended($0) })
        answers = WorkerAnswers(scenario, scheduler, service)
        for number in 0..<scenario.workers {
            let configuration = try configuration(number, files)
            hosts.append(
                WorkerHost(number: number, configuration, scenario.bounds, scheduler) { [unowned self] in
                    if case .partitionStopped = $0 { restart(number) }
                    auditor.logged($0, host: number)
                })
        }
        faults = WorkerFaults(
            FaultScene(
                scenario, scheduler, kafka: kafka, apns: apns, hosts: hosts, auditor: auditor, files: files,
                note: { [unowned self] in note($0) }, report: { [unowned self] in broken($0, $1) }))
    }

    private var hasSwitchesTopic: Bool { scenario.mode == .changelog || scenario.mode == .transactions }

    private func configuration(_ host: Int, _ files: SimulationFiles) throws -> Configuration {
        let directory = try files.directory(of: host)
        try files.writeKey(0, of: host)
        var configuration = Configuration(
            kafka: .init(
                bootstrapServers: "kafka:9092", groupID: "workers",
                topics: .init(
                    jobs: Self.jobsTopic, outcomes: Self.outcomes, deadLetters: Self.deadLetters,
                    changelog: Self.changelog, switches: Self.switches)),
            apns: .init(
                environment: .custom, host: SimulatedAPNS.host, port: Int(SimulatedAPNS.port),
                caFile: files.authority),
            credentials: [
                .init(
                    name: "team",
                    kind: .token(keyFile: files.key(of: host), keyID: "ABC123DEFG", teamID: "DEF123GHIJ"))
            ],
            apps: scenario.apps.enumerated().map { number, app in
                .init(
                    name: "app\(number)", topics: app.topics, credentials: ["team"], weight: app.weight,
                    ratePerSecond: app.ratePerSecond, maxInFlight: app.maxInFlight,
                    coalesceWindow: .milliseconds(scenario.coalesceWindow), supersede: [.liveActivity])
            })
        configuration.delivery.shards = scenario.shards
        configuration.delivery.maxInFlight = scenario.maxInFlight
        if let bytes = scenario.maxInFlightBytes { configuration.delivery.maxInFlightBytes = bytes }
        configuration.delivery.readAhead = scenario.readsAhead ? .on : .off
        configuration.delivery.retry = .init(
            initial: .milliseconds(200), maximum: .seconds(5), maxAttempts: scenario.maxAttempts,
            retryAfterLimit: .seconds(scenario.retryAfterLimit))
        configuration.delivery.maxInFlightPerDevice = scenario.inFlightPerDevice
        configuration.delivery.maxPendingPerDevice = scenario.pendingPerDevice
        configuration.delivery.maxExpiration = .seconds(WorkerScenario.longestLife)
        configuration.delivery.defaultTTL = .seconds(WorkerScenario.longestLife)
        configuration.apns.requestTimeout = .seconds(WorkerScenario.requestTimeout)
        if let timeout = scenario.deliveryTimeout {
            configuration.kafka.producerProperties = [
                .init(name: "message.timeout.ms", value: "\(timeout * 1000)")
            ]
        }
        if scenario.mode.hasStore {
            configuration.store = .init(
                directory: directory, after: scenario.storeAfter,
                changelog: scenario.mode == .local ? .off : .on,
                transactions: scenario.mode == .transactions ? .on : .off)
        }
        return configuration
    }

    // MARK: Running

    /// Runs one seed to its end or to the first broken promise.
    static func run(
        seed: UInt64, events: Int, mode: StoreMode, withoutFaults: Bool, files: SimulationFiles,
        printsTrace: Bool, counts: inout WorkerCounts
    ) throws -> WorkerViolation? {
        let scheduler = Scheduler(seed: seed)
        return try scheduler.run {
            let world = try WorkerWorld(
                seed: seed, mode: mode, withoutFaults: withoutFaults, scheduler: scheduler, files: files,
                printsTrace: printsTrace)
            world.run(events)
            counts.add(world.finalCounts)
            counts.turns += scheduler.steps
            // A supervisor that isn't asked to stop starts workers for ever in a process that has ended.
            for host in world.hosts { host.kill() }
            scheduler.end()
            return world.violation
        }
    }

    private var finalCounts: WorkerCounts {
        var counts = counts
        counts.outcomes = auditor.outcomes
        counts.repeatedOutcomes = auditor.repeatedOutcomes
        counts.repeatedPushes = auditor.repeatedPushes
        counts.promptChecks = auditor.promptChecks
        counts.shareChecks = auditor.shareChecks
        counts.parkings = auditor.parkings
        counts.kinds = auditor.kinds
        return counts
    }

    private func run(_ events: Int) {
        note("\(scenario)")
        for host in hosts { host.start() }
        // An app in trouble takes a while to fill its worker.
        planStep(scenario.trouble == nil ? events : 3 * events)
        while !isHealthy, violation == nil, scheduler.step() {}
        if violation == nil { heal() }
    }

    /// Plans the next step. Steps are events, so that they happen while loops are blocked.
    private func planStep(_ events: Int) {
        scheduler.schedule(after: 1 + scheduler.below(scenario.pace)) { [unowned self] in
            step()
            follow()
            if counts.events < events { planStep(events) } else { isHealthy = true }
        }
    }

    private func step() {
        attend()
        checkMemory()
        if chance(scenario.faultsPerMille) {
            counts.faults += 1
            return faults.begin()
        }
        for _ in 0..<draw(1...4) where chance(600) { service.produceOne() }
    }

    /// Restarts a worker whose partition has stopped, as the runbook says.
    private func restart(_ number: Int) {
        scheduler.schedule(after: Self.second) { [unowned self] in hosts[number].requestStop() }
    }

    /// Checks that workers hold no more bytes than they may.
    private func checkMemory() {
        guard let limit = scenario.maxInFlightBytes else { return }
        for host in hosts {
            let bytes = kafka.liveBytes(of: host.process)
            if bytes > limit + Self.bytesOfRecords {
                broken(
                    .bounded, "worker \(host.number) holds \(bytes) bytes of records, and may hold \(limit)")
            }
        }
    }

    /// Bytes of the two records by which a worker exceeds its limit, at most.
    private static let bytesOfRecords = 1 << 16

    /// Starts workers that have ended.
    private func attend() {
        faults.attend()
        for host in hosts
        where !host.isRunning && scheduler.now >= host.startsAt && !faults.operators.holdStarts {
            if let failure = host.failure {
                note("worker \(host.number) had ended: \(failure)")
                auditor.disturbed(host: host.number)
                if !faults.explains(failure) {
                    broken(.progress, "worker \(host.number) has ended: \(failure)")
                }
            }
            note("worker \(host.number) starts")
            host.start()
            counts.starts += 1
        }
    }

    // MARK: The service

    private func appended(_ job: WorkerJob) {
        note(
            "job \(auditor.jobs.count): \(job.kind) \(job.topic) \(job.collapse ?? "") for token \(job.token), partition \(job.partition), offset \(job.offset)"
        )
        auditor.appended(job)
        counts.events += 1
        counts.jobs += 1
    }

    // MARK: APNs

    private func received(_ push: SimulatedAPNS.Push) -> (answer: SimulatedAPNS.Answer, after: UInt64) {
        guard auditor.jobs.indices.contains(push.job) else { return (.status(400, "BadPath"), 0) }
        counts.pushes += 1
        auditor.followOwners(kafka)
        auditor.received(push)
        if faults.operators.forbids(push) {
            broken(.waits, "job \(push.job) arrives though all sending is paused")
        }
        let delay = 5_000_000 + scheduler.below(chance(20) ? 3 * Self.second : 100_000_000)
        guard violation == nil else { return (.none, 0) }
        let token = auditor.token(of: push)
        let answer = answers.answer(auditor.jobs[push.job], token: token)
        note(
            "job \(push.job) for token \(token) is answered by \(answer) on connection \(push.connection) of \(push.process?.name ?? "")"
        )
        auditor.decided(push, answer, at: scheduler.now + delay)
        if case .accepted = answer { service.accepted(auditor.jobs[push.job], token: token) }
        return (answer, delay)
    }

    // MARK: What becomes visible

    /// Reads what workers have produced since the last look.
    private func follow() {
        // A partition may have moved since the last step.
        auditor.followOwners(kafka)
        for (topic, partitions) in [(Self.outcomes, 2), (Self.deadLetters, 1)] {
            for partition in 0..<partitions { follow(topic, partition) }
        }
        auditor.followCommits(kafka)
    }

    private func follow(_ topic: String, _ partition: Int) {
        var next = read[topic, default: []]
        while next.count <= partition { next.append(0) }
        for record in kafka.records(of: topic, Int32(partition), from: Int64(next[partition])) {
            // Readers of committed records wait for the end of an open transaction.
            if case .open = record.state { break }
            next[partition] = Int(record.offset) + 1
            guard case .committed = record.state else { continue }
            let end =
                topic == Self.deadLetters ? auditor.sawDeadLetter(record) : auditor.sawOutcome(record, kafka)
            note(end)
        }
        read[topic] = next
    }

    // MARK: The end

    /// Ends all faults, and checks that everything ends.
    private func heal() {
        note("all faults end")
        faults.end()
        answers.heal()
        service.heal()
        waitUntilQuiet(until: scheduler.now + 3600 * Self.second)
        while !isOver, violation == nil, scheduler.step() {}
        guard violation == nil else { return }
        if !isQuiet {
            return broken(
                isCommitted ? .nothingLost : .progress,
                "the world is healthy, and something doesn't end: \(unfinished)")
        }
        auditor.ended()
        stop()
    }

    /// Looks each second, until all is finished.
    private func waitUntilQuiet(until limit: UInt64) {
        scheduler.schedule(after: Self.second) { [unowned self] in
            attend()
            follow()
            // What a device's report released may have met a worker that was to end.
            if scheduler.now >= reportsAt {
                reportsAt = scheduler.now + 20 * Self.second
                service.reportOnline(auditor.awaitedTokens)
            }
            if isQuiet || scheduler.now >= limit { isOver = true } else { waitUntilQuiet(until: limit) }
        }
    }

    private var isQuiet: Bool {
        !faults.maySuspend && auditor.jobs.allSatisfy { $0.outcomes > 0 || $0.isExempt } && isCommitted
    }

    private var isCommitted: Bool {
        (0..<kafka.partitionCount(of: Self.jobsTopic)).allSatisfy { partition in
            let ends = kafka.ends(of: Self.jobsTopic, partition)
            let end = ends?.high ?? 0
            // A partition that has lost all records has nothing to commit.
            return ends?.low == end || auditor.mayIgnore(partition, end: end)
                || (kafka.committedOffset(partition)?.offset ?? 0) >= end
        }
    }

    private var unfinished: String {
        let jobs = auditor.jobs
        let left = jobs.indices.filter { jobs[$0].outcomes == 0 && !jobs[$0].isExempt }
        let offsets = (0..<kafka.partitionCount(of: Self.jobsTopic)).map {
            "\(kafka.committedOffset($0)?.offset ?? -1)/\(kafka.ends(of: Self.jobsTopic, $0)?.high ?? 0)"
        }
        let readers = Set(left.map { jobs[$0].partition }).sorted().map {
            "partition \($0): \(kafka.describeReaders(of: Self.jobsTopic, $0))"
        }
        let workers = hosts.compactMap { host in host.worker.map { "\(host.number): \(describe($0))" } }
        return
            "jobs without outcome \(left.prefix(20)) of \(jobs.count), offsets \(offsets), \(readers), workers \(workers)"
    }

    private func describe(_ worker: Worker) -> String {
        let snapshot = worker.snapshot()
        guard let intake = snapshot.intake else { return "" }
        let partitions = intake.partitions.map {
            "\($0.partition): \($0.watermark)..<\($0.end), \($0.outstanding) unfinished, \($0.pauseReasons)"
        }
        return
            "\(partitions), held \(intake.arePushesHeld), doubt \(intake.isMembershipInDoubt), arriving \(intake.arriving ?? -1), unfinished \(intake.outstanding), window \(intake.pushWindow), uncommitted \(intake.uncommittedPushes), states \(snapshot.totals.states), connections \(snapshot.totals.openConnections)"
    }

    /// Stops all workers, which must end without a failure and leave no memory behind.
    private func stop() {
        for host in hosts {
            guard let snapshot = host.worker?.snapshot() else { continue }
            let count = snapshot.totals.brokenInvariants + (snapshot.intake?.counters.brokenInvariants ?? 0)
            if count > 0 {
                return broken(.sound, "worker \(host.number) has found \(count) broken invariants")
            }
        }
        let stopping = hosts.filter(\.isRunning)
        for host in stopping { host.requestStop() }
        let limit = scheduler.now + 120 * Self.second
        while hosts.contains(where: \.isRunning), scheduler.now < limit {
            scheduler.run(until: scheduler.now + Self.second)
        }
        follow()
        for host in stopping {
            if host.isRunning { return broken(.progress, "worker \(host.number) doesn't stop") }
            if let failure = host.failure, !faults.explains(failure) {
                return broken(.progress, "worker \(host.number) stops with a failure: \(failure)")
            }
        }
        let left = kafka.liveRecords + kafka.liveCopies + kafka.liveResponses
        if left > 0 { broken(.bounded, "\(left) consumed records and responses are never freed") }
    }

    // MARK: Inside

    private func draw(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &scheduler.random) }
    private func chance(_ perMille: Int) -> Bool { draw(0...999) < perMille }

    private func note(_ text: @autoclosure () -> String) {
        let line = "\(Double(scheduler.now / 1_000_000) / 1e3) s: \(text())"
        if printsTrace { print(line) }
        trace.append(line)
        if trace.count > 200 { trace.removeFirst(100) }
    }

    private func broken(_ promise: WorkerViolation.Promise, _ what: String) {
        guard violation == nil else { return }
        note("broken: \(what)")
        violation = WorkerViolation(
            seed: seed, mode: scenario.mode, promise: promise, what: what, trace: Array(trace.suffix(40)))
    }
}

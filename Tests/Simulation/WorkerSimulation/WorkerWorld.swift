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
    private let files: SimulationFiles
    /// Number of renewals so far.
    private var renewals = 0
    /// Whether the world has made its last step, and no more faults begin.
    private var isHealthy = false
    /// Whether nothing is left to do, or nothing more is waited for.
    private var isOver = false
    private var pause = Pause.none
    /// Next offsets of the topics with outcomes and dead letters to look at, by partition.
    private var read: [String: [Int]] = [:]

    static let jobsTopic = "jobs"
    static let outcomes = "outcomes"
    static let deadLetters = "dead"
    static let changelog = "changelog"
    private static let second: UInt64 = 1_000_000_000

    /// A pause of all sending by an operator.
    private enum Pause {
        case none
        case asked
        /// All workers learn of the pause within a moment.
        case kept(since: UInt64)
        /// Not all workers have kept the end yet.
        case ending
    }

    private init(
        seed: UInt64, mode: StoreMode, withoutFaults: Bool, scheduler: Scheduler, files: SimulationFiles,
        printsTrace: Bool
    ) throws {
        self.seed = seed
        self.scheduler = scheduler
        self.printsTrace = printsTrace
        self.files = files
        scenario = WorkerScenario(scheduler, mode: mode, withoutFaults: withoutFaults)
        var settings = KafkaCluster.Settings()
        (settings.jobs, settings.outcomes) = (Self.jobsTopic, Self.outcomes)
        settings.changelog = Self.changelog
        if withoutFaults { settings.slowPerMille = 0 }
        kafka = KafkaCluster(scheduler, settings)
        kafka.createTopic(Self.jobsTopic, partitions: scenario.partitions)
        kafka.createTopic(Self.outcomes, partitions: 2)
        kafka.createTopic(
            Self.deadLetters, partitions: 1,
            configuration: scenario.deadLetterBytes.map { [(name: "max.message.bytes", value: "\($0)")] }
                ?? [])
        if hasSwitchesTopic {
            kafka.createTopic(
                Self.changelog, partitions: scenario.partitions,
                configuration: [(name: "cleanup.policy", value: "compact")])
            kafka.createTopic(
                "switches", partitions: 1, configuration: [(name: "cleanup.policy", value: "compact")])
        }
        apns = try SimulatedAPNS(
            scheduler, tls: files.server, receive: { [unowned self] in received($0) },
            closed: { [unowned self] in auditor.closed($0) })
        auditor = WorkerAuditor(scenario, scheduler) { [unowned self] in broken($0, $1) }
        for number in 0..<scenario.workers {
            hosts.append(WorkerHost(number: number, try configuration(number, files), scheduler))
        }
    }

    private func configuration(_ host: Int, _ files: SimulationFiles) throws -> Configuration {
        let directory = try files.directory(of: host)
        try files.writeKey(0, of: host)
        var configuration = Configuration(
            kafka: .init(
                bootstrapServers: "kafka:9092", groupID: "workers",
                topics: .init(
                    jobs: Self.jobsTopic, outcomes: Self.outcomes, deadLetters: Self.deadLetters,
                    changelog: Self.changelog, switches: "switches")),
            apns: .init(
                environment: .custom, host: SimulatedAPNS.host, port: Int(SimulatedAPNS.port),
                caFile: files.authority),
            credentials: [
                .init(
                    name: "team",
                    kind: .token(keyFile: files.key(of: host), keyID: "ABC123DEFG", teamID: "DEF123GHIJ"))
            ],
            apps: [.init(name: "news", topics: ["com.example.news"], credentials: ["team"])])
        configuration.delivery.shards = scenario.shards
        configuration.delivery.maxInFlight = scenario.maxInFlight
        configuration.delivery.retry = .init(initial: .milliseconds(200), maximum: .seconds(5))
        configuration.apns.requestTimeout = .seconds(5)
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
            scheduler.end()
            return world.violation
        }
    }

    private var finalCounts: WorkerCounts {
        var counts = counts
        counts.outcomes = auditor.outcomes
        counts.repeatedOutcomes = auditor.repeatedOutcomes
        counts.repeatedPushes = auditor.repeatedPushes
        return counts
    }

    private func run(_ events: Int) {
        note("\(scenario)")
        for host in hosts { host.start() }
        planStep(events)
        while !isHealthy, violation == nil, scheduler.step() {}
        if violation == nil { heal() }
    }

    /// Plans the next step. Steps are events, so that they happen while loops are blocked.
    private func planStep(_ events: Int) {
        scheduler.schedule(after: 1 + scheduler.below(scenario.pace)) { [unowned self] in
            step()
            auditor.followOwners(kafka)
            follow()
            if counts.events < events { planStep(events) } else { isHealthy = true }
        }
    }

    private func step() {
        attend()
        if chance(scenario.faultsPerMille) { return fault() }
        for _ in 0..<draw(1...4) where chance(600) { produce() }
    }

    /// Starts workers that have ended.
    private func attend() {
        if case .ending = pause { resumeSending() }
        for host in hosts where !host.isRunning && scheduler.now >= host.startsAt {
            if let failure = host.failure {
                note("worker \(host.number) had ended: \(failure)")
                auditor.disturbed(host: host.number)
                if !scenario.faults.contains(where: \.isOfDisk) {
                    broken(.progress, "worker \(host.number) has ended: \(failure)")
                }
            }
            note("worker \(host.number) starts")
            host.start()
            counts.starts += 1
        }
    }

    // MARK: The service

    private func produce() {
        let number = auditor.jobs.count
        let device = draw(0...scenario.devices - 1)
        var job = WorkerJob(
            kind: chance(scenario.invalidPerMille) ? .invalid : .push, device: device,
            partition: Int32(device % scenario.partitions))
        let now = wallClockMilliseconds()
        var push = PushDescription(
            deviceToken: WorkerJob.token(device), topic: "com.example.news",
            payload: WorkerJob.payload(number))
        if chance(600) { push.collapseIdentifier = "c\(draw(1...scenario.collapses))" }
        job.collapse = push.collapseIdentifier
        if chance(500) {
            push.expiration = now / 1000 + Int64(draw(2...Int(scenario.life)))
            job.expires = push.expiration! * 1000
        }
        if chance(scenario.laterPerMille) {
            push.deliverAtMilliseconds = now + Int64(draw(1...20_000))
            job.due = push.deliverAtMilliseconds!
        }
        push.priority = chance(300) ? 5 : 10
        if job.kind == .invalid { push.topic = "" }
        var encoded = JobEncoder.binary(push)
        if job.kind == .invalid, chance(300) { enlarge(&encoded) }
        job.offset = kafka.produce(
            to: Self.jobsTopic, job.partition, key: encoded.key, value: encoded.value,
            headers: encoded.headers.map { ($0.name, $0.value) })
        auditor.appended(job)
        counts.events += 1
        counts.jobs += 1
        note("job \(number) for device \(device), partition \(job.partition), offset \(job.offset)")
    }

    /// Makes a part of a record so large that its dead letter may not fit.
    private func enlarge(_ record: inout EncodedJob) {
        let bytes = [UInt8](repeating: 120, count: draw(500...6000))
        switch draw(0...2) {
        case 0: record.value += bytes
        case 1: record.key = bytes
        default: record.headers.append(("x-large", bytes))
        }
    }

    // MARK: APNs

    private func received(_ push: SimulatedAPNS.Push) -> (answer: SimulatedAPNS.Answer, after: UInt64) {
        guard auditor.jobs.indices.contains(push.job) else { return (.status(400, reason: "BadPath"), 0) }
        counts.pushes += 1
        auditor.followOwners(kafka)
        auditor.received(push)
        if case .kept(let since) = pause, scheduler.now > since + 5 * Self.second {
            broken(.waits, "job \(push.job) arrives though all sending is paused")
        }
        let delay = 5_000_000 + scheduler.below(chance(20) ? 3 * Self.second : 100_000_000)
        if !isHealthy, chance(scenario.badAnswerPerMille) {
            let answer = badAnswer(push.job)
            note("job \(push.job) is answered by \(answer) on connection \(push.connection)")
            return (answer, delay)
        }
        note(
            "job \(push.job) is accepted on connection \(push.connection) of \(push.process?.name ?? "")")
        auditor.accepted(push, answered: scheduler.now + delay)
        return (.status(200, reason: ""), delay)
    }

    private func badAnswer(_ job: Int) -> SimulatedAPNS.Answer {
        switch draw(0...7) {
        case 0:
            auditor.refused(job, isGone: false)
            return .status(400, reason: "BadDeviceToken")
        case 1:
            auditor.refused(job, isGone: true)
            return .status(410, reason: "Unregistered")
        case 2:
            auditor.paused(job)
            return .status(429, reason: "TooManyRequests")
        case 3: return .status(500, reason: "InternalServerError")
        case 4: return .status(503, reason: "ServiceUnavailable")
        case 5: return .reset(errorCode: 7)
        case 6: return .reset(errorCode: 2)
        default: return .none
        }
    }

    // MARK: What becomes visible

    /// Reads what workers have produced since the last look.
    private func follow() {
        for (topic, partitions) in [(Self.outcomes, 2), (Self.deadLetters, 1)] {
            for partition in 0..<partitions { follow(topic, partition) }
        }
    }

    private func follow(_ topic: String, _ partition: Int) {
        var next = read[topic, default: []]
        while next.count <= partition { next.append(0) }
        for record in kafka.records(of: topic, Int32(partition), from: Int64(next[partition])) {
            // Readers of committed records wait for the end of an open transaction.
            if case .open = record.state { break }
            next[partition] = Int(record.offset) + 1
            guard case .committed = record.state else { continue }
            if topic == Self.deadLetters { auditor.sawDeadLetter(record) } else { auditor.sawOutcome(record) }
        }
        read[topic] = next
    }

    // MARK: Faults

    private func fault() {
        let fault = scenario.faults[draw(0...scenario.faults.count - 1)]
        counts.faults += 1
        let host = hosts[draw(0...hosts.count - 1)]
        if fault.isOfGroup {
            auditor.disturbed()
        } else if fault.excusesRepeats {
            auditor.disturbed(host: host.number)
        }
        carryOut(fault, host)
    }

    private func carryOut(_ fault: WorkerFault, _ host: WorkerHost) {
        switch fault {
        case .kill:
            note("worker \(host.number) is killed")
            host.kill()
        case .stop:
            note("worker \(host.number) is asked to stop")
            host.requestStop()
        case .suspension:
            guard let process = host.process else { return }
            let length = UInt64(draw(1...20))
            note("worker \(host.number) is suspended for \(length) s")
            kafka.suspend(process, until: scheduler.now + length * Self.second)
            auditor.disturbed(nanoseconds: length * Self.second)
        case .cut, .blackHole: disturbConnection(fault)
        case .goAway:
            note("a connection receives GOAWAY")
            apns.execute { [apns, scheduler] in
                apns!.open.randomElement(using: &scheduler.random)?.goAway(
                    debugData: #"{"reason":"Shutdown"}"#)
            }
        case .leader, .groupCoordinator, .transactionCoordinator, .slowKafka: disturbKafka(fault)
        case .fullDisk, .failingDisk, .powerLoss, .lostDisk: disturbDisk(fault, host)
        case .pause: pause(host)
        case .renewal: renew(host)
        case .clock:
            guard let process = host.process else { return }
            process.wallDeviation = Int64(draw(-1500...1500))
            note("the clock of worker \(host.number) is wrong by \(process.wallDeviation) ms")
        }
    }

    /// The key file of a host gets another key.
    private func renew(_ host: WorkerHost) {
        guard let worker = host.worker, let process = host.process else { return }
        note("worker \(host.number) gets another key")
        renewals += 1
        do {
            try files.writeKey(renewals, of: host.number)
        } catch {
            return broken(.progress, "the key file can't be written: \(error)")
        }
        scheduler.startThread(of: process) { worker.renewCredentials() }
    }

    /// An operator pauses all sending for a while, on a worker that tells the others.
    private func pause(_ host: WorkerHost) {
        // Without a store the switches end with their process. A worker learns late of a pause that it has slept through.
        guard case .none = pause, let worker = host.worker, scenario.mode.hasStore,
            !scenario.faults.contains(.suspension), !scenario.faults.contains(.slowKafka)
        else { return }
        note("an operator pauses all sending")
        pause = .asked
        change(worker, isPaused: true) { [unowned self] isKept in
            if isKept, case .asked = pause { pause = .kept(since: scheduler.now) }
        }
        back(after: 5...30) { [unowned self] in pause = .ending }
    }

    /// Resumes sending on all workers, again and again until each has kept the end of the pause.
    private func resumeSending() {
        let workers = hosts.compactMap(\.worker)
        guard workers.count == hosts.count else { return }
        note("an operator resumes sending")
        var left = workers.count
        for worker in workers {
            change(worker, isPaused: false) { [unowned self] isKept in
                if isKept { left -= 1 }
                if left == 0, case .ending = pause { pause = .none }
            }
        }
    }

    private func change(_ worker: Worker, isPaused: Bool, _ completion: @escaping (Bool) -> Void) {
        // nonisolated(unsafe): a simulation runs on one thread at a time.
        nonisolated(unsafe) let completion = completion
        worker.switches.change(.all, isPaused: isPaused, by: "operator", note: "") { completion($0.isKept) }
    }

    private var hasSwitchesTopic: Bool { scenario.mode == .changelog || scenario.mode == .transactions }

    private func disturbConnection(_ fault: WorkerFault) {
        guard let link = network.links.randomElement(using: &scheduler.random) else { return }
        let host = hosts.first { $0.process === link.client.process }
        if fault == .cut {
            note("connection \(link.number) is cut")
            link.cut(client: chance(800), server: chance(800))
            if let host { auditor.disturbed(host: host.number) }
        } else {
            note("connection \(link.number) is a black hole")
            link.isBlackHole = true
            auditor.delayed(link: link.number)
            let length = back(after: 1...20) { [weak link] in link?.isBlackHole = false }
            if let host { auditor.disturbed(host: host.number, nanoseconds: length) }
        }
    }

    private func disturbKafka(_ fault: WorkerFault) {
        note("Kafka: \(fault)")
        let length: UInt64
        switch fault {
        case .leader:
            let (topic, partitions) = [(Self.jobsTopic, scenario.partitions), (Self.outcomes, 2)][draw(0...1)]
            let partition = Int32(draw(0...partitions - 1))
            kafka.setLeader(topic, partition, isAway: true)
            length = back(after: 1...15) { [kafka] in kafka.setLeader(topic, partition, isAway: false) }
        case .groupCoordinator:
            kafka.setGroupCoordinator(isAway: true)
            length = back(after: 1...10) { [kafka] in kafka.setGroupCoordinator(isAway: false) }
        case .transactionCoordinator:
            kafka.setTransactionCoordinator(isAway: true)
            length = back(after: 1...10) { [kafka] in kafka.setTransactionCoordinator(isAway: false) }
        default:
            kafka.isSlow = true
            length = back(after: 1...10) { [kafka] in kafka.isSlow = false }
        }
        auditor.disturbed(nanoseconds: length)
    }

    private func disturbDisk(_ fault: WorkerFault, _ host: WorkerHost) {
        guard let disk = host.store.map({ SimulatedDisk.at($0) }) else { return }
        note("the disk of worker \(host.number): \(fault)")
        switch fault {
        case .fullDisk:
            disk.faults.isFull = true
            let length = back(after: 1...30) { disk.faults.isFull = false }
            auditor.disturbed(host: host.number, nanoseconds: length)
        case .failingDisk:
            disk.faults.failsWrites = true
            let length = back(after: 1...60) { disk.faults.failsWrites = false }
            auditor.disturbed(host: host.number, nanoseconds: length)
        case .powerLoss:
            disk.cutPower()
            host.kill()
        default:
            // Without a changelog a lost disk loses pushes, as the documents say.
            guard scenario.mode != .local else { return }
            host.kill()
            disk.lose()
        }
    }

    /// Runs `body` after a while. Returns the nanoseconds until then.
    @discardableResult
    private func back(after seconds: ClosedRange<Int>, _ body: @escaping () -> Void) -> UInt64 {
        let length = UInt64(draw(seconds)) * Self.second
        scheduler.schedule(after: length, body)
        return length
    }

    private var network: SimulatedNetwork { SimulatedNetwork.current }

    // MARK: The end

    /// Ends all faults, and checks that everything ends.
    private func heal() {
        note("all faults end")
        for link in network.links { link.isBlackHole = false }
        for host in hosts {
            host.process?.wallDeviation = 0
            if let store = host.store { SimulatedDisk.at(store).faults = SimulatedDisk.Faults() }
        }
        if case .none = pause {} else { pause = .ending }
        waitUntilQuiet(until: scheduler.now + 3600 * Self.second)
        while !isOver, violation == nil, scheduler.step() {}
        guard violation == nil else { return }
        if !isQuiet {
            return broken(
                isCommitted ? .nothingLost : .progress,
                "the world is healthy, and something doesn't end: \(unfinished)")
        }
        stop()
    }

    /// Looks each second, until all is finished.
    private func waitUntilQuiet(until limit: UInt64) {
        scheduler.schedule(after: Self.second) { [unowned self] in
            attend()
            follow()
            if isQuiet || scheduler.now >= limit { isOver = true } else { waitUntilQuiet(until: limit) }
        }
    }

    private var isQuiet: Bool {
        auditor.jobs.allSatisfy { $0.outcomes > 0 } && isCommitted
    }

    private var isCommitted: Bool {
        (0..<Int32(scenario.partitions)).allSatisfy { partition in
            let end = kafka.ends(of: Self.jobsTopic, partition)?.high ?? 0
            return end == 0 || (kafka.committedOffset(partition)?.offset ?? 0) >= end
        }
    }

    private var unfinished: String {
        let jobs = auditor.jobs
        let left = jobs.indices.filter { jobs[$0].outcomes == 0 }
        let offsets = (0..<Int32(scenario.partitions)).map {
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
            if let failure = host.failure {
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

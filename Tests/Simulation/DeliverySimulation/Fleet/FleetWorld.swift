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
    var hosts: [FleetHost] = []
    private(set) var jobs: [FleetJob] = []
    private(set) var outputs: [FleetOutput] = []
    /// By token.
    private(set) var keys: [DeviceKey] = []
    private var tokenByKey: [UInt64: Int] = [:]
    /// By device: its token of now.
    private var current: [Int] = []
    private var usedTokens: Int
    /// By token.
    private var devices: [Int] = []
    /// Pushes that devices have shown, whose receipts are to come.
    private var receipts: [(job: Int, token: Int)] = []
    /// Records of the changelog.
    private(set) var changes: [FleetChange] = []
    var disks: [FleetDisk] = []
    private(set) var switches: FleetSwitches
    /// Limits of the pushes that are begun and not committed.
    let window: PushWindow.Limits
    private(set) var isHealthy = false
    /// Nanoseconds at which all faults ended; `UInt64.max`: they haven't.
    private(set) var healthySince = UInt64.max
    /// Nanoseconds at which the jobs topic was made anew; 0: it wasn't.
    var jobsMadeAnewAt: UInt64 = 0
    private(set) var trace: Trace
    let auditor = FleetAuditor()
    var counts = FleetCounts()
    var coverage = FleetCoverage()
    private let events: Int
    private let bounds: FleetLimits
    /// APNs takes all device tokens for wrong.
    private var takesTokensForWrong = false
    /// By partition that has lost its end: where its log ended then.
    private var tails: [Int: Int64] = [:]
    /// By partition: nanoseconds at which an operator sets the group's offset.
    private var resets: [Int: UInt64] = [:]

    /// A machine that runs one worker after the other.
    struct FleetHost {
        var process: WorkerProcess?
        /// Milliseconds by which the wall clock is wrong.
        var clockError: Int64 = 0
        /// Nanoseconds at which the next process starts.
        var startsAt: UInt64 = 0
        var resumesAt: UInt64 = 0
    }

    init(seed: UInt64, events: Int, mode: StoreMode, _ bounds: FleetLimits, printsTrace: Bool) {
        self.seed = seed
        self.events = events
        self.bounds = bounds
        draw = Draw(seed: seed)
        switches = FleetSwitches(seed: seed, isAllowed: bounds.faults.contains(.pause))
        scenario = FleetScenario(&draw, mode: mode, bounds)
        window = Self.window(seed, isBounded: bounds.faults.contains(.window))
        trace = Trace(prints: printsTrace)
        var configuration = KafkaModel.Configuration()
        configuration.partitions = scenario.partitions
        configuration.assignor = scenario.isCooperative ? .cooperative : .eager
        configuration.sessionTimeout = scenario.session
        configuration.heartbeatInterval = 500_000_000
        configuration.rebalanceTimeout = scenario.rebalanceTimeout
        configuration.initialRebalanceDelay = 100_000_000
        configuration.metadataLimit = scenario.metadataBytes
        configuration.queueLimit = draw.chance(200) ? draw.among(8...64) : 10_000
        configuration.deliveryTimeout = 15_000_000_000
        configuration.answerLostPerMille = draw.chance(300) && bounds.faults.contains(.lostAnswer) ? 20 : 0
        configuration.refusesCommitsWhileJoining = draw.chance(300)
        kafka = KafkaModel(seed: draw.generator.next(), configuration: configuration, now: now)
        usedTokens = scenario.tokens
        current = Array(0..<scenario.tokens)
        devices = current
        for token in 0..<(scenario.tokens + scenario.newTokens) {
            keys.append(DeviceKey(high: draw.generator.next(), low: draw.generator.next()))
            tokenByKey[keys[token].low] = token
        }
        hosts = (0..<scenario.workers).map { _ in FleetHost() }
        disks = (0..<scenario.workers).map { _ in FleetDisk() }
    }

    /// Returns a window by choices of its own, so that other choices stay as they are. It is small in half of all worlds.
    private static func window(_ seed: UInt64, isBounded: Bool) -> PushWindow.Limits {
        var draw = Draw(seed: seed ^ 0x5749_4E44_4F57)
        var window = PushWindow.Limits()
        guard isBounded else {
            (window.first, window.most, window.patience) = (1 << 40, 1 << 40, 1 << 60)
            return window
        }
        guard draw.chance(500) else { return window }
        window.first = draw.spread(1...32)
        window.most = draw.spread(window.first...200)
        window.patience = UInt64(draw.among(1...5)) * 1_000_000_000
        return window
    }

    /// Pushes that a worker has moved to their device's new token.
    private(set) var movedJobs: Set<Int> = []

    func moved(_ job: Int) { movedJobs.insert(job) }

    /// Topics whose pushes APNs refuses, as their credential is at fault.
    private(set) var refusedTopics: Set<UInt16> = []

    func topic(of token: Int) -> UInt16 { UInt16(token % scenario.topics) }

    // MARK: Time

    /// Milliseconds since the epoch, by a true clock.
    var trueMilliseconds: Int64 { Self.milliseconds(at: now) }

    private static let epoch: Int64 = 1_700_000_000_000

    static func milliseconds(at time: UInt64) -> Int64 { epoch + Int64(time / 1_000_000) }

    /// Returns the first nanosecond of a millisecond.
    static func nanoseconds(of milliseconds: Int64) -> UInt64 {
        UInt64(max(0, milliseconds - epoch)) * 1_000_000
    }

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
        while counts.events < events, !auditor.isBroken { step() }
        if !auditor.isBroken { heal() }
        for process in processes {
            for shard in process.shards { shard.addMilestones(to: &coverage) }
        }
        return auditor.violation
    }

    func broken(_ promise: Promise, _ what: @autoclosure () -> String) {
        guard !auditor.isBroken else { return }
        auditor.violation = FleetViolation(
            seed: seed, mode: scenario.mode, promise: promise, what: what(), events: counts.events,
            trace: trace.lines)
    }

    private func step() {
        if let change = switches.change(topics: scenario.topics) {
            counts.switches += 1
            note("an operator pauses topic # (-1: all), #", change.topic, change.isPaused ? 1 : 0)
        }
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
    func pass(_ length: UInt64) {
        let end = now + length
        repeat {
            now = min(end, now + 40_000_000)
            kafka.advance(to: now)
            if !resets.isEmpty { resetOffsets() }
            for host in hosts.indices {
                if let process = hosts[host].process, process.isRunning {
                    let first = draw.below(process.actors)
                    for actor in 0..<process.actors { process.turn((first + actor) % process.actors) }
                }
                attend(host)
            }
        } while now < end && !auditor.isBroken
    }

    /// Returns whether a loop learns of an operator's last change now. `version` is the change that the loop knows.
    func learns(after version: inout Int) -> Bool {
        guard switches.areUsed, switches.isLearned(after: version) else { return false }
        version = switches.version
        return true
    }

    /// Starts what is to be started, and wakes what is to be woken.
    private func attend(_ host: Int) {
        if let process = hosts[host].process {
            if process.hasEnded, let end = process.end {
                counts.ends += 1
                if end.isClean { counts.cleanEnds += 1 }
                hosts[host].process = nil
                hosts[host].startsAt = now + UInt64(draw.below(2000)) * 1_000_000
            } else if process.isStopped, now >= hosts[host].resumesAt {
                note("worker # goes on", host)
                process.resume()
                if isHealthy { for shard in process.shards { shard.setPoolAvailable(true) } }
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
        for _ in 0..<count { produceOne() }
    }

    private func produceOne() {
        let device = draw.below(scenario.tokens)
        // Services hear of new tokens late.
        var token = draw.chance(800) ? current[device] : draw.below(usedTokens)
        let number = jobs.count
        var kind = FleetJob.Kind.push
        var subject = -1
        if draw.chance(30) {
            if bounds.faults.contains(.cancel) { kind = .cancel }
        } else if draw.chance(scenario.invalidPerMille) {
            kind = .invalid
        } else if draw.chance(scenario.presencePerMille) {
            if !receipts.isEmpty, draw.chance(400) {
                kind = .receipt
                (subject, token) = receipts.remove(at: draw.below(receipts.count))
            } else {
                kind = draw.chance(30) ? .unregistered : draw.chance(600) ? .online : .offline
                if kind == .unregistered, bounds.faults.contains(.erase), number % 2 == 0 { kind = .erase }
            }
        } else if draw.chance(scenario.tokenChangePerMille), usedTokens < keys.count {
            kind = .tokenChanged
            token = current[device]
            subject = usedTokens
            devices.append(device)
            current[device] = usedTokens
            usedTokens += 1
        }
        append(job(number, kind, token, subject), number)
    }

    private func job(_ number: Int, _ kind: FleetJob.Kind, _ token: Int, _ subject: Int) -> FleetJob {
        let now = trueMilliseconds
        var facts = PushFacts(
            device: keys[token],
            collapseKey: draw.chance(700) ? UInt64(draw.among(1...scenario.collapses)) : 0,
            notificationKey: UInt64(number + 1), topic: topic(of: token), partition: 0, offset: 0,
            createdMilliseconds: now)
        let life = draw.below(100)
        if life < 30 {
            facts.expirationMilliseconds = now + Int64(draw.below(20_000))
        } else if life < 40 {
            facts.isOnce = true
        }
        if draw.chance(scenario.mode.hasStore ? 300 : 80) {
            facts.deliverAtMilliseconds = now + Int64(draw.spread(1...20_000))
        }
        facts.priority = draw.chance(300) ? .powerAware : .immediate
        facts.duplicates = draw.chance(300) ? .avoid : .allow
        if scenario.presencePerMille > 0 {
            facts.delivery = draw.chance(500) ? .accept : draw.chance(500) ? .holdWhileOffline : .confirm
            facts.receiptTimeoutSeconds = UInt32(draw.among(1...10))
        }
        var job = FleetJob(
            kind: kind, token: token, partition: token % kafka.partitionCount(.jobs), facts: facts)
        job.occurred = now
        job.subject = subject
        job.target = .collapseKey(UInt64(draw.among(1...scenario.collapses)), topic: topic(of: token))
        let isLarge = kind == .invalid ? scenario.hasLargeRecords && draw.chance(300) : token % 8 == 3
        if isLarge, scenario.hasLargeRecords {
            job.size = token / 8 % 2 == 0 ? .tooLargeForTopic : .tooLargeForClient
            job.cutsNeeded = kind == .invalid ? 1 + UInt8(token % 3) : 1
        }
        return job
    }

    private func append(_ new: FleetJob, _ number: Int) {
        var job = new
        let log = kafka.log(.jobs, job.partition)
        job.offset = log.end
        job.incarnation = log.incarnation
        job.facts.offset = job.offset
        jobs.append(job)
        auditor.appended(number, self, &jobs)
        kafka.append(
            .init(payload: number, key: job.token, kind: job.kind.rawValue), to: .jobs, job.partition)
        counts.events += 1
        counts.jobs += 1
    }

    /// APNs has taken a push for a token.
    func shown(_ job: Int, to token: Int) {
        guard jobs[job].facts.delivery == .confirm, draw.chance(700), receipts.count < 100 else { return }
        receipts.append((job, token))
    }

    /// - Parameter isRepeated: Whether the client has given the record up and is asked again. The record could have
    ///   left at any time since it was produced first.
    func output(
        of job: Int, by process: WorkerProcess, isRefused: Bool = false, isRepeated: Bool = false
    ) -> Int {
        // Its outcome may become visible after the offset.
        if isRefused { jobs[job].isRefused = true }
        let first = isRepeated ? outputs.last { $0.job == job && $0.process == process.serial } : nil
        outputs.append(
            FleetOutput(
                job: job, producedAt: first?.producedAt ?? now, process: process.serial,
                isRefused: isRefused || first?.isRefused ?? false,
                isOfZombie: first?.isOfZombie ?? (!kafka.isMember(process.client) && now < process.permit)))
        return outputs.count - 1
    }

    func change(_ change: FleetChange) -> Int {
        changes.append(change)
        return changes.count - 1
    }

    func pushed(_ job: Int) { jobs[job].pushes += 1 }

    /// The job of a record.
    func job(_ partition: Int, _ offset: Int64) -> Int { auditor.job(partition, offset) }

    func token(of device: DeviceKey) -> Int? { tokenByKey[device.low] }

    /// The `apns-id` of a push.
    func id(of job: Int) -> APNSID { APNSID(high: 1, low: UInt64(job)) }

    // MARK: Disks

    func disk(_ host: Int) -> FleetDisk { disks[host] }

    /// A disk, or with a changelog Kafka, has the item of a job, and a crash doesn't change that.
    func isKept(_ job: Int, of partition: Int) -> Bool {
        guard !scenario.mode.hasChangelog else { return auditor.isInChangelog(job) }
        return disks.contains { $0.isDurable(job, partition) }
    }

    /// Items of a partition that its owner has to end.
    func itemsLeft(_ partition: Int) -> Int {
        guard scenario.mode.hasStore else { return 0 }
        guard let owner = living.first(where: { $0.owns(partition) }) else { return 1 }
        // They come back when the log has grown as far, or the partition is assigned again.
        let missesNewLog = owner.mayMiss(partition, madeAnewAt: jobsMadeAnewAt)
        // Without transactions, the changelog can get late what a worker has written that lost the partition.
        if scenario.mode == .transactions {
            return auditor.itemsInChangelog(partition, jobs, missesNewLog: missesNewLog)
        }
        return disks[owner.host].parts[Int32(partition)]?.items.values.count {
            !jobs[$0.job].sharesKey && !(missesNewLog && jobs[$0.job].isBeforeNewLog)
        } ?? 0
    }

    /// Returns the first push before an offset that the changelog or the only disk has under its record's own token.
    func stranded(_ partition: Int, _ token: Int, before offset: Int64, _ jobs: [FleetJob]) -> Int? {
        if scenario.mode.hasChangelog { return auditor.inChangelog(partition, token, before: offset, jobs) }
        guard scenario.workers == 1, let part = disks[0].parts[Int32(partition)] else { return nil }
        return part.items.compactMap { key, item in
            let job = jobs[item.job]
            return key.token == token && job.token == token && key.offset < offset && job.outcomes == 0
                ? item.job : nil
        }.min()
    }

    // MARK: Faults

    private func fault() {
        let host = draw.below(hosts.count)
        let number = draw.below(110)
        guard bounds.faults.contains(Self.fault(number)) else { return }
        counts.faults += 1
        switch Self.fault(number) {
        case .kill: kill(host)
        case .freeze: freeze(host)
        case .stop: stop(host)
        case .leader: togglePartition()
        case .groupCoordinator:
            toggle("the group's coordinator is away, #") { kafka.setGroupCoordinator(isAway: $0) }
        case .transactionCoordinator:
            toggle("the coordinator of transactions is away, #") {
                kafka.setTransactionCoordinator(isAway: $0)
            }
        case .slowNetwork: toggle("the network is slow, #") { kafka.isSlow = $0 }
        case .clock: hosts[host].clockError = Int64(draw.spread(1...200_000)) * (draw.chance(500) ? 1 : -1)
        case .compaction: kafka.compact(.changelog, draw.below(kafka.partitionCount(.changelog)))
        case .failingDisk: disks[host].isFailing = draw.chance(500)
        case .powerLoss: if scenario.mode.hasStore { losePower(host) }
        case .lostDisk: if scenario.mode.hasChangelog { loseDisk(host) }
        case .refusedCredential: toggleTopic()
        case .wrongTokens: toggle("APNs takes all tokens for wrong, #") { takesTokensForWrong = $0 }
        case .lostPool: togglePool(host)
        case .growth: growJobs()
        case .retention: retainJobs()
        case .lostTail: loseTail()
        case .recreation: makeJobsAnew()
        case .failedOrder, .lostAnswer, .badAnswer, .presence, .tokenChange, .cancel, .invalidRecord, .pause,
            .window, .erase:
            break
        }
    }

    /// The fault of a number below 110.
    private static func fault(_ number: Int) -> FleetFault {
        switch number {
        case 0..<18: .kill
        case 18..<34: .freeze
        case 34..<48: .stop
        case 48..<62: .leader
        case 62..<70: .groupCoordinator
        case 70..<78: .transactionCoordinator
        case 78..<86: .slowNetwork
        case 86..<92: .clock
        case 92..<94: .compaction
        case 94..<97: .failingDisk
        case 97..<99: .powerLoss
        case 99: .lostDisk
        case 100..<102: .refusedCredential
        case 102..<104: .wrongTokens
        case 104..<106: .lostPool
        case 106: .growth
        case 107: .retention
        case 108: .lostTail
        default: .recreation
        }
    }

    private func growJobs() {
        let count = kafka.partitionCount(.jobs) + 1
        guard count <= scenario.mostPartitions else { return }
        note("the jobs topic grows to # partitions", count)
        kafka.grow(.jobs, to: count)
        // Whoever has the topic grow may think of the changelog.
        if draw.chance(300) { extendChangelog() }
    }

    private func retainJobs() {
        let partition = draw.below(kafka.partitionCount(.jobs))
        let log = kafka.log(.jobs, partition)
        let start = log.start + Int64(draw.below(Int(log.end - log.start) + 1))
        note("partition # loses its records below #", partition, Int(start))
        audit()
        auditor.retained(partition, from: start, &jobs)
        kafka.retain(.jobs, partition, from: start)
    }

    /// Takes the end of a partition's log, as an unclean election does.
    private func loseTail() {
        let partition = draw.below(kafka.partitionCount(.jobs))
        let log = kafka.log(.jobs, partition)
        guard log.end > log.start, jobsMadeAnewAt == 0 else { return }
        let end = log.end - Int64(draw.among(1...Int(min(20, log.end - log.start))))
        note("partition # loses its records from # on", partition, Int(end))
        audit()
        auditor.losesTail(partition, from: end, self, &jobs)
        tails[partition] = end
        kafka.loseTail(.jobs, partition, from: end)
        // The election takes a while.
        pass(1_000_000)
    }

    /// Has an operator set a group's offset that nothing explains.
    func asksOperator(_ partition: Int) {
        guard resets[partition] == nil else { return }
        resets[partition] = now + UInt64(draw.below(20_000)) * 1_000_000
    }

    private func resetOffsets() {
        for (partition, time) in resets.sorted(by: { $0.key < $1.key }) where time <= now {
            resets[partition] = nil
            guard living.contains(where: { $0.machine.unexplainedPartitions.contains(Int32(partition)) })
            else { continue }
            let offset = tails[partition] ?? 0
            note("an operator sets the offset of partition # to #", partition, Int(offset))
            kafka.setOffset(.init(partition: partition, offset: offset), .outside)
        }
    }

    /// Stores, changelog and outcomes stay.
    private func makeJobsAnew() {
        // Once is enough, because each new log makes skipped records harder to identify.
        guard kafka.log(.jobs, 0).incarnation == 0, tails.isEmpty else { return }
        // Records of the new log are younger than all of the old log.
        pass(1_000_000)
        note("the jobs topic is made anew")
        jobsMadeAnewAt = now
        for number in jobs.indices { jobs[number].isBeforeNewLog = true }
        audit()
        kafka.makeAnew(.jobs, keepsOffsets: draw.chance(300))
        auditor.madeAnew(self, &jobs)
        audit()
    }

    /// A process continues in a log that was made anew, and can't know.
    func continuesUnnoticed(_ partition: Int) {
        note("partition # was made anew, and nobody can notice", partition)
        auditor.isUnnoticed(partition, &jobs)
    }

    /// Device that has a token, or had it.
    func device(of token: Int) -> Int { devices[token] }

    func extendChangelog() {
        note("the changelog gets # partitions", kafka.partitionCount(.jobs))
        kafka.grow(.changelog, to: kafka.partitionCount(.jobs))
    }

    private func togglePool(_ host: Int) {
        guard let process = hosts[host].process, process.isRunning else { return }
        toggle("the worker's pool has no connection, #") { isLost in
            for shard in process.shards { shard.setPoolAvailable(!isLost) }
        }
    }

    /// APNs' answer to any push, while it blames the credential or the tokens.
    func refusal(of topic: UInt16) -> AttemptAnswer? {
        if refusedTopics.contains(topic) {
            return AttemptAnswer(class: .configuration, reason: .topicDisallowed)
        }
        guard takesTokensForWrong, !draw.chance(100) else { return nil }
        return AttemptAnswer(class: .token, reason: .badDeviceToken)
    }

    /// A single order fails.
    func failsOnce(_ perMille: Int) -> Bool {
        !isHealthy && draw.chance(perMille) && bounds.faults.contains(.failedOrder)
    }

    private func toggle(_ text: Trace.Text, _ body: (Bool) -> Void) {
        let isOn = draw.chance(500)
        note(text, isOn ? 1 : 0)
        body(isOn)
    }

    private func togglePartition() {
        let topics: [KafkaModel.Topic] = [.jobs, .outcomes, .changelog]
        let topic = topics[draw.below(topics.count)]
        let partition = draw.below(kafka.partitionCount(topic))
        let isAway = draw.chance(500)
        note("topic #, partition #: leader away, #", topic.rawValue, partition, isAway ? 1 : 0)
        kafka.setLeader(topic, partition, isAway: isAway)
    }

    private func toggleTopic() {
        let topic = UInt16(draw.below(scenario.topics))
        let isRefused = draw.chance(600)
        note("APNs refuses topic #, #", Int(topic), isRefused ? 1 : 0)
        if isRefused { refusedTopics.insert(topic) } else { refusedTopics.remove(topic) }
    }

    private func kill(_ host: Int) {
        guard let process = hosts[host].process else { return }
        note("worker # is killed", host)
        counts.kills += 1
        process.kill()
        hosts[host].process = nil
        hosts[host].startsAt = now + UInt64(draw.spread(1...20_000)) * 1_000_000
    }

    private func losePower(_ host: Int) {
        guard hosts[host].process != nil else { return }
        note("worker # loses its power", host)
        kill(host)
        disks[host].losePower { draw.below($0) }
    }

    private func loseDisk(_ host: Int) {
        guard hosts[host].process != nil else { return }
        note("worker # loses its disk", host)
        kill(host)
        disks[host] = FleetDisk()
    }

    private func freeze(_ host: Int) {
        guard let process = hosts[host].process, process.isRunning else { return }
        // Half of all about as long as the group waits.
        let length =
            draw.chance(500)
            ? UInt64(draw.spread(10...60_000)) * 1_000_000
            : scenario.session / 100 * UInt64(draw.among(30...250))
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
        healthySince = now
        note("all is well from here on")
        extendChangelog()
        kafka.setGroupCoordinator(isAway: false)
        kafka.setTransactionCoordinator(isAway: false)
        kafka.isSlow = false
        refusedTopics = []
        takesTokensForWrong = false
        switches.resumeAll()
        for process in living where process.isRunning {
            for shard in process.shards { shard.setPoolAvailable(true) }
        }
        for topic in KafkaModel.Topic.allCases {
            for partition in 0..<kafka.partitionCount(topic) {
                kafka.setLeader(topic, partition, isAway: false)
            }
        }
        for host in hosts.indices {
            disks[host].isFailing = false
            hosts[host].clockError = 0
            hosts[host].resumesAt = now
            hosts[host].startsAt = min(hosts[host].startsAt, now)
        }
        // The longest life is that of a push with the longest expiration that is stored, or is read late.
        var limit = now + 2_000_000_000_000
        var outcomes = counts.outcomes
        // Few slots and long waits make many jobs slow: what counts is that more and more end.
        let last = now + 40_000_000_000_000
        var quiet = 0
        var readSince = UInt64.max
        while !auditor.isBroken, now < limit {
            pass(500_000_000)
            audit()
            if counts.outcomes > outcomes {
                outcomes = counts.outcomes
                limit = min(last, max(limit, now + 1_000_000_000_000))
            }
            produceAfterUnnoticedEnds()
            quiet = isQuiet ? quiet + 1 : 0
            if quiet == 4 { return auditEnd() }
            readSince = isAllRead ? min(readSince, now) : .max
            // With little room, restored items wait for items in memory. A probe restores pushes of a single partition.
            // When none of these can be sent, the topic continues with the next probe.
            let patience: UInt64 =
                scenario.residency.room < 100 ? 150_000_000_000 : 30_000_000_000 + timeOfReturns
            if now > readSince, now - readSince > patience { checkHeld(isLong: true) }
            if now > readSince, now - readSince > 5_000_000_000 { checkHeld(isLong: false) }
        }
        if !auditor.isBroken {
            broken(.progress, "the world is healthy, and something doesn't end: \(unfinished)")
        }
    }

    /// Produces a job wherever a recreated log ends at its reader's position.
    ///
    /// The reader learns of the new log by that job at the earliest, because fetches at the end of a log return no
    /// error.
    private func produceAfterUnnoticedEnds() {
        guard jobsMadeAnewAt > 0 else { return }
        for partition in 0..<kafka.partitionCount(.jobs) {
            let end = kafka.log(.jobs, partition).end
            guard kafka.committedOffset(partition).offset < end,
                let owner = living.first(where: { $0.owns(partition) }), !owner.hasSeen(1, partition),
                kafka.position(owner.client, .jobs, partition) == end,
                let token = (0..<usedTokens).first(where: { $0 % kafka.partitionCount(.jobs) == partition })
            else { continue }
            let number = jobs.count
            append(job(number, .push, token, -1), number)
        }
    }

    func audit() {
        auditor.follow(self, &jobs)
    }
}

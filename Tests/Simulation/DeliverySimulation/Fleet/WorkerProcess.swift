import DeliveryCore
import DequeModule
import SluiceModel

/// A process of a worker: the shell of ``WorkerMachine``.
///
/// The shell carries out the machine's actions on the model of Kafka, on the shards and on the disk. All of its state
/// ends with the process.
final class WorkerProcess {
    // Unsafe: the world keeps all of its processes.
    unowned(unsafe) let world: FleetWorld
    let host: Int
    /// Number of the process, counted over the world.
    let serial: Int
    /// Its Kafka clients: the consumer and the producer.
    let client: ClientID
    var machine: WorkerMachine
    var watch: Watch
    private(set) var shards: [ShardProcess] = []
    /// Last change of the operator's switches that the worker's loop knows; -1: none.
    private var learnedSwitches = -1
    /// Reports on their way from the shards.
    private var reports = Deque<(shard: Int, report: ShardReport)>()
    /// References of Kafka's answers.
    private var commits: [(reference: Int, ticket: UInt64)] = []
    private var fetches: [(reference: Int, ticket: UInt64)] = []
    /// Nanoseconds until which pushes, and without transactions records, may leave.
    private(set) var permit: UInt64 = 0
    private var nextTick: UInt64 = 0
    private var hasReports = false
    private(set) var isStopped = false
    private(set) var isDead = false
    /// Result of a worker that has ended by itself, nil before.
    private(set) var end: WorkerEnd? { didSet { hasEnded = true } }
    private(set) var hasEnded = false
    /// Watermarks of the partitions that the worker owned at its clean end.
    private var lastWatermarks: [Int32: Int64] = [:]
    private var endedAt = UInt64.max
    /// Partitions of which something may be sent before their uncommitted records were read.
    private(set) var cutCatchUps: Set<Int> = []
    /// Nanoseconds at which partitions were assigned last.
    private var assignedAt: [Int32: UInt64] = [:]
    /// Bytes of the records that the process holds.
    var bytesHeld = 0
    private var isActing = false
    /// Pushes that shards may begin, and their counts.
    var pushes = FleetAllowance()
    var commitAudit: CommitAudit
    /// Requests to the disk and to the changelog's reader, in their order.
    var diskTasks = Deque<DiskTask>()
    var restores: [ChangelogReading] = []

    var disk: FleetDisk { world.disk(host) }
    /// Parts of the store, by partition.
    var parts: [Int32: FleetPart] = [:]
    /// Where copies were left, by partition.
    var positions: [Int32: Int64] = [:]
    /// Marks of partitions that are on their way here.
    var marks: [Int32: [Int64: APNSID]] = [:]
    /// Commits by slot.
    var committed: [UInt16: FleetCommitted] = [:]
    /// Refused records that are to be produced again.
    private var refused: [OutcomePlace: (FleetWord, KafkaModel.Topic)] = [:]
    /// Actions after which a worker that follows one event acts without end.
    private static let mostActions = 100_000
    /// Records that fitted and were cut all the same.
    private var needlessCuts = 0
    /// Whether the worker has learned of the disk's failure.
    var hearsOfFailure = false
    /// By partition: how often the topic was made anew before the last record that was polled.
    private var incarnations: [Int: Int] = [:]
    /// Partitions whose log went back, as the machine has noticed since the last record was polled.
    private var hasGoneBack: Set<Int> = []
    /// Nanoseconds at which the process noticed that a partition's log had gone back.
    private var noticedAt: [Int: UInt64] = [:]

    /// Returns whether the last record polled from a partition in this assignment is of the log of this number.
    func hasSeen(_ incarnation: Int, _ partition: Int) -> Bool { incarnations[partition] == incarnation }

    /// Returns whether neither the assignment nor a record has revealed that the log was recreated at a time.
    func mayMiss(_ partition: Int, madeAnewAt time: UInt64) -> Bool {
        assigned(partition) <= time && noticedAt[partition] ?? 0 < time
    }

    /// Returns the nanoseconds at which the partition was assigned last; `UInt64.max`: it never was.
    func assigned(_ partition: Int) -> UInt64 { assignedAt[Int32(partition)] ?? .max }

    /// Returns whether the partition was assigned a short while ago.
    func isNew(_ partition: Int) -> Bool {
        (assignedAt[Int32(partition)] ?? world.now) + 4 * FleetScenario.expiryInterval > world.now
    }

    /// Whether devices that are back wait for their turn.
    var hasTurns: Bool { shards.contains { $0.hasTurns } }

    func knowsPresence(of token: Int) -> Bool {
        shards.contains { $0.machine.delivery.knowsPresence(of: world.keys[token]) }
    }

    private static let tick: UInt64 = 100_000_000
    static let commitInterval: UInt64 = 200_000_000
    static let transactionInterval: UInt64 = 50_000_000
    static let recordBytes = 700

    init(_ world: FleetWorld, host: Int, serial: Int) {
        self.world = world
        self.host = host
        self.serial = serial
        let scenario = world.scenario
        client = world.kafka.addClient()
        var settings = WorkerMachine.Settings(
            mode: scenario.mode, shards: scenario.shards,
            gate: .init(jobs: scenario.maximumInFlight, bytes: 1 << 30, partitionShare: 0.5),
            commitInterval: Self.commitInterval, transactionInterval: Self.transactionInterval,
            drainDeadline: scenario.drainDeadline,
            revokeDeadline: min(10_000_000_000, scenario.rebalanceTimeout / 2),
            sessionTimeout: scenario.session, readsFromBeginning: true,
            highestOffset: 1 << 40)
        settings.spanLimit = scenario.spanLimit
        settings.metadataBytes = scenario.metadataBytes
        settings.jobsPerCommit = 100
        settings.expiryInterval = FleetScenario.expiryInterval
        settings.window = world.window
        commitAudit = CommitAudit(scenario, world.window)
        machine = WorkerMachine(settings, now: world.now)
        if world.switches.areUsed { machine.setAllPaused(true) }
        watch = Watch(
            states: machine.states,
            partitions: [PartitionStates](repeating: PartitionStates(), count: scenario.mostPartitions))
        for number in 0..<scenario.shards { shards.append(ShardProcess(self, number: number)) }
    }

    var kafka: KafkaModel { world.kafka }
    var isRunning: Bool { !isStopped && !isDead && !hasEnded }
    /// The worker's loop, the disk's, the shards' loops.
    var actors: Int { 2 + shards.count }

    func turn(_ actor: Int) {
        guard isRunning else { return }
        switch actor {
        case 0: turn()
        case 1: turnDisk()
        default: shards[actor - 2].turn()
        }
    }

    // MARK: Life

    func start() {
        kafka.makeProducer(client, transactionalID: world.scenario.mode == .transactions ? host : nil)
        kafka.join(client)
        nextTick = world.now
        machine.start(at: world.now)
        act()
    }

    /// SIGKILL.
    func kill() {
        isDead = true
        kafka.crash(client)
    }

    /// SIGSTOP.
    func freeze() {
        isStopped = true
        kafka.stop(client)
    }

    /// SIGCONT. Some threads run before the one that hears of Kafka.
    func resume() {
        isStopped = false
        kafka.resume(client)
        if world.chance(300) { tick() }
        if world.chance(600) { for shard in shards { shard.turn() } }
    }

    /// SIGTERM.
    func stop() {
        machine.stop(at: world.now)
        act()
    }

    var isIdle: Bool {
        machine.phase == .running && machine.outstanding == 0 && reports.isEmpty
            && shards.allSatisfy { $0.isIdle } && machine.arriving == nil && diskTasks.isEmpty
    }

    var summary: String {
        "process \(serial): \(machine.phase), \(machine.outstanding) outstanding, \(machine.assignedPartitions) partitions"
            + (machine.transactionState.map { ", transaction \($0.begun) \($0.state)" } ?? "")
            + shards.map { ", " + $0.summary }.joined()
            + "; "
            + machine.partitionReports(topic: "", at: world.now).map {
                "\($0.partition): \($0.watermark) of \($0.end), \($0.outstanding) outstanding, reasons \($0.pauseReasons.rawValue)"
            }.joined(separator: ", ")
    }

    /// Returns whether the process owned the partition from `start` until its clean end, before `end`. Everything up to
    /// the offset had ended or was kept.
    func endedClean(
        above offset: Int64, _ partition: Int, since start: UInt64, before end: UInt64
    ) -> Bool {
        lastWatermarks[Int32(partition)] ?? 0 > offset && assignedAt[Int32(partition)] ?? .max <= start
            && endedAt <= end
    }

    /// Returns whether the partition was restored and its records are read.
    func reads(_ partition: Int) -> Bool { machine.committable(ofPartition: Int32(partition)) != nil }

    /// Returns whether the worker still owns the partition.
    func owns(_ partition: Int) -> Bool { kafka.owned(client).contains(partition) }

    // MARK: The loop

    private func turn() {
        if world.learns(after: &learnedSwitches) {
            machine.setAllPaused(world.switches.pausesAll)
            act()
        }
        serveEvents()
        takeReports()
        if machine.phase == .running { poll() }
        if hasReports || machine.phase > .running { reportsPolled() } else { countPushes() }
        readChangelog()
        if let wake = machine.wakeAt, wake <= world.now {
            machine.wake(at: world.now)
            act()
        }
        if world.now >= nextTick { tick() }
        let most = world.scenario.maximumInFlight + 8
        if machine.outstanding > most {
            world.broken(.bounded, "process \(serial) has \(machine.outstanding) jobs, and may have \(most)")
        }
    }

    private func reportsPolled() {
        hasReports = false
        countPushes()
        machine.reportsPolled(
            unreported: kafka.queued(client) + refused.count, bytesHeld: bytesHeld, at: world.now)
        act()
    }

    private func countPushes() {
        machine.countPushes(
            ended: pushes.ended, records: pushes.records,
            unreported: kafka.unreported(client) + refused.count, at: world.now)
        act()
    }

    /// A push has ended with an outcome.
    func endsPush(_ copy: ShardProcess.Held) {
        // Nobody awaits outcomes of partitions that the worker has lost.
        if committed[copy.slot] == nil {
            commitAudit.returned(copy.job)
        } else {
            commitAudit.ended(copy.job, copy.slot)
        }
    }

    private func tick() {
        nextTick = world.now + Self.tick
        reportsPolled()
        machine.tick(at: time)
        act()
        commitAudit.ticked(at: world.now)
    }

    var time: DeliveryTime {
        DeliveryTime(wallMilliseconds: world.wallMilliseconds(host), monotonicNanoseconds: world.now)
    }

    private func takeReports() {
        var count = reports.count
        while count > 0, isRunning, let (shard, report) = reports.popFirst() {
            count -= 1
            world.counts.events += 1
            machine.shard(shard, report, at: world.now)
            act()
        }
    }

    func report(_ shard: Int, _ report: ShardReport) { reports.append((shard, report)) }

    private func poll() {
        let room = machine.room(atMost: 64, bytesHeld: bytesHeld, storeQueueBytes: 0, at: world.now)
        act()
        guard room > 0 else { return }
        let count = kafka.poll(client, atMost: room) { record in take(record) }
        guard count > 0 else { return }
        machine.polled(count, bytes: count * Self.recordBytes)
        act()
    }

    private func take(_ record: borrowing KafkaModel.ReadRecord) {
        world.counts.events += 1
        let job = record.payload
        let incarnation = world.jobs[job].incarnation
        let isOther =
            incarnations.updateValue(incarnation, forKey: record.partition) ?? incarnation != incarnation
        defer {
            if isOther, !hasGoneBack.contains(record.partition) { world.continuesUnnoticed(record.partition) }
        }
        hasGoneBack = []
        let shard = shardIndex(ofHash: world.keys[record.key].low, shards: shards.count)
        let fate = machine.accept(
            partition: Int32(record.partition), offset: record.offset, bytes: Self.recordBytes,
            milliseconds: FleetWorld.milliseconds(at: record.appendedAt), shard: shard, handle: UInt(job),
            at: world.now)
        switch fate {
        case .hand(let slot, let isReplay):
            world.coverage.reached(isReplay ? .replayed : .handed)
            act()
            hand(job, record.offset, shard, slot, isReplay)
        case .deferred: world.coverage.reached(.heldBack)
        case .discard: world.coverage.reached(.discarded)
        }
    }

    private func hand(_ job: Int, _ offset: Int64, _ shard: Int, _ slot: UInt16, _ isReplay: Bool) {
        bytesHeld += Self.recordBytes
        shards[shard].take(.init(job: job, offset: offset, slot: slot, isReplay: isReplay))
    }

    // MARK: Events of Kafka

    private func serveEvents() {
        while isRunning, let event = kafka.nextEvent(client) {
            world.counts.events += 1
            handle(event)
        }
    }

    private func handle(_ event: KafkaModel.Event) {
        let now = world.now
        switch event {
        case .assigned(let set):
            for partition in set {
                assignedAt[Int32(partition)] = now
                cutCatchUps.remove(partition)
                incarnations[partition] = nil
            }
            machine.assigned(set.map { Int32($0) }, at: now)
        case .revoked(let set): machine.revoked(set.map { Int32($0) }, isLost: false, at: now)
        case .lost(let set): machine.revoked(set.map { Int32($0) }, isLost: true, at: now)
        case .instanceFenced: machine.fail(.instanceTaken, .of(.fencedInstance), at: now)
        case .report(let report): take(report)
        case .step(let step, let result):
            world.note("process # has finished step #", serial, Int(step.rawValue))
            let result = TransactionCycle.StepResult(step, result)
            stepEnded(result)
            if result.failure == nil, step == .initialize { commitAudit.gotProducer() }
            if result.failure == nil, step == .commit { commitAudit.committed() }
            machine.stepFinished(result, at: now)
        case .producerFailed(let failure): machine.fail(.producer, .of(failure), at: now)
        case .committed(let reference, let failure):
            guard let index = commits.firstIndex(where: { $0.reference == reference }) else { break }
            let ticket = commits.remove(at: index).ticket
            world.note("process # has an answer to a commit, failed #", serial, failure == nil ? 0 : 1)
            if kafka.losesByCommit(client) {
                world.broken(
                    .noDuplicate,
                    "process \(serial) loses its partitions by a commit of an earlier generation")
            }
            if failure == nil { commitAudit.committed() }
            machine.committed(ticket, fault: failure.map { .of($0) }, at: now)
        case .fetchedCommitted(let reference, let offsets, let failure):
            guard let index = fetches.firstIndex(where: { $0.reference == reference }) else { break }
            let ticket = fetches.remove(at: index).ticket
            let fetched = offsets.map { self.fetched($0) }
            machine.fetched(ticket, failure.map { .failure(.of($0)) } ?? .success(fetched), at: now)
        case .listed, .outOfRange: break
        }
        act()
    }

    private func fetched(_ committed: KafkaModel.CommittedOffset) -> FetchedOffset {
        let partition = committed.partition
        var fetched = FetchedOffset(
            partition: Int32(partition), offset: committed.offset < 0 ? nil : committed.offset,
            metadata: committed.metadata, logStart: kafka.firstOffset(.jobs, partition),
            logEnd: world.chance(900) ? kafka.lastStableOffset(.jobs, partition) : nil)
        // Questions by time can have no answer.
        guard let evidence = fetched.evidence, world.chance(800) else { return fetched }
        fetched.answers = .init(
            first: kafka.firstOffset(.jobs, partition, after: 0),
            newer: kafka.firstOffset(.jobs, partition, after: FleetWorld.nanoseconds(of: evidence + 1) - 1))
        return fetched
    }

    private func take(_ report: KafkaModel.Report) {
        hasReports = true
        let word = FleetWord(opaque: report.opaque)
        let topic =
            report.topic == .changelog ? "changelog" : report.topic == .outcomes ? "outcomes" : "letters"
        if word.isChange {
            if let failure = report.failure {
                machine.changeLost(word.epoch, .of(failure), topic: topic, at: world.now)
            } else {
                machine.changeDelivered(
                    word.epoch, partition: Int32(report.partition), offset: report.offset, at: world.now)
            }
            return
        }
        if let failure = report.failure {
            let fate = machine.lost(
                word.outcome(world), .of(failure), topic: topic,
                form: ProducedForm(
                    kind: report.topic == .deadLetters ? .deadLetter : .outcome, cuts: word.cuts,
                    bytes: word.cuts < world.jobs[word.job].cutsNeeded ? 1_000 : 100),
                at: world.now)
            if fate == .keep { refused[word.outcome(world)] = (word, report.topic) }
            if fate == .produceAgain {
                if committed[word.place(world).partitionSlot] == nil {
                    world.broken(
                        .oneOutcome, "process \(serial) repeats an outcome of a partition it has lost")
                }
                world.coverage.reached(.producedAgain)
                produceAgain(word, report.topic)
            }
        } else {
            commitAudit.acknowledged()
            machine.delivered(
                word.outcome(world), isStored: word.isStored,
                device: world.keys[word.token].low, at: world.now)
        }
    }

    private func produceAgain(_ word: FleetWord, _ topic: KafkaModel.Topic) {
        let job = word.job
        let answer = produce(
            .init(payload: world.output(of: job, by: self, isRepeated: true), key: world.jobs[job].token),
            to: topic,
            job,
            word)
        if answer != .queued { machine.fail(.producer, .of(.timedOut), at: world.now) }
    }

    /// Produces a refused record again.
    private func produceAgain(_ record: RefusedRecord) {
        guard let (refused, topic) = refused.removeValue(forKey: record.outcome) else { return }
        var word = refused
        word.cuts = record.cuts
        world.coverage.reached(.producedWithoutValue)
        produceAgain(word, topic)
    }

    // MARK: Producing

    func produce(
        _ record: KafkaModel.Record, to topic: KafkaModel.Topic, _ job: Int, _ word: FleetWord,
        changelogPartition: Int = 0
    ) -> KafkaModel.ProduceAnswer {
        var record = record
        if !word.isChange {
            if word.cuts < world.jobs[job].cutsNeeded { record.size = world.jobs[job].size }
            if word.cuts > world.jobs[job].cutsNeeded {
                // The cause of a refusal can have left with its partition.
                needlessCuts += 1
                if needlessCuts > 20 { world.broken(.sound, "process \(serial) cuts records that fit") }
            }
        }
        let partition: Int
        switch topic {
        case .outcomes: partition = record.key % kafka.partitionCount(.outcomes)
        case .deadLetters: partition = 0
        case .changelog, .jobs: partition = changelogPartition
        }
        return kafka.produce(client, record, to: topic, partition, opaque: word.opaque)
    }

    // MARK: Actions

    func act() {
        observe()
        guard !isActing else { return }
        isActing = true
        var performed = 0
        while isRunning, let action = machine.nextAction() {
            performed += 1
            guard performed <= Self.mostActions else {
                world.broken(.bounded, "process \(serial) acts without end")
                break
            }
            count(action)
            perform(action)
        }
        isActing = false
    }

    private func perform(_ action: WorkerAction) {
        switch action {
        case .hand(let handle, let shard, let slot, _, let isReplay):
            let job = Int(handle)
            hand(job, world.jobs[job].offset, shard, slot, isReplay)
        case .discard, .copyDeferred, .poll: break
        case .pause(let numbers): for number in numbers { kafka.pause(client, .jobs, Int(number)) }
        case .resume(let numbers): for number in numbers { kafka.resume(client, .jobs, Int(number)) }
        case .fetchCommitted(let numbers, let ticket, _, _):
            var set = PartitionSet()
            for number in numbers { set.insert(Int(number)) }
            fetches.append((kafka.fetchCommitted(client, set), ticket))
        case .assign(let begins):
            kafka.accept(client)
            kafka.read(client, begins.map { (Int($0.partition), $0.offset) })
        case .unassign: kafka.unassign(client)
        case .commit(let set, let ticket):
            guard !kafka.holdsCommits(client) else {
                world.coverage.reached(.commitHeld)
                machine.commitHeld(ticket, at: world.now)
                return
            }
            for part in set.parts {
                world.note(
                    "process # asks to commit offset # of partition #", serial, Int(part.point.offset),
                    Int(part.partition))
            }
            commits.append((kafka.commit(client, offsets(set.parts)), ticket))
        case .close:
            kafka.close(client)
            machine.closed()
            observe()
        case .step(let step): start(step)
        case .sendOffsets(let parts): sendOffsets(parts)
        case .request(let shard, let request): shards[shard].ask(request)
        case .requestAll(.begin(let slot, let partition, let readThrough, let earlierFrom, let offset)):
            let committed = FleetCommitted(offset)
            self.committed[slot] = committed
            let marks = marks.removeValue(forKey: partition) ?? [:]
            for shard in shards {
                shard.send(
                    .begin(
                        slot, parts[partition], readThrough: readThrough, earlierFrom: earlierFrom,
                        committed, marks))
            }
        case .requestAll(let request):
            for shard in shards { shard.ask(request) }
            if case .end(let slots) = request {
                for slot in slots { committed[slot] = nil }
                commitAudit.lost(slots)
                refused = refused.filter { !slots.contains($0.key.place.partitionSlot) }
            }
        case .produceAgain(let record): produceAgain(record)
        case .forgetRefused(let outcome): refused[outcome] = nil
        case .extendPermit(let until): permit = until
        case .allowPushes(let count): pushes.limit = count
        case .note(let note): log(note)
        case .ended(let ended):
            closeStore()
            end = ended
            checkEnd(ended)
        case .restore(let action): perform(action)
        case .extendChangelog: if world.scenario.extendsChangelog { world.extendChangelog() }
        case .scanDue(let look, let partition): diskTasks.append(.scanDue(look, partition))
        case .scanSuspended(let look, let partition): diskTasks.append(.scanSuspended(look, partition))
        case .scanExpired(let look, let partition): diskTasks.append(.scanExpired(look, partition))
        case .scanItems(let slot, let partition): diskTasks.append(.scanItems(slot, partition))
        case .sync: diskTasks.append(.sync)
        case .dropCopies(let kept):
            for partition in parts.keys where !kept.contains(partition) { parts[partition] = nil }
            diskTasks.append(.dropCopies(except: kept))
        case .advanceCommitted(let slot, let offset): committed[slot]?.advance(to: offset)
        case .checkpoint(let partition, let position):
            if let part = parts[partition] { diskTasks.append(.checkpoint(part, position: position)) }
        case .forgetStore(let partition): parts[partition] = nil
        }
    }

    // MARK: Kafka

    private func offsets(_ parts: [Committer.CommitSet.Part]) -> [KafkaModel.OffsetCommit] {
        parts.map {
            KafkaModel.OffsetCommit(
                partition: Int($0.partition), offset: $0.point.offset, metadata: $0.point.metadata)
        }
    }

    private func start(_ step: TransactionCycle.Step) {
        switch step {
        case .initialize: world.note("process # initializes its producer", serial)
        case .begin: world.note("process # begins a transaction", serial)
        case .commit: world.note("process # commits its transaction", serial)
        case .abort: world.note("process # aborts its transaction", serial)
        case .sendOffsets: break
        }
        let isStarted =
            switch step {
            case .initialize: kafka.initialize(client)
            case .begin: kafka.begin(client)
            case .commit: kafka.commitTransaction(client)
            case .abort: kafka.abortTransaction(client)
            case .sendOffsets: false
            }
        if !isStarted {
            world.broken(.sound, "process \(serial) starts step \(step) while another is under way")
        }
    }

    private func sendOffsets(_ parts: [Committer.CommitSet.Part]) {
        commitAudit.sentOffsets()
        for part in parts {
            world.note(
                "process # sends offset # of partition #", serial, Int(part.point.offset), Int(part.partition)
            )
        }
        guard let membership = kafka.membership(client) else {
            machine.offsetsRefused(.of(.unknownMember), at: world.now)
            return observe()
        }
        if !kafka.sendOffsets(client, offsets(parts), membership) {
            world.broken(.sound, "process \(serial) sends offsets while a step is under way")
        }
    }

    private func log(_ note: WorkerNote) {
        switch note {
        case .partitionsAssigned(let numbers):
            world.note(
                "process # takes partitions, first #, # of them", serial, Int(numbers.first ?? -1),
                numbers.count)
        case .partitionsRevoked(let numbers, let isLost):
            world.note(
                "process # loses partitions, first #, lost #", serial, Int(numbers.first ?? -1),
                isLost ? 1 : 0)
        case .logWentBack(let partition, _, _):
            hasGoneBack.insert(Int(partition))
            noticedAt[Int(partition)] = world.now
            world.coverage.reached(.logWentBack)
            world.note("process # sees that partition # went back", serial, Int(partition))
        case .tailLost(let partition, _, let from):
            world.note("process # goes on in partition # at #", serial, Int(partition), Int(from))
        case .offsetUnexplained(let partition, _, _):
            world.note("process # doesn't read partition #", serial, Int(partition))
            world.asksOperator(Int(partition))
        case .catchUpCut(let partition, _, _):
            world.note("process # sends before partition # is read", serial, Int(partition))
            cutCatchUps.insert(Int(partition))
        case .invariantBroken(let text): world.broken(.sound, "process \(serial): \(text)")
        case .transactionAborted: world.note("process # has aborted a transaction", serial)
        case .secondOutcome(let partition, let offset):
            world.note(
                "process # has a second outcome, partition #, offset #", serial, Int(partition), Int(offset))
        case .stopsAtOnce, .failed: world.note("process # fails", serial)
        case .partitionStopped(let partition, let offset, _, _):
            world.broken(
                .oneOutcome, "process \(serial) stops partition \(partition) at \(offset), whose record fits")
        case .draining: world.note("process # drains", serial)
        case .membershipInDoubt: world.note("process # is in doubt", serial)
        default: break
        }
    }

    /// Checks that a clean stop has committed everything that the worker has read.
    private func checkEnd(_ end: WorkerEnd) {
        world.note("process # has ended, clean #", serial, end.isClean ? 1 : 0)
        if end.isClean {
            endedAt = world.now
            for report in machine.partitionReports(topic: "", at: world.now) {
                lastWatermarks[report.partition] = report.watermark
            }
        }
        // A transaction's offsets become visible a little later. If they were lost, outcomes would be repeated.
        guard end.isClean, world.scenario.mode != .transactions else { return }
        for report in machine.partitionReports(topic: "", at: world.now)
        // Commits of a log are deleted with its topic.
        where report.end > 0
            && hasSeen(kafka.log(.jobs, Int(report.partition)).incarnation, Int(report.partition))
        {
            let committed = max(0, kafka.committedOffset(Int(report.partition)).offset)
            let due = machine.committable(ofPartition: report.partition) ?? 0
            guard committed < due else { continue }
            world.broken(
                .nothingLost,
                "process \(serial) ended clean, and offset \(committed) of partition \(report.partition) is committed, not \(due)"
            )
        }
    }
}

/// Pushes that the shards of a process may begin: the model of its shared counts.
struct FleetAllowance {
    /// Pushes that may have been begun since the start.
    var limit = 0
    private var begun = 0
    /// Pushes begun that are not in flight any more.
    var ended = 0
    /// Records that shards keep or that wait there.
    var records = 0

    mutating func claim() -> Bool {
        guard begun < limit else { return false }
        begun += 1
        return true
    }

    mutating func giveBack() { begun -= 1 }
}

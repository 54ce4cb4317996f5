import DeliveryCore
import SluiceModel

/// One process of a worker: the shell of ``WorkerMachine``, whose actions it carries out on the model of Kafka, on the
/// shards and on the disk. Everything in it ends with the process.
final class WorkerProcess {
    unowned let world: FleetWorld
    let host: Int
    /// Counts the processes of the world.
    let serial: Int
    /// Its Kafka clients: the consumer and the producer.
    let client: ClientID
    private(set) var machine: WorkerMachine
    private(set) var shards: [ShardProcess] = []
    /// On their way from the shards.
    private var reports = Queue<(shard: Int, report: ShardReport)>()
    /// References of Kafka's answers.
    private var commits: [(reference: Int, ticket: UInt64)] = []
    private var fetches: [(reference: Int, ticket: UInt64)] = []
    /// Pushes, and without transactions records, may leave until then.
    private(set) var permit: UInt64 = 0
    private var nextTick: UInt64 = 0
    private var hasReports = false
    private(set) var isStopped = false
    private(set) var isDead = false
    /// The worker has ended by itself.
    private(set) var end: WorkerEnd?
    /// Bytes of the records that it holds.
    var bytesHeld = 0
    private var isActing = false
    /// Orders to the disk and to the changelog's reader, in their order.
    private var diskTasks = Queue<DiskTask>()
    private var restores: [ChangelogReading] = []

    private enum DiskTask {
        case open(PartitionRestore.Attempt)
        case openCopies([PartitionRestore.Attempt])
        case loadMarkers(PartitionRestore.Attempt)
        case scanDue(DueSchedule.Look)
        case sync
        case dropCopies
    }

    /// A partition of the changelog that is read up to the end that it had when the reading began.
    private struct ChangelogReading {
        var attempt: PartitionRestore.Attempt
        var end: Int64
    }

    private static let tick: UInt64 = 100_000_000
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
            commitInterval: 200_000_000, transactionInterval: 50_000_000, drainDeadline: 20_000_000_000,
            revokeDeadline: 10_000_000_000, sessionTimeout: scenario.session, readsFromBeginning: true,
            highestOffset: 1 << 40)
        settings.spanLimit = scenario.spanLimit
        settings.metadataBytes = scenario.metadataBytes
        settings.jobsPerCommit = 100
        machine = WorkerMachine(settings, now: world.now)
        for number in 0..<scenario.shards { shards.append(ShardProcess(self, number: number)) }
    }

    var kafka: KafkaModel { world.kafka }
    var isRunning: Bool { !isStopped && !isDead && end == nil }
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
        if world.chance(600) { for shard in shards { shard.turn() } }
        kafka.resume(client)
    }

    /// SIGTERM.
    func stop() {
        machine.stop(at: world.now)
        act()
    }

    var isIdle: Bool {
        machine.phase == .running && machine.outstanding == 0 && reports.isEmpty
            && shards.allSatisfy { $0.isIdle } && machine.arriving == nil
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

    /// The assignment of a slot is still the worker's.
    func owns(_ partition: Int) -> Bool { kafka.owned(client).contains(partition) }

    // MARK: The loop

    private func turn() {

        serveEvents()
        takeReports()
        if machine.phase == .running { poll() }
        if hasReports || machine.phase > .running {
            hasReports = false
            machine.reportsPolled(unreported: kafka.queued(client), bytesHeld: bytesHeld, at: world.now)
            act()
        }
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

    private func tick() {
        nextTick = world.now + Self.tick
        machine.tick(at: time)
        act()
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
        if count > 0 { machine.polled() }
        act()
    }

    private func take(_ record: borrowing KafkaModel.ReadRecord) {
        world.counts.events += 1
        let job = record.payload
        let shard = shardIndex(ofHash: world.keys[record.key].low, shards: shards.count)
        let fate = machine.take(
            partition: Int32(record.partition), offset: record.offset, bytes: Self.recordBytes, shard: shard,
            handle: UInt(job), at: world.now)
        switch fate {
        case .hand(let slot, let isReplay):
            act()
            hand(job, record.offset, shard, slot, isReplay)
        case .held, .discard: break
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
        case .assigned(let set): machine.assigned(set.map { Int32($0) }, at: now)
        case .revoked(let set): machine.revoked(set.map { Int32($0) }, isLost: false, at: now)
        case .lost(let set): machine.revoked(set.map { Int32($0) }, isLost: true, at: now)
        case .instanceFenced: machine.fail(.instanceTaken, .of(.fencedInstance), at: now)
        case .report(let report): take(report)
        case .step(let step, let result): machine.stepFinished(.init(step, result), at: now)
        case .producerFailed(let failure): machine.fail(.producer, .of(failure), at: now)
        case .committed(let reference, let failure):
            guard let index = commits.firstIndex(where: { $0.reference == reference }) else { break }
            let ticket = commits.remove(at: index).ticket
            machine.committed(ticket, fault: failure.map { .of($0) }, at: now)
        case .fetchedCommitted(let reference, let offsets, let failure):
            guard let index = fetches.firstIndex(where: { $0.reference == reference }) else { break }
            let ticket = fetches.remove(at: index).ticket
            let fetched = offsets.map {
                FetchedOffset(
                    partition: Int32($0.partition), offset: $0.offset < 0 ? nil : $0.offset,
                    metadata: $0.metadata)
            }
            machine.fetched(ticket, failure.map { .failure(.of($0)) } ?? .success(fetched), at: now)
        case .listed, .outOfRange: break
        }
        act()
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
                word.place, isOffsetDone: word.isOffsetDone, .of(failure), topic: topic,
                hasValue: report.topic == .deadLetters && !word.isOmitted, at: world.now)
            if case .produceAgain(let omitsValue) = fate { produceAgain(word, report, omitsValue) }
        } else {
            machine.delivered(
                word.place, isStored: word.isStored, isOffsetDone: word.isOffsetDone,
                device: world.keys[world.jobs[word.job(in: world)].token].low, at: world.now)
        }
    }

    private func produceAgain(_ word: FleetWord, _ report: KafkaModel.Report, _ omitsValue: Bool) {
        var word = word
        if omitsValue { word.isOmitted = true }
        let job = word.job(in: world)
        let answer = produce(
            .init(payload: world.output(of: job), key: world.jobs[job].token), to: report.topic, job, word)
        if answer != .queued { machine.fail(.producer, .of(.timedOut), at: world.now) }
    }

    // MARK: Producing

    func produce(
        _ record: KafkaModel.Record, to topic: KafkaModel.Topic, _ job: Int, _ word: FleetWord
    ) -> KafkaModel.ProduceAnswer {
        var record = record
        if topic == .deadLetters, !word.isOmitted { record.size = world.jobs[job].size }
        let partition: Int
        switch topic {
        case .outcomes: partition = record.key % kafka.partitionCount(.outcomes)
        case .deadLetters: partition = 0
        case .changelog, .jobs: partition = world.jobs[job].partition
        }
        return kafka.produce(client, record, to: topic, partition, opaque: word.opaque)
    }

    // MARK: Actions

    private func act() {
        guard !isActing else { return }
        isActing = true
        while isRunning, let action = machine.nextAction() { perform(action) }
        isActing = false
    }

    private func perform(_ action: WorkerAction) {
        switch action {
        case .hand(let handle, let shard, let slot, _, let isReplay):
            let job = Int(handle)
            hand(job, world.jobs[job].offset, shard, slot, isReplay)
        case .discard, .poll: break
        case .pause(let numbers): for number in numbers { kafka.pause(client, .jobs, Int(number)) }
        case .resume(let numbers): for number in numbers { kafka.resume(client, .jobs, Int(number)) }
        case .fetchCommitted(let numbers, let ticket, _):
            var set = PartitionSet()
            for number in numbers { set.insert(Int(number)) }
            fetches.append((kafka.fetchCommitted(client, set), ticket))
        case .assign(let begins):
            kafka.assign(
                client, begins.compactMap { begin in begin.offset.map { (Int(begin.partition), $0) } })
        case .unassign: kafka.unassign(client)
        case .commit(let set, let ticket): commits.append((kafka.commit(client, offsets(set.parts)), ticket))
        case .close:
            kafka.close(client)
            machine.closed()
        case .step(let step): start(step)
        case .sendOffsets(let parts): sendOffsets(parts)
        case .request(let shard, let request): shards[shard].ask(request)
        case .requestAll(let request): for shard in shards { shard.ask(request) }
        case .extendPermit(let until): permit = until
        case .note(let note): log(note)
        case .ended(let ended):
            end = ended
            checkEnd(ended)
        case .restore(let action): perform(action)
        case .scanDue(let look, _): diskTasks.append(.scanDue(look))
        case .sync: diskTasks.append(.sync)
        case .dropCopies: diskTasks.append(.dropCopies)
        case .advanceCommitted, .scanItems, .checkpoint, .forgetStore: break
        }
    }

    // MARK: The disk

    private func perform(_ action: PartitionRestore.Action) {
        switch action {
        case .open(let attempt): diskTasks.append(.open(attempt))
        case .openCopies(let attempts): diskTasks.append(.openCopies(attempts))
        case .loadMarkers(let attempt): diskTasks.append(.loadMarkers(attempt))
        case .restore(let attempts):
            for attempt in attempts {
                restores.append(
                    .init(attempt: attempt, end: kafka.log(.changelog, Int(attempt.partition)).end))
            }
        case .cancel(let partitions): restores.removeAll { partitions.contains($0.attempt.partition) }
        }
    }

    /// One order to the disk is carried out, or fails.
    private func turnDisk() {
        guard let task = diskTasks.popFirst() else { return }
        world.counts.events += 1
        let isDone = world.isHealthy || !world.chance(10)
        let now = world.now
        switch task {
        case .open(let attempt): machine.opened(attempt, isOpen: isDone, at: now)
        case .openCopies(let attempts): machine.openedCopies(attempts, isOpen: isDone, at: now)
        case .loadMarkers(let attempt): machine.loadedMarkers(attempt, isLoaded: isDone, at: now)
        case .scanDue(let look): machine.found(look.slot, isDone ? [] : nil, isEnd: true, at: now)
        case .sync: machine.synced(isDone: isDone, at: now)
        case .dropCopies: machine.droppedCopies(areMore: isDone ? false : nil, at: now)
        }
        act()
    }

    private func readChangelog() {
        var index = 0
        while index < restores.count {
            let reading = restores[index]
            let log = kafka.log(.changelog, Int(reading.attempt.partition))
            guard log.lastStable >= reading.end, !log.isAway else {
                index += 1
                continue
            }
            restores.remove(at: index)
            if !world.isHealthy, world.chance(20) {
                machine.restoreInterrupted(reading.attempt, .of(.leaderAway), at: world.now)
            } else {
                machine.restored(reading.attempt, position: reading.end, at: world.now)
            }
            act()
        }
    }

    private func offsets(_ parts: [Committer.CommitSet.Part]) -> [KafkaModel.OffsetCommit] {
        parts.map {
            KafkaModel.OffsetCommit(
                partition: Int($0.partition), offset: $0.point.offset, metadata: $0.point.metadata)
        }
    }

    private func start(_ step: TransactionCycle.Step) {
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
        guard let membership = parts.isEmpty ? .unfenced : kafka.membership(client) else {
            return machine.offsetsRefused(.of(.unknownMember), at: world.now)
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
        case .transactionAborted: world.note("process # has aborted a transaction", serial)
        case .secondOutcome(let partition, let offset):
            world.note(
                "process # has a second outcome, partition #, offset #", serial, Int(partition), Int(offset))
        case .stopsAtOnce, .failed: world.note("process # fails", serial)
        case .draining: world.note("process # drains", serial)
        case .membershipInDoubt: world.note("process # is in doubt", serial)
        default: break
        }
    }

    /// A stop that says "clean" has committed all that it has taken.
    private func checkEnd(_ end: WorkerEnd) {
        world.note("process # has ended, clean #", serial, end.isClean ? 1 : 0)
        // A transaction's offsets become visible a little later. Were they lost, outcomes would come twice.
        guard end.isClean, world.scenario.mode != .transactions else { return }
        for report in machine.partitionReports(topic: "", at: world.now) where report.end > 0 {
            let committed = max(0, kafka.committedOffset(Int(report.partition)).offset)
            guard committed < report.watermark else { continue }
            world.broken(
                .nothingLost,
                "process \(serial) ended clean, and offset \(committed) of partition \(report.partition) is committed, not \(report.watermark)"
            )
        }
    }
}

/// What rides with a record to its delivery report.
struct FleetWord {
    var slot: UInt16
    var offset: Int64
    var isStored = false
    var isOffsetDone = false
    var isOmitted = false
    var isChange = false
    var epoch = ChangeEpoch(shard: 0, epoch: 0)
    var partition = 0

    var place: RecordPlace { RecordPlace(partitionSlot: slot, offset: offset) }

    init(slot: UInt16, offset: Int64, partition: Int) {
        self.slot = slot
        self.offset = offset
        self.partition = partition
    }

    init(change epoch: ChangeEpoch) {
        (slot, offset, isChange) = (.max, 0, true)
        self.epoch = epoch
    }

    init(opaque: Int) {
        let bits = UInt64(bitPattern: Int64(opaque))
        slot = UInt16(truncatingIfNeeded: bits >> 48)
        isChange = slot == .max
        offset = 0
        if isChange {
            epoch = ChangeEpoch(
                shard: UInt16(truncatingIfNeeded: bits >> 32), epoch: UInt32(truncatingIfNeeded: bits))
        } else {
            isStored = bits >> 47 & 1 == 1
            isOffsetDone = bits >> 46 & 1 == 1
            isOmitted = bits >> 45 & 1 == 1
            partition = Int(bits >> 39 & 63)
            offset = Int64(bits & (1 << 39 - 1))
        }
    }

    var opaque: Int {
        var bits = UInt64(slot) << 48
        if isChange {
            bits |= UInt64(epoch.shard) << 32 | UInt64(epoch.epoch)
        } else {
            bits |= (isStored ? 1 : 0) << 47 | (isOffsetDone ? 1 : 0) << 46 | (isOmitted ? 1 : 0) << 45
            bits |= UInt64(partition) << 39 | UInt64(offset)
        }
        return Int(Int64(bitPattern: bits))
    }

    func job(in world: FleetWorld) -> Int { world.job(partition, offset) }
}

extension KafkaFault {
    private static let all: [KafkaFault] = (UInt8(0)..<24).map { raw in
        guard let failure = KafkaModel.Failure(rawValue: raw) else { return KafkaFault("?") }
        var traits: Traits = []
        switch failure {
        case .timedOut, .leaderAway, .coordinatorAway, .unstableOffsets: traits = .retriable
        case .rebalanceInProgress: traits = [.retriable, .rebalance]
        case .illegalGeneration: traits = [.rebalance, .membershipLost]
        case .unknownMember: traits = .membershipLost
        case .fencedInstance: traits = [.membershipLost, .lasting, .fatal]
        case .tooLarge: traits = [.tooLarge, .lasting]
        case .notAuthorised, .misuse: traits = .lasting
        case .metadataTooLarge: traits = [.metadataTooLarge, .lasting]
        case .fenced: traits = [.fatal, .fenced]
        case .recordLost, .purged, .unknownPartition, .outOfRange: traits = []
        }
        return KafkaFault("failure \(raw)", traits)
    }

    static func of(_ failure: KafkaModel.Failure) -> KafkaFault { all[Int(failure.rawValue)] }
}

extension TransactionCycle.StepResult {
    init(_ step: KafkaModel.TransactionStep, _ result: KafkaModel.StepResult) {
        let step: TransactionCycle.Step =
            switch step {
            case .initialize: .initialize
            case .begin: .begin
            case .sendOffsets: .sendOffsets
            case .commit: .commit
            case .abort: .abort
            }
        switch result {
        case .done: self.init(step)
        case .retriable(let failure): self.init(step, .retriable(.of(failure)))
        case .abortable(let failure): self.init(step, .abortable(.of(failure)))
        case .fatal(let failure): self.init(step, .fatal(.of(failure)))
        case .misuse: self.init(step, .fatal(.of(.misuse)))
        }
    }
}

import DeliveryCore
import EventLoop
import Kafka
import Logging
import RetryStore
import SluiceModel

/// The worker's Kafka thread: it polls records and hands them to the shards, takes the delivery reports of
/// outcomes, keeps each partition's watermark and commits it, and answers rebalances.
// Sendable: after `start()` everything is touched on the loop's thread alone; `loop`, the shards and the producer
// are made for several threads.
final class Intake: TimerHandler, @unchecked Sendable {
    enum Phase {
        case running
        case draining
        case ended
    }

    let loop: EventLoop
    let settings: Settings
    let consumer: KafkaConsumer
    let producer: KafkaProducer
    let shards: [Shard]
    let bytesInFlight: InFlightBytes
    let hasher: IdentityHasher
    /// Nil: what waits for long waits in memory.
    let store: RetryStore?
    let logger: Logger
    let deadLettersTopic: String
    /// Called once, on the loop's thread, when the intake has ended.
    let ended: (WorkerFailure?) -> Void

    var phase = Phase.running
    var partitions = PartitionSlots()
    /// Counts the jobs, by the places of `partitions`, and says when to pause.
    var gate: IntakeGate
    /// Jobs that the shards gave back at the end, of whatever partition.
    var drained = 0
    var counters = IntakeCounters()
    var failure: WorkerFailure?

    /// Has to be answered, also when it is empty: until then librdkafka hands out no record of any partition.
    var pendingAssignment: [TopicPartition]?
    /// The group has assigned partitions to this worker, or none of them, and not taken the worker for lost since.
    var isAssigned = false
    var revocation: Revocation?
    var drain: Drain?
    /// By then the group has been left, or can't be. Nil while the worker runs.
    var stopsAt: MonotonicTime?
    /// Read by threads that must not wait for this loop.
    let stopNote = StopNote()
    var commitUnderWay: IssuedCommit?
    /// Commits that wait for the disk.
    var barrier: Barrier?
    /// Partitions on their way here.
    var handOff = HandOff()
    /// Failed attempts in a row to take them over.
    var takeOverFailures = 0
    /// Whether the partitions are still this worker's, and until when pushes may leave for that.
    var lease: MembershipLease
    let permit: SendPermit
    /// The group is being asked whether this worker is a member still.
    var inquiry: MembershipInquiry?
    /// Nil without transactions. Set once, before the start.
    var transactions: WorkerTransactions?
    /// No transaction is committed any more.
    var hasFailedAtOnce = false
    /// Nil without a changelog. Set once, before the start.
    var restorer: ChangelogRestorer?
    /// Copies of partitions that went away.
    var oldCopies = OldCopies()
    /// The store's part of each partition that was assigned once.
    var openedStores: [Int32: StorePartition] = [:]
    /// Changes by who made them and when, of which Kafka has not told yet; below 0 while it was faster than the shard.
    var unacknowledged: [ChangeSource: Int] = [:]
    /// Changes of the store that the shards' writers had not produced when they ended.
    var changesLeft = 0
    /// When full windows were relieved last.
    var lastRelief = MonotonicTime(nanoseconds: 0)
    /// Of the changelog's partitions: one above the highest offset that is known of.
    var changelogEnds: [Int32: Int64] = [:]
    /// The last attempt to bring everything to the disk failed.
    var mustSync = false
    /// Until when no due items are looked for.
    var nextDueScan = MonotonicTime(nanoseconds: 0)
    /// Slots of partitions whose items could not be looked through.
    var failedScans: [UInt16] = []
    var lastCommit: MonotonicTime
    /// The group is in a rebalance.
    var commitsWaitUntil = MonotonicTime(nanoseconds: 0)
    var finishedSinceCommit = 0
    private var lastAssignmentTry: MonotonicTime
    /// Events are handled inside of a poll, whose buffer must not be filled again meanwhile.
    private var isPolling = false
    private var recordsWakeup: Wakeup!
    private var reportsWakeup: Wakeup!
    private let batch: UnsafeMutableBufferPointer<ConsumedRecord>
    private var touched: [Bool]

    /// Under load offsets are committed more often than the interval asks for, so that a crash repeats little: what
    /// was in flight and about so many jobs.
    private static let jobsPerCommit = 1000
    private static let leastCommitInterval: Duration = .milliseconds(20)
    /// Records of one poll; the loop sees to other work in between.
    private static let batchSize = 512
    private static let tick: Duration = .milliseconds(100)

    init(
        settings: Settings, consumerProperties: KafkaProperties, jobsTopic: String, deadLettersTopic: String,
        producer: KafkaProducer,
        shards: [Shard], bytesInFlight: InFlightBytes, permit: SendPermit, hasher: IdentityHasher,
        store: RetryStore?,
        loop: EventLoop, logger: Logger,
        ended: @escaping (WorkerFailure?) -> Void
    ) throws {
        self.settings = settings
        self.producer = producer
        self.shards = shards
        self.bytesInFlight = bytesInFlight
        self.hasher = hasher
        self.store = store
        self.logger = logger
        self.deadLettersTopic = deadLettersTopic
        self.ended = ended
        self.loop = loop
        batch = .allocate(capacity: Self.batchSize)
        touched = Array(repeating: false, count: shards.count)
        gate = IntakeGate(
            limits: .init(
                jobs: settings.maximumInFlight, bytes: settings.maximumBytes,
                partitionShare: settings.partitionShare), now: loop.now.nanoseconds)
        self.permit = permit
        lease = MembershipLease(
            session: settings.sessionTimeout.wholeNanoseconds, now: MonotonicTime.read().nanoseconds)
        lastCommit = loop.now
        lastAssignmentTry = loop.now
        let events = EventRelay()
        consumer = try KafkaConsumer(properties: consumerProperties, topics: [jobsTopic]) {
            events.target?($0)
        }
        events.target = { [unowned self] in handle($0) }
        recordsWakeup = try loop.makeWakeup { [unowned self] in pollRecords() }
        reportsWakeup = try loop.makeWakeup { [unowned self] in pollReports() }
        for shard in shards {
            shard.gaveBack = { [unowned self] slot in loop.execute { [self] in jobGaveBack(slot) } }
            shard.report = { [unowned self] news in loop.execute { [self] in take(news) } }
        }
        store?.observeFailures { [weak self] error in
            guard let self else { return }
            loop.execute { [self] in storeWorks(error) }
        }
    }

    deinit {
        batch.deallocate()
    }

    /// Lets the consumer be made before its events have somewhere to go.
    private final class EventRelay {
        var target: ((KafkaConsumerEvent) -> Void)?
    }

    func start() {
        loop.start()
        loop.execute { [self] in
            consumer.notify(fileDescriptor: recordsWakeup.signalDescriptor)
            if let transactions {
                transactions.client.notify(fileDescriptor: reportsWakeup.signalDescriptor)
            } else {
                producer.notify(fileDescriptor: reportsWakeup.signalDescriptor)
            }
            loop.schedule(after: Self.tick, handler: self)
            lease = MembershipLease(
                session: settings.sessionTimeout.wholeNanoseconds, now: MonotonicTime.read().nanoseconds)
            permit.extend(until: MonotonicTime(nanoseconds: lease.until))
            startTransactions()
            pollRecords()
            pollReports()
        }
    }

    // MARK: Records

    func pollRecords() {
        guard phase == .running, !isPolling, !storeIsBehind else { return }
        gate.bytesHeld = bytesInFlight.count
        let room = gate.room(atMost: Self.batchSize, at: loop.now.nanoseconds)
        guard room > 0 else { return }
        isPolling = true
        let count = consumer.poll(into: UnsafeMutableBufferPointer(rebasing: batch[..<room]))
        isPolling = false
        for index in 0..<count { take(batch[index]) }
        followGate()
        signalShards()
        // The descriptor stays silent until a poll finds the queue empty.
        if count == room { recordsWakeup.signal() }
    }

    /// Serves the consumer's events alone; what records come are left to the next worker.
    private func serveEvents() {
        let count = consumer.poll(into: UnsafeMutableBufferPointer(rebasing: batch[..<1]))
        for index in 0..<count { batch[index].destroy() }
    }

    /// Polls after this turn.
    func pollSoon() {
        recordsWakeup.signal()
    }

    func signalShards() {
        for index in touched.indices where touched[index] {
            touched[index] = false
            shards[index].wakeup.signal()
        }
    }

    func take(_ record: ConsumedRecord) {
        guard let place = partitions.place(ofPartition: record.partition), !partitions[place].isEnding else {
            return record.destroy()
        }
        guard partitions[place].held.isEmpty else { return partitions[place].held.append(record) }
        guard OutcomeSource.offsets.contains(record.offset) else { return refuse(record) }
        let bytes = InFlightBytes.size(of: record)
        switch partitions[place].begin(record.offset, bytes: bytes, at: loop.now.nanoseconds) {
        case .begun: hand(record, place, bytes)
        case .alreadyCompleted:
            counters.alreadyCompleted += 1
            partitions[place].isDirty = true
            // Cancels and device events have their effect on what is in memory once more: until then no commit passes them.
            partitions[place].tracker.hold(record.offset)
            hand(record, place, bytes, isReplay: true)
        case .full: partitions[place].held.append(record)
        case .outOfOrder: return startOver(place, with: record)
        }
        checkWindow(place)
    }

    /// Stops the worker for an offset that outcomes can't name: brokers count from 0, one by one.
    private func refuse(_ record: ConsumedRecord) {
        fail(
            """
            partition \(record.partition) of the jobs topic has a record with offset \(record.offset), above \
            \(OutcomeSource.offsets.upperBound), the highest that is handled: produce to a topic that was made anew
            """)
        record.destroy()
    }

    private func hand(_ record: ConsumedRecord, _ place: Int, _ bytes: Int, isReplay: Bool = false) {
        gate.take(place, offset: record.offset, bytes: bytes)
        counters.records += 1
        bytesInFlight.add(bytes)
        let device = record.key.map { hasher.device($0) }
        let shard =
            device.map { shardIndex(of: $0, shards: shards.count) }
            ?? Int(UInt32(bitPattern: record.partition)) % shards.count
        let pushed = shards[shard].ring.push(
            IncomingRecord(
                pointer: record.rawPointer, device: device ?? DeviceKey(high: 0, low: 0),
                partitionSlot: partitions[place].slot, isReplay: isReplay))
        precondition(pushed, "the ring of shard \(shard) is smaller than the limit of jobs in flight")
        touched[shard] = true
    }

    /// The log went back: its topic was made anew, or the group's offsets were reset.
    private func startOver(_ place: Int, with record: ConsumedRecord) {
        followGate()
        guard let old = partitions.remove(place) else { return }
        logger.warning(
            "the partition's offsets went back: was its topic made anew?",
            metadata: [
                "partition": "\(old.topicPartition)", "from": "\(old.tracker.end)", "to": "\(record.offset)",
            ])
        giveBack([old.slot])
        if gate.remove(place) {
            attempt("resume") { () throws(KafkaError) in try consumer.resume([old.topicPartition]) }
        }
        finishUnremoved(old)
        var new = PartitionState(
            topicPartition: old.topicPartition, tracker: OffsetTracker(nextOffset: record.offset))
        new.store = old.store.map {
            PartitionStore(handle: $0.handle, committed: CommittedOffset(record.offset))
        }
        for shard in shards { shard.loop.execute { shard.forgetMarks(partitionSlot: old.slot) } }
        endInShards([old.slot])
        begin(new)
        take(record)
    }

    // MARK: Delivery reports

    func pollReports() {
        guard phase != .ended else { return }
        producer.pollDeliveryReports { report in take(report) }
        pollTransactions()
        afterProgress()
    }

    /// An outcome or dead letter is in Kafka, or has to be produced again.
    func take(_ report: borrowing DeliveryReport) {
        if let transactions {
            transactions.reported += 1
            if let error = report.error {
                // What is lost is produced again with all the others, but for partitions that went away.
                counters.undelivered += 1
                if ChangeSource(opaque: report.opaque) == nil {
                    droppedIfGone(OutcomeSource(opaque: report.opaque))
                }
                return lost(error, to: report.topic)
            }
            transactions.cycle.recordProduced(at: loop.now.nanoseconds)
        }
        if let change = ChangeSource(opaque: report.opaque) { return acknowledged(change, report) }
        let source = OutcomeSource(opaque: report.opaque)
        if let error = report.error {
            counters.undelivered += 1
            if error.isFatal {
                fail("the producer has failed: \(error)", error)
            } else {
                produceAgain(report, error)
            }
            return
        }
        acknowledged(source, report)
    }

    /// The outcome of a partition that went away is not produced again: its job takes no room any more.
    private func droppedIfGone(_ source: OutcomeSource) {
        guard !source.isOffsetDone, partitions.place(ofSlot: source.partitionSlot) == nil else { return }
        gate.finishOrphans(1)
    }

    private func produceAgain(_ report: borrowing DeliveryReport, _ error: KafkaError) {
        logger.error(
            "an outcome did not reach Kafka; it is produced again",
            metadata: ["topic": "\(report.topic)", "error": "\(error)"])
        var headers = report.headers
        var value = report.value
        if !error.isRetriable {
            // Larger with its headers than the broker takes: a dead letter goes without its value then.
            guard report.topic == deadLettersTopic, value != nil else {
                return fail(Self.refusal(error, "\(report.topic)"), error)
            }
            value = nil
            headers.append((DeadLetter.valueOmittedHeader, Array(error.name.utf8)))
        }
        do throws(KafkaError) {
            let topic = try producer.topic(report.topic)
            let result = producer.produce(
                topic, key: report.key, value: value, headers: headers, opaque: report.opaque)
            // Otherwise its offset stays uncommitted, so a fresh start brings it again.
            switch result {
            case .queued: return
            case .failed(let error): fail("an outcome can't be produced again: \(error)", error)
            case .queueFull, .noTransaction: fail("an outcome can't be produced again: \(error)", error)
            }
        } catch {
            fail("an outcome can't be produced again: \(error)", error)
        }
    }

    private func acknowledged(_ source: OutcomeSource, _ report: borrowing DeliveryReport) {
        // An outcome of a partition that went away meanwhile is nobody's any more.
        guard let place = partitions.place(ofSlot: source.partitionSlot) else {
            if !source.isOffsetDone { gate.finishOrphans(1) }
            return
        }
        if partitions[place].store != nil, !isComplete(source, place, report) { return }
        complete(place, source.offset)
    }

    /// The offset of a record is complete. `isJob` unless its job took room further on, or takes none any more.
    func complete(_ place: Int, _ offset: Int64, isJob: Bool = true) {
        let (completion, bytes) = partitions[place].complete(offset)
        switch completion {
        case .advanced, .completed:
            let paused = isJob ? gate.finish(place, offset: offset, bytes: bytes) : gate.reasons(place)
            counters.finished += 1
            finishedSinceCommit += 1
            partitions[place].isDirty = true
            if paused.contains(.window) { reopenWindow(place) }
        case .notOutstanding, .unknown:
            // What was in an aborted transaction comes twice.
            guard transactions == nil || transactions!.aborted == 0 else { return }
            logger.error("a second outcome for one record", metadata: ["offset": "\(offset)"])
        }
    }

    /// Goes on with what waited for jobs to finish.
    func afterProgress() {
        let isUrgent = finishedSinceCommit >= Self.jobsPerCommit || hastensCommits
        if isUrgent, transactions == nil, loop.now >= lastCommit + Self.leastCommitInterval {
            commitDirty()
        }
        checkRevocation()
        checkDrain()
        guard phase == .running else { return }
        if settleGate() { pollRecords() }
    }

    // MARK: Time

    func timerFired(_ timer: TimerID) {
        guard phase != .ended else { return }
        loop.schedule(after: Self.tick, handler: self)
        renewLease()
        // Shards free bytes without a word; and a report may have been missed by nobody's fault.
        pollReports()
        guard phase != .ended else { return }
        if transactions != nil, phase == .draining { serveEvents() }
        if transactions == nil, loop.now >= lastCommit + settings.commitInterval {
            // Also while draining: whatever happens then, what is finished stays finished.
            if phase == .draining { serveEvents() }
            commitDirty()
        }
        guard phase == .running else { return }
        advanceGate()
        relieveFullWindows()
        lookForDue()
        dropOldCopies()
        if !gate.isStalled { pollRecords() }
        if pendingAssignment != nil, loop.now >= lastAssignmentTry + .seconds(1) {
            prepareAssignment()
            // From its end on: it may have waited for Kafka, and the loop has other things to do.
            lastAssignmentTry = MonotonicTime.read()
        }
    }
}

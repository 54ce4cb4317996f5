import DeliveryCore
import EventLoop
import Kafka
import Logging
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

    struct Settings: Sendable {
        var maximumInFlight: Int
        var maximumBytes: Int
        var commitInterval: Duration
        var drainDeadline: Duration
        /// How long a revocation may wait for what is in flight.
        var revokeDeadline: Duration
    }

    let loop: EventLoop
    let settings: Settings
    let consumer: KafkaConsumer
    let producer: KafkaProducer
    let shards: [Shard]
    let bytesInFlight: InFlightBytes
    let logger: Logger
    private let deadLettersTopic: String
    /// Called once, on the loop's thread, when the intake has ended.
    let ended: (String?) -> Void

    var phase = Phase.running
    var partitions = PartitionSlots()
    /// Jobs taken and not finished.
    var outstanding = 0
    /// Jobs of partitions that went away, which the shards still hold: nobody waits for them, but they take room.
    var orphaned = 0
    var counters = IntakeCounters()
    var failure: String?

    var pendingAssignment: [TopicPartition] = []
    var revocation: Revocation?
    var drain: Drain?
    var commitUnderWay: UInt64?
    var lastCommit: MonotonicTime
    var finishedSinceCommit = 0
    private var lastAssignmentTry: MonotonicTime
    private var stalledSince: MonotonicTime?
    var isPausedForLimit = false
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
    /// At its limit the intake first only stops polling; pausing throws away what librdkafka has fetched.
    private static let stallBeforePause: Duration = .milliseconds(500)

    init(
        settings: Settings, consumerProperties: KafkaProperties, jobsTopic: String, deadLettersTopic: String,
        producer: KafkaProducer,
        shards: [Shard], bytesInFlight: InFlightBytes, loop: EventLoop, logger: Logger,
        ended: @escaping (String?) -> Void
    ) throws {
        self.settings = settings
        self.producer = producer
        self.shards = shards
        self.bytesInFlight = bytesInFlight
        self.logger = logger
        self.deadLettersTopic = deadLettersTopic
        self.ended = ended
        self.loop = loop
        batch = .allocate(capacity: Self.batchSize)
        touched = Array(repeating: false, count: shards.count)
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
            producer.notify(fileDescriptor: reportsWakeup.signalDescriptor)
            loop.schedule(after: Self.tick, handler: self)
            pollRecords()
            pollReports()
        }
    }

    // MARK: Records

    private var isAtLimit: Bool {
        outstanding + orphaned >= settings.maximumInFlight || bytesInFlight.count >= settings.maximumBytes
    }

    func pollRecords() {
        guard phase == .running, !isPolling else { return }
        if isAtLimit, !isPausedForLimit {
            if stalledSince == nil { stalledSince = loop.now }
            return
        }
        let room =
            isPausedForLimit ? 1 : min(Self.batchSize, settings.maximumInFlight - outstanding - orphaned)
        isPolling = true
        let count = consumer.poll(into: UnsafeMutableBufferPointer(rebasing: batch[..<room]))
        isPolling = false
        for index in 0..<count { take(batch[index]) }
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

    private func signalShards() {
        for index in touched.indices where touched[index] {
            touched[index] = false
            shards[index].wakeup.signal()
        }
    }

    func take(_ record: ConsumedRecord) {
        guard let slot = partitions.slot(ofPartition: record.partition), let state = partitions[slot],
            !state.isEnding
        else { return record.destroy() }
        guard state.held.isEmpty else {
            partitions[slot]?.held.append(record)
            return
        }
        switch partitions[slot]!.tracker.begin(record.offset) {
        case .begun: hand(record, slot)
        case .alreadyCompleted:
            counters.alreadyCompleted += 1
            partitions[slot]?.isDirty = true
            record.destroy()
        case .full:
            partitions[slot]?.held.append(record)
            pauseForSpan(slot)
        case .outOfOrder:
            startOver(slot, with: record)
            return
        }
        if partitions[slot]!.tracker.isFull { pauseForSpan(slot) }
    }

    private func hand(_ record: ConsumedRecord, _ slot: UInt16) {
        outstanding += 1
        counters.records += 1
        bytesInFlight.add(InFlightBytes.size(of: record))
        let shard = shardIndex(ofKey: record.key, partition: record.partition, shards: shards.count)
        let pushed = shards[shard].ring.push(
            IncomingRecord(pointer: record.rawPointer, partitionSlot: slot))
        precondition(pushed, "the ring of shard \(shard) is smaller than the limit of jobs in flight")
        touched[shard] = true
    }

    /// The log went back: its topic was made anew, or the group's offsets were reset.
    private func startOver(_ slot: UInt16, with record: ConsumedRecord) {
        guard let old = partitions.remove(slot) else { return }
        logger.warning(
            "the partition's offsets went back: was its topic made anew?",
            metadata: [
                "partition": "\(old.topicPartition)", "from": "\(old.tracker.end)", "to": "\(record.offset)",
            ])
        letGo(old)
        giveBack([slot])
        if old.isPausedForSpan, !isPausedForLimit {
            attempt("resume") { () throws(KafkaError) in try consumer.resume([old.topicPartition]) }
        }
        partitions.insert(
            PartitionState(
                topicPartition: old.topicPartition, tracker: OffsetTracker(nextOffset: record.offset)))
        take(record)
    }

    private func pauseForSpan(_ slot: UInt16) {
        guard let state = partitions[slot], !state.isPausedForSpan else { return }
        partitions[slot]?.isPausedForSpan = true
        logger.warning(
            "a job holds its partition's watermark; the partition is paused until it is finished",
            metadata: [
                "partition": "\(state.topicPartition)", "offset": "\(state.tracker.watermark)",
                "finished-above": "\(state.tracker.completedInWindow)",
            ])
        attempt("pause") { () throws(KafkaError) in try consumer.pause([state.topicPartition]) }
    }

    private func resumeAfterSpan(_ slot: UInt16) {
        guard let state = partitions[slot], state.isPausedForSpan, state.tracker.hasRoom, !state.isEnding
        else { return }
        partitions[slot]?.isPausedForSpan = false
        let held = state.held
        partitions[slot]?.held = []
        for record in held { take(record) }
        signalShards()
        guard partitions[slot]?.isPausedForSpan == false, !isPausedForLimit else { return }
        attempt("resume") { () throws(KafkaError) in try consumer.resume([state.topicPartition]) }
    }

    // MARK: Delivery reports

    func pollReports() {
        guard phase != .ended else { return }
        producer.pollDeliveryReports { report in take(report) }
        afterProgress()
    }

    /// An outcome or dead letter is in Kafka, or has to be produced again.
    func take(_ report: borrowing DeliveryReport) {
        let source = OutcomeSource(opaque: report.opaque)
        if let error = report.error {
            counters.undelivered += 1
            if error.isFatal {
                fail("the producer has failed: \(error)")
            } else {
                produceAgain(report, error)
            }
            return
        }
        complete(source)
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
                return fail("Kafka refuses an outcome or dead letter: \(error)")
            }
            value = nil
            headers.append((DeadLetter.valueOmittedHeader, Array(error.name.utf8)))
        }
        do throws(KafkaError) {
            let topic = try producer.topic(report.topic)
            let result = producer.produce(
                topic, key: report.key, value: value, headers: headers, opaque: report.opaque)
            if case .queued = result { return }
            // Its offset stays uncommitted, so a restart brings it again.
            fail("an outcome can't be produced again")
        } catch {
            fail("an outcome can't be produced again: \(error)")
        }
    }

    private func complete(_ source: OutcomeSource) {
        // An outcome of a partition that went away meanwhile is nobody's any more.
        guard partitions[source.partitionSlot] != nil else {
            orphaned -= 1
            return
        }
        switch partitions[source.partitionSlot]!.tracker.complete(source.offset) {
        case .advanced, .completed:
            outstanding -= 1
            counters.finished += 1
            finishedSinceCommit += 1
            partitions[source.partitionSlot]?.isDirty = true
            if partitions[source.partitionSlot]!.isPausedForSpan { resumeAfterSpan(source.partitionSlot) }
        case .notOutstanding, .unknown:
            logger.error("a second outcome for one record", metadata: ["offset": "\(source.offset)"])
        }
    }

    /// Goes on with what waited for jobs to finish.
    private func afterProgress() {
        if finishedSinceCommit >= Self.jobsPerCommit, loop.now >= lastCommit + Self.leastCommitInterval {
            commitDirty()
        }
        checkRevocation()
        checkDrain()
        guard phase == .running else { return }
        if isPausedForLimit {
            guard outstanding + orphaned <= settings.maximumInFlight / 2,
                bytesInFlight.count <= settings.maximumBytes / 2
            else {
                return
            }
            isPausedForLimit = false
            let paused = partitions.states.values.filter { !$0.isPausedForSpan && !$0.isEnding }.map(
                \.topicPartition)
            attempt("resume") { () throws(KafkaError) in try consumer.resume(paused) }
            pollRecords()
        } else if stalledSince != nil, !isAtLimit {
            stalledSince = nil
            pollRecords()
        }
    }

    // MARK: Time

    func timerFired(_ timer: TimerID) {
        guard phase != .ended else { return }
        loop.schedule(after: Self.tick, handler: self)
        // Shards free bytes without a word; and a report may have been missed by nobody's fault.
        pollReports()
        guard phase != .ended else { return }
        if loop.now >= lastCommit + settings.commitInterval {
            // Also while draining: whatever happens then, what is finished stays finished.
            if phase == .draining { serveEvents() }
            commitDirty()
        }
        guard phase == .running else { return }
        if let since = stalledSince, loop.now >= since + Self.stallBeforePause, !isPausedForLimit, isAtLimit {
            pauseForLimit()
        }
        if isPausedForLimit || stalledSince == nil { pollRecords() }
        if !pendingAssignment.isEmpty, loop.now >= lastAssignmentTry + .seconds(1) {
            lastAssignmentTry = loop.now
            answerAssignment()
        }
    }

    private func pauseForLimit() {
        isPausedForLimit = true
        stalledSince = nil
        counters.pauses += 1
        logger.info(
            "at the limit of jobs in flight; partitions paused",
            metadata: ["jobs": "\(outstanding)", "bytes": "\(bytesInFlight.count)"])
        attempt("pause") { () throws(KafkaError) in
            try consumer.pause(partitions.states.values.map(\.topicPartition))
        }
    }
}

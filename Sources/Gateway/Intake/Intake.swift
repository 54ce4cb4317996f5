import DeliveryCore
import EventLoop
import Kafka
import Logging
import RetryStore
import SluiceModel

/// The shell of a worker's Kafka side. Reports events of Kafka, the shards and the store to ``WorkerMachine``, and
/// carries out the machine's actions. Makes no decisions.
// Sendable: after `start()`, only the loop's thread touches the intake. `loop`, the shards and the producer are made
// for several threads.
final class Intake: TimerHandler, @unchecked Sendable {
    let loop: EventLoop
    let settings: Settings
    let logger: Logger
    /// Log of what can repeat.
    let notices: NoticeLog
    let shards: [Shard]
    let permit: SendPermit
    let pushes: PushAllowance
    /// Nil without a store: items that wait for long then wait in memory.
    let store: RetryStore?
    /// Topics of outcomes and dead letters.
    private let outputs: (outcomes: KafkaTopic, deadLetters: KafkaTopic)
    private var refused = RefusedRecords()
    /// Moment of the stop request. Threads that must not wait for this loop read it.
    let stopNote = StopNote()
    private(set) var machine: WorkerMachine

    private let consumer: KafkaConsumer
    private let producer: KafkaProducer
    /// Nil without transactions.
    private let transactional: TransactionalProducer?
    /// Nil without a changelog.
    let restorer: ChangelogRestorer?
    /// Loop for requests to Kafka that may take time.
    private let questions: EventLoop
    let jobsTopic: String
    let bytesInFlight: InFlightBytes
    let hasher: IdentityHasher
    /// Whether the keys of outcomes and dead letters are hashes of device tokens.
    private let hashesTokens: Bool
    /// Called once, on the loop's thread, when the intake has ended.
    private let ended: (WorkerFailure?) -> Void
    let restarts: Int

    /// Commits under way, by librdkafka's reference.
    private var tickets: [UInt64: UInt64] = [:]
    /// Parts of the store that are open.
    let parts = StoreParts()
    /// Committed offsets by slot.
    private var committedOffsets: [UInt16: CommittedOffset] = [:]
    /// The store's last failure; nil while the store works.
    private(set) var storeFailure: RetryStoreError?
    private var readPositions = ReadPositions()
    /// Ticks until the next look at the lag.
    private var ticksToLook = 0
    /// librdkafka's last statistics by client.
    private(set) var statistics: [String: String] = [:]
    /// Nil when librdkafka itself goes on fetching in time.
    private var fetchWatch: FetchWatch?
    private var isPolling = false
    private var isActing = false
    private var wakeTimer: TimerID?
    /// Time of the armed timer, in nanoseconds; nil when the timer isn't armed.
    private var wakesAt: UInt64?
    private var recordsWakeup: Wakeup!
    private var reportsWakeup: Wakeup!
    private let batch: UnsafeMutableBufferPointer<ConsumedRecord>
    private var touched: [Bool]

    /// Most records of one poll. The loop does other work between polls.
    private static let batchSize = 512
    private static let tick: Duration = .milliseconds(100)

    /// Parameters of an intake.
    struct Parts {
        var consumerProperties: KafkaProperties
        var jobsTopic: String
        var outcomes: KafkaTopic
        var deadLetters: KafkaTopic
        var producer: KafkaProducer
        var transactional: TransactionalProducer?
        var shards: [Shard]
        var bytesInFlight: InFlightBytes
        var permit: SendPermit
        var pushes: PushAllowance
        var hasher: IdentityHasher
        /// Whether the keys of outcomes and dead letters are hashes of device tokens.
        var hashesTokens: Bool
        var store: RetryStore?
        var restorer: ChangelogRestorer?
        var loop: EventLoop
        var logger: Logger
        /// Count of workers that failed in this process before.
        var restarts: Int
        /// Whether all sending is paused at the start.
        var isAllPaused: Bool
    }

    init(settings: Settings, parts: Parts, ended: @escaping (WorkerFailure?) -> Void) throws {
        self.settings = settings
        producer = parts.producer
        transactional = parts.transactional
        restorer = parts.restorer
        shards = parts.shards
        bytesInFlight = parts.bytesInFlight
        hasher = parts.hasher
        hashesTokens = parts.hashesTokens
        store = parts.store
        logger = parts.logger
        jobsTopic = parts.jobsTopic
        outputs = (parts.outcomes, parts.deadLetters)
        permit = parts.permit
        pushes = parts.pushes
        restarts = parts.restarts
        loop = parts.loop
        notices = NoticeLog(loop: parts.loop, logger: parts.logger)
        questions = try EventLoop(name: "group")
        self.ended = ended
        batch = .allocate(capacity: Self.batchSize)
        touched = Array(repeating: false, count: parts.shards.count)
        fetchWatch = KafkaLibrary.stopsFetching ? FetchWatch(settings.fetchLimits) : nil
        machine = WorkerMachine(settings.machine, now: MonotonicTime.read().nanoseconds)
        machine.setAllPaused(parts.isAllPaused)
        let events = EventRelay()
        consumer = try KafkaConsumer(properties: parts.consumerProperties, topics: [parts.jobsTopic]) {
            events.target?($0)
        }
        // Weak, because the consumer's end has events too, also when the rest of this fails.
        events.target = { [weak self] in self?.handle($0) }
        recordsWakeup = try loop.makeWakeup { [unowned self] in pollRecords() }
        reportsWakeup = try loop.makeWakeup { [unowned self] in pollReports() }
        store?.observeFailures { [weak self] error in
            guard let self else { return }
            loop.execute { [self] in storeWorks(error) }
        }
    }

    deinit {
        batch.deallocate()
    }

    /// Relay that lets the consumer be made before the receiver of its events.
    private final class EventRelay {
        var target: ((KafkaConsumerEvent) -> Void)?
    }

    func start() {
        questions.start()
        loop.start()
        loop.execute { [self] in
            consumer.notify(fileDescriptor: recordsWakeup.signalDescriptor)
            if let transactional {
                transactional.notify(fileDescriptor: reportsWakeup.signalDescriptor)
            } else {
                producer.notify(fileDescriptor: reportsWakeup.signalDescriptor)
            }
            loop.schedule(after: Self.tick, handler: self)
            machine.start(at: time)
            act()
            pollRecords()
            pollReports()
        }
    }

    /// Drops the store's handles. The loop has ended.
    func forgetStores() {
        parts.releaseAll()
        committedOffsets = [:]
    }

    /// Nanoseconds of the monotonic clock, now.
    private var time: UInt64 { MonotonicTime.read().nanoseconds }

    // MARK: Orders from outside

    /// Pauses all partitions, or resumes them, because an operator has paused all sending. Loop's thread only.
    func setAllPaused(_ isPaused: Bool) {
        machine.setAllPaused(isPaused)
        act()
    }

    /// Begins an orderly stop. Loop's thread only.
    func stop() {
        machine.stop(at: time)
        act()
    }

    /// Reports a fault with which the worker can't continue. Loop's thread only.
    func fail(_ cause: WorkerFault.Cause, _ error: KafkaError? = nil) {
        machine.fail(cause, error.map { KafkaFault($0) }, at: time)
        act()
    }

    // MARK: Records

    private func pollRecords() {
        guard !isPolling else { return }
        guard machine.phase == .running else { return serveEvents() }
        machine.fetchedAhead(consumer.queueLength)
        let room = machine.room(
            atMost: Self.batchSize, bytesHeld: bytesInFlight.count,
            storeQueueBytes: store?.queuedBytes ?? 0, at: loop.now.nanoseconds)
        act()
        guard room > 0 else { return }
        let bytesLeft = machine.bytesLeft
        isPolling = true
        let count = consumer.poll(
            into: UnsafeMutableBufferPointer(rebasing: batch[..<room]), bytes: bytesLeft)
        isPolling = false
        if count > 0 {
            noteTimestamps(count)
            watchFetching(count)
        }
        var bytes = 0
        let latest = wallClockMilliseconds() + LogEvidence.clockTolerance
        for index in 0..<count {
            if index + 4 < count, let key = batch[index + 4].key { Prefetch.lines(of: key) }
            bytes += accept(
                batch[index], before: index + 1 < count ? batch[index + 1] : nil, latest: latest)
        }
        machine.polled(count, bytes: bytes)
        act()
        signalShards()
        // The descriptor stays silent until a poll finds the queue empty.
        if count == room || count > 0 && bytes >= bytesLeft { recordsWakeup.signal() }
    }

    /// Wakes the consumer's fetching if it may have stopped.
    private func watchFetching(_ count: Int) {
        guard fetchWatch != nil else { return }
        var bytes = 0
        for index in 0..<count { bytes += batch[index].value?.count ?? 0 }
        if fetchWatch?.polled(count, bytes: bytes, queued: consumer.queueLength) == true { wakeFetching() }
    }

    private func wakeFetching() {
        let (offsets, partitions) = (consumer.offsets, topicPartitions(machine.partitionNumbers))
        let isAccepted = questions.execute { [self] in
            // The request itself wakes the thread; its answer only shows that the time has come for another one.
            offsets.wakeFetching(of: partitions, timeoutMilliseconds: 100)
            loop.execute { [self] in
                guard machine.phase == .running else { return }
                if fetchWatch?.asked(queued: consumer.queueLength) == true { wakeFetching() }
            }
        }
        // The worker ends.
        if !isAccepted { fetchWatch = nil }
    }

    /// Notes the last record of each run of a partition. The shards may free the records later.
    private func noteTimestamps(_ count: Int) {
        for index in 0..<count {
            let record = batch[index]
            guard index == count - 1 || batch[index + 1].partition != record.partition else { continue }
            readPositions.polled(
                record.partition, timestamp: record.timestampMilliseconds, now: wallClockMilliseconds())
        }
    }

    /// Returns the distance of a partition's reading from the end of its log, as of the last fetch.
    func lag(of report: PartitionReport) -> PartitionLag {
        let watermarks = consumer.watermarks(of: TopicPartition(report.topic, report.partition))
        return readPositions.lag(of: report, watermarks, now: wallClockMilliseconds())
    }

    /// Looks every second how far the reading is behind.
    private func lookAtLag() {
        ticksToLook = ticksToLook > 0 ? ticksToLook - 1 : 9
        guard ticksToLook == 0 else { return }
        for report in partitionReports() {
            let watermarks = consumer.watermarks(of: TopicPartition(report.topic, report.partition))
            readPositions.look(report, watermarks, now: wallClockMilliseconds())
        }
    }

    /// Keeps the statistics that a producer of the worker reported.
    func note(statistics text: String, of client: String) { statistics[client] = text }

    /// Serves the consumer's events alone. Records that arrive are left to the next worker.
    private func serveEvents() {
        guard machine.phase < .leaving else { return }
        isPolling = true
        let count = consumer.poll(into: UnsafeMutableBufferPointer(rebasing: batch[..<1]))
        isPolling = false
        for index in 0..<count { batch[index].destroy() }
        if count > 0 { recordsWakeup.signal() }
        act()
    }

    private func signalShards() {
        for index in touched.indices where touched[index] {
            touched[index] = false
            shards[index].wakeup.signal()
        }
    }

    /// - Parameter latest: milliseconds since the epoch; a later time of a record is no evidence of its log.
    /// - Returns: the bytes that the record counts for.
    private func accept(_ record: ConsumedRecord, before next: ConsumedRecord?, latest: Int64) -> Int {
        let bytes = record.countedBytes(before: next)
        let device = record.key.map { hasher.device(RecordKey.address(in: $0)) }
        let shard = shard(of: device, record.partition)
        let fate = machine.accept(
            partition: record.partition, offset: record.offset, bytes: bytes,
            milliseconds: record.timestampMilliseconds > latest ? 0 : max(0, record.timestampMilliseconds),
            shard: shard, handle: UInt(bitPattern: record.rawPointer), at: loop.now.nanoseconds)
        switch fate {
        case .hand(let slot, let isReplay):
            // Requests to the shards that must precede the record.
            act()
            hand(record, device, shard: shard, slot: slot, bytes: bytes, isReplay: isReplay)
        case .deferred: bytesInFlight.add(bytes)
        case .discard: record.destroy()
        }
        return bytes
    }

    /// Returns the shard of a device. Records without a key are spread by their partition.
    private func shard(of device: DeviceKey?, _ partition: Int32) -> Int {
        device.map { shardIndex(of: $0, shards: shards.count) }
            ?? Int(UInt32(bitPattern: partition)) % shards.count
    }

    private func hand(
        _ record: ConsumedRecord, _ device: DeviceKey?, shard: Int, slot: UInt16, bytes: Int, isReplay: Bool
    ) {
        bytesInFlight.add(bytes)
        let pushed = shards[shard].ring.push(
            IncomingRecord(
                pointer: record.rawPointer, device: device ?? DeviceKey(high: 0, low: 0), partitionSlot: slot,
                bytes: Int32(clamping: bytes), isReplay: isReplay))
        precondition(pushed, "the ring of shard \(shard) is smaller than the limit of jobs in flight")
        touched[shard] = true
    }

    // MARK: Delivery reports

    func pollReports() {
        guard machine.phase < .leaving else { return }
        producer.pollDeliveryReports { report in accept(report) }
        while let result = transactional?.takeResult() {
            machine.stepFinished(.init(result), at: time)
            act()
        }
        countPushes()
        machine.reportsPolled(
            unreported: machine.phase == .running ? 0 : unreported,
            bytesHeld: bytesInFlight.count, at: loop.now.nanoseconds)
        act()
    }

    /// Records on their way to Kafka. Refused records go to the producer once more.
    private var unreported: Int { producer.queued + refused.count }

    private func countPushes() {
        let (ended, records) = (pushes.ended, pushes.records)
        machine.countPushes(
            ended: ended, records: records, unreported: unreported, at: loop.now.nanoseconds)
        act()
        if pushes.takeWanted() { askAll(.wake) }
    }

    private func accept(_ report: borrowing DeliveryReport) {
        let now = loop.now.nanoseconds
        if let change = ChangeSource(opaque: report.opaque) {
            let epoch = ChangeEpoch(shard: change.shard, epoch: change.epoch)
            if let error = report.error {
                machine.changeLost(epoch, KafkaFault(error), topic: report.topic, at: now)
            } else {
                machine.changeDelivered(epoch, partition: report.partition, offset: report.offset, at: now)
            }
            return
        }
        let source = OutcomeSource(opaque: report.opaque)
        if let error = report.error {
            let topic = report.topic == outputs.deadLetters.name ? outputs.deadLetters : outputs.outcomes
            let record = CutRecord(
                topic === outputs.deadLetters ? .deadLetter : .outcome, key: report.key, value: report.value,
                headers: report.headers)
            let fate = machine.lost(
                source.outcome, KafkaFault(error), topic: topic.name,
                form: ProducedForm(
                    kind: record.kind, cuts: record.cuts, bytes: record.bytes,
                    largestBatch: topic.largestBatch),
                at: now)
            switch fate {
            case .done: break
            case .produceAgain: produceAgain(report, error)
            case .keep: refused.keep(record, topic, source)
            }
            return
        }
        machine.delivered(
            source.outcome, isStored: source.isStored, device: device(of: report), at: now)
    }

    /// Returns the hash of the device that a record of outcomes or dead letters belongs to.
    private func device(of report: borrowing DeliveryReport) -> UInt64 {
        if hashesTokens, let device = ReportedDevice.device(of: report) { return device }
        return report.key.map { hasher.device($0).low } ?? 0
    }

    private func produceAgain(_ report: borrowing DeliveryReport, _ error: KafkaError) {
        let kind: ProduceOrder.Kind = report.topic == outputs.deadLetters.name ? .deadLetter : .outcome
        notices.log(
            .error, .recordLost, of: Int(kind.rawValue),
            "a record did not reach Kafka; it is produced again",
            metadata: ["topic": "\(report.topic)", "error": "\(error)"])
        do throws(KafkaError) {
            let topic = try producer.topic(report.topic)
            let result = producer.produce(
                topic, key: report.key, value: report.value, headers: report.headers,
                opaque: report.opaque)
            // Otherwise the record's offset stays uncommitted, so a fresh start reads the record again.
            switch result {
            case .queued: return
            case .failed(let error): fail(.producer, error)
            case .queueFull, .noTransaction: fail(.producer, error)
            }
        } catch {
            fail(.producer, error)
        }
    }

    /// Produces a refused record again.
    private func produceAgain(_ record: RefusedRecord) {
        switch refused.produce(record, by: producer, notices) {
        case .done: break
        case .neverFits(let topic, let error):
            machine.neverFits(record.outcome, topic: topic, KafkaFault(error), at: time)
        case .failed(let error): fail(.producer, error)
        }
    }

    // MARK: Time

    func timerFired(_ timer: TimerID) {
        if timer == wakeTimer {
            (wakeTimer, wakesAt) = (nil, nil)
            machine.wake(at: time)
            return act()
        }
        guard machine.phase < .leaving else { return }
        loop.schedule(after: Self.tick, handler: self)
        for record in refused.takeWaiting() { produceAgain(record) }
        // The timer polls too, because shards free bytes without a signal, and a report's signal may be missed.
        pollReports()
        machine.fetchedAhead(consumer.queueLength)
        machine.tick(
            at: DeliveryTime(wallMilliseconds: wallClockMilliseconds(), monotonicNanoseconds: time))
        act()
        if machine.phase > .running { serveEvents() } else { lookAtLag() }
    }

    private func armWakeTimer() {
        if let wakeTimer { loop.cancel(wakeTimer) }
        wakesAt = machine.wakeAt
        wakeTimer = wakesAt.map { loop.schedule(at: MonotonicTime(nanoseconds: $0), handler: self) }
    }

    // MARK: Shards

    /// Passes a shard's report to the machine. Any thread.
    func report(_ shard: Int, _ report: ShardReport) {
        loop.execute { [self] in
            machine.shard(shard, report, at: time)
            act()
        }
    }

    // MARK: Events

    private func handle(_ event: KafkaConsumerEvent) {
        switch event {
        case .assigned(let assigned):
            for each in assigned { readPositions.assigned(each.partition) }
            machine.assigned(assigned.map(\.partition), at: time)
        case .revoked(let revoked): machine.revoked(revoked.map(\.partition), isLost: false, at: time)
        case .lost(let lost): machine.revoked(lost.map(\.partition), isLost: true, at: time)
        case .committed(let result):
            if let ticket = tickets.removeValue(forKey: result.reference) {
                machine.committed(ticket, fault: result.error.map { KafkaFault($0) }, at: time)
            }
        case .error(let error):
            if error.isFatal {
                machine.fail(error.isInstanceTaken ? .instanceTaken : .consumer, KafkaFault(error), at: time)
            } else {
                notices.log(
                    .warning, .consumerError, of: Int(error.code), "Kafka consumer reported an error",
                    metadata: ["error": "\(error)"])
            }
            machine.kafkaFailed()
        case .partitionError(let partition, let error):
            machine.kafkaFailed()
            notices.log(
                .error, .partitionError, of: Int(partition.partition),
                "Kafka consumer reported an error of a partition",
                metadata: ["partition": "\(partition)", "error": "\(error)"])
        case .log(let line):
            logger.log(
                level: line.level <= 3
                    ? .error : line.level == 4 ? .warning : line.level <= 6 ? .info : .debug,
                "librdkafka consumer wrote a log line",
                metadata: ["facility": "\(line.facility)", "text": "\(line.message)"])
        case .statistics(let text): note(statistics: text, of: "consumer")
        case .endOfPartition(let partition, let offset):
            readPositions.reachedEnd(partition.partition, offset, now: wallClockMilliseconds())
            machine.reachedEnd(partition: partition.partition, offset: offset)
        }
        act()
    }

    // MARK: Actions

    /// Carries out all actions of the machine. Called after every call to the machine.
    private func act() {
        // Actions that follow from an action are appended, and the running loop carries them out.
        guard !isActing else { return }
        isActing = true
        while let action = machine.nextAction() { perform(action) }
        isActing = false
        if machine.wakeAt != wakesAt { armWakeTimer() }
    }

    private func perform(_ action: WorkerAction) {
        switch action {
        case .hand(let handle, let shard, let slot, let bytes, let isReplay):
            guard let record = record(handle) else { return }
            let device = record.key.map { hasher.device(RecordKey.address(in: $0)) }
            bytesInFlight.subtract(bytes)
            hand(record, device, shard: shard, slot: slot, bytes: bytes, isReplay: isReplay)
            signalShards()
        case .discard(let handle, let bytes):
            bytesInFlight.subtract(bytes)
            record(handle)?.destroy()
        case .copyDeferred:
            machine.replaceDeferredHandles { handle in
                record(handle).map { UInt(bitPattern: $0.inOwnMemory().rawPointer) } ?? handle
            }
        case .poll: recordsWakeup.signal()
        case .pause(let numbers):
            attempt("pause") { () throws(KafkaError) in try consumer.pause(topicPartitions(numbers)) }
        case .resume(let numbers):
            attempt("resume") { () throws(KafkaError) in try consumer.resume(topicPartitions(numbers)) }
        case .fetchCommitted(let numbers, let ticket, let patience, let wantsLogEnds):
            fetchCommitted(numbers, ticket, patience, wantsLogEnds)
        case .assign(let begins): assign(begins)
        case .unassign(let numbers):
            attempt("unassign") { () throws(KafkaError) in
                try consumer.unassign(topicPartitions(numbers))
            }
        case .commit(let set, let ticket): commit(set, ticket)
        case .close(let timeout):
            // Closes outside of a poll, because the poll's queue is destroyed with the client.
            loop.execute { [self] in
                close(timeout)
                act()
            }
        case .produceAgain(let record): produceAgain(record)
        case .forgetRefused(let outcome): refused.forget(outcome)
        case .step(let step): start(step)
        case .sendOffsets(let parts): sendOffsets(parts)
        case .request(let shard, let request): ask(shard, request)
        case .requestAll(let request):
            askAll(request)
            if case .end(let slots) = request {
                for slot in slots { committedOffsets[slot] = nil }
                refused.end(slots)
            }
        case .restore(let action): perform(action)
        case .extendChangelog: restorer?.extendChangelog()
        case .advanceCommitted(let slot, let offset): committedOffsets[slot]?.advance(to: offset)
        case .scanItems(let slot, let partition): scanItems(slot, partition)
        case .scanDue(let look, let partition): scanDue(look, partition)
        case .scanSuspended(let look, let partition): scanSuspended(look, partition)
        case .scanExpired(let look, let partition): scanExpired(look, partition)
        case .sync: sync()
        case .checkpoint(let partition, let position): checkpoint(partition, position)
        case .forgetStore(let partition): parts.release(partition)
        case .dropCopies(let kept): dropCopies(except: kept)
        case .extendPermit(let until): permit.extend(until: MonotonicTime(nanoseconds: until))
        case .allowPushes(let count): pushes.allow(count)
        case .note(let note): log(note)
        case .ended(let end):
            questions.stop()
            logger.info(
                "the worker's intake stopped",
                metadata: [
                    "finished": "\(machine.counters.finished)", "unfinished": "\(machine.outstanding)",
                    "clean": "\(end.isClean)",
                ])
            ended(
                end.failure.map {
                    WorkerFailure(reason: describe($0), startsOver: $0.startsOver)
                })
        }
    }

    private func record(_ handle: UInt) -> ConsumedRecord? {
        UnsafeMutableRawPointer(bitPattern: handle).map { ConsumedRecord(rawPointer: $0) }
    }

    private func topicPartitions(_ numbers: [Int32]) -> [TopicPartition] {
        numbers.map { TopicPartition(jobsTopic, $0) }
    }

    private func attempt(_ what: String, _ body: () throws(KafkaError) -> Void) {
        do throws(KafkaError) {
            try body()
        } catch {
            machine.kafkaFailed()
            notices.log(
                .error, .kafkaCallFailed, "a Kafka call failed",
                metadata: ["call": "\(what)", "error": "\(error)"])
        }
    }

    // MARK: The group

    private func fetchCommitted(_ numbers: [Int32], _ ticket: UInt64, _ patience: Int32, _ wantsLogEnds: Bool)
    {
        let (offsets, partitions) = (consumer.offsets, topicPartitions(numbers))
        let isAccepted = questions.execute { [self] in
            var result: Result<[FetchedOffset], KafkaFault>
            do throws(KafkaError) {
                let committed = try offsets.committed(partitions, timeoutMilliseconds: patience)
                let logs = wantsLogEnds ? offsets.logEnds(of: partitions, timeoutMilliseconds: 1_000) : [:]
                var fetched: [FetchedOffset] = []
                for each in committed {
                    let log = logs[each.topicPartition]
                    var offset = FetchedOffset(
                        partition: each.topicPartition.partition, offset: each.offset,
                        metadata: each.metadata,
                        logStart: log?.low ?? 0, logEnd: log?.high)
                    if let evidence = offset.evidence {
                        offset.answers = Self.answers(offsets, each.topicPartition, evidence)
                    }
                    fetched.append(offset)
                }
                result = .success(fetched)
            } catch {
                result = .failure(KafkaFault(error))
            }
            loop.execute { [self, result] in
                machine.fetched(ticket, result, at: time)
                act()
            }
        }
        if !isAccepted { machine.fetched(ticket, .failure(.partitionsLost), at: time) }
    }

    /// Asks what a log has before and after a time, because the group's offset lies beyond the log's end. Blocks.
    private static func answers(
        _ offsets: GroupOffsets, _ partition: TopicPartition, _ milliseconds: Int64
    ) -> LogEvidence.Answers? {
        do throws(KafkaError) {
            let first = try offsets.offset(of: partition, from: 0, timeoutMilliseconds: 1_000)
            let newer = try offsets.offset(
                of: partition, from: milliseconds + 1, timeoutMilliseconds: 1_000)
            return LogEvidence.Answers(first: first, newer: newer)
        } catch {
            return nil
        }
    }

    private func assign(_ begins: [PartitionBegin]) {
        do throws(KafkaError) {
            try consumer.assign(
                begins.map {
                    TopicPartitionOffset(
                        TopicPartition(jobsTopic, $0.partition),
                        $0.offset.map { .offset($0) } ?? .committed)
                })
        } catch {
            machine.assignFailed(begins.map(\.partition), KafkaFault(error), at: time)
        }
    }

    private func commit(_ set: Committer.CommitSet, _ ticket: UInt64) {
        guard !consumer.holdsCommits else { return machine.commitHeld(ticket, at: time) }
        do throws(KafkaError) {
            tickets[try consumer.commit(offsets(set.parts))] = ticket
        } catch {
            machine.committed(ticket, fault: KafkaFault(error), at: time)
        }
    }

    private func offsets(_ parts: [Committer.CommitSet.Part]) -> [OffsetCommit] {
        parts.map {
            OffsetCommit(
                topic: jobsTopic, partition: $0.partition, offset: $0.point.offset,
                metadata: $0.point.metadata)
        }
    }

    /// Leaves the group within the given time. Blocks.
    private func close(_ timeoutMilliseconds: Int32) {
        stopNote.note(at: .read())
        if !consumer.close(timeoutMilliseconds: timeoutMilliseconds) {
            logger.warning(
                "the worker could not leave the group in time; the group removes it after the session timeout",
                metadata: [
                    "session-timeout-milliseconds": "\(settings.sessionTimeout.wholeNanoseconds / 1_000_000)"
                ])
        }
        if let transactional { transactional.close() } else { producer.close() }
        machine.closed()
    }

    // MARK: The store

    /// Reports a fact to the machine, and carries out the actions that follow.
    func apply(_ fact: (inout WorkerMachine, UInt64) -> Void) {
        fact(&machine, time)
        act()
    }

    /// Keeps the store's failure and reports it to the machine; nil reports that the store works.
    func storeWorks(_ error: RetryStoreError?) {
        storeFailure = error
        if let error, !error.isTransient { fail(.other("\(error)")) }
        apply { machine, now in
            machine.storeFails(error != nil, needsReopening: error?.needsReopening == true, at: now)
        }
    }

    func watch(_ slot: UInt16, _ offset: CommittedOffset) { committedOffsets[slot] = offset }

    // MARK: Transactions

    private func start(_ step: TransactionCycle.Step) {
        do throws(KafkaError) {
            switch step {
            case .initialize: try transactional?.initialize()
            case .begin: try transactional?.beginTransaction()
            case .commit: try transactional?.commit()
            case .abort: try transactional?.abort()
            case .sendOffsets: break
            }
        } catch {
            machine.stepFinished(.init(step, .fatal(KafkaFault(error))), at: time)
        }
    }

    private func sendOffsets(_ parts: [Committer.CommitSet.Part]) {
        do throws(KafkaError) {
            try transactional?.sendOffsets(offsets(parts), group: consumer.groupMetadata())
        } catch {
            machine.offsetsRefused(KafkaFault(error), at: time)
        }
    }
}

import DeliveryCore
import EventLoop
import Kafka
import Logging
import SluiceModel
import Synchronization

/// Shell of ``SwitchMachine``: takes operators' changes, keeps them in the control topic or in a file, reads the changes
/// of other workers, and reports the pauses in force to the worker's loops. Has a thread of its own.
// Sendable: `status` is locked. Only the loop's thread touches the rest, except for constants.
public final class SwitchBoard: TimerHandler, @unchecked Sendable {
    /// Place that keeps the switches across restarts.
    enum Home: Sendable {
        case memory
        case file(SwitchFile)
        case topic(Topic)
    }

    /// The control topic, and the files beside it.
    struct Topic: Sendable {
        var name: String
        var reader: KafkaProperties
        var producer: KafkaProperties
        /// Changes that this worker keeps while the topic is away. Its pauses move to the topic.
        var own: SwitchFile
        /// Last known changes of the topic. They stay in force while the topic is away.
        var known: SwitchFile
        /// True when the topic couldn't be used at the start: the worker goes on with both files until it has read the
        /// topic. False: nothing is sent before.
        var isAway = false
    }

    private let loop: EventLoop
    private let home: Home
    private let logger: Logger
    /// Log of what can repeat.
    private let notices: NoticeLog
    private let published: Mutex<SwitchStatus>
    private let last: Mutex<(switches: Switches, unkept: [SwitchRecord])>
    private var machine: SwitchMachine
    /// Reads the control topic while the topic is away, and takes the machine's place at the topic's end; nil otherwise.
    private var arriving: SwitchMachine?
    /// True when the file of the topic's last known changes lacks some.
    private var isKnownUnsaved = false
    private var nextSave = MonotonicTime(nanoseconds: 0)
    /// Changes that took effect while the topic was away.
    private var earlierChanges = 0
    /// Nil without a control topic.
    private var consumer: KafkaConsumer?
    /// Producer of the control topic, made with the first change; nil before.
    private var producer: (client: KafkaProducer, topic: KafkaTopic)?
    private var readWakeup: Wakeup!
    private var producedWakeup: Wakeup!
    private let batch = UnsafeMutableBufferPointer<ConsumedRecord>.allocate(capacity: 64)
    /// Reports the pauses in force to the worker's loops; nil before the start.
    private var report: (@Sendable (Switches) -> Void)?
    /// Changes whose acknowledgement is awaited, by the producer's opaque word.
    private var producing: [UInt: SwitchRecord] = [:]
    private var lastOpaque: UInt = 0
    private var answers: [Answer] = []
    /// File whose pauses move to the topic; nil: there is none, or the topic has them.
    private var leftFile: SwitchFile?
    /// True when the last poll has met the topic's end.
    private var endReached = false
    private var isClosed = false
    private var startedAt = MonotonicTime(nanoseconds: 0)
    private var nextWarning = MonotonicTime(nanoseconds: 0)

    /// An operator who waits for a change to be kept.
    private struct Answer {
        var scope: PauseScope
        var until: MonotonicTime
        var give: @Sendable (SwitchChange) -> Void
    }

    private static let tick: Duration = .milliseconds(100)
    /// Time for which an operator waits until a change is kept.
    private static let patience: Duration = .seconds(5)
    /// Interval of warnings while the control topic can't be read.
    private static let warnings: Duration = .seconds(30)

    /// Reads the file, or makes the reader of the control topic.
    /// - Parameter carried: changes of the worker before in this process that nothing else keeps.
    init(_ home: Home, carried: [SwitchRecord], logger: Logger) throws {
        self.home = home
        self.logger = logger
        var left: [SwitchRecord] = []
        switch home {
        case .memory: machine = SwitchMachine(.memory, records: carried)
        case .file(let file): machine = SwitchMachine(.file, records: try file.read())
        case .topic(let topic) where topic.isAway:
            machine = SwitchMachine(.file, records: try topic.own.read(), inherited: try topic.known.read())
            arriving = SwitchMachine(.topic)
        case .topic(let topic):
            machine = SwitchMachine(.topic)
            left = try topic.own.read().filter(\.isPaused)
            leftFile = left.isEmpty ? nil : topic.own
        }
        published = Mutex(
            SwitchStatus(pauses: [], areKnown: true, home: "memory", changes: 0, unkept: 0, unreadable: 0))
        last = Mutex((Switches(), []))
        loop = try EventLoop(name: "switches")
        notices = NoticeLog(loop: loop, logger: logger)
        let events = EventRelay()
        if case .topic(let topic) = home {
            let consumer = try KafkaConsumer(properties: topic.reader, topics: []) { events.target?($0) }
            // Not `.beginning`: librdkafka 2.0.2 would ask for its offset, and closing the client might not return then.
            try consumer.assign([TopicPartitionOffset(TopicPartition(topic.name, 0), .offset(0))])
            self.consumer = consumer
        }
        readWakeup = try loop.makeWakeup { [unowned self] in read() }
        producedWakeup = try loop.makeWakeup { [unowned self] in pollReports() }
        // Weak, because the consumer's end has events too.
        events.target = { [weak self] in self?.handle($0) }
        if machine.home != .memory {
            for record in left + carried { machine.change(record) }
        }
        publish()
    }

    deinit { batch.deallocate() }

    /// Relay that lets the consumer be made before the receiver of its events.
    private final class EventRelay {
        var target: ((KafkaConsumerEvent) -> Void)?
    }

    // MARK: Any thread

    /// State of the switches.
    public var status: SwitchStatus { published.withLock { $0 } }
    /// Records and events of the topic that wait to be read, for tests. Before the start only.
    var unread: Int { consumer?.queueLength ?? 0 }
    /// Pauses in force.
    var switches: Switches { last.withLock { $0.switches } }
    /// Changes that the next worker of this process has to take over.
    var unkept: [SwitchRecord] { last.withLock { $0.unkept } }

    /// Begins to read and to report. Called once.
    /// - Parameter report: reports the pauses in force to the worker's loops, on the board's thread.
    func start(report: @escaping @Sendable (Switches) -> Void) {
        loop.start()
        loop.execute { [self] in
            self.report = report
            startedAt = loop.now
            nextWarning = loop.now + .seconds(10)
            consumer?.notify(fileDescriptor: readWakeup.signalDescriptor)
            report(machine.switches)
            for record in machine.pauses { log(record, isOwn: false) }
            carryOut()
            read()
            loop.schedule(after: Self.tick, handler: self)
        }
    }

    /// Pauses or resumes a scope on this worker at once, and keeps the change. Any thread.
    /// - Parameter completion: called once, on the board's thread: when the change is kept, or refused, or after five
    ///   seconds.
    public func change(
        _ scope: PauseScope, isPaused: Bool, by: String, note: String,
        completion: @escaping @Sendable (SwitchChange) -> Void
    ) {
        var random = ProcessRandom()
        let record = SwitchRecord(
            scope, isPaused: isPaused, changedMilliseconds: wallClockMilliseconds(), by: by, note: note,
            id: random.next())
        let isAccepted = loop.execute { [self] in
            guard !isClosed else {
                return completion(
                    SwitchChange(status: status, isKept: false, refusal: "the worker has ended"))
            }
            guard machine.hasRoom(for: scope, isPaused: isPaused) else {
                let most = SwitchMachine.mostScopes
                return completion(
                    SwitchChange(
                        status: status, isKept: false,
                        refusal: "\(most) scopes have switches already; pause an app or all sending instead"))
            }
            machine.change(record)
            carryOut()
            answers.append(Answer(scope: scope, until: loop.now + Self.patience, give: completion))
            giveAnswers()
        }
        if !isAccepted {
            completion(SwitchChange(status: status, isKept: false, refusal: "the worker has ended"))
        }
    }

    /// Ends the thread. Changes under way to Kafka are awaited for two seconds.
    func close() {
        loop.execute { [self] in
            isClosed = true
            nextSave = loop.now
            saveKnown()
            if let client = producer?.client {
                try? client.flush(timeoutMilliseconds: 2_000) { delivered($0) }
                publish()
                client.close()
            }
            producer = nil
            for answer in answers {
                answer.give(
                    SwitchChange(status: status, isKept: !machine.isUnkept(answer.scope), refusal: nil))
            }
            answers = []
            consumer?.close()
            consumer = nil
        }
        loop.stop()
        loop.join()
        notices.end()
    }

    // MARK: Loop's thread

    private func carryOut() {
        while let action = machine.nextAction() {
            isKnownUnsaved = true
            switch action {
            case .report: report?(machine.switches)
            case .log(let record, let isOwn): log(record, isOwn: isOwn)
            case .write(let record): write(record)
            case .produce(let record): produce(record)
            }
        }
        saveKnown()
        publish()
        giveAnswers()
    }

    /// File of this worker's own changes; nil while they are kept elsewhere.
    private var ownFile: SwitchFile? {
        switch home {
        case .file(let file): file
        case .topic(let topic) where arriving != nil: topic.own
        case .memory, .topic: nil
        }
    }

    /// Keeps what the topic has, for a start at which the topic can't be read.
    private func saveKnown() {
        guard isKnownUnsaved, case .topic(let topic) = home, arriving == nil, machine.switches.areKnown,
            loop.now >= nextSave
        else { return }
        do throws(SwitchFile.Failure) {
            try topic.known.write(machine.records)
            isKnownUnsaved = false
        } catch {
            nextSave = loop.now + Self.warnings
            logger.error(
                "the known pauses can't be kept for a start without their topic; the worker retries",
                metadata: ["error": "\(error)"])
        }
    }

    /// Goes on with the topic, which was read to its end after it was away. Pauses of the meantime move to it.
    private func arrive(_ topic: Topic, _ next: SwitchMachine) {
        var next = next
        next.readToEnd()
        let own = machine.records.filter(\.isPaused)
        for record in own { next.change(record) }
        earlierChanges += machine.changes
        machine = next
        arriving = nil
        leftFile = own.isEmpty ? nil : topic.own
        logger.notice(
            "the switches' topic is read, and its pauses are in force", metadata: ["topic": "\(topic.name)"])
        carryOut()
    }

    private func publish() {
        let place =
            switch (ownFile, home) {
            case (let file?, _): "file \(file.path)"
            case (nil, .topic(let topic)): "topic \(topic.name)"
            case (nil, _): "memory"
            }
        let (machine, unkept) = (machine, machine.unkept)
        if unkept.isEmpty, let file = leftFile {
            leftFile = nil
            file.remove()
        }
        published.withLock {
            $0 = SwitchStatus(
                pauses: machine.pauses, areKnown: machine.switches.areKnown, home: place,
                changes: earlierChanges + machine.changes, unkept: machine.home == .memory ? 0 : unkept.count,
                unreadable: (arriving ?? machine).unreadable, isTopicAway: arriving != nil)
        }
        last.withLock { $0 = (machine.switches, unkept) }
    }

    private func giveAnswers() {
        guard !answers.isEmpty else { return }
        answers.removeAll { answer in
            let isKept = !machine.isUnkept(answer.scope)
            guard isKept || loop.now >= answer.until else { return false }
            answer.give(SwitchChange(status: status, isKept: isKept, refusal: nil))
            return true
        }
    }

    private func log(_ record: SwitchRecord, isOwn: Bool) {
        var metadata: Logger.Metadata = [
            "scope": "\(record.scope)", "by": "\(record.by)", "asked": "\(isOwn ? "here" : "elsewhere")",
        ]
        if !record.note.isEmpty { metadata["note"] = "\(record.note)" }
        logger.notice(
            record.isPaused ? "an operator has paused sending" : "an operator has resumed sending",
            metadata: metadata)
    }

    private func write(_ record: SwitchRecord) {
        guard let file = ownFile else { return }
        do throws(SwitchFile.Failure) {
            try file.write(machine.records)
            machine.kept(record)
        } catch {
            failed(record, "\(error)")
        }
    }

    private func failed(_ record: SwitchRecord, _ reason: String) {
        machine.keepFailed(record, at: loop.now.nanoseconds)
        notices.log(
            .error, .switchNotKept,
            "a switch is in force on this worker, but can't be kept; the worker retries",
            metadata: ["scope": "\(record.scope)", "error": "\(reason)"])
    }

    // MARK: The control topic

    private func produce(_ record: SwitchRecord) {
        guard case .topic(let place) = home else { return }
        do throws(KafkaError) {
            if producer == nil {
                let client = try KafkaProducer(properties: place.producer) { [weak self] event in
                    if case .error(let error) = event { self?.warn(ofProducer: error) }
                }
                client.notify(fileDescriptor: producedWakeup.signalDescriptor)
                producer = (client, try client.topic(place.name))
            }
            guard let producer else { return }
            lastOpaque += 1
            let (key, value) = (Array(record.key.utf8), Array(record.text.utf8))
            let result = key.withUnsafeBytes { key in
                value.withUnsafeBytes { value in
                    producer.client.produce(
                        producer.topic, key: key, value: value, opaque: lastOpaque, partition: 0)
                }
            }
            switch result {
            case .queued: producing[lastOpaque] = record
            case .queueFull, .noTransaction: failed(record, "the producer's queue is full")
            case .failed(let error): throw error
            }
        } catch {
            failed(record, "\(error)")
            if error.isFatal { dropProducer() }
        }
    }

    /// Releases a producer that failed for good. The next attempt makes another one.
    private func dropProducer() {
        producer = nil
        for record in producing.values { failed(record, "the producer failed") }
        producing = [:]
    }

    private func pollReports() {
        var hasFailed = false
        producer?.client.pollDeliveryReports { report in
            delivered(report)
            if report.error?.isFatal == true { hasFailed = true }
        }
        if hasFailed { dropProducer() }
        publish()
        giveAnswers()
    }

    private func delivered(_ report: borrowing DeliveryReport) {
        guard let record = producing.removeValue(forKey: report.opaque) else { return }
        if let error = report.error {
            failed(record, "\(error)")
        } else {
            machine.kept(record, offset: report.offset)
        }
    }

    private func read() {
        guard let consumer else { return }
        let count = consumer.poll(into: batch)
        for index in 0..<count {
            if read(batch[index]) {
                notices.log(
                    .error, .switchUnreadable,
                    "a record of the switches' topic is not readable or names too many scopes, and has no effect; produce a tombstone with its key",
                    metadata: ["offset": "\(batch[index].offset)"])
            }
            batch[index].destroy()
        }
        // Kafka reports the end once. All records before it are applied by now.
        if endReached {
            endReached = false
            if case .topic(let topic) = home, let arriving {
                arrive(topic, arriving)
            } else {
                machine.readToEnd()
                carryOut()
            }
        }
        // The descriptor stays silent until a poll finds the queue empty.
        if count == batch.count { readWakeup.signal() }
    }

    /// Returns true for a record that can't be read.
    private func read(_ record: borrowing ConsumedRecord) -> Bool {
        let (key, value, offset) = (record.key, record.value, record.offset)
        if arriving != nil {
            let before = arriving!.unreadable
            arriving!.read(key: key, value: value, offset: offset)
            return arriving!.unreadable != before
        }
        let before = machine.unreadable
        machine.read(key: key, value: value, offset: offset)
        carryOut()
        return machine.unreadable != before
    }

    private func handle(_ event: KafkaConsumerEvent) {
        switch event {
        case .endOfPartition: endReached = true
        case .partitionError(_, let error), .error(let error): warn(error)
        default: break
        }
    }

    private func warn(ofProducer error: KafkaError) {
        notices.log(
            .warning, .switchProducerError, of: Int(error.code), "the producer of switches reported an error",
            metadata: ["error": "\(error)"])
    }

    private func warn(_ error: KafkaError) {
        guard loop.now >= nextWarning else { return }
        nextWarning = loop.now + Self.warnings
        logger.warning(
            "the switches' topic can't be read; changes of other workers have no effect meanwhile",
            metadata: ["error": "\(error)"])
    }

    public func timerFired(_ timer: TimerID) {
        guard !isClosed else { return }
        loop.schedule(after: Self.tick, handler: self)
        machine.advance(to: loop.now.nanoseconds)
        carryOut()
        if arriving != nil, loop.now >= nextWarning {
            nextWarning = loop.now + Self.warnings
            logger.warning(
                "the switches' topic can't be read; the last known pauses are in force, and changes of other workers aren't",
                metadata: ["pauses": "\(machine.pauses.count)"])
        }
        guard !machine.switches.areKnown, loop.now >= nextWarning else { return }
        nextWarning = loop.now + Self.warnings
        logger.warning(
            "nothing is sent, because the switches' topic has not been read yet",
            metadata: [
                "topic": "\(status.home)",
                "seconds": "\(loop.now.nanoseconds(since: startedAt) / 1_000_000_000)",
            ])
    }
}

import Foundation
import Kafka
import SluiceModel

/// A run of `sluice trace`: asks workers and topics, and gathers what they know of the jobs. One thread; calls block.
final class TraceRun {
    /// Settings of a run.
    struct Settings {
        /// Identifier that is looked for; nil: any of the device.
        var identifier: APNSID?
        /// Device token; nil: any.
        var deviceToken: String?
        /// Text of the token's hash, where outcomes have it in the token's place; nil otherwise.
        var tokenHash: String?
        var workers: TraceWorkers
        var cluster: KafkaCluster
        /// Names of the topics.
        var jobs: String
        var outcomes: String
        var deadLetters: String
        /// Consumer group of the workers; nil when it isn't known.
        var group: String?
        /// Period in which jobs were produced.
        var period: RecordPeriod
        /// Most records to read in all.
        var limit: Int
        var decoding = JobDecoder.Settings()
    }

    private let settings: Settings
    private let stop: StopSignals
    private let searcher: TopicSearcher
    private var decoder: JobDecoder
    private(set) var book: TraceBook
    private(set) var searches: [TopicSearch] = []
    /// First answers of the workers, in the order of the addresses, with the faults of later ones.
    private(set) var replies: [WorkerReply] = []
    /// Cause for which records could not be read at their places; nil without.
    private(set) var readFailure: String?

    init(_ settings: Settings, stop: StopSignals) {
        self.settings = settings
        self.stop = stop
        searcher = TopicSearcher(settings.cluster, limit: settings.limit) { stop.isRequested }
        decoder = JobDecoder(settings.decoding)
        book = TraceBook(
            TraceSubject(
                settings.identifier, deviceToken: settings.deviceToken, tokenHash: settings.tokenHash))
    }

    /// True when the limit of records ended the search.
    var isLimited: Bool { searcher.isLimited }

    /// True when a stop was requested before the end. Steps of the run were skipped then.
    private(set) var isStopped = false

    /// Asks workers and topics, to the end or until a stop is requested.
    func run() {
        defer { isStopped = stop.isRequested }
        replies = settings.workers.ask(
            settings.identifier, deviceToken: settings.deviceToken, isStopping: { stop.isRequested })
        for reply in replies { book.take(reply) }
        // Jobs end after they were produced, so that only the begin of the period counts for their ends.
        let ends = RecordPeriod(since: settings.period.since, until: nil)
        search(settings.outcomes, ends) { takeOutcome($0) }
        search(settings.deadLetters, ends) { takeDeadLetter($0) }
        askForSuccessors()
        readRecords()
        if settings.deviceToken != nil || !book.missing.isEmpty {
            search(settings.jobs, settings.period) { takeJob($0) }
        }
        askForStages()
    }

    private func search(_ topic: String, _ period: RecordPeriod, _ body: (ConsumedRecord) -> Void) {
        searches.append(searcher.search(topic, period, body))
    }

    // MARK: Workers

    /// Asks the workers that have answered so far. A silent worker would take the whole patience again.
    private func askAgain(_ identifier: APNSID, record: RecordAddress? = nil) -> [WorkerReply] {
        let silent = Set(replies.filter { $0.failure != nil }.map(\.worker))
        let workers = TraceWorkers(
            addresses: settings.workers.addresses.filter { !silent.contains("\($0)") },
            patience: settings.workers.patience)
        let later = workers.ask(
            identifier, deviceToken: nil, record: record, isStopping: { stop.isRequested })
        for reply in later {
            book.take(reply)
            guard let index = replies.firstIndex(where: { $0.worker == reply.worker }) else { continue }
            replies[index].add(later: reply)
        }
        return later
    }

    /// Asks the workers for successors without an outcome.
    private func askForSuccessors() {
        for identifier in book.missing where identifier != settings.identifier && !stop.isRequested {
            _ = askAgain(identifier)
        }
    }

    /// Asks workers and group for the progress of records whose jobs have neither ended nor are known to a worker.
    private func askForStages() {
        let open = book.open.map(\.source)
        let questions = settings.workers.addresses.isEmpty ? [] : book.questions()
        for job in questions where !stop.isRequested {
            guard let identifier = job.identifier else { continue }
            for reply in askAgain(identifier, record: job.source) {
                guard let stage = reply.stage else { continue }
                book.note(job.source) { $0.stages.append(stage) }
            }
        }
        addCommitted(open)
    }

    private func addCommitted(_ sources: [RecordAddress]) {
        guard let group = settings.group, !sources.isEmpty, !stop.isRequested else { return }
        let partitions = Set(sources.map { TopicPartition($0.topic, $0.partition) })
        // Without an answer the group's progress is left out; the topics' own faults are reported.
        guard let committed = try? settings.cluster.committed(partitions.sorted(), group: group) else {
            return
        }
        let offsets = Dictionary(
            committed.map { ($0.topicPartition, $0.offset ?? 0) }, uniquingKeysWith: { first, _ in first })
        for source in sources {
            guard let offset = offsets[TopicPartition(source.topic, source.partition)] else { continue }
            book.note(source) { $0.stages.append(.committed(source, offset, group: group)) }
        }
    }

    // MARK: Records

    private func takeOutcome(_ record: ConsumedRecord) {
        guard let value = record.value, book.subject.mayBeOutcome(value),
            let outcome = OutcomeSummary(json: value), outcome.sourceTopic == settings.jobs,
            book.subject.wants(token: outcome.deviceToken)
        else { return }
        book.take(outcome, at: place(of: record))
    }

    private func takeDeadLetter(_ record: ConsumedRecord) {
        var headers: [String: String] = [:]
        record.forEachHeader { name, value in
            headers[String(decoding: name, as: UTF8.self)] = value.map { String(decoding: $0, as: UTF8.self) }
        }
        func text(_ header: DeadLetter.Header) -> String? { headers[header.rawValue] }
        guard text(.sourceTopic) == settings.jobs,
            let partition = text(.sourcePartition).flatMap({ Int32($0) }), partition >= 0,
            let offset = text(.sourceOffset).flatMap({ Int64($0) }), offset >= 0
        else { return }
        let source = RecordAddress(topic: settings.jobs, partition: partition, offset: offset)
        guard mayBe(record, of: source) else { return }
        let glimpse = withJobRecord(record) { JobGlimpse($0) }
        let identifier = glimpse.apnsID.flatMap { APNSID(text: $0) }
        // The record may name the identifier elsewhere, in its payload.
        if let identifier, !book.subject.wants(identifier) { return }
        let facts = TracedJob.DeadLetterFacts(
            place: place(of: record), timestampMilliseconds: record.timestampMilliseconds,
            field: text(.field) ?? "?", rule: text(.rule) ?? "?", topic: glimpse.topic,
            pushType: glimpse.pushType,
            sourceTimestampMilliseconds: text(.sourceTimestamp).flatMap { Int64($0) }.flatMap {
                $0 < 0 ? nil : $0
            })
        book.note(source) {
            $0.deadLetter = facts
            // Without a readable identifier, the one that was asked for is all that is known.
            $0.identifier = identifier ?? settings.identifier
        }
    }

    private func mayBe(_ record: ConsumedRecord, of source: RecordAddress) -> Bool {
        book.subject.mayBe(key: record.key, value: record.value, source: source) { visit in
            record.forEachHeader { _, value in if let value { visit(value) } }
        }
    }

    private func takeJob(_ record: ConsumedRecord) {
        let place = place(of: record)
        guard mayBe(record, of: place) else { return }
        let (facts, identifier, isWanted) = facts(of: record)
        guard isWanted else { return }
        book.note(place) {
            $0.record = facts
            if let identifier { $0.identifier = identifier }
        }
    }

    /// Reads the records of the jobs that were found.
    private func readRecords() {
        let places = book.lookups(in: settings.jobs)
        do throws(CommandFailure) {
            try searcher.read(places) { place, record in
                let facts = record.map { self.facts(of: $0).facts }
                book.note(place) {
                    $0.record = facts
                    $0.isGone = facts == nil
                }
            }
        } catch {
            readFailure = error.message
        }
    }

    private func place(of record: ConsumedRecord) -> RecordAddress {
        RecordAddress(
            topic: String(decoding: record.topicName, as: UTF8.self), partition: record.partition,
            offset: record.offset)
    }

    /// Decodes a record of the jobs topic. A record that is no valid job may be wanted.
    private func facts(
        of record: ConsumedRecord
    ) -> (facts: TracedJob.Record, identifier: APNSID?, isWanted: Bool) {
        var facts = TracedJob.Record(
            timestampMilliseconds: record.timestampMilliseconds, hasKey: record.key != nil)
        record.forEachHeader { name, value in
            guard let value, String(decoding: name, as: UTF8.self) == RedrivenMark.headerName.description
            else { return }
            facts.redriven = RedrivenMark(text: String(decoding: value, as: UTF8.self))
        }
        return withJobRecord(record) { job in
            let now = max(record.timestampMilliseconds, 0)
            switch try? decoder.decode(job, nowMilliseconds: now) {
            case .push(let push)?:
                defer { push.release() }
                facts.kind = push.isBroadcast ? "broadcast" : "push"
                facts.topic = String(decoding: push.topic, as: UTF8.self)
                facts.pushType = "\(push.pushType.headerValue)"
                facts.createdMilliseconds = push.createdMilliseconds
                return (
                    facts, push.apnsID,
                    book.subject.wants(push.apnsID) && book.subject.wants(token: push.deviceToken)
                )
            case .control(let control)?:
                defer { control.release() }
                facts.kind = "\(control.kind.name)"
                facts.createdMilliseconds = control.createdMilliseconds
                return (
                    facts, control.apnsID,
                    book.subject.wants(control.apnsID) && book.subject.wants(token: control.address)
                )
            case nil: return (facts, nil, true)
            }
        }
    }

    /// Calls `body` with the record as the decoder takes it, borrowed.
    private func withJobRecord<Answer>(_ record: ConsumedRecord, _ body: (JobRecord) -> Answer) -> Answer {
        var headers: [RecordHeader] = []
        record.forEachHeader { headers.append(RecordHeader(name: $0, value: $1)) }
        return headers.withUnsafeBufferPointer { headers in
            body(
                JobRecord(
                    key: record.key, value: record.value, headers: headers, topic: record.topicName,
                    partition: record.partition, offset: record.offset,
                    timestampMilliseconds: record.timestampMilliseconds))
        }
    }
}

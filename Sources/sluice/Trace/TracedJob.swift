import Foundation
import SluiceModel

/// All that was found about one job. Has no device token, no collapse identifier and no payload. Pure.
struct TracedJob: Sendable {
    /// Place of the job's record.
    let source: RecordAddress
    /// Identifier; nil for a dead letter, whose job can't be decoded.
    var identifier: APNSID?
    /// Record on the jobs topic; nil when it was not read.
    var record: Record?
    /// True when the record was looked for and is gone.
    var isGone = false
    var outcome: Ended?
    var deadLetter: DeadLetterFacts?
    /// Answers of workers that have the push.
    var pushes: [WorkerPush] = []
    /// Answers of workers about the record.
    var stages: [WorkerStage] = []

    /// A record on the jobs topic.
    struct Record: Sendable {
        /// Timestamp in milliseconds since the epoch; -1 without.
        var timestampMilliseconds: Int64
        var hasKey: Bool
        /// Kind of the job; nil when the record is no valid job.
        var kind: String?
        var topic: String?
        var pushType: String?
        /// Creation in milliseconds since the epoch; nil when the record is no valid job.
        var createdMilliseconds: Int64?
        /// Mark of `sluice redrive`; nil for a record that a producer made.
        var redriven: RedrivenMark?
    }

    /// An outcome, without what is personal.
    struct Ended: Sendable {
        /// Place of the outcome.
        var place: RecordAddress
        var kind: OutcomeKind
        var job: String
        var topic: String?
        var pushType: String?
        var headline: String
        var status: Int?
        var reason: String?
        var cause: String?
        var message: String?
        var supersededBy: APNSID?
        var attempts: Int
        var createdMilliseconds: Int64
        var polledMilliseconds: Int64
        var firstSentMilliseconds: Int64?
        var finishedMilliseconds: Int64

        init(_ outcome: OutcomeSummary, place: RecordAddress) {
            self.place = place
            kind = outcome.kind
            job = outcome.job
            topic = outcome.topic
            pushType = outcome.pushType
            headline = outcome.headline
            status = outcome.status
            reason = outcome.reason
            cause = outcome.cause
            message = outcome.message
            supersededBy = outcome.supersededBy
            attempts = outcome.attempts
            createdMilliseconds = outcome.createdMilliseconds
            polledMilliseconds = outcome.polledMilliseconds
            firstSentMilliseconds = outcome.firstSentMilliseconds
            finishedMilliseconds = outcome.finishedMilliseconds
        }
    }

    /// A dead letter.
    struct DeadLetterFacts: Sendable {
        /// Place of the dead letter.
        var place: RecordAddress
        /// Timestamp in milliseconds since the epoch; -1 without.
        var timestampMilliseconds: Int64
        var field: String
        var rule: String
        /// Value of `apns-topic`; nil where it can't be read.
        var topic: String?
        /// Value of `apns-push-type`; nil where it can't be read.
        var pushType: String?
        /// Time of the job's record in milliseconds since the epoch; nil without.
        var sourceTimestampMilliseconds: Int64?
    }

    init(_ source: RecordAddress) { self.source = source }

    /// State in one word: the outcome's kind, `dead-letter`, the worker's code, or `unknown`.
    var state: String {
        if let outcome { return "\(outcome.kind.name)" }
        if deadLetter != nil { return "dead-letter" }
        if let push = pushes.first { return push.state }
        if let stage = stages.first(where: { $0.state != "elsewhere" }) { return stage.state }
        return record == nil ? "unknown" : "produced"
    }

    var topic: String? { outcome?.topic ?? pushes.first?.topic ?? record?.topic ?? deadLetter?.topic }
    var pushType: String? {
        outcome?.pushType ?? pushes.first?.pushType ?? record?.pushType ?? deadLetter?.pushType
    }
    var createdMilliseconds: Int64? {
        outcome?.createdMilliseconds ?? pushes.first?.createdAt ?? record?.createdMilliseconds
    }

    // MARK: Milestones

    /// An event of the job's life.
    struct Milestone: Equatable, Sendable {
        /// Time in milliseconds since the epoch; nil for the present state.
        var atMilliseconds: Int64?
        /// Code for scripts.
        var event: String
        /// Text for people.
        var text: String
    }

    /// How far the search for a job's end was carried out.
    enum Extent: Sendable {
        /// A missing end is none.
        case whole
        /// Topics were not read to their ends, so that an outcome may be missing.
        case partOfTopics
        /// A stop ended the search, so that topics and workers may not have been asked.
        case stopped
    }

    /// Events in the order of time; the present state follows the past, and what is to come follows the present state.
    func milestones(now: Int64, _ extent: Extent = .whole) -> [Milestone] {
        var past: [Milestone] = []
        var future: [Milestone] = []
        func add(_ event: String, _ at: Int64?, _ text: String) {
            guard let at, at >= 0 else { return }
            let milestone = Milestone(atMilliseconds: at, event: event, text: text)
            if at > now { future.append(milestone) } else { past.append(milestone) }
        }
        add("created", createdMilliseconds, "created")
        if let record {
            add(
                "produced", record.timestampMilliseconds,
                "produced to \(source), \(record.hasKey ? "with a key" : "without a key")"
                    + (record.redriven.map { ", redriven from \($0.place)" } ?? ""))
        } else if let time = deadLetter?.sourceTimestampMilliseconds {
            add("produced", time, "produced to \(source)")
        }
        if let outcome { addOutcome(outcome, add) } else { addPushes(add) }
        if let deadLetter {
            add(
                "dead-letter", deadLetter.timestampMilliseconds,
                "is not a valid job: \(deadLetter.field) breaks the rule \(deadLetter.rule); dead letter "
                    + "\(deadLetter.place)")
        }
        let order = { (one: Milestone, other: Milestone) in
            (one.atMilliseconds ?? 0) < (other.atMilliseconds ?? 0)
        }
        return stable(past, order) + present(extent) + stable(future, order)
    }

    /// Sorts without changing the order of equal times.
    private func stable(
        _ list: [Milestone], _ isBefore: (Milestone, Milestone) -> Bool
    ) -> [Milestone] {
        list.enumerated().sorted {
            isBefore($0.element, $1.element)
                || !isBefore($1.element, $0.element) && $0.offset < $1.offset
        }.map(\.element)
    }

    private func addOutcome(_ outcome: Ended, _ add: (String, Int64?, String) -> Void) {
        let worker = pushes.first.map { " by \($0.worker)" } ?? ""
        add("polled", outcome.polledMilliseconds, "polled\(worker)")
        add("first-sent", outcome.firstSentMilliseconds, "first sent to APNs")
        var text = outcome.headline
        if outcome.attempts > 0 { text += ", \(Numbers.counted(outcome.attempts, "attempt"))" }
        if let successor = outcome.supersededBy { text += ", by \(successor)" }
        add("outcome", outcome.finishedMilliseconds, text + "; outcome \(outcome.place)")
    }

    private func addPushes(_ add: (String, Int64?, String) -> Void) {
        for push in pushes {
            add("polled", push.polledAt, "polled by \(push.worker)")
            add("first-sent", push.firstSentAt, "first sent to APNs by \(push.worker)")
            if push.lastSentAt != push.firstSentAt, push.attempts > 1 {
                add(
                    "last-sent", push.lastSentAt,
                    "sent again by \(push.worker), attempt \(Numbers.grouped(push.attempts))")
            }
            add("deliver-at", push.deliverAt, "deliver-at")
            if push.until != push.deliverAt {
                add(
                    "until", push.until,
                    push.state == "topic-stopped" ? "next probe of the topic" : "end of the wait")
            }
            add("expires", push.expiresAt, "expires")
        }
    }

    /// The present state of a job that has not ended.
    private func present(_ extent: Extent) -> [Milestone] {
        guard outcome == nil, deadLetter == nil else { return [] }
        var list = pushes.map { push in
            var text = "\(push.text) (\(push.worker))"
            if push.attempts > 0 { text += "; \(Numbers.counted(push.attempts, "attempt"))" }
            if let status = push.lastStatus {
                text += "; last answer \(status)" + (push.lastReason.map { " \($0)" } ?? "")
            }
            if push.isStored { text += "; stored" }
            return Milestone(atMilliseconds: nil, event: push.state, text: text)
        }
        if pushes.isEmpty {
            list += stages.filter { $0.state != "elsewhere" }.map {
                Milestone(atMilliseconds: nil, event: $0.state, text: "\($0.text) (\($0.worker))")
            }
            if list.isEmpty {
                list.append(
                    Milestone(atMilliseconds: nil, event: "unknown", text: Self.withoutEnd(extent)))
            }
        }
        return list
    }

    private static func withoutEnd(_ extent: Extent) -> String {
        switch extent {
        case .whole: "no outcome was found, and no worker that answered has the job"
        case .partOfTopics: "no outcome was found yet, because topics were not read to their ends"
        case .stopped: "no outcome was found before the stop"
        }
    }
}

/// Jobs found so far, by the places of their records. Pure.
struct TraceBook: Sendable {
    private(set) var subject: TraceSubject
    private var jobs: [RecordAddress: TracedJob] = [:]
    /// True when jobs or successors were left out.
    private(set) var isTruncated = false
    /// True when ``lookups(in:)`` or ``questions()`` left jobs out.
    private(set) var isAbridged = false

    /// Most jobs of one trace.
    static let mostJobs = 1_000
    /// Most jobs whose records are read at their places.
    static let mostLookups = 200
    /// Most jobs about which workers are asked.
    static let mostQuestions = 16

    init(_ subject: TraceSubject) { self.subject = subject }

    var isEmpty: Bool { jobs.isEmpty }

    /// Jobs in the order of their creation.
    var sorted: [TracedJob] {
        jobs.values.sorted {
            let (one, other) = ($0.createdMilliseconds ?? .max, $1.createdMilliseconds ?? .max)
            return (one, $0.source) < (other, $1.source)
        }
    }

    /// Identifiers that are looked for and have no job yet.
    var missing: [APNSID] {
        subject.identifiers.filter { wanted in !jobs.values.contains { $0.identifier == wanted } }
    }

    /// Jobs that have neither ended nor are known to a worker.
    var open: [TracedJob] {
        sorted.filter { $0.outcome == nil && $0.deadLetter == nil && $0.pushes.isEmpty && !$0.isGone }
    }

    /// Returns the places of a topic to read; the first ones, if there are many.
    mutating func lookups(in topic: String) -> [RecordAddress] {
        first(Self.mostLookups, of: jobs.keys.filter { $0.topic == topic }.sorted())
    }

    /// Returns the open jobs to ask workers about; the first ones, if there are many.
    mutating func questions() -> [TracedJob] { first(Self.mostQuestions, of: open) }

    private mutating func first<Element>(_ most: Int, of all: [Element]) -> [Element] {
        if all.count > most { isAbridged = true }
        return Array(all.prefix(most))
    }

    /// Changes the job of a record.
    mutating func note(_ source: RecordAddress, _ change: (inout TracedJob) -> Void) {
        guard jobs[source] != nil || jobs.count < Self.mostJobs else {
            isTruncated = true
            return
        }
        change(&jobs[source, default: TracedJob(source)])
    }

    /// Takes an outcome that the subject wants, and follows its successor.
    mutating func take(_ outcome: OutcomeSummary, at place: RecordAddress) {
        guard subject.wants(outcome.apnsID) else { return }
        let source = RecordAddress(
            topic: outcome.sourceTopic, partition: outcome.partition, offset: outcome.offset)
        note(source) {
            $0.identifier = outcome.apnsID
            $0.outcome = TracedJob.Ended(outcome, place: place)
        }
        if let successor = outcome.supersededBy, !subject.follow(successor) { isTruncated = true }
    }

    /// Takes a worker's answer.
    mutating func take(_ reply: WorkerReply) {
        for push in reply.pushes {
            note(push.source) {
                $0.identifier = push.identifier
                if !$0.pushes.contains(where: { $0.worker == push.worker }) { $0.pushes.append(push) }
            }
        }
    }
}

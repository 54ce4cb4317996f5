import Foundation
import Kafka
import SluiceModel

/// A pending push in a worker's answer to `/trace`.
struct WorkerPush: Sendable {
    /// Address of the worker's endpoint.
    var worker: String
    var source: RecordAddress
    var identifier: APNSID
    /// State as a code, and as text.
    var state: String
    var text: String
    var topic: String?
    var pushType: String?
    var app: String?
    var credential: String?
    /// Times in milliseconds since the epoch; nil when the answer has none.
    var createdAt: Int64?
    var polledAt: Int64?
    var deliverAt: Int64?
    var expiresAt: Int64?
    var firstSentAt: Int64?
    var lastSentAt: Int64?
    var until: Int64?
    var storedUntil: Int64?
    var attempts: Int
    var lastStatus: Int?
    var lastReason: String?
    var isStored: Bool

    /// Reads an element of `pushes`; nil when the element is no push.
    init?(_ element: [String: Any], worker: String) {
        guard let source = element["source"] as? [String: Any], let topic = source["topic"] as? String,
            TopicPartition.isTopicName(topic),
            let partition = (source["partition"] as? Int).flatMap({ Int32(exactly: $0) }), partition >= 0,
            let offset = source["offset"] as? Int, offset >= 0,
            let identifier = (element["apns-id"] as? String).flatMap(APNSID.init(text:)),
            let state = (element["state"] as? String).map(WorkerReply.plain)
        else { return nil }
        func text(_ name: String) -> String? { (element[name] as? String).map(WorkerReply.plain) }
        func time(_ name: String) -> Int64? { (element[name] as? Int).map { Int64($0) } }
        self.worker = worker
        self.source = RecordAddress(topic: topic, partition: partition, offset: Int64(offset))
        self.identifier = identifier
        self.state = state
        self.text = text("text") ?? state
        self.topic = text("topic")
        pushType = text("push-type")
        app = text("app")
        credential = text("credential")
        createdAt = time("created-at")
        polledAt = time("polled-at")
        deliverAt = time("deliver-at")
        expiresAt = time("expires-at")
        firstSentAt = time("first-sent-at")
        lastSentAt = time("last-sent-at")
        until = time("until")
        storedUntil = time("stored-until")
        attempts = element["attempts"] as? Int ?? 0
        lastStatus = element["last-status"] as? Int
        lastReason = text("last-reason")
        isStored = element["stored"] as? Bool ?? false
    }
}

/// Progress of a record in a worker's answer to `/trace`, or by the group's committed offset.
struct WorkerStage: Sendable {
    /// Address of the worker's endpoint, or the group.
    var worker: String
    var source: RecordAddress
    /// State as a code, and as text.
    var state: String
    var text: String
}

extension WorkerStage {
    /// Progress of a record by its group's committed offset.
    static func committed(_ source: RecordAddress, _ offset: Int64, group: String) -> WorkerStage {
        let isCommitted = source.offset < offset
        return WorkerStage(
            worker: "group \(group)", source: source, state: isCommitted ? "committed" : "uncommitted",
            text: isCommitted
                ? "the record is committed: the job has ended, or a worker's store has it"
                : "the record is not committed: the job waits in Kafka, or a worker has it")
    }
}

/// A worker's answer to `/trace`, or the cause for which there is none.
struct WorkerReply: Sendable {
    /// Address of the worker's endpoint.
    var worker: String
    var pushes: [WorkerPush] = []
    var stage: WorkerStage?
    /// Pushes of the answer that this version can't read.
    var unreadable = 0
    /// True when the worker has searched all that it has, and its answer was read completely.
    var isComplete = false
    /// Cause for which there is no answer, in words; nil when the worker has answered.
    var failure: String?

    /// Fault of the worker or of its answer, in words; nil without.
    var fault: String? {
        if let failure { return failure }
        guard unreadable > 0 else { return nil }
        return
            "\(Numbers.counted(unreadable, "push", plural: "pushes")) of the answer can't be read; update sluice"
    }

    init(worker: String, failure: String) {
        self.worker = worker
        self.failure = failure
    }

    /// - Parameter record: place of the query's record; nil without.
    init(worker: String, _ answer: AdminCall.Answer, record: RecordAddress?) {
        self.worker = worker
        let document =
            (try? JSONSerialization.jsonObject(with: Data(answer.body))) as? [String: Any] ?? [:]
        guard document["searched"] != nil else {
            let text =
                (document["error"] as? String).map(Self.plain) ?? "the answer is no document of /trace"
            failure =
                answer.status == 404
                ? "status 404: the worker has no /trace; update it" : "status \(answer.status): \(text)"
            return
        }
        guard let elements = document["pushes"] as? [Any] else {
            failure = "the answer has no list of pushes; update sluice"
            return
        }
        pushes = elements.compactMap { element in
            (element as? [String: Any]).flatMap { WorkerPush($0, worker: worker) }
        }
        unreadable = elements.count - pushes.count
        isComplete = unreadable == 0 && document["complete"] as? Bool ?? false
        if let record, let stage = document["record"] as? [String: Any],
            let state = (stage["state"] as? String).map(Self.plain)
        {
            self.stage = WorkerStage(
                worker: worker, source: record, state: state,
                text: (stage["text"] as? String).map(Self.plain) ?? state)
        }
    }

    /// Takes over what a later answer of the same worker lacks: a fault, or a search that was not complete.
    mutating func add(later reply: WorkerReply) {
        isComplete = isComplete && reply.isComplete
        unreadable = max(unreadable, reply.unreadable)
        guard failure == nil, let fault = reply.failure else { return }
        failure = "answered, but not to a later question: \(fault)"
    }

    /// Returns text of an answer for people, of at most 500 characters.
    fileprivate static func plain(_ text: String) -> String { ForeignText.escaped(text, limit: 500) }

    /// True when the worker was busy with another search.
    var isBusy: Bool { failure?.hasPrefix("status 503: another search") ?? false }
}

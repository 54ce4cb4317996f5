import Foundation
import SluiceModel

/// Partition and offset of a job's record in the jobs topic.
struct JobPlace: Hashable, Comparable, CustomStringConvertible {
    var partition: Int32
    var offset: Int64

    init(_ partition: Int32, _ offset: Int64) {
        self.partition = partition
        self.offset = offset
    }

    static func < (one: JobPlace, other: JobPlace) -> Bool {
        (one.partition, one.offset) < (other.partition, other.offset)
    }

    var description: String { "\(partition)@\(offset)" }
}

/// A job as the test produced it. No part of it comes from the worker. Instants are milliseconds since the epoch.
struct AuditedJob {
    enum Kind {
        case push(AuditedPush)
        case cancel(CancelledTarget)
        case event(DeviceEvent)
    }

    enum CancelledTarget: Equatable {
        case collapse(topic: String, String)
        case notification(String)
    }

    enum DeviceEvent: Equatable {
        case online, offline, unregistered
        /// The receipt of the notification with this `apns-id`.
        case receipt(String)
        /// The change to this device token.
        case tokenChanged(String)
    }

    var place: JobPlace
    var deviceToken: String
    var kind: Kind
    /// The instant just before the job was produced.
    var produced: Int64

    var push: AuditedPush? {
        if case .push(let push) = kind { return push }
        return nil
    }

    var event: DeviceEvent? {
        if case .event(let event) = kind { return event }
        return nil
    }
}

struct AuditedPush {
    /// The `apns-id` is unique within an audited load.
    var apnsID: String
    var topic: String
    var collapseID: String?
    var delivery = DeliveryMode.accept
    /// No attempt may reach APNs from this instant on; nil: no limit.
    var expiration: Int64?
    /// No attempt may reach APNs before this instant; nil: no limit.
    var deliverAt: Int64?
}

/// Identity of pushes of which the newest supersedes the others: device token as produced, topic and collapse
/// identifier. A push without collapse identifier is alone with its `apns-id`.
struct AuditedIdentity: Hashable, CustomStringConvertible {
    var deviceToken: String
    var topic: String
    var name: String

    init(_ job: AuditedJob, _ push: AuditedPush) {
        deviceToken = job.deviceToken
        topic = push.topic
        name = push.collapseID.map { "collapse-id \($0)" } ?? "apns-id \(push.apnsID)"
    }

    var description: String { "\(deviceToken.prefix(8))… \(topic) \(name)" }
}

/// An outcome as the test read it.
struct AuditedOutcome {
    var place: JobPlace
    var kind: OutcomeKind
    var deviceToken: String
    var apnsID: String
    var supersededBy: String?
    var finished: Int64
    /// The instant at which the test read the outcome.
    var read: Int64

    init(
        _ place: JobPlace, _ kind: OutcomeKind, deviceToken: String, apnsID: String,
        supersededBy: String? = nil, finished: Int64, read: Int64
    ) {
        self.place = place
        self.kind = kind
        self.deviceToken = deviceToken
        self.apnsID = apnsID
        self.supersededBy = supersededBy
        self.finished = finished
        self.read = read
    }

    init(_ outcome: OutcomeSummary, read: Int64) {
        self.init(
            JobPlace(outcome.partition, outcome.offset), outcome.kind, deviceToken: outcome.deviceToken,
            apnsID: outcome.apnsID.description, supersededBy: outcome.supersededBy?.description,
            finished: outcome.finishedMilliseconds, read: read)
    }
}

/// A push that the simulator has judged: a line of its log.
struct AuditedArrival {
    var time: Int64
    var apnsID: String
    var deviceToken: String
    var status: Int
}

extension AuditedArrival {
    /// Reads a line of the simulator's log of pushes.
    init?(line: Data) {
        guard let object = try? JSONSerialization.jsonObject(with: line) as? [String: Any],
            let time = object["time"] as? Int64, let identifier = object["apnsId"] as? String,
            let token = object["token"] as? String, let status = object["status"] as? Int
        else { return nil }
        self.init(time: time, apnsID: identifier, deviceToken: token, status: status)
    }
}

/// The life of a worker from its start to its end.
struct WorkerLife {
    enum End {
        /// SIGKILL: the next worker repeats all that was not committed.
        case killed
        /// An orderly stop: the next worker repeats nothing.
        case stopped
    }

    var start: Int64
    var end: End?
    /// Jobs of which the next worker has nothing to repeat: enough commits followed their outcomes before
    /// this life ended.
    var settled: Set<JobPlace> = []
}

/// A worker's start with a partition whose earlier worker did not stop in order. Uncommitted work is repeated.
struct Takeover {
    var time: Int64
    /// The committed offset at that time. The next worker knows all jobs below it.
    var committed: Int64
}

/// All jobs that a test produced, and all that it observed of them.
struct AuditedHistory {
    var jobs: [JobPlace: AuditedJob] = [:]
    /// Outcomes in the order of reading.
    var outcomes: [AuditedOutcome] = []
    /// Arrivals in the simulator's order.
    var arrivals: [AuditedArrival] = []
    var lives: [WorkerLife] = []
    /// Takeovers by partition, in the order of time.
    var takeovers: [Int32: [Takeover]] = [:]
    /// Instants at which the simulator was killed, and so lost answers.
    var simulatorDeaths: [Int64] = []
    /// Number of outcomes and log lines that could not be read, and of dead letters. It must be 0.
    var unreadable = 0
}

/// A broken promise.
struct AuditViolation: CustomStringConvertible {
    enum Promise: String {
        case lost, doubled, unknown, unfounded, early, late, newestWins, newestLast, repeated, returned
        case afterEnd, wrongDevice, sentOffline, unreadable
    }

    var promise: Promise
    var place: JobPlace?
    var text: String
    /// Events of the push's identity, a line each.
    var history: [String] = []

    var description: String {
        let head = "\(promise.rawValue): \(place.map { "job \($0): " } ?? "")\(text)"
        return ([head] + history.map { "    " + $0 }).joined(separator: "\n")
    }
}

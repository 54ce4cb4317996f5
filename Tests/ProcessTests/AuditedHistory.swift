import Foundation
import SluiceModel

/// Where a job's record is: partition and offset of the jobs topic.
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

/// What a test asked for, in the words of the test: nothing of it comes from the worker. Instants are milliseconds
/// since the epoch.
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
        /// Of the notification with this `apns-id`.
        case receipt(String)
        /// To this device token.
        case tokenChanged(String)
    }

    var place: JobPlace
    var deviceToken: String
    var kind: Kind
    /// Just before it was produced.
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
    /// Every job of an audited load names its own.
    var apnsID: String
    var topic: String
    var collapseID: String?
    var delivery = DeliveryMode.accept
    /// Nothing may reach APNs from here on.
    var expiration: Int64?
    /// Nothing may reach APNs before.
    var deliverAt: Int64?
}

/// Pushes of which the newest takes the place of the others: those of one device token as the producer named it, topic
/// and collapse identifier, or the one of an `apns-id`.
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

/// An outcome as it was read.
struct AuditedOutcome {
    var place: JobPlace
    var kind: OutcomeKind
    var deviceToken: String
    var apnsID: String
    var supersededBy: String?
    var finished: Int64
    /// When the test had it.
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

/// A worker from its start to its end.
struct WorkerLife {
    enum End {
        /// By SIGKILL: what was not committed is done again, by the next one.
        case killed
        /// In order: nothing is done again.
        case stopped
    }

    var start: Int64
    var end: End?
    /// Jobs with an outcome that was read before so many more commits of their partition were seen that nothing of them
    /// is left to do again, by what was known when this life ended.
    var settled: Set<JobPlace> = []
}

/// A worker begins with a partition whose earlier worker did not end in order: what that had not committed is done again.
struct Takeover {
    var time: Int64
    /// What was committed before: all below is known to whoever has the partition.
    var committed: Int64
}

/// All that a test produced, and all that became of it.
struct AuditedHistory {
    var jobs: [JobPlace: AuditedJob] = [:]
    /// As they were read.
    var outcomes: [AuditedOutcome] = []
    /// In the simulator's order.
    var arrivals: [AuditedArrival] = []
    var lives: [WorkerLife] = []
    /// By partition, in the order of time.
    var takeovers: [Int32: [Takeover]] = [:]
    /// When the simulator was killed: answers were lost then.
    var simulatorDeaths: [Int64] = []
    /// Outcomes, dead letters or lines that could not be read, which there must be none of.
    var unreadable = 0
}

/// A promise that was broken.
struct AuditViolation: CustomStringConvertible {
    enum Promise: String {
        case lost, doubled, unknown, unfounded, early, late, newestWins, newestLast, repeated, returned
        case afterEnd, wrongDevice, sentOffline, unreadable
    }

    var promise: Promise
    var place: JobPlace?
    var text: String
    /// What happened to its identity, a line each.
    var history: [String] = []

    var description: String {
        let head = "\(promise.rawValue): \(place.map { "job \($0): " } ?? "")\(text)"
        return ([head] + history.map { "    " + $0 }).joined(separator: "\n")
    }
}

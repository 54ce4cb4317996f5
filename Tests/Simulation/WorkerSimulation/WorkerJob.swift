import HTTP2
import SluiceModel

/// A record of the jobs topic, with what an observer outside of the workers has seen of it.
struct WorkerJob {
    enum Kind: Equatable {
        case push
        /// A push to a channel.
        case broadcast
        /// Not decodable: a dead letter follows.
        case invalid
        case cancel(Target)
        case online, offline
        /// The device has shown the push with this number.
        case receipt(of: Int)
        case tokenChanged(to: Int)
        case unregistered, erase

        /// Whether the record is a push to a device or channel.
        var isPush: Bool { self == .push || self == .broadcast }

        /// Whether the record reports that its device is online or offline.
        var reportsPresence: Bool {
            switch self {
            case .online, .offline, .receipt: true
            default: false
            }
        }

        /// Value of `job` in outcomes.
        var name: String {
            switch self {
            case .push, .invalid: "push"
            case .broadcast: "broadcast"
            case .cancel: "cancel"
            default: "device"
            }
        }
    }

    /// Pushes that a cancel withdraws.
    enum Target: Equatable {
        case collapse(String, topic: String)
        /// The push with this `apns-id`, by ``WorkerJob/identifier``.
        case identifier(Int)
    }

    /// Facts by which a push replaces another.
    enum Identity: Hashable {
        case collapse(token: Int, topic: String, String)
        /// Pushes with a whole state and without a collapse identifier.
        case state(token: Int, topic: String)
        case identifier(token: Int, Int)
    }

    var kind: Kind
    /// Number of the device token, or of the channel.
    var token: Int
    var partition: Int32
    var offset: Int64 = 0
    /// Nanoseconds at which the record was produced.
    var producedAt: UInt64 = 0
    /// Milliseconds since the epoch of the same.
    var created: Int64 = 0

    // MARK: Fields

    /// Milliseconds since the epoch at which the push expires.
    var expires: Int64 = .max
    /// Milliseconds since the epoch before which the push isn't sent; 0: at once.
    var due: Int64 = 0
    /// Value of `apns-topic`.
    var topic = ""
    /// Value of `apns-collapse-id`; nil without one.
    var collapse: String?
    /// Number of the `apns-id`; below 0 for a push without one.
    var identifier = -1
    var priority = 10
    var delivery = DeliveryMode.accept
    /// Seconds to wait for a receipt.
    var receiptTimeout: UInt64 = 60
    /// Whether the expiration is 0: now or never.
    var isOnce = false
    var avoidsDuplicates = false
    /// Milliseconds since the epoch; nil without the field.
    var registeredAt: Int64?
    /// Whether the push carries a whole state, and whether the state is the last one.
    var isState = false
    var isFinal = false
    /// Milliseconds since the epoch at which a device event happened.
    var occurred: Int64 = 0

    var identity: Identity {
        if let collapse { return .collapse(token: token, topic: topic, collapse) }
        return isState ? .state(token: token, topic: topic) : .identifier(token: token, identifier)
    }

    /// Whether the push ends a state that the other one only updates.
    func outranks(_ other: WorkerJob) -> Bool { isFinal && !other.isFinal }

    /// Whether a fault of the jobs topic has hit the record. The record may be lost, skipped or repeated.
    var isExempt = false

    // MARK: Seen from outside

    /// The last request with the push that has reached APNs; nil: none has.
    var last: Attempt?
    /// Answers of APNs that end the push.
    var refusals = 0
    /// Failures in a row that the last worker has surely heard of, and that count as attempts.
    var failures = 0
    /// Whether APNs has asked for a pause.
    var isPaused = false
    /// The last request that APNs has accepted; nil: none.
    var accepted: Attempt?
    /// Whether the worker may not have learned that APNs has accepted the push, or could not keep that.
    var isExcused = false
    /// Outcomes and dead letters that a reader of committed records has seen.
    var outcomes = 0
    /// Nanoseconds at which the last of them was seen, and the assignment of the partition at that time.
    var outcomeAt: UInt64 = 0
    var outcomeIn: Int?
    /// Nanoseconds since which the group's offset covers the record and its outcome is visible; `UInt64.max`: not yet.
    var settledAt = UInt64.max
    /// Event that has ended the push's sending, or moved it to another token; nil: none.
    var withdrawal: Withdrawal?

    /// A request that has reached APNs.
    struct Attempt {
        /// Effect of the answer on the push.
        enum Answer {
            case accepted
            /// Ends the push.
            case refused
            /// Counts as a failure, and the push is sent again.
            case failed
            /// Doesn't count as a failure.
            case uncounted
            /// APNs may have processed the push.
            case none
        }

        var run: WorkerRun
        /// Assignment of the push's partition to the worker; nil: unknown.
        var assignment: Int?
        /// Token of the request, or the channel.
        var token: Int
        /// Name under which workers stop the push's topic.
        var topic: String
        var connection: Int
        var link: WorkerLink
        /// Nanoseconds of the request's arrival and of the answer; `UInt64.max`: there is none.
        var receivedAt: UInt64
        var answeredAt: UInt64
        var answer: Answer
        /// Milliseconds that APNs has asked to wait.
        var retryAfter: Int64

        /// Whether the worker has surely read the answer by a time.
        func isHeard(at now: UInt64) -> Bool {
            guard !link.isDelayed, answeredAt < .max, answeredAt + Self.transport < now else { return false }
            let ends = [link.closedAt, link.goneAt].compactMap(\.self)
            return ends.allSatisfy { $0 > answeredAt + Self.transport }
        }

        /// Whether the worker surely awaits the answer.
        func isOpen(at now: UInt64) -> Bool {
            guard !link.isDelayed, answer != .uncounted else { return false }
            return now < min(answeredAt, receivedAt + Self.patience) && link.isOpen
        }

        /// Nanoseconds from which on the worker surely doesn't await an answer.
        var end: UInt64 {
            (answeredAt == .max ? receivedAt + Self.timeout : answeredAt) + Self.transport
        }

        /// Nanoseconds that a packet takes, with the turns of the loops around it.
        static let transport: UInt64 = 100_000_000
        /// The workers' timeout for requests, in nanoseconds.
        static let timeout: UInt64 = 5_000_000_000
        private static let patience = timeout - transport
    }

    struct Withdrawal {
        var event: Int
        /// Nanoseconds since which the event's outcome is visible.
        var at: UInt64
        /// Assignment of the partition then.
        var assignment: Int?
        /// Token to which nothing is sent any more; nil: to none.
        var token: Int?
        /// Whether the event holds for other workers, too.
        var isLasting: Bool
    }

    // MARK: Texts

    static func token(_ number: Int) -> String {
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: 64 - digits.count) + digits
    }

    static func channel(_ number: Int) -> String { "Y2hhbm5lbA\(number)==" }

    /// The device token or channel of requests.
    var address: String { kind == .broadcast ? Self.channel(token) : Self.token(token) }

    /// Returns the `apns-id` with a number.
    static func identifier(_ number: Int) -> APNSID { APNSID(high: 1, low: UInt64(number)) }

    static func payload(_ number: Int, event: String? = nil) -> [UInt8] {
        let member = event.map { "\"event\":\"\($0)\"," } ?? ""
        return Array("{\"aps\":{\(member)\"alert\":\"#\(number)#\"}}".utf8)
    }

    /// Returns the job's number in a payload; nil: the payload is of another kind.
    static func number(inPayload text: String) -> Int? {
        let parts = text.split(separator: "#")
        return parts.count == 3 ? Int(parts[1]) : nil
    }
}

/// A connection to APNs.
final class WorkerLink {
    /// The network's connection; nil: it is unknown.
    private let link: SimulatedLink?
    /// Whether packets have been delayed, so that nobody knows when they arrive.
    var isDelayed: Bool
    /// Nanoseconds at which APNs' end was gone; nil: it is there.
    var goneAt: UInt64?

    init(_ link: SimulatedLink?) {
        self.link = link
        isDelayed = link == nil
    }

    /// Nanoseconds at which the worker has closed its end; nil: it hasn't.
    var closedAt: UInt64? { link?.client.closedAt }
    /// Whether the connection is up as far as both sides know.
    var isOpen: Bool { link?.isOpen == true && closedAt == nil }
}

/// A worker of a world: the host, and the number of workers that have started there before.
struct WorkerRun: Hashable {
    var host: Int
    var number: Int
}

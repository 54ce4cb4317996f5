import SluiceModel

/// A record of the jobs topic, with what an observer outside of the workers has seen of it.
struct WorkerJob {
    enum Kind {
        case push
        /// Not decodable: a dead letter follows.
        case invalid
    }

    var kind: Kind
    var device: Int
    var partition: Int32
    var offset: Int64 = 0
    /// Milliseconds since the epoch at which the push expires.
    var expires: Int64 = .max
    /// Milliseconds since the epoch before which the push isn't sent; 0: at once.
    var due: Int64 = 0

    /// Value of `apns-collapse-id`; nil without one.
    var collapse: String?

    // MARK: Seen from outside

    /// Answers of APNs that end the push.
    var refusals = 0
    /// Whether APNs has asked for a pause of the device.
    var isPaused = false
    /// Requests that APNs has accepted.
    var accepted = 0
    /// Nanoseconds of the last accepted request.
    var acceptedAt: UInt64 = 0
    /// Nanoseconds of the answer to the last accepted request.
    var answeredAt: UInt64 = 0
    /// Connection of the last accepted request.
    var connection = 0
    /// Host that has sent it; nil: it is unknown.
    var host: Int?
    /// Whether the worker may not have learned that APNs has accepted the push, or could not keep that.
    var isExcused = false
    /// Outcomes and dead letters that a reader of committed records has seen.
    var outcomes = 0
    /// Nanoseconds at which the last of them was seen.
    var outcomeAt: UInt64 = 0

    static func token(_ device: Int) -> String {
        let digits = String(device, radix: 16)
        return String(repeating: "0", count: 64 - digits.count) + digits
    }

    static func payload(_ number: Int) -> [UInt8] { Array("{\"aps\":{\"alert\":\"#\(number)#\"}}".utf8) }

    /// Returns the job's number in a payload; nil: the payload is of another kind.
    static func number(inPayload text: String) -> Int? {
        let parts = text.split(separator: "#")
        return parts.count == 3 ? Int(parts[1]) : nil
    }
}

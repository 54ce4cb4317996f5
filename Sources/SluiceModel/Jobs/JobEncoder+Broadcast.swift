/// A broadcast as a producer describes it. Only the decoder validates it.
public struct BroadcastDescription: Sendable {
    /// Identifier of the channel in base64; also the record's key.
    public var channelIdentifier: String
    /// Bundle identifier of the app.
    public var topic: String
    /// Payload: a JSON object.
    public var payload: [UInt8]
    /// Value of `apns-priority`: 10, 5 or 1; nil omits the field.
    public var priority: Int?
    /// Value of `apns-expiration`, in seconds since the epoch; nil omits the field.
    public var expiration: Int64?
    /// Life of the broadcast in seconds; nil omits the field.
    public var ttl: Int64?
    /// Value of `apns-id`, a UUID; nil omits the field.
    public var apnsID: String?
    /// Earliest time to send, in milliseconds since the epoch; nil omits the field.
    public var deliverAtMilliseconds: Int64?
    /// A ``DuplicatePolicy/name``; nil omits the field.
    public var duplicates: String?
    /// A ``JobEnvironment/name``; nil omits the field.
    public var environment: String?
    /// Time of the job's creation, in milliseconds since the epoch; nil omits the field.
    public var createdAtMilliseconds: Int64?

    public init(channelIdentifier: String, topic: String, payload: [UInt8]) {
        self.channelIdentifier = channelIdentifier
        self.topic = topic
        self.payload = payload
    }
}

extension JobEncoder {
    /// Encodes a broadcast in binary mode: headers beside the payload.
    public static func binary(_ broadcast: BroadcastDescription) -> EncodedJob {
        let kind = (JobField.kind, Value.text(JobKind.broadcast.name.description))
        return EncodedJob(
            key: Array(broadcast.channelIdentifier.utf8), value: broadcast.payload,
            headers: headers(of: [kind] + fields(of: broadcast)))
    }

    /// Encodes a broadcast in structured mode: a JSON document.
    public static func structured(_ broadcast: BroadcastDescription) -> EncodedJob {
        structured(
            .broadcast, fields(of: broadcast), payload: broadcast.payload,
            key: Array(broadcast.channelIdentifier.utf8))
    }

    private static func fields(of broadcast: BroadcastDescription) -> [(JobField, Value)] {
        let all: [(JobField, Value?)] = [
            (.channelIdentifier, .text(broadcast.channelIdentifier)),
            (.topic, .text(broadcast.topic)),
            (.priority, broadcast.priority.map { .integer(Int64($0)) }),
            (.expiration, broadcast.expiration.map { .integer($0) }),
            (.ttl, broadcast.ttl.map { .integer($0) }),
            (.apnsID, broadcast.apnsID.map { .text($0) }),
            (.deliverAt, broadcast.deliverAtMilliseconds.map { .integer($0) }),
            (.duplicates, broadcast.duplicates.map { .text($0) }),
            (.environment, broadcast.environment.map { .text($0) }),
            (.createdAt, broadcast.createdAtMilliseconds.map { .integer($0) }),
        ]
        return all.compactMap { field, value in value.map { (field, $0) } }
    }
}

/// A push as a producer describes it. Only the decoder validates it.
public struct PushDescription: Sendable {
    /// Hexadecimal text of the device token; also the record's key.
    public var deviceToken: String
    /// Value of `apns-topic`.
    public var topic: String
    /// Value of `apns-push-type`, such as `alert`.
    public var pushType: String
    /// Payload: a JSON object.
    public var payload: [UInt8]
    /// Value of `apns-priority`: 10, 5 or 1; nil omits the field.
    public var priority: Int?
    /// Value of `apns-expiration`, in seconds since the epoch; nil omits the field.
    public var expiration: Int64?
    /// Life of the push in seconds; nil omits the field.
    public var ttl: Int64?
    /// Value of `apns-collapse-id`; nil omits the field.
    public var collapseIdentifier: String?
    /// Value of `apns-id`, a UUID; nil omits the field.
    public var apnsID: String?
    /// Earliest time to send, in milliseconds since the epoch; nil omits the field.
    public var deliverAtMilliseconds: Int64?
    /// A ``DeliveryMode/name``; nil omits the field.
    public var delivery: String?
    /// Seconds to wait for a receipt; nil omits the field.
    public var receiptTimeoutSeconds: Int64?
    /// Time at which the app registered the device token, in milliseconds since the epoch; nil omits the field.
    public var registeredAtMilliseconds: Int64?
    /// A ``DuplicatePolicy/name``; nil omits the field.
    public var duplicates: String?
    /// A ``JobEnvironment/name``; nil omits the field.
    public var environment: String?
    /// Time of the job's creation, in milliseconds since the epoch; nil omits the field.
    public var createdAtMilliseconds: Int64?

    public init(deviceToken: String, topic: String, pushType: String = "alert", payload: [UInt8]) {
        self.deviceToken = deviceToken
        self.topic = topic
        self.pushType = pushType
        self.payload = payload
    }
}

/// A cancel or a device event as a producer describes it. Only the decoder validates it.
public struct ControlDescription: Sendable {
    /// ``JobKind/cancel`` or ``JobKind/device``.
    public var kind: JobKind
    /// Hexadecimal text of the device token; also the record's key.
    public var deviceToken: String
    /// Topic of the withdrawn pushes; required with a collapse identifier.
    public var topic: String?
    /// Collapse identifier of the withdrawn pushes; nil omits the field.
    public var collapseIdentifier: String?
    /// `apns-id` of the withdrawn push, or of the notification that a receipt confirms.
    public var apnsID: String?
    /// A ``DeviceEvent/name``.
    public var event: String?
    /// Hexadecimal text of the new device token, for ``DeviceEvent/tokenChanged``; nil omits the field.
    public var newDeviceToken: String?
    /// Time of the event, in milliseconds since the epoch; nil omits the field.
    public var occurredAtMilliseconds: Int64?
    /// Time of the job's creation, in milliseconds since the epoch; nil omits the field.
    public var createdAtMilliseconds: Int64?

    public init(_ kind: JobKind, deviceToken: String) {
        self.kind = kind
        self.deviceToken = deviceToken
    }
}

/// A record for the jobs topic.
public struct EncodedJob: Sendable {
    /// Key of the record: the device token or channel identifier.
    public var key: [UInt8]
    /// Payload in binary mode, document in structured mode, fields and payload in packed mode. Empty for a cancel or
    /// device event in binary mode.
    public var value: [UInt8]
    /// Headers of the record, in order.
    public var headers: [(name: String, value: [UInt8])]

    public init(key: [UInt8], value: [UInt8], headers: [(name: String, value: [UInt8])]) {
        self.key = key
        self.value = value
        self.headers = headers
    }
}

/// Writes jobs for `sluice produce`, the demo and tests.
public enum JobEncoder {
    /// Encodes a push in binary mode: headers beside the payload.
    public static func binary(_ push: PushDescription) -> EncodedJob {
        EncodedJob(
            key: Array(push.deviceToken.utf8), value: push.payload, headers: headers(of: fields(of: push)))
    }

    /// Encodes a cancel or a device event in binary mode: headers, and no value.
    public static func binary(_ control: ControlDescription) -> EncodedJob {
        EncodedJob(
            key: Array(control.deviceToken.utf8), value: [], headers: headers(of: fields(of: control)))
    }

    /// Encodes a job of binary mode in packed mode: its headers become lines before the payload.
    ///
    /// - Throws: for a job without headers, and for a line feed in a header; no valid job has either.
    public static func packed(_ binary: EncodedJob) throws(JobError) -> EncodedJob {
        guard !binary.headers.isEmpty else {
            throw JobError(
                field: "fields", rule: .packedLine, message: "packed mode needs a field beside the payload")
        }
        var lines: [UInt8] = []
        for header in binary.headers {
            guard !header.value.contains(UInt8(ascii: "\n")) else {
                throw JobError(
                    field: header.name, rule: .packedLine,
                    message: "has a line feed, which packed mode can't hold")
            }
            lines += header.name.utf8
            lines.append(UInt8(ascii: ":"))
            lines += header.value
            lines.append(UInt8(ascii: "\n"))
        }
        if !binary.value.isEmpty {
            lines.append(UInt8(ascii: "\n"))
            lines += binary.value
        }
        return EncodedJob(key: binary.key, value: lines, headers: [])
    }

    /// Encodes a push in structured mode: a JSON document.
    public static func structured(_ push: PushDescription) -> EncodedJob {
        structured(
            .push, fields(of: push), payload: push.payload, key: Array(push.deviceToken.utf8))
    }

    /// Encodes a cancel or a device event in structured mode: a JSON document.
    public static func structured(_ control: ControlDescription) -> EncodedJob {
        structured(
            control.kind, fields(of: control).filter { $0.0 != .kind }, payload: nil,
            key: Array(control.deviceToken.utf8))
    }

    static func headers(of fields: [(JobField, Value)]) -> [(name: String, value: [UInt8])] {
        fields.compactMap { field, value in
            guard let name = field.headerName else { return nil }
            switch value {
            case .text(let text): return (name.description, Array(text.utf8))
            case .integer(let number): return (name.description, Array("\(number)".utf8))
            }
        }
    }

    static func structured(
        _ kind: JobKind, _ fields: [(JobField, Value)], payload: [UInt8]?, key: [UInt8]
    ) -> EncodedJob {
        var writer = ByteWriter(minimumCapacity: (payload?.count ?? 0) + 256)
        writer.append(#"{"kind":"#)
        writer.append(jsonString: kind.name.bytes)
        for (field, value) in fields {
            writer.append(UInt8(ascii: ","))
            writer.append(jsonString: field.memberName.bytes)
            writer.append(UInt8(ascii: ":"))
            switch value {
            case .text(let text): writer.append(jsonString: text)
            case .integer(let number): writer.append(decimal: number)
            }
        }
        if let payload {
            writer.append(#","payload":"#)
            payload.withUnsafeBytes { writer.append($0) }
        }
        writer.append(UInt8(ascii: "}"))
        return document(Array(writer.bytes), key: key)
    }

    /// Makes a record of a finished structured-mode document, with the key from the document. Nil when the document
    /// isn't a valid JSON object or has no `device-token` (or `channel-id` of a broadcast).
    public static func document(_ json: [UInt8]) -> EncodedJob? {
        json.withUnsafeBytes { bytes -> EncodedJob? in
            do throws(JSONFault) { try JSONScanner.validateObject(bytes) } catch { return nil }
            let members = Members(bytes)
            let isBroadcast = members.text(named: "kind") == JobKind.broadcast.name.description
            let address: JobField = isBroadcast ? .channelIdentifier : .deviceToken
            guard let key = members.text(named: address.memberName.description) else { return nil }
            return document(json, key: Array(key.utf8))
        }
    }

    private static func document(_ json: [UInt8], key: [UInt8]) -> EncodedJob {
        EncodedJob(
            key: key, value: json,
            headers: [(ContentType.headerName.description, Array(ContentType.structured.description.utf8))])
    }

    enum Value {
        case text(String)
        case integer(Int64)
    }

    private static func fields(of push: PushDescription) -> [(JobField, Value)] {
        let all: [(JobField, Value?)] = [
            (.deviceToken, .text(push.deviceToken)),
            (.topic, .text(push.topic)),
            (.pushType, .text(push.pushType)),
            (.priority, push.priority.map { .integer(Int64($0)) }),
            (.expiration, push.expiration.map { .integer($0) }),
            (.ttl, push.ttl.map { .integer($0) }),
            (.collapseIdentifier, push.collapseIdentifier.map { .text($0) }),
            (.apnsID, push.apnsID.map { .text($0) }),
            (.deliverAt, push.deliverAtMilliseconds.map { .integer($0) }),
            (.delivery, push.delivery.map { .text($0) }),
            (.receiptTimeout, push.receiptTimeoutSeconds.map { .integer($0) }),
            (.registeredAt, push.registeredAtMilliseconds.map { .integer($0) }),
            (.duplicates, push.duplicates.map { .text($0) }),
            (.environment, push.environment.map { .text($0) }),
            (.createdAt, push.createdAtMilliseconds.map { .integer($0) }),
        ]
        return all.compactMap { field, value in value.map { (field, $0) } }
    }

    private static func fields(of control: ControlDescription) -> [(JobField, Value)] {
        let all: [(JobField, Value?)] = [
            (.kind, .text(control.kind.name.description)),
            (.deviceToken, .text(control.deviceToken)),
            (.topic, control.topic.map { .text($0) }),
            (.collapseIdentifier, control.collapseIdentifier.map { .text($0) }),
            (.event, control.event.map { .text($0) }),
            (.apnsID, control.apnsID.map { .text($0) }),
            (.newDeviceToken, control.newDeviceToken.map { .text($0) }),
            (.occurredAt, control.occurredAtMilliseconds.map { .integer($0) }),
            (.createdAt, control.createdAtMilliseconds.map { .integer($0) }),
        ]
        return all.compactMap { field, value in value.map { (field, $0) } }
    }
}

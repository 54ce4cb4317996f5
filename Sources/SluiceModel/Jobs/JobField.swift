/// Kind of a job.
public enum JobKind: UInt8, CaseIterable, Sendable {
    case push, cancel, device, broadcast

    /// Value of the field `kind`.
    public var name: StaticString {
        switch self {
        case .push: "push"
        case .cancel: "cancel"
        case .device: "device"
        case .broadcast: "broadcast"
        }
    }
}

/// Every field of a job, in all modes.
public enum JobField: UInt8, CaseIterable, Sendable {
    case kind, deviceToken, channelIdentifier, topic, pushType, priority, expiration, ttl, collapseIdentifier,
        apnsID, deliverAt, delivery, receiptTimeout, registeredAt, duplicates, environment, createdAt,
        event,
        newDeviceToken,
        occurredAt, payload

    /// Number of fields.
    public static let count = 21

    /// Form in which a value is written.
    public enum ValueType: Sendable {
        /// Text: header bytes, or a JSON string.
        case text
        /// A whole number: decimal digits, or a JSON number.
        case integer
        /// The payload: the record's value, or a JSON object.
        case object
    }

    /// Record header that carries the field in binary mode; nil for a field in the record's key or value.
    public var headerName: StaticString? {
        switch self {
        case .deviceToken, .channelIdentifier, .payload: nil
        case .topic: "apns-topic"
        case .pushType: "apns-push-type"
        case .priority: "apns-priority"
        case .expiration: "apns-expiration"
        case .collapseIdentifier: "apns-collapse-id"
        default: memberName
        }
    }

    /// Member of the document that carries the field in structured mode.
    public var memberName: StaticString {
        switch self {
        case .kind: "kind"
        case .deviceToken: "device-token"
        case .channelIdentifier: "channel-id"
        case .topic: "topic"
        case .pushType: "push-type"
        case .priority: "priority"
        case .expiration: "expiration"
        case .ttl: "ttl"
        case .collapseIdentifier: "collapse-id"
        case .apnsID: "apns-id"
        case .deliverAt: "deliver-at"
        case .delivery: "delivery"
        case .receiptTimeout: "receipt-timeout"
        case .registeredAt: "registered-at"
        case .duplicates: "duplicates"
        case .environment: "environment"
        case .createdAt: "created-at"
        case .event: "event"
        case .newDeviceToken: "new-device-token"
        case .occurredAt: "occurred-at"
        case .payload: "payload"
        }
    }

    /// Form in which this field's value is written.
    public var valueType: ValueType {
        switch self {
        case .priority, .expiration, .ttl, .deliverAt, .receiptTimeout, .registeredAt, .createdAt,
            .occurredAt:
            .integer
        case .payload: .object
        default: .text
        }
    }

    /// Finds the field with this header name; the case of letters doesn't matter. The length leaves four candidates at
    /// most, and each comparison is with a literal.
    @inline(__always)
    init?(headerName name: UnsafeRawBufferPointer) {
        @inline(__always)
        func has(_ literal: StaticString) -> Bool {
            name.elementsEqual(bytesOf: literal) || name.equalsIgnoringCase(literal)
        }
        switch name.count {
        case 3 where has("ttl"): self = .ttl
        case 4 where has("kind"): self = .kind
        case 5 where has("event"): self = .event
        case 7 where has("apns-id"): self = .apnsID
        case 8 where has("delivery"): self = .delivery
        case 10 where has("apns-topic"): self = .topic
        case 10 where has("created-at"): self = .createdAt
        case 10 where has("deliver-at"): self = .deliverAt
        case 10 where has("duplicates"): self = .duplicates
        case 11 where has("environment"): self = .environment
        case 11 where has("occurred-at"): self = .occurredAt
        case 13 where has("apns-priority"): self = .priority
        case 13 where has("registered-at"): self = .registeredAt
        case 14 where has("apns-push-type"): self = .pushType
        case 15 where has("apns-expiration"): self = .expiration
        case 15 where has("receipt-timeout"): self = .receiptTimeout
        case 16 where has("apns-collapse-id"): self = .collapseIdentifier
        case 16 where has("new-device-token"): self = .newDeviceToken
        default: return nil
        }
    }

    init?(memberName: UnsafeRawBufferPointer) {
        var raw: UInt8 = 0
        while let field = JobField(rawValue: raw) {
            if memberName.elementsEqual(bytesOf: field.memberName) {
                self = field
                return
            }
            raw += 1
        }
        return nil
    }
}

/// A set of job fields.
struct JobFieldSet: OptionSet {
    let rawValue: UInt32

    init(rawValue: UInt32) { self.rawValue = rawValue }
    init(_ field: JobField) { rawValue = 1 << UInt32(field.rawValue) }

    func contains(_ field: JobField) -> Bool { rawValue & (1 << UInt32(field.rawValue)) != 0 }

    init(_ fields: JobField...) {
        rawValue = fields.reduce(0) { $0 | 1 << UInt32($1.rawValue) }
    }

    /// First field of the set in the order of the table.
    var first: JobField? {
        rawValue == 0 ? nil : JobField(rawValue: UInt8(rawValue.trailingZeroBitCount))
    }
}

extension JobKind {
    /// Fields that a job of this kind must have.
    var required: JobFieldSet {
        switch self {
        case .push: Self.pushRequired
        case .cancel: Self.cancelRequired
        case .device: Self.deviceRequired
        case .broadcast: Self.broadcastRequired
        }
    }

    /// Fields that a job of this kind may have, the required ones included.
    var allowed: JobFieldSet {
        switch self {
        case .push: Self.pushAllowed
        case .cancel: Self.cancelAllowed
        case .device: Self.deviceAllowed
        case .broadcast: Self.broadcastAllowed
        }
    }

    private static let pushRequired = JobFieldSet(.deviceToken, .topic, .pushType, .payload)
    private static let pushAllowed = pushRequired.union(
        JobFieldSet(
            .kind, .priority, .expiration, .ttl, .collapseIdentifier, .apnsID, .deliverAt, .delivery,
            .receiptTimeout, .registeredAt, .duplicates, .environment, .createdAt))
    private static let cancelRequired = JobFieldSet(.deviceToken)
    private static let cancelAllowed = cancelRequired.union(
        JobFieldSet(.kind, .topic, .collapseIdentifier, .apnsID, .createdAt))
    private static let deviceRequired = JobFieldSet(.deviceToken, .event)
    private static let deviceAllowed = deviceRequired.union(
        JobFieldSet(.kind, .apnsID, .newDeviceToken, .occurredAt, .createdAt))
    private static let broadcastRequired = JobFieldSet(.channelIdentifier, .topic, .payload)
    private static let broadcastAllowed = broadcastRequired.union(
        JobFieldSet(
            .kind, .pushType, .priority, .expiration, .ttl, .apnsID, .deliverAt, .duplicates, .environment,
            .createdAt))
}

/// Record headers that are never taken for misspelt fields.
///
/// Sluice reads no header that isn't a field. A name that resembles a field's is an error nevertheless
/// (``HeaderMistakes``), except for these: names of tracing and CloudEvents, and each name that begins with `x-`. The
/// headers that Sluice added to a dead letter or a redriven job are among them. So a repaired dead letter can be produced
/// again unmodified.
public enum IgnoredHeader {
    /// Whole names, in lower case.
    public static let names: [StaticString] = [
        "traceparent", "tracestate", "baggage", "b3", RedrivenMark.headerName,
    ]
    /// Beginnings of names, in lower case.
    public static let prefixes: [StaticString] = [
        "ce_", "x-", "sluice-error-", "sluice-source-", "sluice-omitted-",
    ]

    static func matches(_ name: UnsafeRawBufferPointer) -> Bool {
        name.hasPrefixIgnoringCase("x-") || name.hasPrefixIgnoringCase("ce_")
            || name.hasPrefixIgnoringCase("sluice-error-")
            || name.hasPrefixIgnoringCase("sluice-source-") || name.hasPrefixIgnoringCase("sluice-omitted-")
            || name.equalsIgnoringCase("traceparent")
            || name.equalsIgnoringCase("tracestate") || name.equalsIgnoringCase("baggage")
            || name.equalsIgnoringCase("b3") || name.equalsIgnoringCase(RedrivenMark.headerName)
    }
}

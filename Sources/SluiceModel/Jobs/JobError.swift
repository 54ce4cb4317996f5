/// The rule that a malformed job breaks: a machine-readable code, stable across versions.
public enum JobRule: String, CaseIterable, Sendable {
    // The shape of the record.
    case required, doubled, null, unknown
    case notForKind = "not-for-kind"
    case notInStructuredMode = "not-in-structured-mode"
    case contentType = "content-type"
    case packedLine = "packed-line"
    case keyMismatch = "key-mismatch"
    case noValue = "no-value"
    // JSON.
    case json, utf8, depth
    case jsonObject = "json-object"
    case documentSize = "document-size"
    case type
    case schemaRegistry = "schema-registry"
    // Values.
    case choice, number, range, length, hex, charset
    case evenLength = "even-length"
    case uuid
    case topicSuffix = "topic-suffix"
    case pushTypePriority = "push-type-priority"
    case payloadSize = "payload-size"
    // Fields that depend on each other.
    case exclusive
    case onlyWith = "only-with"
    case requiredWith = "required-with"
}

/// Cause why a record of the jobs topic is not a job. The error never holds a device token or a payload.
public struct JobError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Faulty part in the producer's terms: a header name (binary mode), a member name (structured mode), `key`,
    /// `payload` or `document`.
    public var field: String
    public var rule: JobRule
    /// Description of the fault and of the allowed values, in one sentence.
    public var message: String

    public init(field: String, rule: JobRule, message: String) {
        self.field = field
        self.rule = rule
        self.message = message
    }

    public var description: String { "\(field): \(message) [\(rule.rawValue)]" }
}

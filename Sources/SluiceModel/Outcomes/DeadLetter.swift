/// What Sluice adds to a malformed record when it puts it on the dead-letter topic.
///
/// The record keeps its key, value and headers byte for byte; these headers are appended. A dead letter that
/// was mended may be produced to the jobs topic as it is, because the decoder skips them.
public enum DeadLetter {
    /// Names of the added headers, in their order.
    public enum Header: String, CaseIterable, Sendable {
        /// What is wrong: a header, a member, `key`, `payload` or `document`.
        case field = "sluice-error-field"
        /// Code of the broken rule (``JobRule``).
        case rule = "sluice-error-rule"
        /// The same for people.
        case message = "sluice-error-message"
        case sourceTopic = "sluice-source-topic"
        case sourcePartition = "sluice-source-partition"
        case sourceOffset = "sluice-source-offset"
        /// The record's own timestamp, in milliseconds since the epoch; -1 where it has none.
        case sourceTimestamp = "sluice-source-timestamp"
    }

    /// Added where the record with its new headers was larger than Kafka takes, so that its value was left out; holds
    /// Kafka's name of the error.
    public static let valueOmittedHeader = "sluice-error-value-omitted"

    /// The headers to add.
    public static func headers(for error: JobError, record: JobRecord) -> [(name: String, value: [UInt8])] {
        let values: [[UInt8]] = [
            Array(error.field.utf8), Array(error.rule.rawValue.utf8), Array(error.message.utf8),
            Array(record.topic), Array("\(record.partition)".utf8), Array("\(record.offset)".utf8),
            Array("\(max(record.timestampMilliseconds, -1))".utf8),
        ]
        return zip(Header.allCases, values).map { (name: $0.rawValue, value: $1) }
    }

    /// Whether an original header is one that Sluice added before: it is left out when the record becomes a
    /// dead letter again, so that each is there once.
    public static func isOwnHeader(_ name: UnsafeRawBufferPointer) -> Bool { name.hasPrefix("sluice-") }
}

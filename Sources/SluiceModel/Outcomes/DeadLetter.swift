/// Headers that Sluice adds to a malformed record on the dead-letter topic.
///
/// The record keeps its key, value and headers byte for byte; these headers are appended. A mended dead letter may be
/// produced to the jobs topic unmodified, because the decoder skips these headers.
public enum DeadLetter {
    /// Names of the added headers, in their order.
    public enum Header: String, CaseIterable, Sendable {
        /// Faulty part: a header, line or member, `key`, `payload`, `document`, or `fields` for lines in packed mode.
        case field = "sluice-error-field"
        /// Code of the broken rule (``JobRule``).
        case rule = "sluice-error-rule"
        /// Description of the fault for people.
        case message = "sluice-error-message"
        /// Kafka topic of the record.
        case sourceTopic = "sluice-source-topic"
        /// Partition of the record, in decimal digits.
        case sourcePartition = "sluice-source-partition"
        /// Offset of the record, in decimal digits.
        case sourceOffset = "sluice-source-offset"
        /// Timestamp of the record itself, in milliseconds since the epoch; -1 where it has none.
        case sourceTimestamp = "sluice-source-timestamp"
    }

    /// Header of a dead letter without its value, because the record with its new headers was larger than Kafka
    /// accepts. Its value is Kafka's name of the error.
    public static let valueOmittedHeader = "sluice-error-value-omitted"

    /// Returns the headers to add, in the order of ``Header``.
    public static func headers(for error: JobError, record: JobRecord) -> [(name: String, value: [UInt8])] {
        let values: [[UInt8]] = [
            Array(error.field.utf8), Array(error.rule.rawValue.utf8), Array(error.message.utf8),
            Array(record.topic), Array("\(record.partition)".utf8), Array("\(record.offset)".utf8),
            Array("\(max(record.timestampMilliseconds, -1))".utf8),
        ]
        return zip(Header.allCases, values).map { (name: $0.rawValue, value: $1) }
    }

    /// Returns whether Sluice added an original header before. Such a header is left out when the record becomes a dead
    /// letter again, so that each header appears once.
    public static func isOwnHeader(_ name: UnsafeRawBufferPointer) -> Bool {
        name.hasPrefix("sluice-error-") || name.hasPrefix("sluice-source-")
    }
}

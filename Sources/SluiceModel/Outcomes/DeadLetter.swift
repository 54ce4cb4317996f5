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
    /// accepts. Its value is Kafka's name of the error, or ``hashedReason``.
    public static let valueOmittedHeader = "sluice-error-value-omitted"

    /// Headers that say what Sluice left out of a dead letter or outcome that was larger than Kafka accepts. Each value
    /// has the bytes of what was left out, a space, and the SHA-256 of it in hexadecimal digits.
    public enum Omission: String, CaseIterable, Sendable {
        /// The whole value.
        case value = "sluice-omitted-value"
        /// The headers that are not Sluice's own. Their bytes are those of names and values, each followed by a zero.
        case headers = "sluice-omitted-headers"
        /// The rest of a key, of which the record has the beginning. Bytes and hash are those of the whole key.
        case key = "sluice-omitted-key"
    }

    /// Value of ``valueOmittedHeader`` where the value is left out because it may hold a device token. The key is a hash
    /// then (`outcomes.device-token: hash`).
    public static let hashedReason = "device-token-hash"

    /// Hexadecimal digits in a row that may be a device token. Identifiers of traces have 32.
    private static let tokenDigits = 40
    /// Bytes of a key from which it is looked for in headers. A shorter key is no device token, and could be anywhere.
    private static let shortestKey = 8

    /// Returns whether a header of a malformed record may hold a device token: by its name, by the record's key in its
    /// value, or by a long row of hexadecimal digits.
    public static func mayHoldToken(_ header: RecordHeader, key: UnsafeRawBufferPointer?) -> Bool {
        if header.name.hasSuffixIgnoringCase("device-token") { return true }
        guard let value = header.value else { return false }
        if value.hasHexadecimalRow(tokenDigits) { return true }
        guard let key = key.map({ RecordKey.address(in: $0) }), key.count >= shortestKey else { return false }
        return value.containsIgnoringCase(key)
    }

    /// Returns the headers to add, in the order of ``Header``.
    public static func headers(for error: JobError, record: JobRecord) -> [(name: String, value: [UInt8])] {
        let values: [[UInt8]] = [
            Array(error.field.utf8), Array(error.rule.rawValue.utf8), Array(error.message.utf8),
            Array(record.topic), Array("\(record.partition)".utf8), Array("\(record.offset)".utf8),
            Array("\(max(record.timestampMilliseconds, -1))".utf8),
        ]
        return zip(Header.allCases, values).map { (name: $0.rawValue, value: $1) }
    }

    /// Returns whether Sluice added a header to a record before. Such a header is left out when the record becomes a dead
    /// letter again, so that each header appears once.
    public static func isOwnHeader(_ name: UnsafeRawBufferPointer) -> Bool {
        name.hasPrefix("sluice-error-") || name.hasPrefix("sluice-source-")
            || name.hasPrefix("sluice-omitted-") || name.equalsIgnoringCase("sluice-device")
    }
}

extension UnsafeRawBufferPointer {
    /// Returns whether these bytes contain others in any case of ASCII's letters. The time is proportional to the sum of
    /// both lengths, because both come from outside (Knuth, Morris and Pratt).
    fileprivate func containsIgnoringCase(_ other: UnsafeRawBufferPointer) -> Bool {
        guard other.count > 0 else { return true }
        guard other.count <= count else { return false }
        // Lengths of the longest prefixes that end at each byte.
        var borders = [Int](repeating: 0, count: other.count)
        var length = 0
        for index in other.indices.dropFirst() {
            while length > 0, lowercased(other[index]) != lowercased(other[length]) {
                length = borders[length - 1]
            }
            if lowercased(other[index]) == lowercased(other[length]) { length += 1 }
            borders[index] = length
        }
        length = 0
        for byte in self {
            while length > 0, lowercased(byte) != lowercased(other[length]) { length = borders[length - 1] }
            if lowercased(byte) == lowercased(other[length]) { length += 1 }
            if length == other.count { return true }
        }
        return false
    }
}

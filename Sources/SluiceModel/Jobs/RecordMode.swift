/// Encoding of a record.
///
/// | headers and value | mode |
/// |---|---|
/// | the value begins with a letter, and a colon follows | packed |
/// | `content-type: application/cloudevents+json` | structured CloudEvent: the job is its `data` |
/// | `content-type: application/json`, no `ce_specversion` | structured |
/// | no field, no such `content-type`; the value is an object with `kind` or `device-token` | structured |
/// | all else | binary; `ce_specversion` makes `content-type` the type of the payload |
enum RecordMode {
    /// The value is the payload, fields are headers.
    case binary
    /// The value begins with the fields, which the payload follows: ``PackedFields``.
    case packed
    /// The value is a JSON document with the fields.
    case structured
    /// The value is a CloudEvent in JSON format, whose `data` has the fields.
    case structuredEvent

    /// Whether the value is a JSON document.
    var hasDocument: Bool { self == .structured || self == .structuredEvent }

    /// Headers that decide the mode.
    struct Signs {
        private var contentType: UnsafeRawBufferPointer?
        /// Whether the headers are those of a CloudEvent in binary mode.
        private var isBinaryEvent = false

        /// Whether a header is one of these.
        static func isSign(_ name: UnsafeRawBufferPointer) -> Bool {
            name.count == ContentType.headerName.utf8CodeUnitCount
                && name.equalsIgnoringCase(ContentType.headerName)
        }

        /// Returns whether the header is `content-type`, which is not the producer's own.
        mutating func take(_ header: RecordHeader) throws(JobError) -> Bool {
            if Self.isSign(header.name) {
                if contentType != nil { throw .doubled(ContentType.headerName) }
                guard let value = header.value else { throw .null(ContentType.headerName) }
                contentType = value
                return true
            }
            if header.name.equalsIgnoringCase("ce_specversion") { isBinaryEvent = true }
            return false
        }

        /// - Parameter hasFields: whether a field is in the headers.
        func mode(hasFields: Bool, value: UnsafeRawBufferPointer?) throws(JobError) -> RecordMode {
            switch contentType.map({ ContentType($0) }) {
            case .event: return .structuredEvent
            case .eventBatch:
                throw ContentType.error("carries several events; produce a record for each of them")
            case .json where !isBinaryEvent: return .structured
            case .other where !isBinaryEvent:
                throw ContentType.error("must be application/json (structured mode), or absent (binary mode)")
            case .json, .other, nil: break
            }
            guard !hasFields, let value else { return .binary }
            if SchemaRegistry.hasPrefix(value) { throw .schemaRegistry("payload") }
            return Self.isDocument(value) ? .structured : .binary
        }

        /// Returns whether a value without any header is a job's document. The value needn't be valid JSON.
        private static func isDocument(_ value: UnsafeRawBufferPointer) -> Bool {
            guard value.count <= JobLimits.maximumDocumentSize,
                value.first(where: { $0 > UInt8(ascii: " ") }) == UInt8(ascii: "{")
            else { return false }
            var members = JSONMembers(value)
            while let member = members.next() {
                if member.name.elementsEqual(bytesOf: JobField.kind.memberName)
                    || member.name.elementsEqual(bytesOf: JobField.deviceToken.memberName)
                {
                    return true
                }
            }
            return false
        }
    }
}

/// Header that distinguishes structured mode from binary mode, and its values. Parameters such as `; charset=utf-8` may
/// follow a value.
public enum ContentType {
    /// Name of the header, in lower case.
    public static let headerName: StaticString = "content-type"
    /// Value of the header in structured mode.
    public static let structured: StaticString = "application/json"
    /// Value of the header for a CloudEvent in JSON format.
    public static let cloudEvent: StaticString = "application/cloudevents+json"
    private static let cloudEvents: StaticString = "application/cloudevents-batch+json"

    case json, event, eventBatch, other

    init(_ value: UnsafeRawBufferPointer) {
        var end = value.firstIndex(of: UInt8(ascii: ";")) ?? value.count
        while end > 0, value[end - 1] == UInt8(ascii: " ") { end -= 1 }
        let type = value.slice(0..<end)
        if type.equalsIgnoringCase(Self.structured) {
            self = .json
        } else if type.equalsIgnoringCase(Self.cloudEvent) {
            self = .event
        } else if type.equalsIgnoringCase(Self.cloudEvents) {
            self = .eventBatch
        } else {
            self = .other
        }
    }

    static func error(_ message: String) -> JobError {
        JobError(field: headerName.description, rule: .contentType, message: message)
    }
}

/// Prefix that the serializers of a schema registry write: a zero byte and a schema's number of four bytes.
enum SchemaRegistry {
    static func hasPrefix(_ bytes: UnsafeRawBufferPointer) -> Bool { bytes.count >= 5 && bytes[0] == 0 }
}

/// Key of a record.
public enum RecordKey {
    /// Returns the address in a key: the device token, or the channel of a broadcast. The quotes of a key that was
    /// written as a JSON string, as by Kafka Connect's JsonConverter, are not part of it.
    public static func address(in key: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        let quote = UInt8(ascii: "\"")
        guard key.count >= 2, key[0] == quote, key[key.count - 1] == quote else { return key }
        return key.slice(1..<key.count - 1)
    }
}

// Reads a record into its fields, in each mode. No value is validated here except the kind, which decides the meaning
// of the key and the value.

extension JobDecoder {
    /// Reads key and payload of a record in binary or packed mode, whose other fields are read already.
    func readBinary(
        _ record: JobRecord, payload: UnsafeRawBufferPointer?, into fields: inout JobFields
    ) throws(JobError) -> JobKind {
        let kind = try Self.kind(of: fields)
        if let key = record.key {
            let address = RecordKey.address(in: key)
            if address.count > 0 { fields.set(kind.address, address) }
        }
        if let payload, payload.count > 0 {
            guard kind.allowed.contains(.payload) else {
                throw JobError(
                    field: "payload", rule: .noValue,
                    message:
                        "a job of kind \(kind.name) has \(fields.isPacked ? "no payload" : "an empty value")")
            }
            fields.set(.payload, payload)
        }
        return kind
    }

    /// Reads key and value of a record in structured mode: a JSON document, or a CloudEvent with the document.
    func readDocument(
        of record: JobRecord, isEvent: Bool, into fields: inout JobFields
    ) throws(JobError) -> JobKind {
        guard let document = record.value, document.count > 0 else {
            throw JobError(field: "document", rule: .required, message: "the record has no value")
        }
        try validateObject(document, field: "document")
        try Self.readMembers(of: isEvent ? eventData(document) : document, into: &fields)
        let kind = try Self.kind(of: fields)
        try checkKey(of: record, kind, fields)
        return kind
    }

    /// Returns the data of a CloudEvent in JSON format (CloudEvents 1.0, JSON Event Format).
    private func eventData(_ event: UnsafeRawBufferPointer) throws(JobError) -> UnsafeRawBufferPointer {
        var data: UnsafeRawBufferPointer?
        var members = JSONMembers(event)
        while let member = members.next() {
            if member.name.elementsEqual(bytesOf: "data_base64"), !member.isNull {
                throw JobError(
                    field: "data_base64", rule: .type,
                    message: "the event's data must be a JSON object in the member data, not text in base64")
            }
            guard member.name.elementsEqual(bytesOf: "data"), !member.isNull else { continue }
            if data != nil {
                throw JobError(field: "data", rule: .doubled, message: "the member occurs more than once")
            }
            data = member.value
        }
        guard let data else {
            throw JobError(
                field: "data", rule: .required, message: "the event has no data; data is the job's document")
        }
        guard data.first == UInt8(ascii: "{") else {
            throw JobError(field: "data", rule: .type, message: "must be an object: the job's document")
        }
        return data
    }

    /// Reads the members of a valid JSON object. A member with the value `null` counts as absent, because serializers
    /// write such members by default. Unescaped texts are in the storage of `fields`.
    /// - Throws: the first member that is unknown, doubled or of another type.
    static func readMembers(
        of document: UnsafeRawBufferPointer, into fields: inout JobFields
    )
        throws(JobError)
    {
        var members = JSONMembers(document)
        var named = JobFieldSet()
        while let member = members.next() {
            let name = fields.unescaped(member.name, documentSize: document.count)
            guard let field = JobField(memberName: name) else {
                throw .unknownMember(name)
            }
            if named.contains(field) {
                throw fields.error(field, .doubled, "the member occurs more than once")
            }
            named.formUnion(JobFieldSet(field))
            if member.isNull { continue }
            switch (field.valueType, member.value[0]) {
            case (.text, UInt8(ascii: "\"")):
                let content = member.value.slice(1..<member.value.count - 1)
                fields.set(field, fields.unescaped(content, documentSize: document.count))
            case (.integer, UInt8(ascii: "0")...UInt8(ascii: "9")), (.integer, UInt8(ascii: "-")),
                (.object, UInt8(ascii: "{")):
                fields.set(field, member.value)
            default: throw fields.error(field, .type, "must be \(field.valueType.description)")
            }
        }
    }

    /// Returns the kind that the fields name, by default a push.
    static func kind(of fields: borrowing JobFields) throws(JobError) -> JobKind {
        guard let text = fields[.kind] else { return .push }
        var raw: UInt8 = 0
        while let kind = JobKind(rawValue: raw) {
            if text.elementsEqual(bytesOf: kind.name) { return kind }
            raw += 1
        }
        throw fields.error(.kind, .choice, "must be push, cancel, device or broadcast")
    }

    /// Checks that the key is the address in the document, because the key orders the jobs of a device.
    private func checkKey(
        of record: JobRecord, _ kind: JobKind, _ fields: borrowing JobFields
    ) throws(JobError) {
        let name = kind.address.memberName
        guard let key = record.key.map({ RecordKey.address(in: $0) }), key.count > 0 else {
            throw JobError(
                field: "key", rule: .required,
                message: "the record's key must be its \(name), as text; the key orders a device's jobs. "
                    + "\(JobError.keyAdvice)")
        }
        guard let text = fields[kind.address], !text.elementsEqual(bytesOf: key) else { return }
        if let form = KeyForm(key) { throw form.error }
        throw JobError(
            field: "key", rule: .keyMismatch,
            message:
                "differs from the document's \(name); the key must be the same text. \(JobError.keyAdvice)")
    }
}

/// Form in which some serializers write a key, and which is no address.
enum KeyForm {
    /// A JSON object, as of Kafka Connect's JsonConverter with schemas.
    case object
    /// Bytes with the prefix of a schema registry.
    case schemaRegistry

    init?(_ key: UnsafeRawBufferPointer) {
        if SchemaRegistry.hasPrefix(key) {
            self = .schemaRegistry
        } else if key.first == UInt8(ascii: "{") {
            self = .object
        } else {
            return nil
        }
    }

    var error: JobError {
        switch self {
        case .schemaRegistry: .schemaRegistry("key")
        case .object:
            JobError(
                field: "key", rule: .keyMismatch,
                message: "is a JSON object; the key must be the address alone, as text. \(JobError.keyAdvice)"
            )
        }
    }
}

extension JobKind {
    /// Field that the record's key holds.
    var address: JobField { self == .broadcast ? .channelIdentifier : .deviceToken }
}

extension JobError {
    static let keyAdvice =
        "Kafka Connect: StringConverter and the transforms ValueToKey and ExtractField; ksqlDB: PARTITION BY and "
        + "KEY_FORMAT='KAFKA'"

    static func unknownMember(_ name: UnsafeRawBufferPointer) -> JobError {
        let meant = JobField(headerName: name).map { "; did you mean `\($0.memberName)`?" } ?? ""
        return JobError(
            field: name.printableName(insteadOfToken: "member"), rule: .unknown,
            message: "the member is unknown\(meant)")
    }
}

extension JobField.ValueType {
    fileprivate var description: StaticString {
        switch self {
        case .text: "a string"
        case .integer: "a number"
        case .object: "an object"
        }
    }
}

/// Walks the members of a JSON object that is known to be valid, as slices of its text.
struct JSONMembers {
    struct Member {
        /// Text between the quotes, escapes unresolved.
        var name: UnsafeRawBufferPointer
        /// The whole value as written, without surrounding blanks.
        var value: UnsafeRawBufferPointer

        /// Whether the value of valid JSON is `null`.
        var isNull: Bool { value.first == UInt8(ascii: "n") }
    }

    private let bytes: UnsafeRawBufferPointer
    private var scanner: JSONScanner

    init(_ object: UnsafeRawBufferPointer) {
        bytes = object
        scanner = JSONScanner(object)
        scanner.skipWhitespace()
        try? scanner.expect(UInt8(ascii: "{"), "'{'")
    }

    /// Returns the next member; nil at the end, and where the text is not valid after all.
    mutating func next() -> Member? {
        do {
            scanner.skipWhitespace()
            if scanner.peek == UInt8(ascii: ",") { try scanner.expect(UInt8(ascii: ","), "','") }
            scanner.skipWhitespace()
            guard scanner.peek == UInt8(ascii: "\"") else { return nil }
            let nameStart = scanner.index + 1
            try scanner.skipString()
            let name = bytes.slice(nameStart..<scanner.index - 1)
            scanner.skipWhitespace()
            try scanner.expect(UInt8(ascii: ":"), "':'")
            scanner.skipWhitespace()
            let valueStart = scanner.index
            try scanner.skipValue()
            return Member(name: name, value: bytes.slice(valueStart..<scanner.index))
        } catch {
            return nil
        }
    }
}

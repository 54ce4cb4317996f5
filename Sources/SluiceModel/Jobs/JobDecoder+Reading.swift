// Reads a record into its fields, in either mode. No value is validated here except the kind, which decides the meaning
// of the key and the value.

extension JobDecoder {
    /// Reads a record in binary mode: headers, key and value.
    func readHeaders(of record: JobRecord, into fields: inout JobFields) throws(JobError) -> JobKind {
        for header in record.headers {
            if let field = JobField(headerName: header.name) {
                let name = field.headerName ?? ""
                if fields.present.contains(field) { throw .doubled(name) }
                guard let value = header.value else { throw .null(name) }
                fields.set(field, value)
            } else if !IgnoredHeader.matches(header.name) {
                throw .unknownHeader(header.name)
            }
        }
        let kind = try kind(of: fields)
        let address: JobField = kind == .broadcast ? .channelIdentifier : .deviceToken
        if let key = record.key, key.count > 0 { fields.set(address, key) }
        if let value = record.value, value.count > 0 {
            guard kind.allowed.contains(.payload) else {
                throw JobError(
                    field: "payload", rule: .noValue, message: "a job of kind \(kind.name) has an empty value"
                )
            }
            fields.set(.payload, value)
        }
        return kind
    }

    /// Reads a record in structured mode: a JSON document.
    func readDocument(of record: JobRecord, into fields: inout JobFields) throws(JobError) -> JobKind {
        for header in record.headers where !header.name.elementsEqual(bytesOf: ContentType.headerName) {
            if let name = JobField(headerName: header.name)?.headerName {
                throw JobError(
                    field: name.description, rule: .notInStructuredMode,
                    message:
                        "with content-type application/json every field is a member of the document; move "
                        + "the field there, or leave content-type out for binary mode")
            }
            if !IgnoredHeader.matches(header.name) { throw .unknownHeader(header.name) }
        }
        guard let document = record.value, document.count > 0 else {
            throw JobError(field: "document", rule: .required, message: "the record has no value")
        }
        try validateObject(document, field: "document")
        try readMembers(of: document, into: &fields)
        let kind = try kind(of: fields)
        try checkKey(of: record, kind, fields)
        return kind
    }

    private func readMembers(
        of document: UnsafeRawBufferPointer, into fields: inout JobFields
    )
        throws(JobError)
    {
        var members = JSONMembers(document)
        while let member = members.next() {
            let name = fields.unescaped(member.name, documentSize: document.count)
            guard let field = JobField(memberName: name) else {
                throw JobError(
                    field: name.printable(limit: 64), rule: .unknown, message: "the member is unknown")
            }
            if fields.present.contains(field) {
                throw fields.error(field, .doubled, "the member occurs more than once")
            }
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

    private func kind(of fields: borrowing JobFields) throws(JobError) -> JobKind {
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
    )
        throws(JobError)
    {
        let address: JobField = kind == .broadcast ? .channelIdentifier : .deviceToken
        guard let key = record.key, key.count > 0 else {
            throw JobError(
                field: "key", rule: .required, message: "the record's key must be its \(address.memberName)")
        }
        if let text = fields[address], !text.elementsEqual(bytesOf: key) {
            throw JobError(
                field: "key", rule: .keyMismatch, message: "differs from the document's \(address.memberName)"
            )
        }
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

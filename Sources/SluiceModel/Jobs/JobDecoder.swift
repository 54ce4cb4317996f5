/// Decodes records of the jobs topic into valid jobs, or reports the rule that a record breaks.
///
/// Binary mode allocates nothing. The record's value is the payload, the fields are headers, and the key is the device
/// token. Structured mode (`content-type: application/json`) allocates only where a string is escaped. Used by one
/// owner, on one thread at a time.
public struct JobDecoder: ~Copyable {
    private let validator = JSONValidator()
    private let slots = UnsafeMutablePointer<UnsafeRawBufferPointer>.allocate(capacity: JobField.count)

    /// Reserves the parser's memory, about 600 KiB.
    public init() { slots.initialize(repeating: .empty, count: JobField.count) }

    deinit { slots.deallocate() }

    /// Decodes and validates a record.
    ///
    /// - Parameters:
    ///   - record: borrowed; the job's slices point into it.
    ///   - nowMilliseconds: creation time of a record without a valid timestamp, in milliseconds since the epoch.
    /// - Returns: a job whose `release()` must be called once.
    /// - Throws: the first rule that the record breaks.
    public mutating func decode(_ record: JobRecord, nowMilliseconds: Int64) throws(JobError) -> DecodedJob {
        let created =
            JobLimits.instant.contains(record.timestampMilliseconds)
            ? record.timestampMilliseconds : nowMilliseconds
        let isStructured = try isStructured(record)
        if let size = record.value?.count, size > JobLimits.maximumDocumentSize {
            throw JobError(
                field: isStructured ? "document" : "payload", rule: .documentSize,
                message: "has \(size) bytes, at most \(JobLimits.maximumDocumentSize) are allowed")
        }
        if isStructured {
            var fields = JobFields(isStructured: true, slots: slots)
            do throws(JobError) {
                let kind = try readDocument(of: record, into: &fields)
                return try makeJob(kind, fields, record, created: created)
            } catch {
                fields.discard()
                throw error
            }
        }
        var fields = JobFields(isStructured: false, slots: slots)
        let kind = try readHeaders(of: record, into: &fields)
        return try makeJob(kind, fields, record, created: created)
    }

    /// Checks that `bytes` are a single JSON object.
    func validateObject(_ bytes: UnsafeRawBufferPointer, field: String) throws(JobError) {
        do throws(JSONFault) {
            try validator.validateObject(bytes)
        } catch {
            throw JobError(field: field, fault: error)
        }
    }

    /// Reads `content-type`, which decides the mode.
    private func isStructured(_ record: JobRecord) throws(JobError) -> Bool {
        var found: UnsafeRawBufferPointer?
        for header in record.headers where header.name.elementsEqual(bytesOf: ContentType.headerName) {
            if found != nil { throw .doubled(ContentType.headerName) }
            guard let value = header.value else { throw .null(ContentType.headerName) }
            found = value
        }
        guard let found else { return false }
        guard ContentType.isJSON(found) else {
            throw JobError(
                field: ContentType.headerName.description, rule: .contentType,
                message: "must be application/json (structured mode), or absent (binary mode)")
        }
        return true
    }
}

/// Header that distinguishes structured mode from binary mode.
public enum ContentType {
    /// Name of the header, in lower case.
    public static let headerName: StaticString = "content-type"
    /// Value of the header in structured mode; parameters such as `; charset=utf-8` may follow.
    public static let structured: StaticString = "application/json"

    static func isJSON(_ value: UnsafeRawBufferPointer) -> Bool {
        var end = value.firstIndex(of: UInt8(ascii: ";")) ?? value.count
        while end > 0, value[end - 1] == UInt8(ascii: " ") { end -= 1 }
        return value.slice(0..<end).equalsIgnoringCase(structured)
    }
}

extension JobError {
    static func doubled(_ header: StaticString) -> JobError {
        JobError(field: header.description, rule: .doubled, message: "the header occurs more than once")
    }

    static func null(_ header: StaticString) -> JobError {
        JobError(
            field: header.description, rule: .null,
            message: "the header has no value; omit the header instead")
    }

    static func unknownHeader(_ name: UnsafeRawBufferPointer) -> JobError {
        JobError(
            field: name.printable(limit: 64), rule: .unknown,
            message: "the header is unknown; custom headers begin with x-")
    }

    /// Describes a fault in a payload or document.
    init(field: String, fault: JSONFault) {
        switch fault {
        case .syntax(let offset, let expected):
            self.init(
                field: field, rule: .json,
                message: "is not valid JSON: \(expected) was expected at byte \(offset)")
        case .utf8(let offset):
            self.init(field: field, rule: .utf8, message: "is not valid UTF-8 at byte \(offset)")
        case .depth(let offset):
            self.init(
                field: field, rule: .depth,
                message: "is nested deeper than \(JobLimits.maximumDepth) levels at byte \(offset)")
        case .notAnObject:
            self.init(field: field, rule: .jsonObject, message: "must be a JSON object")
        case .size(let limit):
            self.init(field: field, rule: .documentSize, message: "has more than \(limit) bytes")
        }
    }
}

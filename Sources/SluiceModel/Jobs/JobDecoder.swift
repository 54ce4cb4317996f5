/// Decodes records of the jobs topic into valid jobs, or reports the rule that a record breaks.
///
/// Binary and packed mode allocate nothing, unless headers of the job are passed on. In binary mode the record's value is
/// the payload, and the fields are headers. In packed mode the fields precede the payload. The key is the device token.
/// Structured mode allocates only where a string is escaped, and for passed headers. ``RecordMode`` tells the modes apart.
/// Used by one owner, on one thread at a time.
public struct JobDecoder: ~Copyable {
    private let validator = JSONValidator()
    private let slots = UnsafeMutablePointer<UnsafeRawBufferPointer>.allocate(capacity: JobField.count)
    private let settings: Settings
    private let order = PackedFields.Order()
    /// Counts since the decoder was made.
    public internal(set) var counts = Counts()

    /// Settings of a decoder.
    public struct Settings: Sendable {
        /// Headers that return on outcomes.
        public var passedHeaders: PassedHeaderNames
        /// Milliseconds by which a producer's clock may be ahead of the worker's.
        public var clockToleranceMilliseconds: Int64

        public init(
            passedHeaders: PassedHeaderNames = PassedHeaderNames(),
            clockToleranceMilliseconds: Int64 = JobLimits.clockToleranceMilliseconds
        ) {
            self.passedHeaders = passedHeaders
            self.clockToleranceMilliseconds = clockToleranceMilliseconds
        }
    }

    /// Counts of a decoder. A record that is decoded again counts again.
    public struct Counts: Sendable, Equatable {
        /// Headers that are no fields of a job.
        public var foreignHeaders = 0
        /// Headers that didn't fit among those that are passed on.
        public var droppedHeaders = 0
        /// Jobs with a time that was later than the clock.
        public var adjustedJobs = 0

        public init() {}
    }

    /// Reserves the parser's memory, about 600 KiB.
    public init(_ settings: Settings = Settings()) {
        self.settings = settings
        slots.initialize(repeating: .empty, count: JobField.count)
    }

    deinit { slots.deallocate() }

    /// Decodes and validates a record.
    ///
    /// - Parameters:
    ///   - record: borrowed; the job's slices point into it.
    ///   - nowMilliseconds: worker's clock, in milliseconds since the epoch. It is the creation of a record without a
    ///     valid timestamp, and bounds the times of a job.
    /// - Returns: a job whose `release()` must be called once.
    /// - Throws: the first rule that the record breaks.
    public mutating func decode(_ record: JobRecord, nowMilliseconds: Int64) throws(JobError) -> DecodedJob {
        var times = JobTimes(
            timestamp: RedrivenMark.firstMilliseconds(in: record.headers) ?? record.timestampMilliseconds,
            now: nowMilliseconds,
            tolerance: settings.clockToleranceMilliseconds)
        var fields = JobFields(slots: slots)
        do throws(JobError) {
            var payload = record.value
            let mode: RecordMode
            if let rest = try readPacked(record, into: &fields) {
                (mode, payload) = (.packed, rest)
            } else {
                mode = try readHeaders(of: record, into: &fields)
            }
            if let size = record.value?.count, size > JobLimits.maximumDocumentSize {
                throw JobError(
                    field: mode.hasDocument ? "document" : "payload", rule: .documentSize,
                    message: "has \(size) bytes, at most \(JobLimits.maximumDocumentSize) are allowed")
            }
            let kind =
                mode.hasDocument
                ? try readDocument(of: record, isEvent: mode == .structuredEvent, into: &fields)
                : try readBinary(record, payload: payload, into: &fields)
            let job = try makeJob(kind, fields, record, &times)
            if !times.adjustments.isEmpty { counts.adjustedJobs += 1 }
            return job
        } catch {
            fields.discard()
            throw error
        }
    }

    /// Reads the headers: fields, and what decides the mode. Keeps those that are passed on.
    private mutating func readHeaders(
        of record: JobRecord, into fields: inout JobFields
    ) throws(JobError) -> RecordMode {
        var signs = RecordMode.Signs()
        var passed = 0
        for header in record.headers {
            if let field = JobField(headerName: header.name) {
                if fields.present.contains(field) { throw .doubled(field.headerName ?? "") }
                guard let value = header.value else { throw .null(field.headerName ?? "") }
                fields.set(field, value)
            } else if try !signs.take(header) {
                passed += try readForeign(header, room: JobLimits.maximumPassedHeaderBytes - passed)
            }
        }
        let mode = try signs.mode(hasFields: !fields.present.isEmpty, value: record.value)
        if mode != .binary {
            if let name = fields.present.first?.headerName { throw .notInStructuredMode(name) }
            fields.isStructured = true
        }
        if passed > 0 { keepPassed(record, count: passed, in: &fields) }
        return mode
    }

    /// Reads the fields of a record in packed mode, and returns the payload. Returns nil in another mode. A line that
    /// is no field is judged as a header.
    private mutating func readPacked(
        _ record: JobRecord, into fields: inout JobFields
    ) throws(JobError) -> UnsafeRawBufferPointer? {
        guard var lines = PackedFields.Lines(record.value) else { return nil }
        fields.isPacked = true
        var passed = 0
        var index = -1
        while true {
            index += 1
            if let line = lines.expectedLine(index, order) {
                try fields.setOnce(line.field, line.value)
                continue
            }
            let before = lines
            guard let line = try lines.line() else { break }
            if let field = JobField(headerName: line.name) {
                before.expect(field, name: line.name.count, index, order)
                try fields.setOnce(field, line.value)
            } else {
                guard PackedFields.isName(line.name) else { throw .line }
                // Never passed on, as in binary mode.
                if RecordMode.Signs.isSign(line.name) { continue }
                passed += try readForeign(
                    RecordHeader(name: line.name, value: line.value),
                    room: JobLimits.maximumPassedHeaderBytes - passed)
            }
        }
        if passed > 0 { keepPassed(record, count: passed, in: &fields) }
        return lines.rest
    }

    /// Judges a header that is no field. Returns the bytes that the header takes among those that are passed on.
    private mutating func readForeign(_ header: RecordHeader, room: Int) throws(JobError) -> Int {
        counts.foreignHeaders += 1
        if settings.passedHeaders.contain(header.name) {
            if PassedHeaders.fits(header, in: room) { return PassedHeaders.size(of: header) }
            counts.droppedHeaders += 1
        } else if !IgnoredHeader.matches(header.name),
            let mistake = HeaderMistakes.mistake(in: header.name)
        {
            throw .unknownHeader(header.name, mistake)
        }
        return 0
    }

    /// Copies the headers that are passed on, which together take `count` bytes.
    private func keepPassed(_ record: JobRecord, count: Int, in fields: inout JobFields) {
        let target = fields.reserve(
            count, documentSize: fields.isStructured ? record.value?.count ?? 0 : 0)
        var used = 0
        func keep(_ header: RecordHeader) {
            guard JobField(headerName: header.name) == nil, !RecordMode.Signs.isSign(header.name),
                settings.passedHeaders.contain(header.name),
                PassedHeaders.fits(header, in: JobLimits.maximumPassedHeaderBytes - used),
                used + PassedHeaders.size(of: header) <= count
            else { return }
            used += PassedHeaders.write(header, to: target + used)
        }
        if fields.isPacked, var lines = PackedFields.Lines(record.value) {
            while let line = try? lines.line() { keep(RecordHeader(name: line.name, value: line.value)) }
        } else {
            for header in record.headers { keep(header) }
        }
        fields.keepPassed(used)
    }

    /// Checks that `bytes` are a single JSON object.
    func validateObject(_ bytes: UnsafeRawBufferPointer, field: String) throws(JobError) {
        do throws(JSONFault) {
            try validator.validateObject(bytes)
        } catch {
            if SchemaRegistry.hasPrefix(bytes) { throw .schemaRegistry(field) }
            throw JobError(field: field, fault: error)
        }
    }
}

extension JobError {
    static func doubled(_ header: StaticString) -> JobError {
        JobError(field: header.description, rule: .doubled, message: "occurs more than once")
    }

    static func null(_ header: StaticString) -> JobError {
        JobError(
            field: header.description, rule: .null,
            message: "the header has no value; omit the header instead")
    }

    static func notInStructuredMode(_ header: StaticString) -> JobError {
        JobError(
            field: header.description, rule: .notInStructuredMode,
            message:
                "with this content-type every field is a member of the document; move the field there, or leave "
                + "content-type out for binary mode")
    }

    static func unknownHeader(_ name: UnsafeRawBufferPointer, _ mistake: HeaderMistakes.Mistake) -> JobError {
        let message =
            switch mistake {
            case .misspelt(let header):
                "the header is unknown; did you mean `\(header)`? A header of your own with this name must be in "
                    + "jobs.pass-headers"
            case .notAField:
                "the header is unknown; a job has "
                    + JobField.allCases.compactMap(\.headerName?.description)
                    .filter { $0.hasPrefix(HeaderMistakes.prefix.description) }.joined(separator: ", ")
            }
        return JobError(field: name.printableName(insteadOfToken: "header"), rule: .unknown, message: message)
    }

    static func schemaRegistry(_ field: String) -> JobError {
        JobError(
            field: field, rule: .schemaRegistry,
            message:
                "begins with the prefix of a schema registry's serializer (a zero byte and a schema's number); "
                + "produce plain JSON or bytes, with a String, ByteArray or plain JSON serializer")
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

extension JobMode {
    /// Encodes the job of a document of structured mode.
    ///
    /// - Parameter job: a record of structured mode, as ``JobEncoder/document(_:)`` makes it.
    /// - Throws: the rule that keeps the document from being written in this mode; never for a valid job.
    public func encode(document job: EncodedJob) throws(JobError) -> EncodedJob {
        switch self {
        case .binary: try JobEncoder.binary(document: job.value)
        case .packed: try JobEncoder.packed(JobEncoder.binary(document: job.value))
        case .structured: job
        }
    }
}

extension JobEncoder {
    /// Converts a document of structured mode to a job of binary mode. Texts are unescaped, numbers become plain decimal
    /// digits, and the payload keeps its bytes. Missing members stay missing.
    ///
    /// - Throws: the first rule that keeps the document from being written in binary mode. It isn't a JSON object, or has a
    ///   member that is unknown, doubled, of another type or of another kind of jobs. ``JobDecoder`` has all other rules.
    public static func binary(document json: [UInt8]) throws(JobError) -> EncodedJob {
        let result = json.withUnsafeBytes { bytes -> Result<EncodedJob, JobError> in
            do throws(JobError) { return .success(try binary(document: bytes)) } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    private static func binary(document bytes: UnsafeRawBufferPointer) throws(JobError) -> EncodedJob {
        do throws(JSONFault) { try JSONScanner.validateObject(bytes) } catch {
            throw JobError(field: "document", fault: error)
        }
        let slots = UnsafeMutablePointer<UnsafeRawBufferPointer>.allocate(capacity: JobField.count)
        slots.initialize(repeating: .empty, count: JobField.count)
        var fields = JobFields(slots: slots)
        defer {
            fields.discard()
            slots.deallocate()
        }
        fields.isStructured = true
        try JobDecoder.readMembers(of: bytes, into: &fields)
        let kind = try JobDecoder.kind(of: fields)
        guard let address = fields[kind.address] else {
            throw fields.error(kind.address, .required, "is missing")
        }
        var job = EncodedJob(key: Array(address), value: [], headers: [])
        for field in JobField.allCases where field != kind.address {
            guard let value = fields[field] else { continue }
            guard let name = field.headerName?.description else {
                guard field == .payload else {
                    throw fields.error(field, .notForKind, "is not a member of kind \(kind.name)")
                }
                job.value = Array(value)
                continue
            }
            if field.valueType == .integer {
                guard let number = jsonInteger(value) else {
                    throw fields.error(field, .number, "is not a whole number")
                }
                job.headers.append((name, Array("\(number)".utf8)))
            } else {
                job.headers.append((name, Array(value)))
            }
        }
        return job
    }
}

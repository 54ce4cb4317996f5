/// Header that carries all fields of a job at once, in binary mode: one field on each line, `name:value`, under the names of
/// the single headers. Clients of Kafka pay for each header of a record, so that this header makes a job cheaper.
///
/// Nothing is trimmed. A value ends before the next line feed; the last line feed may be left out. A field is either in this
/// header or in a header of its own.
public enum PackedFields {
    /// Name of the header, in lower case.
    public static let headerName: StaticString = "sluice-fields"

    /// Returns whether a header has this name. The case of letters doesn't matter.
    @inline(__always)
    static func isName(_ name: UnsafeRawBufferPointer) -> Bool {
        name.count == headerName.utf8CodeUnitCount && name[0] | 0x20 == UInt8(ascii: "s")
            && (name.elementsEqual(bytesOf: headerName) || name.equalsIgnoringCase(headerName))
    }

    /// Reads the lines of the header's value into fields.
    /// - Throws: the rule that a line breaks.
    static func read(_ value: UnsafeRawBufferPointer, into fields: inout JobFields) throws(JobError) {
        guard let memory = value.baseAddress else { return }
        let end = memory + value.count
        var line = memory
        while line < end {
            let colon = Self.first(UInt8(ascii: ":"), from: line, to: end)
            guard colon < end else { throw .line }
            let name = UnsafeRawBufferPointer(start: line, count: colon - line)
            guard let field = JobField(headerName: name) else {
                throw name.contains(UInt8(ascii: "\n")) ? .line : .unknownLine(name)
            }
            if fields.present.contains(field) { throw .doubled(field.headerName ?? "") }
            let start = colon + 1
            let feed = Self.first(UInt8(ascii: "\n"), from: start, to: end)
            fields.set(field, UnsafeRawBufferPointer(start: start, count: feed - start))
            line = feed + 1
        }
    }

    /// Place of a byte; `end` when it isn't there. Compares eight bytes at once.
    @inline(__always)
    private static func first(
        _ byte: UInt8, from start: UnsafeRawPointer, to end: UnsafeRawPointer
    ) -> UnsafeRawPointer {
        let ones: UInt64 = 0x0101_0101_0101_0101
        let pattern = ones &* UInt64(byte)
        var next = start
        while end - next >= 8 {
            let word = UInt64(littleEndian: next.loadUnaligned(as: UInt64.self)) ^ pattern
            // The top bit of the lowest zero byte is set, and none below it.
            let found = (word &- ones) & ~word & (ones &* 0x80)
            if found != 0 { return next + found.trailingZeroBitCount &>> 3 }
            next += 8
        }
        while next < end, next.load(as: UInt8.self) != byte { next += 1 }
        return next
    }
}

extension JobError {
    static var line: JobError {
        JobError(
            field: PackedFields.headerName.description, rule: .packedLine,
            message: "each line must be a field's name, a colon and its value; lines end with a line feed")
    }

    static func unknownLine(_ name: UnsafeRawBufferPointer) -> JobError {
        let meant =
            switch HeaderMistakes.mistake(in: name) {
            case .misspelt(let header)?: "; did you mean `\(header)`?"
            case .notAField?: "; no job has this header of APNs"
            case nil: "; other headers stay headers of the record"
            }
        return JobError(
            field: name.printable(limit: 64), rule: .unknown,
            message:
                "\(PackedFields.headerName) has a line with this name, which is no field of a job\(meant)")
    }
}

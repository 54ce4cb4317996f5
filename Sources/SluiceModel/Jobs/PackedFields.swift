/// Fields of a job in packed mode: lines `name:value` at the beginning of the record's value, under the names of the headers
/// of binary mode. An empty line ends the fields, and the payload follows. Clients of Kafka pay for each header of a record,
/// so that this mode is the cheapest for workers.
///
/// Nothing is trimmed. A line ends with a line feed, which the last line may leave out. A line that is no field counts as
/// a header that is no field. The record's own headers aren't read.
public enum PackedFields {
    /// Most bytes of a line's name.
    private static let longestName = 255

    /// Returns whether a record is in packed mode: its value begins with a letter, and a colon follows within 256 bytes. A
    /// payload or document begins with a brace.
    @inline(__always)
    public static func begin(_ value: UnsafeRawBufferPointer?) -> Bool {
        guard let value, let start = value.baseAddress, value.count > 1, isLetter(value[0]) else {
            return false
        }
        let end = start + min(value.count, longestName + 1)
        return Self.first(UInt8(ascii: ":"), from: start, to: end) < end
    }

    /// Lines of a value that ``begin(_:)`` accepts, in order.
    struct Lines {
        private var next: UnsafeRawPointer
        private let end: UnsafeRawPointer

        /// Nil when the value has no lines.
        init?(_ value: UnsafeRawBufferPointer?) {
            guard PackedFields.begin(value), let value, let start = value.baseAddress else { return nil }
            next = start
            end = start + value.count
        }

        /// Bytes after the lines that were returned so far: after the last one, the payload.
        var rest: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: next, count: end - next) }

        /// Returns name and value of the next line; nil after the last one. Skips the empty line after the last one.
        /// - Throws: when the line has no colon.
        @inline(__always)
        mutating func line() throws(JobError) -> (
            name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer
        )? {
            guard next < end else { return nil }
            if next.load(as: UInt8.self) == UInt8(ascii: "\n") {
                next += 1
                return nil
            }
            let colon = PackedFields.first(UInt8(ascii: ":"), from: next, to: end)
            guard colon < end else { throw .line }
            let start = colon + 1
            let feed = PackedFields.first(UInt8(ascii: "\n"), from: start, to: end)
            let line = (
                name: UnsafeRawBufferPointer(start: next, count: colon - next),
                value: UnsafeRawBufferPointer(start: start, count: feed - start)
            )
            next = min(feed + 1, end)
            return line
        }
    }

    /// Returns whether a line's name that is no field's can be a header's name. Otherwise a line lacks its colon, or the
    /// payload follows without an empty line.
    static func isName(_ name: UnsafeRawBufferPointer) -> Bool {
        (1...longestName).contains(name.count)
            && name.allSatisfy { byte in
                isLetter(byte) || isDigit(byte) || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_")
                    || byte == UInt8(ascii: ".")
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
            field: "fields", rule: .packedLine,
            message:
                "a value that begins with a letter has a field on each line: name, colon, value; an empty line "
                + "and the payload follow. Lines end with a line feed")
    }
}

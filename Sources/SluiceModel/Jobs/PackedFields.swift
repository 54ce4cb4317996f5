/// Fields of a job in packed mode: lines `name:value` at the beginning of the record's value. The names are those of the
/// headers of binary mode. An empty line ends the fields, and the payload follows. Clients of Kafka pay for each header of
/// a record, so this mode is the cheapest for workers.
///
/// Nothing is trimmed. A line ends with a line feed, which the last line may leave out. A line that is no field counts as
/// a header that is no field. The record's own headers aren't read.
public enum PackedFields {
    /// Most bytes of a line's name.
    private static let longestName = 255
    /// Bytes that must be there for a comparison by words: those of the longest field's name and its colon.
    private static let longestField = 17

    /// Returns whether a record is in packed mode. Its value then begins with a letter, and a colon follows within 256
    /// bytes. A payload or document begins with a brace.
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

        /// Returns field and value of the next line. Returns nil when its name isn't the expected one of its place.
        @inline(__always)
        mutating func expectedLine(
            _ index: Int, _ order: borrowing Order
        ) -> (field: JobField, value: UnsafeRawBufferPointer)? {
            guard index < JobField.count, end - next >= PackedFields.longestField else { return nil }
            let expected = order.lines + index
            let mask = expected.pointee.mask
            guard expected.pointee.count > 0, word(at: 0) & mask == expected.pointee.first,
                word(at: expected.pointee.middleOffset) & mask == expected.pointee.middle,
                word(at: expected.pointee.lastOffset) & mask == expected.pointee.last
            else { return nil }
            return (expected.pointee.field, value(from: next + expected.pointee.count))
        }

        @inline(__always)
        private func word(at offset: Int) -> UInt64 {
            UInt64(littleEndian: (next + offset).loadUnaligned(as: UInt64.self))
        }

        /// Expects the field of the next line in its place from now on.
        func expect(_ field: JobField, name count: Int, _ index: Int, _ order: borrowing Order) {
            guard index < JobField.count, end - next >= PackedFields.longestField else { return }
            let count = count + 1
            var expected = Order.Expected()
            expected.mask = count < 8 ? 1 &<< UInt64(8 * count) &- 1 : .max
            expected.first = word(at: 0) & expected.mask
            expected.middleOffset = max(0, min(8, count - 8))
            expected.lastOffset = max(0, count - 8)
            expected.middle = word(at: expected.middleOffset) & expected.mask
            expected.last = word(at: expected.lastOffset) & expected.mask
            expected.count = count
            expected.field = field
            order.lines[index] = expected
        }

        /// Returns the bytes up to the end of the line, which is then passed.
        @inline(__always)
        private mutating func value(from start: UnsafeRawPointer) -> UnsafeRawBufferPointer {
            let feed = PackedFields.first(UInt8(ascii: "\n"), from: start, to: end)
            next = min(feed + 1, end)
            return UnsafeRawBufferPointer(start: start, count: feed - start)
        }

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
            let name = UnsafeRawBufferPointer(start: next, count: colon - next)
            return (name, value(from: colon + 1))
        }
    }

    /// Field that each line had last, by the line's place. A producer writes the lines of all records alike. A name need
    /// then only be compared with the expected one.
    struct Order: ~Copyable {
        /// Name of a line and its colon, as words that overlap: three cover the 17 bytes of the longest name.
        fileprivate struct Expected {
            var first: UInt64 = 0
            var middle: UInt64 = 0
            var last: UInt64 = 0
            /// Bits that count in the words: fewer than all where name and colon have fewer than eight bytes.
            var mask: UInt64 = 0
            /// Offsets of `middle` and `last`.
            var middleOffset = 0
            var lastOffset = 0
            /// Bytes of name and colon; 0 when no line is expected here.
            var count = 0
            var field = JobField.kind
        }

        fileprivate let lines = UnsafeMutablePointer<Expected>.allocate(capacity: JobField.count)

        init() { lines.initialize(repeating: Expected(), count: JobField.count) }

        deinit { lines.deallocate() }
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

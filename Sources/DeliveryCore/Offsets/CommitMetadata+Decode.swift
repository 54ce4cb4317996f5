extension CommitMetadata {
    /// Cause for which a commit's metadata was set aside. All records above the committed offset are then repeated.
    public enum Problem: String, Sendable, Equatable, CustomStringConvertible {
        /// Text of another program.
        case foreign
        /// Written by a newer Sluice.
        case unknownVersion = "unknown-version"
        /// Starts like Sluice's text, and can't be read.
        case malformed
        /// The checksum doesn't match.
        case corrupted
        /// Written for another committed offset: the offset was reset by hand.
        case otherOffset = "other-offset"

        public var description: String {
            switch self {
            case .foreign: "the commit metadata was written by another program"
            case .unknownVersion: "the commit metadata has a version that is unknown to this release"
            case .malformed: "the commit metadata is malformed"
            case .corrupted: "the commit metadata has a wrong checksum"
            case .otherOffset:
                "the commit metadata belongs to another offset; check whether the group's offsets were reset"
            }
        }
    }

    /// Contents of a commit's metadata.
    public struct Decoded: Sendable, Equatable {
        /// Finished offsets above the committed one; empty when there is a problem.
        public var completed: CompletedOffsets
        /// Evidence: the time of the newest record that was read, in milliseconds since the epoch; 0: there is none.
        public var newestMilliseconds: Int64 = 0
        /// Cause for which the text was set aside; nil when it was understood. The empty text is understood.
        public var problem: Problem?
    }

    /// Reads the metadata of the commit of `committedOffset`. Never fails: text that can't be trusted counts as
    /// empty.
    public static func decode(_ text: String, committedOffset: Int64) -> Decoded {
        decode(Array(text.utf8), committedOffset: committedOffset)
    }

    /// Does the same for bytes as they come from the broker.
    public static func decode(_ text: [UInt8], committedOffset: Int64) -> Decoded {
        if text.isEmpty { return Decoded(completed: .none, problem: nil) }
        do throws(Problem) {
            return try read(text, committedOffset: committedOffset)
        } catch {
            return Decoded(completed: .none, problem: error)
        }
    }

    private static func read(_ text: [UInt8], committedOffset: Int64) throws(Problem) -> Decoded {
        guard committedOffset >= 0 else { throw .otherOffset }
        guard text.starts(with: name) else { throw .foreign }
        guard text.count > prefixLength else { throw .malformed }
        guard text[name.count] == version else { throw .unknownVersion }
        let form = text[name.count + 1]
        guard form == runs || form == bitmap, text[name.count + 2] == colon else { throw .malformed }
        guard let sealed = Base64Text.decode(text[prefixLength...]), sealed.count > checksumLength else {
            throw .malformed
        }
        let body = sealed.dropLast(checksumLength)
        let written = sealed.suffix(checksumLength).reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        guard checksum(form: form, body) == written else { throw .corrupted }

        var reader = VariableReader(bytes: body)
        guard reader.next() == UInt64(bitPattern: committedOffset) else { throw .otherOffset }
        var newest: Int64 = 0
        guard
            let ranges = form == runs
                ? reader.runs(from: committedOffset, newest: &newest)
                : reader.bitmap(from: committedOffset)
        else { throw .malformed }
        return Decoded(completed: CompletedOffsets(ranges), newestMilliseconds: newest, problem: nil)
    }
}

extension CommitMetadata.Problem: Error {}

/// Reader of the body behind the base64.
private struct VariableReader {
    var bytes: ArraySlice<UInt8>

    /// Reads the next LEB128 number. Returns nil at the end, when the number is cut off, or above 64 bits.
    mutating func next() -> UInt64? {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while let byte = bytes.popFirst() {
            let part = UInt64(byte & 0x7F)
            guard shift < 64, (part << shift) >> shift == part else { return nil }
            value |= part << shift
            if byte & 0x80 == 0 { return value }
            shift += 7
        }
        return nil
    }

    mutating func runs(from start: Int64, newest: inout Int64) -> [Range<Int64>]? {
        var ranges: [Range<Int64>] = []
        var position = start
        while !bytes.isEmpty {
            guard let unfinished = next(), let finished = next(),
                let gap = Int64(exactly: unfinished), let length = Int64(exactly: finished)
            else { return nil }
            if length == 0 {
                newest = gap
                continue
            }
            let (lower, lowerOverflow) = position.addingReportingOverflow(gap)
            let (upper, upperOverflow) = lower.addingReportingOverflow(length)
            guard !lowerOverflow, !upperOverflow else { return nil }
            ranges.append(lower..<upper)
            position = upper
        }
        return ranges
    }

    mutating func bitmap(from start: Int64) -> [Range<Int64>]? {
        guard Int64.max - start > Int64(bytes.count) * 8 else { return nil }
        var ranges: [Range<Int64>] = []
        var position = start
        var open: Int64?
        for byte in bytes {
            for bit in 0..<8 {
                let finished = byte >> UInt8(bit) & 1 == 1
                if finished, open == nil { open = position }
                if !finished, let first = open {
                    ranges.append(first..<position)
                    open = nil
                }
                position += 1
            }
        }
        if let first = open { ranges.append(first..<position) }
        return ranges
    }
}

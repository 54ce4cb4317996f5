extension CommitMetadata {
    /// Encodes the metadata for a commit of `watermark`.
    ///
    /// Uses the form (runs or bitmap) that keeps more offsets. When both keep the same number, the form is runs if there
    /// is room for the evidence, and else the shorter one. Only runs carry the evidence.
    ///
    /// - Parameters:
    ///   - completed: finished ranges at or above the watermark, ascending and disjoint. Read only as far as offsets
    ///     fit.
    ///   - newestMilliseconds: evidence, the time of the newest record that was read; 0: there is none.
    ///   - maximumBytes: length limit of the text.
    /// - Returns: the text; empty when there is neither a finished offset nor evidence, or nothing fits.
    public static func encode(
        watermark: Int64, completed: some Sequence<Range<Int64>>, newestMilliseconds: Int64 = 0,
        maximumBytes: Int = maximumBytes
    ) -> String {
        var head: [UInt8] = []
        head.appendVariable(UInt64(bitPattern: watermark))
        let budget =
            Base64Text.capacity(characters: maximumBytes - prefixLength) - head.count - checksumLength
        guard budget > 0, watermark >= 0 else { return "" }

        var runs = RunBody(start: watermark, budget: budget)
        var bitmap = BitmapBody(start: watermark, budget: budget)
        var position = watermark
        for next in completed where next.upperBound > position && !next.isEmpty {
            let range = max(next.lowerBound, position)..<next.upperBound
            position = range.upperBound
            runs.add(range)
            bitmap.add(range)
            if runs.isFull && bitmap.isFull { break }
        }
        var evidence: [UInt8] = []
        if newestMilliseconds > 0 {
            evidence.appendVariable(UInt64(newestMilliseconds))
            evidence.append(0)
        }
        if runs.bytes.count + evidence.count > budget { evidence = [] }
        guard runs.kept > 0 || bitmap.kept > 0 || !evidence.isEmpty else { return "" }
        let isEqual = runs.kept == bitmap.kept
        let useRuns =
            runs.kept > bitmap.kept
            || isEqual && (!evidence.isEmpty || runs.bytes.count <= bitmap.bytes.count)
        return useRuns
            ? text(form: Self.runs, body: head + runs.bytes + evidence)
            : text(form: Self.bitmap, body: head + bitmap.bytes)
    }

    private static func text(form: UInt8, body: [UInt8]) -> String {
        var sealed = body
        let sum = checksum(form: form, body)
        for shift in stride(from: 24, through: 0, by: -8) {
            sealed.append(UInt8(truncatingIfNeeded: sum >> UInt32(shift)))
        }
        return String(decoding: name + [version, form, colon] + Base64Text.encode(sealed), as: UTF8.self)
    }
}

/// Body of pairs (unfinished, finished) as LEB128.
private struct RunBody {
    var bytes: [UInt8] = []
    var kept: Int64 = 0
    var isFull = false
    private var position: Int64
    private let budget: Int

    init(start: Int64, budget: Int) {
        position = start
        self.budget = budget
    }

    mutating func add(_ range: Range<Int64>) {
        guard !isFull else { return }
        let before = bytes.count
        bytes.appendVariable(UInt64(range.lowerBound - position))
        bytes.appendVariable(UInt64(range.upperBound - range.lowerBound))
        guard bytes.count <= budget else {
            bytes.removeSubrange(before...)
            isFull = true
            return
        }
        kept += range.upperBound - range.lowerBound
        position = range.upperBound
    }
}

/// Body with a bit per offset; ends with its highest finished offset.
private struct BitmapBody {
    var bytes: [UInt8] = []
    var kept: Int64 = 0
    var isFull = false
    private let start: Int64
    private let budget: Int

    init(start: Int64, budget: Int) {
        self.start = start
        self.budget = budget
    }

    mutating func add(_ range: Range<Int64>) {
        guard !isFull else { return }
        let bits = Int64(budget) * 8
        let first = range.lowerBound - start
        let past = min(range.upperBound - start, bits)
        if range.upperBound - start >= bits { isFull = true }
        guard first < past else { return }
        let needed = Int((past + 7) / 8)
        bytes.append(contentsOf: repeatElement(0, count: needed - bytes.count))
        for bit in first..<past { bytes[Int(bit >> 3)] |= 1 << UInt8(bit & 7) }
        kept += past - first
    }
}

extension [UInt8] {
    /// Appends a LEB128 number, at most ten bytes.
    fileprivate mutating func appendVariable(_ value: UInt64) {
        var rest = value
        while rest >= 0x80 {
            append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        append(UInt8(rest))
    }
}

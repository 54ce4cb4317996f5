/// Finds the header that a producer meant by an unknown name.
///
/// Most unknown headers are a framework's own, and no mistakes. A name that nearly is a field's name would lose its value
/// in silence, so such a name is an error. All comparisons ignore the case of letters.
enum HeaderMistakes {
    /// Mistake behind an unknown name.
    enum Mistake: Equatable {
        /// The name of this header, misspelt.
        case misspelt(StaticText)
        /// A header of APNs that no job has.
        case notAField
    }

    /// Beginning of the names that are APNs' own.
    static let prefix: StaticString = "apns-"
    /// Bytes of the longest name that can be a misspelling.
    static let longestName = 18

    /// Returns the mistake behind an unknown name; nil for a header of the producer's own. Allocates nothing.
    static func mistake(in name: UnsafeRawBufferPointer) -> Mistake? {
        let isOfAPNs = name.hasPrefixIgnoringCase(prefix)
        guard (2...longestName).contains(name.count) else { return isOfAPNs ? .notAField : nil }
        // Members of structured mode, under names that no other software uses.
        if name.equalsIgnoringCase(JobField.pushType.memberName) {
            return .misspelt(StaticText("apns-push-type"))
        }
        if name.equalsIgnoringCase(JobField.collapseIdentifier.memberName) {
            return .misspelt(StaticText("apns-collapse-id"))
        }
        let letters = letters(of: name)
        var best: (header: StaticString, distance: Int)?
        for candidate in candidates {
            let limit = isOfAPNs ? 3 : candidate.limit
            guard abs(name.count - candidate.header.utf8CodeUnitCount) <= limit,
                (letters & ~candidate.letters).nonzeroBitCount <= limit,
                (candidate.letters & ~letters).nonzeroBitCount <= limit
            else { continue }
            let distance = editDistance(name, candidate.header.bytes)
            guard distance <= limit, distance < best?.distance ?? .max,
                isOfAPNs || isMisspelling(name, of: candidate.header.bytes)
            else { continue }
            best = (candidate.header, distance)
        }
        if let best { return .misspelt(StaticText(best.header)) }
        return isOfAPNs ? .notAField : nil
    }

    private struct Candidate {
        /// Name of a field's header.
        var header: StaticString
        /// ``letters(of:)`` of the name.
        var letters: UInt32
        /// Greatest edit distance of a misspelling.
        var limit: Int
    }

    private static let candidates: [Candidate] =
        JobField.allCases.compactMap { field in
            guard let header = field.headerName else { return nil }
            // Two edits make other words of a short name: `app-id` of `apns-id`, `delivered` of `delivery`.
            return Candidate(
                header: header, letters: letters(of: header.bytes),
                limit: header.utf8CodeUnitCount < 10 ? 1 : 2)
        }

    /// Returns whether a near name that isn't APNs' own can be a misspelling, and is no other word.
    private static func isMisspelling(
        _ name: UnsafeRawBufferPointer, of header: UnsafeRawBufferPointer
    ) -> Bool {
        if isOtherForm(name, of: header) { return false }
        // `created-by` and `deliver-on` have another meaning.
        if header.hasSuffix("-at") {
            return lowercased(name[name.count - 2]) == UInt8(ascii: "a")
                && lowercased(name[name.count - 1]) == UInt8(ascii: "t")
        }
        // `sns-topic` and `app-priority` belong to others.
        if header.hasPrefixIgnoringCase(prefix) { return beginsLikeAPNs(name) }
        return mayBeShort(name, header)
    }

    /// Returns whether the name is the header's word with another end: a letter more, or another last letter. Such
    /// names are words of their own, as are `events`, `event1`, `delivers` and `duplicated`.
    private static func isOtherForm(
        _ name: UnsafeRawBufferPointer, of header: UnsafeRawBufferPointer
    ) -> Bool {
        guard name.count == header.count || name.count == header.count + 1 else { return false }
        for index in 0..<name.count - 1 where lowercased(name[index]) != header[index] { return false }
        return true
    }

    /// Returns whether the name begins with `a` and contains `pn`, or begins with the letters of `apns` in any order.
    private static func beginsLikeAPNs(_ name: UnsafeRawBufferPointer) -> Bool {
        guard name.count >= 4 else { return false }
        if letters(of: UnsafeRawBufferPointer(rebasing: name[..<4])) == lettersOfAPNs { return true }
        guard lowercased(name[0]) == UInt8(ascii: "a") else { return false }
        for index in 1..<name.count - 1
        where lowercased(name[index]) == UInt8(ascii: "p") && lowercased(name[index + 1]) == UInt8(ascii: "n")
        {
            return true
        }
        return false
    }

    private static let lettersOfAPNs = letters(of: ("apns" as StaticString).bytes)

    /// Returns whether a name at distance 1 can be a misspelling of a name that may be short. A name of five letters or
    /// fewer has other words as neighbours, such as `kid` and `find` of `kind`. Only an additional letter, or two
    /// letters in the wrong order, count as its misspellings.
    private static func mayBeShort(
        _ name: UnsafeRawBufferPointer, _ header: UnsafeRawBufferPointer
    ) -> Bool {
        if header.count > 5 || name.count > header.count { return true }
        return name.count == header.count && sum(of: name) == sum(of: header)
    }

    private static func sum(of name: UnsafeRawBufferPointer) -> Int {
        name.reduce(0) { $0 + Int(lowercased($1)) }
    }

    /// Returns the set of the name's letters: a bit for each, one for digits and one for all else.
    private static func letters(of name: UnsafeRawBufferPointer) -> UInt32 {
        var set: UInt32 = 0
        for byte in name {
            let letter = (byte | 0x20) &- UInt8(ascii: "a")
            set |= 1 << UInt32(isLetter(byte) ? letter : isDigit(byte) ? 26 : 27)
        }
        return set
    }

    /// Returns the number of letters to insert, remove, replace, or exchange with their neighbour, so that one name
    /// becomes the other (optimal string alignment). Both have at most ``longestName`` bytes.
    static func editDistance(_ name: UnsafeRawBufferPointer, _ header: UnsafeRawBufferPointer) -> Int {
        let width = header.count + 1
        return withUnsafeTemporaryAllocation(of: Int.self, capacity: 3 * width) { rows in
            for column in 0..<width { rows[column] = column }
            for index in 0..<name.count {
                let row = (index + 1) % 3 * width
                let above = index % 3 * width
                let twoAbove = (index + 2) % 3 * width
                let byte = lowercased(name[index])
                rows[row] = index + 1
                for column in 1..<width {
                    let isEqual = byte == header[column - 1]
                    var best = min(rows[above + column] + 1, rows[row + column - 1] + 1)
                    best = min(best, rows[above + column - 1] + (isEqual ? 0 : 1))
                    if index > 0, column > 1, byte == header[column - 2],
                        lowercased(name[index - 1]) == header[column - 1]
                    {
                        best = min(best, rows[twoAbove + column - 2] + 1)
                    }
                    rows[row + column] = best
                }
            }
            return rows[name.count % 3 * width + width - 1]
        }
    }
}

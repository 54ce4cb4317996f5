/// Text that accompanies an offset commit: the offsets above the committed one that are finished already.
///
/// Printable, at most ``maximumBytes`` long (Kafka's `offset.metadata.max.bytes` is 4096 by default):
///
///     sluice1 r :  base64( committed offset, runs,   checksum )
///     sluice1 b :  base64( committed offset, bitmap, checksum )
///
/// - `committed offset`: LEB128. The text only counts for the offset that it was written with. An offset reset by
///   hand therefore can't make records disappear.
/// - `runs`: LEB128 pairs from the committed offset up: the number of unfinished offsets, then of finished ones. A pair
///   with 0 finished offsets is the last one. Its first number is the time of the newest record that was read, in
///   milliseconds since the epoch (``LogEvidence``). A version without evidence reads such a pair as no offset.
/// - `bitmap`: bit *i*, least significant first, is committed offset + *i*; 1 = finished.
/// - `checksum`: FNV-1a, 32 bit big-endian, of the form letter and all bytes before.
///
/// The window closes before an offset doesn't fit (``Capacity``). Skipping an unfinished record would lose it. Text
/// that can't be read with certainty therefore reads as "nothing is finished".
public enum CommitMetadata {
    /// Kafka's default limit for the metadata of one commit.
    public static let maximumBytes = 4096

    static let name = Array("sluice".utf8)
    static let version = UInt8(ascii: "1")
    /// Version of the text, one character.
    public static var format: String { String(UnicodeScalar(version)) }
    static let runs = UInt8(ascii: "r")
    static let bitmap = UInt8(ascii: "b")
    static let colon = UInt8(ascii: ":")
    static let prefixLength = name.count + 3
    static let checksumLength = 4

    static func checksum(form: UInt8, _ bytes: some Sequence<UInt8>) -> UInt32 {
        var hash: UInt32 = 0x811C_9DC5
        hash = (hash ^ UInt32(form)) &* 0x0100_0193
        for byte in bytes { hash = (hash ^ UInt32(byte)) &* 0x0100_0193 }
        return hash
    }
}

extension CommitMetadata {
    /// Capacity of one commit's metadata for finished offsets, however the unfinished ones end.
    ///
    /// A run of finished offsets begins behind an unfinished one. No later set has more runs than there are
    /// unfinished offsets now.
    struct Capacity: Sendable, Equatable {
        /// Offsets that the bitmap covers, from the committed one on. A window of this length always fits.
        let offsets: Int64
        /// Bytes for runs. Some bytes are spared for the run below the watermark, and for lengths that grow by a
        /// digit.
        private let runBytes: Int

        private static let longestNumber = 9
        private static let spareRunBytes = 16

        init(maximumBytes: Int) {
            let budget =
                Base64Text.capacity(characters: maximumBytes - prefixLength) - Self.longestNumber
                - checksumLength
            offsets = Int64(max(0, budget)) * 8
            runBytes = max(0, budget - Self.spareRunBytes)
        }

        /// Returns true when at most `runs` runs within `span` offsets fit. O(1).
        ///
        /// - Parameter part: divisor of the capacity; 2 asks for half of it.
        @inline(__always)
        func fits(runs: Int, span: Int64, part: Int = 1) -> Bool {
            span <= offsets / Int64(part) || Self.mostBytes(runs: runs, span: span) <= runBytes / part
        }

        /// Returns the most bytes of a run body, which has two LEB128 numbers for each run. The span is the sum of
        /// the numbers. It limits how many of them can have a second, third or fourth byte.
        private static func mostBytes(runs: Int, span: Int64) -> Int {
            let numbers = 2 * runs
            var bytes = numbers
            var least: Int64 = 1 << 7
            while least <= span {
                bytes += min(numbers, Int(span / least))
                let (next, overflow) = least.multipliedReportingOverflow(by: 1 << 7)
                if overflow { break }
                least = next
            }
            return bytes
        }
    }
}

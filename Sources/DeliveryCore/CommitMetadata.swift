/// The text that goes with an offset commit: which offsets above the committed one are finished already.
///
/// Printable, at most ``maximumBytes`` long (Kafka's `offset.metadata.max.bytes` is 4096 by default):
///
///     sluice1 r :  base64( committed offset, runs,   checksum )
///     sluice1 b :  base64( committed offset, bitmap, checksum )
///
/// - `committed offset`: LEB128. The text only counts for the offset that it was written with, so that an
///   offset reset by hand can't make records disappear.
/// - `runs`: LEB128 pairs from the committed offset up: so many unfinished, then so many finished.
/// - `bitmap`: bit *i*, least significant first, is committed offset + *i*; 1 = finished.
/// - `checksum`: FNV-1a, 32 bit big-endian, of the form letter and all bytes before.
///
/// What doesn't fit is left out from the top: a restart then repeats it, which is allowed; skipping a record
/// that isn't finished is not, so whatever can't be read with certainty reads as "nothing is finished".
public enum CommitMetadata {
    /// Kafka's default limit for the metadata of one commit.
    public static let maximumBytes = 4096

    static let name = Array("sluice".utf8)
    static let version = UInt8(ascii: "1")
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

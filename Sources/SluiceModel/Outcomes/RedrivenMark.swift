/// Header of a job that `sluice redrive` produced again: the dead letter or outcome that the job stems from.
///
/// The decoder takes the time of the first production from this header, so that redriving doesn't prolong a job's life. A
/// redriven job that fails again has a dead letter or outcome of its own, with a place
/// of its own, and may be redriven once more. The header then names the newer place, and the count grows.
public struct RedrivenMark: Equatable, Sendable {
    /// Name of the header.
    public static let headerName: StaticString = "sluice-redriven"

    /// Place of the dead letter or outcome.
    public var place: RecordAddress
    /// Number of times that the job was redriven, from 1.
    public var count: Int

    /// Timestamp of the job's record at its first production, in milliseconds since the epoch; nil: unknown.
    public var firstMilliseconds: Int64?

    public init(place: RecordAddress, count: Int, firstMilliseconds: Int64? = nil) {
        self.place = place
        self.count = count
        self.firstMilliseconds = firstMilliseconds
    }

    /// Parses a value of the header; nil for anything else.
    public init?(text: some StringProtocol) {
        let parts = text.split(separator: ";", omittingEmptySubsequences: false)
        guard (2...3).contains(parts.count), let place = RecordAddress(text: parts[0]),
            parts[1].hasPrefix("count="),
            let count = Int(parts[1].dropFirst(6)), (1...1_000_000).contains(count)
        else { return nil }
        self.init(place: place, count: count)
        guard parts.count == 3 else { return }
        var first = String(parts[2])
        guard let time = first.withUTF8({ Self.time(UnsafeRawBufferPointer($0)) }) else { return nil }
        firstMilliseconds = time
    }

    /// Value of the header: `topic/partition/offset;count=1;first=1700000000000`.
    public var text: String {
        "\(place);count=\(count)" + (firstMilliseconds.map { ";first=\($0)" } ?? "")
    }

    /// Returns the time of the first production among the headers of a record, in milliseconds since the epoch; nil without
    /// one. Allocates nothing.
    static func firstMilliseconds(in headers: UnsafeBufferPointer<RecordHeader>) -> Int64? {
        for header in headers where header.name.elementsEqual(bytesOf: headerName) {
            guard let value = header.value, let sign = value.lastIndex(of: UInt8(ascii: ";")) else {
                continue
            }
            return time(value.slice(sign + 1..<value.count))
        }
        return nil
    }

    private static func time(_ text: UnsafeRawBufferPointer) -> Int64? {
        text.hasPrefix("first=") ? text.slice(6..<text.count).decimal : nil
    }
}

/// Header of a job that `sluice redrive` produced again: the dead letter or outcome that the job stems from.
///
/// The decoder ignores this header. A redriven job that fails again has a dead letter or outcome of its own, with a place
/// of its own, and may be redriven once more. The header then names the newer place, and the count grows.
public struct RedrivenMark: Equatable, Sendable {
    /// Name of the header.
    public static let headerName: StaticString = "sluice-redriven"

    /// Place of the dead letter or outcome.
    public var place: RecordAddress
    /// Number of times that the job was redriven, from 1.
    public var count: Int

    public init(place: RecordAddress, count: Int) {
        self.place = place
        self.count = count
    }

    /// Parses a value of the header; nil for anything else.
    public init?(text: some StringProtocol) {
        let parts = text.split(separator: ";", omittingEmptySubsequences: false)
        guard parts.count == 2, let place = RecordAddress(text: parts[0]), parts[1].hasPrefix("count="),
            let count = Int(parts[1].dropFirst(6)), (1...1_000_000).contains(count)
        else { return nil }
        self.init(place: place, count: count)
    }

    /// Value of the header: `topic/partition/offset;count=1`.
    public var text: String { "\(place);count=\(count)" }
}

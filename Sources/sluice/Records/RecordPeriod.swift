import ArgumentParser
import Configuration
import Foundation

/// Bounds of a search in a topic, in milliseconds since the epoch.
struct RecordPeriod: Equatable, Sendable {
    /// First instant; nil: no bound.
    var since: Int64?
    /// First instant behind the period; nil: no bound.
    var until: Int64?

    /// Most records of a partition that are read whole where the broker names no offset for a time.
    static let readWhole: Int64 = 100_000

    /// Returns whether a timestamp is within the period.
    /// - Parameter unstamped: whether a record without a timestamp is within a period with a bound.
    func contains(_ milliseconds: Int64, unstamped: Bool) -> Bool {
        guard milliseconds >= 0 else { return unstamped || since == nil && until == nil }
        return milliseconds >= since ?? 0 && milliseconds < until ?? .max
    }

    /// Returns the offsets of a partition to read.
    ///
    /// - Parameters:
    ///   - low, high: first offset, and end of the log at the start of the run.
    ///   - since, until: first offsets at the bounds by the broker; nil where the broker names none.
    func offsets(low: Int64, high: Int64, since first: Int64?, until end: Int64?) -> Range<Int64> {
        let high = max(low, high)
        var start = low
        if since != nil {
            // Without an answer nothing is that new. A short log is read nevertheless: the embedded cluster never answers.
            start = first ?? (high - low <= Self.readWhole ? low : high)
        }
        let last = until == nil ? high : min(high, end ?? high)
        start = min(max(low, start), high)
        return start..<max(start, last)
    }

    /// Reads the options `--since` and `--until`.
    /// - Throws: a validation error that names the option.
    static func read(since: String?, until: String?, now: Int64) throws -> RecordPeriod {
        func instant(_ option: String, _ text: String?) throws -> Int64? {
            guard let text else { return nil }
            guard let instant = Self.instant(text, now: now) else {
                throw ValidationError(
                    "\(option): `\(text)` is neither \(DurationText.grammar) nor a time such as "
                        + "2026-03-01T12:00:00Z")
            }
            return instant
        }
        let period = RecordPeriod(
            since: try instant("--since", since), until: try instant("--until", until))
        if let first = period.since, let end = period.until, first >= end {
            throw ValidationError("--until must be later than --since")
        }
        return period
    }

    /// Returns the instant of an age such as `2h`, or of a time by RFC 3339, in milliseconds since the epoch; nil for
    /// anything else.
    static func instant(_ text: String, now: Int64) -> Int64? {
        if let age = DurationText.parse(text) { return now - Int64(age / .milliseconds(1)) }
        let styles = [Date.ISO8601FormatStyle(), Date.ISO8601FormatStyle(includingFractionalSeconds: true)]
        guard let date = styles.lazy.compactMap({ try? $0.parse(text) }).first else { return nil }
        let milliseconds = date.timeIntervalSince1970 * 1_000
        guard (0..<4e15).contains(milliseconds) else { return nil }
        return Int64(milliseconds.rounded())
    }
}

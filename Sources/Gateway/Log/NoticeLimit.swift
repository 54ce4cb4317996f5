/// Decides which notices become lines of the log, so that lasting trouble doesn't flood it.
///
/// The first notice is logged at once. For ten seconds after its line, the same notice of the same subject is kept back:
/// the latest one is kept, and the others are counted. The kept notice is logged when the ten seconds are over.
///
/// Notices that describe one state, as an open and a closed circuit, are a series, which keeps its latest notice alone.
/// The log's last line of a state is therefore wrong for ten seconds at most.
///
///     first ─▶ logged      same again ─▶ kept ─── ten seconds after the line ──▶ logged, with the number left out
///                                         │
///                                         └─ another of the series is logged: that line has the number
///
/// Pure: time is an argument, in nanoseconds of a monotonic clock. Memory is bounded by the kinds of notices and by
/// their subjects: pools, topics, partitions and codes of errors.
struct NoticeLimit<Line> {
    enum Fate: Equatable {
        /// Log the line now. `leftOut`: notices of its series that have no line, since the series' last line.
        case log(leftOut: Int)
        /// Log nothing now. ``takeDue(at:)`` returns the line from this time on, unless a later notice replaces it.
        case keep(until: UInt64)
    }

    /// A kept line whose time has come.
    struct Late {
        var line: Line
        /// Notices of the line's series that have no line, since the series' last line.
        var leftOut: Int
        /// Nanoseconds since the notice.
        var age: UInt64
    }

    private struct Key: Hashable {
        var notice: Notice
        var subject: Int
    }

    /// The latest notice of a series, which has no line yet.
    private struct Kept {
        var line: Line
        var notice: Notice
        /// Time of the notice, in nanoseconds.
        var since: UInt64
        /// Time at which the line may be logged, in nanoseconds.
        var due: UInt64
        /// Notices of the series without a line, this one included; at least 1.
        var count: Int
        /// Position of the notice among all kept ones.
        var number: UInt64
    }

    /// Nanoseconds in which the same notice has one line.
    private let interval: UInt64
    /// Times until which a notice of a subject has no further line, in nanoseconds.
    private var ends: [Key: UInt64] = [:]
    /// By the series.
    private var kept: [Key: Kept] = [:]
    /// Number of notices that were kept so far.
    private var number: UInt64 = 0

    init(interval: UInt64) { self.interval = interval }

    /// Time at which the next kept line is due, in nanoseconds; nil: none is kept.
    var nextDue: UInt64? { kept.values.lazy.map(\.due).min() }

    /// Takes a notice, and decides on its line.
    mutating func note(_ notice: Notice, of subject: Int, _ line: Line, at now: UInt64) -> Fate {
        let key = Key(notice: notice, subject: subject)
        let series = Key(notice: notice.series, subject: subject)
        let count = kept[series]?.count ?? 0
        if let end = ends[key], now < end {
            number &+= 1
            kept[series] = Kept(
                line: line, notice: notice, since: now, due: end, count: count + 1, number: number)
            return .keep(until: end)
        }
        kept[series] = nil
        ends[key] = now &+ interval
        return .log(leftOut: count)
    }

    /// Returns the kept lines that are due, the oldest first.
    mutating func takeDue(at now: UInt64) -> [Late] { take(at: now) { $0.due <= now } }

    /// Returns all kept lines, because no further notice comes.
    mutating func takeAll(at now: UInt64) -> [Late] { take(at: now) { _ in true } }

    private mutating func take(at now: UInt64, _ isWanted: (Kept) -> Bool) -> [Late] {
        let taken = kept.filter { isWanted($0.value) }.sorted { $0.value.number < $1.value.number }
        for (series, entry) in taken {
            kept[series] = nil
            ends[Key(notice: entry.notice, subject: series.subject)] = now &+ interval
        }
        return taken.map { _, entry in
            Late(line: entry.line, leftOut: entry.count - 1, age: now - min(now, entry.since))
        }
    }
}

/// Answers of about the last ten seconds: their number, and the number that show a server in trouble. Such an answer is
/// a 5xx, a reset or refused stream, or a breach of the protocol.
struct AnswerWindow: Sendable {
    private static let parts = 10
    private static let part: UInt64 = 1_000_000_000

    private var counts = [(all: Int, errors: Int)](repeating: (0, 0), count: AnswerWindow.parts)
    private var current = 0
    private var endsAt: UInt64 = 0
    private(set) var all = 0
    private(set) var errors = 0

    /// At least half of the answers are errors.
    var isBad: Bool { errors * 2 >= all && errors > 0 }

    mutating func note(good: Int, errors: Int, now: UInt64) {
        advance(to: now)
        counts[current].all += good + errors
        counts[current].errors += errors
        all += good + errors
        self.errors += errors
    }

    mutating func forget() {
        self = AnswerWindow()
    }

    private mutating func advance(to now: UInt64) {
        if now >= endsAt &+ UInt64(Self.parts) * Self.part { forget() }
        if endsAt == 0 { endsAt = now + Self.part }
        while now >= endsAt {
            current = (current + 1) % Self.parts
            all -= counts[current].all
            errors -= counts[current].errors
            counts[current] = (0, 0)
            endsAt += Self.part
        }
    }
}

/// Limits the requests in flight on a connection after the circuit was open because of errors. The limit starts low,
/// doubles with each good window, and ends above ``last``.
struct StreamRamp: Sendable, Equatable {
    static let first = 8
    static let last = 1024

    /// Longest time that a ramp lasts, in nanoseconds.
    static let longest: UInt64 = 60_000_000_000
    /// Age at which an incomplete window restarts, in nanoseconds.
    private static let longestWindow: UInt64 = 10_000_000_000

    let begin: UInt64
    /// Number of requests that each connection may have in flight.
    private(set) var share = StreamRamp.first
    private var good = 0
    private var errors = 0
    private var windowBegin: UInt64

    init(begin: UInt64) {
        self.begin = begin
        windowBegin = begin
    }

    enum Verdict: Sendable, Equatable {
        case stays, grows, ends, fails
    }

    /// Records answers. A window ends when it has as many answers as the share.
    mutating func note(good: Int, errors: Int, now: UInt64) -> Verdict {
        if now >= windowBegin + Self.longestWindow {
            (self.good, self.errors) = (0, 0)
            windowBegin = now
        }
        self.good += good
        self.errors += errors
        let all = self.good + self.errors
        guard all >= share else { return .stays }
        let isBad = self.errors * 2 >= all
        let isGood = self.errors * 4 < all
        (self.good, self.errors) = (0, 0)
        windowBegin = now
        if isBad { return .fails }
        guard isGood else { return .stays }
        share *= 2
        return share > Self.last ? .ends : .grows
    }
}

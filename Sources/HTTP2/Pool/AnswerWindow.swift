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

/// Answers by app, while some show a server in trouble or are missing. Apps of a pool have topics of their own, and a server
/// can fail for one of them alone. Errors of such an app say nothing about the pool, as long as another app has good answers.
struct AppAnswers: Sendable {
    private var windows: [UInt32: AnswerWindow] = [:]
    /// Apps with a request that has expired since their last answer, and the time of the last one.
    private var silent: [UInt32: UInt64] = [:]
    /// Nanoseconds for which an app without requests counts as silent.
    private static let silence: UInt64 = 60_000_000_000

    /// Least number of answers that show whether an app is served, whatever the others get.
    private static let least = 5

    /// True from an error until the last ten seconds have none, and while an app has no answers.
    var isWatching: Bool { !windows.isEmpty || !silent.isEmpty }

    /// Records that an app's request has expired.
    mutating func noteExpired(_ app: UInt32, now: UInt64) { silent[app] = now }

    /// Counts an answer to an app's request.
    mutating func note(_ app: UInt32, isError: Bool, now: UInt64) {
        if !silent.isEmpty { silent[app] = nil }
        guard isError || !windows.isEmpty else { return }
        windows[app, default: AnswerWindow()].note(good: isError ? 0 : 1, errors: isError ? 1 : 0, now: now)
    }

    /// Leaves answers out that are older than ten seconds, and forgets all windows when none has errors. Call before
    /// ``concernsAppAlone(_:)``.
    mutating func advance(to now: UInt64) {
        for (app, time) in silent where now >= time &+ Self.silence { silent[app] = nil }
        for app in windows.keys { windows[app]!.note(good: 0, errors: 0, now: now) }
        if !windows.values.contains(where: { $0.errors > 0 }) { windows.removeAll() }
    }

    /// Returns whether the errors of an app concern the app alone: most of its answers are errors, and another app is
    /// served, or all others together are.
    func concernsAppAlone(_ app: UInt32) -> Bool {
        guard let own = windows[app], own.isBad else { return false }
        let all = windows.values.reduce(-own.all) { $0 + $1.all }
        let errors = windows.values.reduce(-own.errors) { $0 + $1.errors }
        return all > 0 && errors * 4 < all
            || windows.values.contains { $0.all >= Self.least && $0.errors * 4 < $0.all }
    }

    /// Returns whether the last answers to an app's requests had errors, or are missing.
    func isInTrouble(_ app: UInt32) -> Bool { (windows[app]?.errors ?? 0) > 0 || silent[app] != nil }
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

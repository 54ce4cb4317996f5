/// Longest wait for the brokers' answers. Only waits count, and not the time that a caller spends between them. Pure.
struct Patience {
    /// Longest wait without an answer; positive.
    let longest: Duration

    /// Time waited since the last answer.
    private var waited = Duration.zero

    init(longest: Duration = .seconds(60)) { self.longest = longest }

    /// Takes a wait, and whether the brokers answered within it.
    mutating func add(_ wait: Duration, isAnswered: Bool) {
        waited = isAnswered ? .zero : waited + wait
    }

    /// Whether the brokers have been silent for too long.
    var isOver: Bool { waited > longest }
}

/// Wait for answers to requests that were sent. A request to stop shortens the wait, so that answers on their way still
/// count. Pure.
struct AnswerWait {
    /// Longest wait after a request to stop.
    static let afterStop = Duration.seconds(3)

    private var end: ContinuousClock.Instant
    private var isStopping = false

    init(_ longest: Duration, now: ContinuousClock.Instant = .now) { end = now + longest }

    mutating func isOver(isStopping: Bool, now: ContinuousClock.Instant = .now) -> Bool {
        if isStopping, !self.isStopping {
            self.isStopping = true
            end = min(end, now + Self.afterStop)
        }
        return now >= end
    }
}

/// Longest wait for the brokers' answers. Only waits count, and not the time that a caller spends between them. Pure.
struct Patience {
    /// Longest wait without an answer.
    static let longest = Duration.seconds(60)

    /// Time waited since the last answer.
    private var waited = Duration.zero

    /// Takes a wait, and whether the brokers answered within it.
    mutating func add(_ wait: Duration, isAnswered: Bool) {
        waited = isAnswered ? .zero : waited + wait
    }

    /// Whether the brokers have been silent for too long.
    var isOver: Bool { waited > Self.longest }
}

/// Keeps a rate: job n isn't produced before n / rate seconds have passed.
struct Pace {
    private let perSecond: Double?
    private let begin = ContinuousClock.now
    private var count = 0

    init(perSecond: Double?) { self.perSecond = perSecond }

    /// Waits for the next job's turn. Returns true when a stop was requested meanwhile.
    mutating func wait(_ stop: StopSignals) -> Bool {
        guard let perSecond else { return stop.isRequested }
        let due = begin + .nanoseconds(Int64(Double(count) / perSecond * 1e9))
        count += 1
        let remaining = due - ContinuousClock.now
        return remaining > .zero ? stop.wait(for: remaining) : stop.isRequested
    }
}

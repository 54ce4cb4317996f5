import ArgumentParser

/// Keeps a rate: one job in each interval. Pure: the caller waits, or lets `wait` do it.
struct Pace {
    /// Rates that the commands accept, in jobs per second.
    static let rates = 0.001...1_000_000

    /// Time between two jobs; nil: no limit.
    private let interval: Duration?
    /// Longest delay that later jobs make up for; nil: any.
    private let catchUp: Duration?
    /// Turn of the next job.
    private var next: ContinuousClock.Instant

    /// - Parameters:
    ///   - perSecond: within `rates`; nil: no limit.
    ///   - catchUp: nil keeps the rate over the whole run, however long a job was held up.
    init(perSecond: Double?, catchUp: Duration? = nil, now: ContinuousClock.Instant = .now) {
        interval = perSecond.map {
            // The lowest rate also stands for what is no number.
            .seconds(
                1 / ($0 >= Self.rates.lowerBound ? min($0, Self.rates.upperBound) : Self.rates.lowerBound))
        }
        self.catchUp = catchUp
        next = now
    }

    /// - Throws: for a rate that the commands don't accept; nil is one without a limit.
    static func validate(_ rate: Double?) throws {
        guard let rate, !rates.contains(rate) else { return }
        throw ValidationError("--rate: 0.001 to 1000000 jobs per second")
    }

    /// Returns the turn of the next job, which may be in the past; nil without a limit.
    mutating func turn(now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        guard let interval else { return nil }
        let turn = catchUp.map { max(next, now - $0) } ?? next
        next = turn + interval
        return turn
    }

    /// Waits for the next job's turn. Returns true when a stop was requested meanwhile.
    mutating func wait(_ stop: StopSignals) -> Bool {
        let now = ContinuousClock.now
        guard let turn = turn(now: now), turn > now else { return stop.isRequested }
        return stop.wait(for: turn - now)
    }
}

/// What one app may do in a ``StreamScheduler``.
public struct AppLimits: Sendable, Equatable {
    /// Share of its class's turns against other apps that wait there, 1 to 1000.
    public var weight: Int
    /// Notifications per second over time, 1e-6 to 1e9; nil = no limit.
    public var ratePerSecond: Double?
    /// Notifications that may go at once after a pause, 1 to 1e9; counts with a rate only. What the rate brings while
    /// the owner's timer sleeps must fit, or that part of the rate is lost.
    public var burst: Int
    /// Notifications assigned and not ended at most, from 1; nil = no limit.
    public var maximumInFlight: Int?

    public init(weight: Int = 1, ratePerSecond: Double? = nil, burst: Int = 1, maximumInFlight: Int? = nil) {
        self.weight = weight
        self.ratePerSecond = ratePerSecond
        self.burst = burst
        self.maximumInFlight = maximumInFlight
    }

    /// Whether every value is in its range.
    public var isValid: Bool {
        guard (1...1000).contains(weight), (1...1_000_000_000).contains(burst) else { return false }
        if let ratePerSecond, !(1e-6...1e9).contains(ratePerSecond) { return false }
        if let maximumInFlight, maximumInFlight < 1 { return false }
        return true
    }
}

/// How many apps have notifications waiting and may not send them; an app with two reasons counts for both.
public struct ParkedApps: Sendable, Equatable {
    /// Apps with as many in flight as they may have.
    public var capped = 0
    /// Apps whose rate allows none at the moment.
    public var paced = 0
    /// Apps that an operator has paused.
    public var paused = 0

    public init(capped: Int = 0, paced: Int = 0, paused: Int = 0) {
        self.capped = capped
        self.paced = paced
        self.paused = paused
    }
}

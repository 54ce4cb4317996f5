/// Limits of one app in a ``StreamScheduler``.
public struct AppLimits: Sendable, Equatable {
    /// Share of its class's turns against other waiting apps, 1 to 1000.
    public var weight: Int
    /// Notifications per second over time, 1e-6 to 1e9; nil = no limit.
    public var ratePerSecond: Double?
    /// Notifications that may be sent at once after a pause, 1 to 1e9; used only with a rate. The burst must hold the
    /// tokens earned while the owner's timer sleeps, or that part of the rate is lost.
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

/// Number of apps that have waiting notifications and may not send; an app with two reasons counts for both.
public struct BlockedApps: Sendable, Equatable {
    /// Apps with the maximum number in flight.
    public var capped = 0
    /// Apps whose rate allows no notification at the moment.
    public var paced = 0
    /// Apps that an operator has paused.
    public var paused = 0

    public init(capped: Int = 0, paced: Int = 0, paused: Int = 0) {
        self.capped = capped
        self.paced = paced
        self.paused = paused
    }
}

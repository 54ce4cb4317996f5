import Metrics

/// Work of an event loop since its start. The growth of ``busy`` in a second is the share of the time in which the thread
/// was not waiting.
public struct LoopUsage: Sendable, Equatable {
    /// Name of the loop.
    public var name: String
    /// Seconds of work, without the waits for events.
    public var busy: Double
    /// Durations of the turns, without their waits.
    public var turns: HistogramSnapshot
}

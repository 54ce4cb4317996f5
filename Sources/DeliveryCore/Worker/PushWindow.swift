/// Bounds the pushes that are begun and whose outcomes aren't committed. A worker that ends in whatever way repeats no
/// more pushes than these.
///
/// The window begins small and doubles with each commit of offsets that Kafka takes, up to a limit. The window is held
/// when no commit succeeds although outcomes wait for one. Nothing new is then begun; pushes in flight end as usual.
///
/// ```
///     awaitingProducer ─ identifier ─▶ open ◀──── a commit, or nothing waits ────┐
///                                       └─ no commit within the patience ─▶ held ┘
/// ```
///
/// Pure: time is an argument, in nanoseconds of a monotonic clock.
public struct PushWindow: Sendable {
    /// Limits of a window.
    public struct Limits: Sendable, Equatable {
        /// Pushes before the first commit, at least 1.
        public var first = PushWindow.firstSize
        /// Pushes after many commits, at least 1.
        public var most = 50_000
        /// Nanoseconds without a commit, while outcomes wait for one, after which the window is held.
        public var patience: UInt64 = 5_000_000_000

        public init() {}
    }

    public enum State: UInt8, Sendable, CaseIterable {
        /// The transactional producer has no identifier yet.
        case awaitingProducer
        case open
        /// Commits fail or don't come.
        case held
    }

    /// Pushes that a worker begins before its first commit.
    public static let firstSize = 32

    private let limits: Limits
    public private(set) var state: State
    /// Most pushes begun and not committed.
    public private(set) var size: Int
    /// Outcomes and dead letters that are made and not committed, as last counted.
    public private(set) var uncommitted = 0
    /// Part of ``uncommitted`` that a commit would cover now.
    private var committable = 0
    /// Time since which a commit, or the producer, is awaited; nil: none is.
    private var waitsSince: UInt64?
    /// True while the producer has been awaited for longer than the patience.
    private var isProducerLate = false

    /// - Parameter awaitsProducer: nothing is begun before ``producerIsReady()``.
    public init(_ limits: Limits, awaitsProducer: Bool) {
        self.limits = limits
        state = awaitsProducer ? .awaitingProducer : .open
        size = min(limits.first, limits.most)
    }

    /// True while sending is held up for longer than the patience.
    public var isHeld: Bool { state == .held || isProducerLate }

    /// True when the window is half used up by outcomes that only wait for a commit.
    var wantsCommit: Bool { committable > 0 && committable >= size / 2 }

    /// Opens the window, because the producer has its identifier.
    public mutating func producerIsReady() {
        guard state == .awaitingProducer else { return }
        state = .open
        isProducerLate = false
        waitsSince = nil
    }

    /// Notes that Kafka has taken a commit.
    public mutating func committed() {
        size = size > limits.most / 2 ? limits.most : size * 2
        settled()
    }

    /// Notes that outcomes are safe without a commit of offsets, as those of pushes from the store.
    public mutating func settled() {
        waitsSince = nil
        if state == .held { state = .open }
    }

    /// Takes new counts. To be called ten times a second at least.
    /// - Parameters:
    ///   - uncommitted: outcomes and dead letters made and not committed; may be too high, never too low.
    ///   - committable: the part that a commit would cover now.
    public mutating func count(uncommitted: Int, committable: Int, at now: UInt64) {
        self.uncommitted = uncommitted
        self.committable = committable
        guard uncommitted > 0 || state == .awaitingProducer else {
            waitsSince = nil
            state = .open
            return
        }
        let since = waitsSince ?? now
        waitsSince = since
        guard now >= since, now - since >= limits.patience else { return }
        if state == .open { state = .held }
        isProducerLate = state == .awaitingProducer
    }

    /// Returns how many pushes may have been begun since the worker's start.
    /// - Parameter ended: pushes begun and not in flight any more, counted before the outcomes were.
    public func limit(ended: Int) -> Int {
        state == .open ? ended + max(0, size - uncommitted) : 0
    }
}

/// Decides when each address is tried while a connection is opened (RFC 8305 §5). Each attempt begins a while after the
/// one before, or at once when that one has failed. The first attempt that connects wins.
///
/// The plan is pure: attempts are numbers, and time is an argument in nanoseconds. After ``Step/start(_:)`` the caller
/// opens that attempt. The caller then reports ``Event/failed(_:)`` or ``Event/connected(_:)``, perhaps at once.
struct DialPlan {
    /// Time between two attempts in nanoseconds, as RFC 8305 §8 recommends.
    static let defaultDelay: UInt64 = 250_000_000

    enum Event {
        /// The plan begins, or ``nextStart`` has passed.
        case tick
        case failed(Int)
        case connected(Int)
    }

    enum Step: Equatable {
        case wait
        case start(Int)
        /// This attempt has won; the caller closes the others.
        case connected(Int)
        /// All attempts have failed.
        case failed
    }

    enum State: Equatable {
        case waiting
        case trying
        case failed
        case connected
    }

    private(set) var attempts: [State]
    private(set) var started = 0
    /// Time of the next attempt unless an attempt fails before; nil when none is left to begin.
    private(set) var nextStart: UInt64?
    private var isOver = false
    private let delay: UInt64

    init(attempts: Int, delay: UInt64 = DialPlan.defaultDelay) {
        self.attempts = Array(repeating: .waiting, count: attempts)
        self.delay = delay
    }

    mutating func handle(_ event: Event, now: UInt64) -> Step {
        guard !isOver else { return .wait }
        switch event {
        case .tick:
            guard started == 0 || nextStart.map({ $0 <= now }) == true else { return .wait }
            return startNext(now)
        case .connected(let attempt):
            guard attempts[attempt] == .trying else { return .wait }
            attempts[attempt] = .connected
            isOver = true
            nextStart = nil
            return .connected(attempt)
        case .failed(let attempt):
            guard attempts[attempt] == .trying else { return .wait }
            attempts[attempt] = .failed
            // The failure of an older attempt leaves the newest its time, as long as the newest is under way.
            guard attempt == started - 1 || !attempts.contains(.trying) else { return .wait }
            return startNext(now)
        }
    }

    private mutating func startNext(_ now: UInt64) -> Step {
        guard started < attempts.count else {
            guard !attempts.contains(.trying) else { return .wait }
            isOver = true
            return .failed
        }
        let attempt = started
        attempts[attempt] = .trying
        started += 1
        nextStart = started < attempts.count ? now &+ delay : nil
        return .start(attempt)
    }
}

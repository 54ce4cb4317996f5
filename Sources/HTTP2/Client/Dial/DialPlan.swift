/// When which address is tried while a connection is opened (RFC 8305 §5): each attempt begins a while after the one
/// before, or at once when that one has failed; the first that connects wins.
///
/// Pure: attempts are numbers, time is an argument in nanoseconds. After ``Step/start(_:)`` the caller opens that
/// attempt and reports ``Event/failed(_:)`` or ``Event/connected(_:)`` for it, also at once.
struct DialPlan {
    /// Between two attempts; what RFC 8305 §8 recommends.
    static let defaultDelay: UInt64 = 250_000_000

    enum Event {
        /// The beginning, and when ``nextStart`` has come.
        case tick
        case failed(Int)
        case connected(Int)
    }

    enum Step: Equatable {
        case wait
        case start(Int)
        /// This attempt has won; the others are to be closed.
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
    /// When the next attempt begins unless one fails before; nil when there is none to begin.
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
            // An older attempt that fails leaves the newest its time, as long as that one is under way.
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

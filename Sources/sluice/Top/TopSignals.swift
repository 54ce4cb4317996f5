import Foundation

/// Signals that end or suspend a view. They are blocked, and the view asks for them, so that the terminal is restored.
struct TopSignals {
    private let set: sigset_t

    /// Call this on the main thread before anything starts a thread.
    init() {
        var signals = sigset_t()
        sigemptyset(&signals)
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP] { sigaddset(&signals, signal) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        set = signals
    }

    /// Returns a signal that has arrived; nil when none arrives within the time.
    func next(within milliseconds: Int = 0) -> Int32? {
        var signals = set
        var limit = timespec(tv_sec: milliseconds / 1_000, tv_nsec: milliseconds % 1_000 * 1_000_000)
        let signal = sigtimedwait(&signals, nil, &limit)
        return signal > 0 ? signal : nil
    }
}

import ArgumentParser
import Foundation
import Synchronization

/// SIGINT and SIGTERM, as requests; SIGHUP, where a command has a use for it.
///
/// Both signals are blocked in the calling thread, and so in every thread it starts afterwards (librdkafka's too). A
/// thread of their own handles them, so nothing runs inside a signal handler. The first signal is a request, unless a
/// command or the end of standard input was one before. The second signal ends the process at once, with status
/// 128 + signal.
final class StopSignals: Sendable {
    private struct State {
        var isRequested = false
        /// True from the first SIGINT or SIGTERM on.
        var isSignalled = false
        var handlers: [@Sendable () -> Void] = []
        var hangupHandlers: [@Sendable () -> Void] = []
    }

    private let state = Mutex(State())
    private let requested = DispatchSemaphore(value: 0)
    /// Signalled by each SIGHUP.
    private let hangups = DispatchSemaphore(value: 0)

    /// Call this on the main thread before anything starts a thread.
    ///
    /// - Parameters:
    ///   - watchesInput: The end of standard input is a request as well.
    ///   - takesHangup: SIGHUP calls the handlers of ``onHangup(_:)``; otherwise it ends the process.
    init(watchesInput: Bool = false, takesHangup: Bool = false) {
        let set = StopSignals.signalSet(takesHangup)
        var signals = set
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        let thread = Thread { [self] in
            while true {
                var signals = set
                var signal: Int32 = 0
                guard sigwait(&signals, &signal) == 0 else { continue }
                if signal == SIGHUP {
                    hangups.signal()
                    continue
                }
                let isFirst = state.withLock { state in
                    defer { state.isSignalled = true }
                    return !state.isSignalled
                }
                guard isFirst else { _exit(128 + signal) }
                request()
            }
        }
        thread.name = "signals"
        thread.start()
        if watchesInput { watchInput() }
        if takesHangup { watchHangups() }
    }

    /// Runs the handlers of SIGHUP on a thread of their own, because they may wait for files.
    private func watchHangups() {
        let thread = Thread { [self] in
            while true {
                hangups.wait()
                for handler in state.withLock({ $0.hangupHandlers }) { handler() }
            }
        }
        thread.name = "hangups"
        thread.start()
    }

    private static func signalSet(_ takesHangup: Bool) -> sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        sigaddset(&set, SIGINT)
        sigaddset(&set, SIGTERM)
        if takesHangup { sigaddset(&set, SIGHUP) }
        return set
    }

    private func watchInput() {
        let thread = Thread { [self] in
            var buffer = [UInt8](repeating: 0, count: 256)
            while true {
                let count = read(STDIN_FILENO, &buffer, buffer.count)
                if count > 0 || (count < 0 && errno == EINTR) { continue }
                _ = request()
                return
            }
        }
        thread.name = "input"
        thread.start()
    }

    /// Requests a stop. Returns false when a stop was requested before.
    @discardableResult
    func request() -> Bool {
        let handlers: [@Sendable () -> Void]? = state.withLock { state in
            if state.isRequested { return nil }
            state.isRequested = true
            return state.handlers
        }
        guard let handlers else { return false }
        for handler in handlers { handler() }
        requested.signal()
        return true
    }

    var isRequested: Bool { state.withLock { $0.isRequested } }

    /// Runs a closure on another thread when a stop is requested. Runs it at once, on the calling thread, when a stop
    /// was requested already.
    func onRequest(_ handler: @escaping @Sendable () -> Void) {
        let runsNow = state.withLock { state in
            if !state.isRequested { state.handlers.append(handler) }
            return state.isRequested
        }
        if runsNow { handler() }
    }

    /// Runs a closure after SIGHUP, on a thread of its own.
    func onHangup(_ handler: @escaping @Sendable () -> Void) {
        state.withLock { $0.hangupHandlers.append(handler) }
    }

    /// Blocks until a stop is requested or the time is over. Returns true when a stop is requested.
    @discardableResult
    func wait(for duration: Duration? = nil) -> Bool {
        if isRequested { return true }
        guard let duration else {
            requested.wait()
            requested.signal()
            return true
        }
        let nanoseconds = Int(duration / .nanoseconds(1))
        if requested.wait(timeout: .now() + .nanoseconds(nanoseconds)) == .success {
            requested.signal()
            return true
        }
        return false
    }
}

/// Options of commands that run until they are stopped.
struct LifetimeOptions: ParsableArguments {
    @Flag(
        help: """
            Stop when standard input ends. A supervisor that holds the other end of a pipe leaves no process behind, \
            even if the supervisor crashes.
            """)
    var stopWithInput = false
}

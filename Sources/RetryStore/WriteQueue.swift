import EventLoop
import Synchronization

/// A write that is idempotent: running it again repairs a partial failure.
struct IdempotentWrite: Sendable {
    let run: @Sendable () throws(RetryStoreError) -> Void
    /// Called when the write failed for good; it isn't retried.
    let fail: @Sendable (RetryStoreError) -> Void
}

/// Runs writes in the order of their arrival. A transiently failed write, as on a full disk, is retried every second
/// until it succeeds. Later writes wait for it, so none is left out or overtaken.
// Sendable: the loop is; the state is behind a lock. The timer is set and fires on the loop's thread only.
final class WriteQueue: TimerHandler, Sendable {
    private struct State {
        /// Waiting writes; the first is the failed one.
        var waiting: [IdempotentWrite] = []
        /// Failure of the last attempt; nil when it succeeded.
        var failure: RetryStoreError?
        var isTimerSet = false
        var observer: (@Sendable (RetryStoreError?) -> Void)?
        /// Writes nothing of meaning, because only a write can show whether the next write will succeed. Nil after
        /// `close`, as it has a hold on the database.
        var probe: (@Sendable () throws(RetryStoreError) -> Void)?
    }

    private let loop: EventLoop
    private let state: Mutex<State>

    private static let pause: Duration = .seconds(1)

    init(_ loop: EventLoop, probe: @escaping @Sendable () throws(RetryStoreError) -> Void) {
        self.loop = loop
        state = Mutex(State(probe: probe))
    }

    /// Current failure of the database; nil when it works.
    var failure: RetryStoreError? { state.withLock { $0.failure } }

    /// Sets the observer, which runs on the loop's thread. It receives each failure, also those after which nothing is
    /// retried, and nil when the database works again.
    func observe(_ observer: @escaping @Sendable (RetryStoreError?) -> Void) {
        state.withLock { $0.observer = observer }
    }

    /// Runs the write after those before it. Returns false, and does nothing, when the loop has ended.
    func enqueue(_ step: IdempotentWrite) -> Bool {
        loop.execute { [self] in
            let waits = state.withLock { state in
                if !state.waiting.isEmpty { state.waiting.append(step) }
                return !state.waiting.isEmpty
            }
            guard !waits, let error = attempt(step) else { return }
            state.withLock { $0.waiting.append(step) }
            failed(error)
        }
    }

    /// Reports a failure of other work on the database. Callable on any thread.
    func report(_ error: RetryStoreError) {
        loop.execute { [self] in failed(error) }
    }

    /// Attempts the waiting writes for a last time, after the loop has ended.
    func close() {
        let waiting = state.withLock { state in
            defer {
                state.waiting = []
                state.probe = nil
            }
            return state.waiting
        }
        var failure: RetryStoreError?
        for step in waiting {
            if failure == nil { failure = attempt(step) }
            if let failure { step.fail(failure) }
        }
    }

    /// Runs the write. Returns a transient failure; nil when the write succeeded or failed for good.
    private func attempt(_ step: IdempotentWrite) -> RetryStoreError? {
        do throws(RetryStoreError) {
            try step.run()
            return nil
        } catch {
            guard !error.isTransient else { return error }
            step.fail(error)
            inform(error)
            return nil
        }
    }

    /// Passes a failure to the observer; nil: the database works again. `closed` is no failure.
    private func inform(_ error: RetryStoreError?) {
        if error != .closed { state.withLock { $0.observer }?(error) }
    }

    // MARK: Loop's thread

    private func failed(_ error: RetryStoreError) {
        inform(error)
        guard error.isTransient else { return }
        let setsTimer = state.withLock { state in
            defer { state.isTimerSet = true }
            state.failure = error
            return !state.isTimerSet
        }
        if setsTimer { loop.schedule(after: Self.pause, handler: self) }
    }

    func timerFired(_ timer: TimerID) {
        state.withLock { $0.isTimerSet = false }
        do throws(RetryStoreError) { try state.withLock { $0.probe }?() } catch { return failed(error) }
        while let step = state.withLock({ $0.waiting.first }) {
            if let error = attempt(step) { return failed(error) }
            state.withLock { _ = $0.waiting.removeFirst() }
        }
        state.withLock { $0.failure = nil }
        inform(nil)
    }
}

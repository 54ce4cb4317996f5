import EventLoop
import Synchronization

/// A piece of work on the database that may be done again: when it fails, nothing or a part of it was done, and doing all
/// of it makes that good.
struct IdempotentWrite: Sendable {
    let run: @Sendable () throws(RetryStoreError) -> Void
    /// It can't be done, and is not tried again.
    let fail: @Sendable (RetryStoreError) -> Void
}

/// Does steps in the order in which they came. One that fails, as on a full disk, is tried again every second until it
/// succeeds; those behind it wait, so nothing is left out or overtaken.
// Sendable: the loop is; the state is behind a lock; the timer is set and fires on the loop's thread only.
final class WriteQueue: TimerHandler, Sendable {
    private struct State {
        /// The first is the one that failed.
        var waiting: [IdempotentWrite] = []
        /// Of what was tried last; nil when that succeeded.
        var failure: RetryStoreError?
        var isTimerSet = false
        var observer: (@Sendable (RetryStoreError?) -> Void)?
        /// Writes something that says nothing: only a write can tell whether the next one will succeed. Nil at the end, as
        /// it has a hold on the database.
        var probe: (@Sendable () throws(RetryStoreError) -> Void)?
    }

    private let loop: EventLoop
    private let state: Mutex<State>

    private static let pause: Duration = .seconds(1)

    init(_ loop: EventLoop, probe: @escaping @Sendable () throws(RetryStoreError) -> Void) {
        self.loop = loop
        state = Mutex(State(probe: probe))
    }

    /// Why the database doesn't do what it is asked for; nil when it does.
    var failure: RetryStoreError? { state.withLock { $0.failure } }

    /// Told of each failure, also those after which nothing is tried again, and (nil) when the database works again. On the
    /// loop's thread.
    func observe(_ observer: @escaping @Sendable (RetryStoreError?) -> Void) {
        state.withLock { $0.observer = observer }
    }

    /// Does the step, after those before it. False when the loop has ended: nothing is done then.
    func take(_ step: IdempotentWrite) -> Bool {
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

    /// Something else on the database failed. Any thread.
    func tell(_ error: RetryStoreError) {
        loop.execute { [self] in failed(error) }
    }

    /// At the end, when the loop has ended: a last attempt for what waits.
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

    /// Nil when the step is done, or never will be.
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

    /// Nil: it works again. That the store is closed is no failure.
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

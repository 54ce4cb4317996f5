import Foundation
import Synchronization

/// A value that another thread passes, once, to a single task that waits for it. Later values are dropped.
final class Reply<Value: Sendable>: Sendable {
    private enum State {
        case open
        case awaited(CheckedContinuation<Value?, Never>)
        case given(Value?)
    }

    private let state = Mutex(State.open)

    /// Passes the value; nil when there will be none. Any thread.
    func give(_ value: Value?) {
        let waiting: CheckedContinuation<Value?, Never>? = state.withLock { state in
            switch state {
            case .open:
                state = .given(value)
                return nil
            case .awaited(let continuation):
                state = .given(value)
                return continuation
            case .given: return nil
            }
        }
        waiting?.resume(returning: value)
    }

    /// Waits for the value; returns nil when the time is over. Call it once.
    func wait(for patience: Duration) async -> Value? {
        let timer = DispatchWorkItem { [self] in give(nil) }
        ReplyTimers.queue.asyncAfter(
            deadline: .now() + .nanoseconds(Int(patience / .nanoseconds(1))), execute: timer)
        defer { timer.cancel() }
        return await wait()
    }

    /// Waits for the value; returns nil when the task is cancelled. Call it once.
    func waitUnlessCancelled() async -> Value? {
        await withTaskCancellationHandler {
            await wait()
        } onCancel: {
            give(nil)
        }
    }

    private func wait() async -> Value? {
        await withCheckedContinuation { continuation in
            let given: Value?? = state.withLock { state in
                if case .given(let value) = state { return .some(value) }
                state = .awaited(continuation)
                return nil
            }
            if let given { continuation.resume(returning: given) }
        }
    }
}

private enum ReplyTimers {
    static let queue = DispatchQueue(label: "sluice.admin.timers")
}

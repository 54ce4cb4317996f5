import Synchronization

/// A value that one thread sets once and another thread waits for.
public final class BlockingAnswer<Value: Sendable>: Sendable {
    private let value = Mutex<Value?>(nil)
    private let flag = BlockingFlag()

    public init() {}

    /// Sets the value and wakes the waiting thread.
    public func set(_ new: Value) {
        value.withLock { $0 = new }
        flag.set()
    }

    /// Blocks until the value is set, and returns it.
    public func wait() -> Value {
        flag.wait()
        return value.withLock { $0! }
    }
}

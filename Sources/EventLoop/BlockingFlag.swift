import Glibc

/// A flag that one thread sets once and another waits for.
// Sendable: all state is behind the pthread mutex.
public final class BlockingFlag: @unchecked Sendable {
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    private var isSet = false

    public init() {
        pthread_mutex_init(mutex, nil)
        pthread_cond_init(condition, nil)
    }

    deinit {
        pthread_cond_destroy(condition)
        pthread_mutex_destroy(mutex)
        condition.deallocate()
        mutex.deallocate()
    }

    /// Sets the flag and wakes all waiting threads. Later calls change nothing.
    public func set() {
        pthread_mutex_lock(mutex)
        isSet = true
        pthread_cond_broadcast(condition)
        pthread_mutex_unlock(mutex)
    }

    /// Blocks until the flag is set, without a limit.
    public func wait() {
        pthread_mutex_lock(mutex)
        while !isSet { pthread_cond_wait(condition, mutex) }
        pthread_mutex_unlock(mutex)
    }

    /// Waits at most `seconds`; returns whether the flag was set by then.
    public func wait(seconds: Int) -> Bool { wait(milliseconds: seconds * 1000) }

    /// Waits at most `milliseconds`; returns whether the flag was set by then.
    public func wait(milliseconds: Int) -> Bool {
        var deadline = timespec()
        clock_gettime(CLOCK_REALTIME, &deadline)
        let nanoseconds = deadline.tv_nsec + milliseconds % 1000 * 1_000_000
        deadline.tv_sec += milliseconds / 1000 + nanoseconds / 1_000_000_000
        deadline.tv_nsec = nanoseconds % 1_000_000_000
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        while !isSet {
            if pthread_cond_timedwait(condition, mutex, &deadline) == ETIMEDOUT { return isSet }
        }
        return true
    }
}

import CRdkafka
import Glibc
import Synchronization

/// Destroys clients of librdkafka, and counts those that the process keeps with their threads and sockets.
enum ClientDestruction {
    private static let kept = Atomic<Int>(0)

    /// Number of clients that this process keeps, because they aren't destroyed yet or can't be.
    static var keptClients: Int { kept.load(ordering: .relaxed) }

    /// Notes that the process keeps a client.
    static func keep() { kept.add(1, ordering: .relaxed) }

    /// Destroys a client. Blocks, at most ten seconds: while an answer about a log's offsets is missing, librdkafka's
    /// destruction may never end (its issue 3470).
    /// - Returns: false when the process keeps the client. Callbacks of the client may still come.
    static func destroy(_ client: OpaquePointer) -> Bool {
        // nonisolated(unsafe): the caller gives the client up, and only the other thread uses it.
        nonisolated(unsafe) let client = client
        return run(patience: 10) { rd_kafka_destroy(client) }
    }

    /// Runs `body` on a thread of its own.
    /// - Parameter patience: seconds to wait for its end.
    /// - Returns: whether `body` has ended in time. A client counts as kept until it has.
    static func run(patience: Int, _ body: @escaping @Sendable () -> Void) -> Bool {
        let end = DestructionEnd()
        let thread = try? startThread(for: "a client's end") {
            body()
            if end.finish() { kept.subtract(1, ordering: .relaxed) }
        }
        guard let thread else {
            keep()
            return false
        }
        pthread_detach(thread)
        // Counted before the thread can subtract.
        keep()
        guard end.wait(seconds: patience) else { return false }
        kept.subtract(1, ordering: .relaxed)
        return true
    }
}

/// The end of a destruction, which one thread awaits for a while.
// Sendable: all state is behind the pthread mutex.
private final class DestructionEnd: @unchecked Sendable {
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    private var hasFinished = false
    private var isAbandoned = false

    init() {
        pthread_mutex_init(mutex, nil)
        var attributes = pthread_condattr_t()
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(condition, &attributes)
        pthread_condattr_destroy(&attributes)
    }

    deinit {
        pthread_cond_destroy(condition)
        pthread_mutex_destroy(mutex)
        condition.deallocate()
        mutex.deallocate()
    }

    /// - Returns: whether nobody waits any more.
    func finish() -> Bool {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        hasFinished = true
        pthread_cond_broadcast(condition)
        return isAbandoned
    }

    /// - Returns: whether the destruction has finished within the time.
    func wait(seconds: Int) -> Bool {
        var deadline = timespec()
        clock_gettime(CLOCK_MONOTONIC, &deadline)
        deadline.tv_sec += seconds
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        while !hasFinished {
            guard pthread_cond_timedwait(condition, mutex, &deadline) != ETIMEDOUT else { break }
        }
        isAbandoned = !hasFinished
        return hasFinished
    }
}

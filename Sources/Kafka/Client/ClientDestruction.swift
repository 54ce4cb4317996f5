import CRdkafka
import Glibc
import Synchronization

/// Destroys clients of librdkafka, and counts those that the process keeps with their threads and sockets.
enum ClientDestruction {
    private static let kept = Atomic<Int>(0)

    /// Number of clients that this process keeps, because they could not be destroyed.
    static var keptClients: Int { kept.load(ordering: .relaxed) }

    /// Notes that the process keeps a client.
    static func keep() { kept.add(1, ordering: .relaxed) }

    /// Destroys a client. Blocks, at most ten seconds: before an answer about a log's offsets, librdkafka's destruction
    /// may never end (its issue 3470).
    /// - Returns: false when the process keeps the client. Callbacks of the client may still come.
    static func destroy(_ client: OpaquePointer) -> Bool {
        nonisolated(unsafe) let client = client
        let end = End()
        let thread = try? startThread(for: "a client's end") {
            rd_kafka_destroy(client)
            sem_post(end.semaphore)
        }
        guard let thread else {
            rd_kafka_destroy(client)
            return true
        }
        pthread_detach(thread)
        var deadline = timespec()
        clock_gettime(CLOCK_REALTIME, &deadline)
        deadline.tv_sec += patience
        while sem_timedwait(end.semaphore, &deadline) != 0 {
            guard errno == EINTR else {
                keep()
                return false
            }
        }
        return true
    }

    /// Signalled when a client is destroyed; freed by the last of its two threads.
    // Sendable: a semaphore is made for several threads.
    private final class End: @unchecked Sendable {
        let semaphore = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)

        init() { sem_init(semaphore, 0, 0) }

        deinit {
            sem_destroy(semaphore)
            semaphore.deallocate()
        }
    }

    /// Seconds that a destruction may take.
    private static let patience = 10
}

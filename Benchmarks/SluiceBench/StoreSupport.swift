import EventLoop
import Glibc
import RetryStore
import Synchronization

/// Bounds the number of batches under way.
// Sendable because a semaphore is safe between threads, and a lock guards the error.
final class BatchGate: @unchecked Sendable {
    private static let batches: UInt32 = 8

    private let semaphore = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)
    private let failure = Mutex<RetryStoreError?>(nil)

    init() { sem_init(semaphore, 0, Self.batches) }

    deinit {
        sem_destroy(semaphore)
        semaphore.deallocate()
    }

    func enter() { while sem_wait(semaphore) != 0 {} }

    func leave(_ error: RetryStoreError?) {
        if let error { fail(error) }
        sem_post(semaphore)
    }

    func fail(_ error: RetryStoreError) {
        failure.withLock { if $0 == nil { $0 = error } }
    }

    var error: RetryStoreError? { failure.withLock { $0 } }

    func waitUntilEmpty() {
        for _ in 0..<Self.batches { enter() }
        for _ in 0..<Self.batches { sem_post(semaphore) }
    }
}

/// Measures a rate: on average, and in its slowest second.
struct RateWatch {
    private let began = MonotonicTime.read()
    private var secondBegan = MonotonicTime.read()
    private var count = 0
    private var countOfSecond = 0
    private var slowest = Double.infinity

    mutating func add(_ more: Int) {
        count += more
        countOfSecond += more
        let elapsed = MonotonicTime.read().nanoseconds(since: secondBegan)
        if elapsed >= 1_000_000_000 {
            slowest = min(slowest, Double(countOfSecond) / Double(elapsed) * 1e9)
            secondBegan = .read()
            countOfSecond = 0
        }
    }

    /// Returns both rates, per second.
    func end() -> (rate: Double, slowest: Double) {
        let rate = Double(count) / Double(MonotonicTime.read().nanoseconds(since: began)) * 1e9
        return (rate, min(slowest, rate))
    }
}

/// Removes a directory that has only files.
func removeDirectory(_ path: String) {
    guard let entries = opendir(path) else { return }
    while let entry = readdir(entries) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        unlink("\(path)/\(name)")
    }
    closedir(entries)
    rmdir(path)
}

import CRocksDB
import Glibc

/// RocksDB's threads for flushes and compactions, shared by all databases of a process.
enum BackgroundThreads {
    static let flushes: Int32 = 2
    static let compactions: Int32 = 1
    /// Niceness above the process's own. On busy cores each background thread gets a sixth of the time of another
    /// thread. The store's own thread and the pushing threads have precedence. The store's thread waits when these
    /// threads can't flush as fast as it writes (`WriteThrottle`).
    static let niceness: Int32 = 8

    /// Starts the threads once in a process, before a database is opened, because RocksDB would give them normal
    /// priority. RocksDB's own function for a lower priority sets the lowest, with which threads hardly run on busy
    /// cores.
    static func start() { _ = started }

    private static let started: Void = {
        // Threads inherit priority and signal mask from their starter, which can't raise its own priority again.
        var thread = pthread_t()
        let code = pthread_create(
            &thread, nil,
            { _ in
                var all = sigset_t()
                sigfillset(&all)
                pthread_sigmask(SIG_SETMASK, &all, nil)
                // Affects this thread alone, on Linux.
                _ = nice(niceness)
                let environment = rocksdb_create_default_env()
                rocksdb_env_set_high_priority_background_threads(environment, flushes)
                rocksdb_env_set_low_priority_background_threads(environment, compactions)
                rocksdb_env_destroy(environment)
                return nil
            }, nil)
        // Without this thread RocksDB starts the background threads by itself.
        if code == 0 { pthread_join(thread, nil) }
    }()
}

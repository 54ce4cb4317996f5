import CRocksDB
import Glibc

/// The threads with which RocksDB writes memtables out and compacts, of all databases of a process.
enum BackgroundThreads {
    static let flushes: Int32 = 2
    static let compactions: Int32 = 1
    /// Below the process's own: where all cores are busy each gets a sixth of the time of one of its other threads. The store's
    /// own thread and those that push go first, and where more is stored than these can write out it waits (`WriteThrottle`).
    static let niceness: Int32 = 8

    /// Starts them, once in a process, before a database is opened: RocksDB itself would give them normal priority. Its own
    /// function for a lower one takes the lowest there is, with which they hardly run on busy cores.
    static func start() { _ = started }

    private static let started: Void = {
        // Threads inherit priority and signal mask from the one that starts them, which can't go back by itself.
        var thread = pthread_t()
        let code = pthread_create(
            &thread, nil,
            { _ in
                var all = sigset_t()
                sigfillset(&all)
                pthread_sigmask(SIG_SETMASK, &all, nil)
                // Of this thread alone, on Linux.
                _ = nice(niceness)
                let environment = rocksdb_create_default_env()
                rocksdb_env_set_high_priority_background_threads(environment, flushes)
                rocksdb_env_set_low_priority_background_threads(environment, compactions)
                rocksdb_env_destroy(environment)
                return nil
            }, nil)
        // Without it RocksDB starts them by itself.
        if code == 0 { pthread_join(thread, nil) }
    }()
}

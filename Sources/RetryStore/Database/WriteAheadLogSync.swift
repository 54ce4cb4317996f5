import Glibc

/// Syncs the database's log to the disk. RocksDB's own function may not be called while a write is failing, as on a
/// full disk. No other thread can know that in time, and RocksDB's assertions, which Debian leaves in, end the process.
/// Syncing the files directly is enough, because RocksDB passes each write to the system before the write returns.
///
/// For use on one thread.
struct WriteAheadLogSync: ~Copyable {
    let directory: String
    private let synchronize: @Sendable (Int32) -> Int32
    /// Synced bytes of each existing log. Logs only grow, and their names are never used again.
    private var synced: [String: Int64] = [:]

    /// - Parameter synchronize: syncs a file's data to the disk as `fdatasync` does.
    init(directory: String, synchronize: @escaping @Sendable (Int32) -> Int32) {
        self.directory = directory
        self.synchronize = synchronize
    }

    /// Syncs all writes before this call to the disk.
    ///
    /// After a failure it is unknown which of them will ever reach the disk. The system reports a failure once, and may
    /// have dropped the data.
    mutating func sync() throws(RetryStoreError) {
        let store = StoreDirectory(path: directory)
        var isNew = false
        var found: [String: Int64] = [:]
        for name in try store.names() where name.hasSuffix(".log") {
            guard let size = try sync(name, store) else { continue }
            if synced[name] == nil { isNew = true }
            found[name] = size
        }
        synced = found
        // The directory is synced for a new log's name.
        if isNew { _ = try sync("", store) }
    }

    /// Returns the synced size of a log; nil when the log doesn't exist any more. RocksDB deletes a log whose contents
    /// are on the disk elsewhere.
    private func sync(_ name: String, _ store: StoreDirectory) throws(RetryStoreError) -> Int64? {
        let file = open("\(directory)/\(name)", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else {
            if errno == ENOENT { return nil }
            throw store.error(errno, "open \(name) to sync it")
        }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0 else { throw store.error(errno, "read the status of \(name)") }
        if let known = synced[name], known == status.st_size { return known }
        guard synchronize(file) == 0 else {
            throw store.error(errno, "sync \(name.isEmpty ? "the directory" : name)")
        }
        return Int64(status.st_size)
    }
}

import Glibc

/// Brings the database's log to the disk. Not by RocksDB's own function for it: that may not be called while a write is
/// failing, as on a full disk, and no other thread can know that in time (its assertions, which Debian leaves in, end the
/// process). RocksDB hands each write to the system before it returns, so the system can be asked as well.
///
/// One thread.
struct WriteAheadLogSync: ~Copyable {
    let directory: String
    private let synchronize: @Sendable (Int32) -> Int32
    /// Bytes that are on the disk of each log that is there. Logs only grow, and their names are never used again.
    private var synced: [String: Int64] = [:]

    /// - Parameter synchronize: brings a file's data to the disk as `fdatasync` does.
    init(directory: String, synchronize: @escaping @Sendable (Int32) -> Int32) {
        self.directory = directory
        self.synchronize = synchronize
    }

    /// Brings all that was written before this call to the disk.
    ///
    /// When that fails it is not known what of it will ever get there: the system tells of a failure once, and may have
    /// let go of the data.
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
        // A new log's name as well.
        if isNew { _ = try sync("", store) }
    }

    /// Returns what is on the disk of it; nil when it isn't there any more: RocksDB removes a log when all of it is on the
    /// disk elsewhere.
    private func sync(_ name: String, _ store: StoreDirectory) throws(RetryStoreError) -> Int64? {
        let file = open("\(directory)/\(name)", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else {
            if errno == ENOENT { return nil }
            throw store.error(errno, "open \(name) to sync it")
        }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0 else { throw store.error(errno, "look at \(name)") }
        if let known = synced[name], known == status.st_size { return known }
        guard synchronize(file) == 0 else {
            throw store.error(errno, "sync \(name.isEmpty ? "the directory" : name)")
        }
        return Int64(status.st_size)
    }
}

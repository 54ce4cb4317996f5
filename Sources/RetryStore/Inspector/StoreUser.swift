import Glibc

/// Process that has a store open.
public enum StoreUser {
    /// Returns the identifier of the other process that has the database of a directory open; nil when none has.
    ///
    /// RocksDB locks the file `LOCK`, and the system knows the owner. A process of another namespace has the
    /// identifier 0. Must not be called in a process that has the database open itself, because closing the file drops
    /// the process's own lock.
    public static func process(of directory: String) -> Int32? {
        let descriptor = open("\(directory)/LOCK", O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var lock = flock()
        lock.l_type = Int16(F_WRLCK)
        lock.l_whence = Int16(SEEK_SET)
        guard fcntl(descriptor, F_GETLK, &lock) == 0, lock.l_type != Int16(F_UNLCK) else { return nil }
        return lock.l_pid
    }
}

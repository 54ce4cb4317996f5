import Glibc

/// The directory of a database. The directory is checked before RocksDB opens it, because RocksDB's own messages are
/// less precise.
struct StoreDirectory {
    var path: String

    enum Contents {
        /// No file of a database.
        case none
        case database
    }

    /// Makes the missing directories of the path, and checks that files can be made in the last one.
    func prepare() throws(RetryStoreError) {
        var end = path.startIndex
        while end < path.endIndex {
            end = path[path.index(after: end)...].firstIndex(of: "/") ?? path.endIndex
            let part = String(path[..<end])
            if mkdir(part, 0o700) != 0, errno != EEXIST {
                let code = errno
                // On some systems an existing directory that can't be written fails with another code than "exists".
                guard try isDirectory(part) else { throw error(code, "make directory \(part)") }
            }
        }
        try check()
        guard access(path, W_OK | X_OK) == 0 else { throw error(errno, "write to the directory") }
    }

    /// Checks that the path is a directory.
    func check() throws(RetryStoreError) {
        var status = stat()
        guard stat(path, &status) == 0 else {
            if errno == ENOENT { throw .missing(directory: path) }
            throw error(errno, "find the directory")
        }
        guard status.st_mode & S_IFMT == S_IFDIR else { throw .notADirectory(directory: path) }
    }

    /// Removes the access rights of others from the directory and its files, because pushes have payloads and device
    /// tokens.
    ///
    /// Leaves a directory with files other than a database's unchanged, because an operator may have named a shared
    /// one.
    /// - Returns: rights that could not be removed, as text for people.
    func protect() throws(RetryStoreError) -> [String] {
        var status = stat()
        guard stat(path, &status) == 0 else { throw error(errno, "find the directory") }
        let names = try names().filter { $0 != "." && $0 != ".." }
        let isOurs =
            names.contains("CURRENT") || names.allSatisfy { ["lost+found", "switches"].contains($0) }
        if status.st_mode & Self.others != 0, !isOurs || chmod(path, 0o700) != 0 {
            let reason =
                isOurs ? "it belongs to user \(status.st_uid)" : "it contains files that are not a store's"
            return [
                """
                users other than the owner have rights in the store's directory \(path) \
                (mode \(Self.text(status.st_mode))), and \(reason): run `chmod 700 \(path)`, or set store.directory to \
                a subdirectory for the store alone
                """
            ]
        }
        guard isOurs else { return [] }
        // From here on nobody else can change which files the names stand for.
        return names.compactMap { name in
            let file = "\(path)/\(name)"
            guard lstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG,
                status.st_mode & Self.others != 0, chmod(file, 0o600) != 0
            else { return nil }
            return
                "users other than the owner have rights to the store's file \(file) (mode \(Self.text(status.st_mode))): run `chmod 600 \(file)`"
        }
    }

    private static let others: mode_t = 0o077

    private static func text(_ mode: mode_t) -> String { "0" + String(mode & 0o7777, radix: 8) }

    /// Returns whether the directory has a database; throws when files of a database are there without `CURRENT`.
    func contents() throws(RetryStoreError) -> Contents {
        var hasData = false
        for name in try names() {
            if name == "CURRENT" { return .database }
            if name.hasSuffix(".sst") || name.hasSuffix(".blob") || name.hasSuffix(".log") { hasData = true }
        }
        // RocksDB would make a new database and delete the files that it doesn't know.
        if hasData {
            throw .corrupt(directory: path, text: "its file CURRENT is missing, but other files are present")
        }
        return .none
    }

    /// Returns the names of all entries of the directory.
    func names() throws(RetryStoreError) -> [String] {
        guard let entries = opendir(path) else { throw error(errno, "read the directory") }
        defer { closedir(entries) }
        var names: [String] = []
        while let entry = readdir(entries) {
            names.append(
                withUnsafePointer(to: &entry.pointee.d_name) {
                    $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
                })
        }
        return names
    }

    private func isDirectory(_ path: String) throws(RetryStoreError) -> Bool {
        var status = stat()
        guard stat(path, &status) == 0 else { return false }
        guard status.st_mode & S_IFMT == S_IFDIR else { throw .notADirectory(directory: self.path) }
        return true
    }

    /// Returns the store's error for a system error in this directory.
    func error(_ code: Int32, _ what: String) -> RetryStoreError {
        switch code {
        case ENOSPC: .noSpace(directory: path)
        case EDQUOT: .quota(directory: path)
        case EROFS, EACCES, EPERM: .readOnly(directory: path)
        case ENOTDIR: .notADirectory(directory: path)
        default: .io(directory: path, text: "can't \(what): \(String(cString: strerror(code)))")
        }
    }
}

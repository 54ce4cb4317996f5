import CRocksDB
import StoreEncryption

/// Failures of the store. They never contain a key, token or payload.
public enum RetryStoreError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The disk is full. Nothing is lost; a later write succeeds once there is room again.
    case noSpace(directory: String)
    /// The quota is used up. Nothing is lost; RocksDB writes again once there is room and the database is opened anew.
    case quota(directory: String)
    /// The directory is not writable.
    case readOnly(directory: String)
    /// Another process, or another store of this one, has the database open.
    case locked(directory: String)
    /// The path is that of something else than a directory.
    case notADirectory(directory: String)
    /// There is no database to open for reading.
    case missing(directory: String)
    /// Data that was read differs from the data that was written.
    case corrupt(directory: String, text: String)
    /// Another version of Sluice made the database.
    case format(directory: String, found: String)
    /// The database keeps pushes of another jobs topic.
    case wrongTopic(directory: String, found: String, expected: String)
    /// A value's key is missing, or has other bytes.
    case key(directory: String, partition: Int32, SealedValueError)
    /// The system refused something else.
    case io(directory: String, text: String)
    /// The store was closed before.
    case closed

    /// True when a retry may succeed later, by itself or after somebody made room or granted a right.
    public var isTransient: Bool {
        switch self {
        case .noSpace, .quota, .readOnly, .io: true
        case .locked, .notADirectory, .missing, .corrupt, .format, .wrongTopic, .key, .closed: false
        }
    }

    /// True when RocksDB writes nothing more until the database is opened again, although the cause may be gone. RocksDB
    /// resumes by itself after a full disk alone.
    public var needsReopening: Bool {
        switch self {
        case .quota, .readOnly, .io: true
        default: false
        }
    }

    public var description: String {
        switch self {
        case .noSpace(let directory):
            "the store in \(directory) has no room left on its disk: make room; writing resumes by itself"
        case .quota(let directory):
            "the store in \(directory) has used up its disk quota: raise it or make room; the worker restarts by itself"
        case .readOnly(let directory):
            "the store in \(directory) can't be written: give this process the right to write to the directory, on a file "
                + "system that isn't mounted read-only"
        case .locked(let directory):
            "the store in \(directory) is in use by another process: give each worker its own store.directory"
        case .notADirectory(let directory):
            "\(directory) is not a directory: set store.directory to a directory"
        case .missing(let directory):
            "there is no store in \(directory): name the directory that store.directory in the worker's configuration names"
        case .corrupt(let directory, let text):
            "the store in \(directory) is damaged: \(text). Keep a copy of the directory, check the disk, and restore the "
                + "directory or begin with an empty directory"
        case .format(let directory, let found):
            "the store in \(directory) has format \(found), and this version of Sluice reads \(StoreMeta.version) only: "
                + "run the version that created the store, or begin with an empty directory"
        case .wrongTopic(let directory, let found, let expected):
            "the store in \(directory) keeps pushes of topic \"\(found)\", and this worker reads \"\(expected)\": give the "
                + "worker another store.directory, one for each topic"
        case .key(let directory, let partition, let error):
            "the store in \(directory), partition \(partition): \(error)"
        case .io(let directory, let text):
            "the store in \(directory): \(text)"
        case .closed:
            "the store is closed"
        }
    }
}

extension Result where Failure == RetryStoreError {
    /// Error of the result; nil: it succeeded.
    var failure: RetryStoreError? { if case .failure(let error) = self { error } else { nil } }
}

/// A failure as RocksDB's C interface reports it: a text alone.
struct RocksFailure: Error {
    var text: String

    /// Returns the store's error for the text. RocksDB's texts begin with the kind of the status and end with the
    /// system's message.
    func error(in directory: String) -> RetryStoreError {
        if text.contains("No space left on device") { return .noSpace(directory: directory) }
        if text.contains("Disk quota exceeded") { return .quota(directory: directory) }
        if text.contains("/LOCK"),
            text.contains("lock hold by current process") || text.contains("While lock file")
        {
            return .locked(directory: directory)
        }
        if text.contains("Read-only file system") || text.contains("Permission denied")
            || text.contains("Operation not permitted")
        {
            return .readOnly(directory: directory)
        }
        // A missing file that the database's own list names is damage, too.
        if text.hasPrefix("Corruption") || text.contains("No such file or directory") {
            return .corrupt(directory: directory, text: text)
        }
        return .io(directory: directory, text: text)
    }
}

/// Calls a function of RocksDB that reports a failure by its last argument.
@inline(__always)
func rocks<Value>(
    _ body: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Value
) throws(RocksFailure) -> Value {
    var text: UnsafeMutablePointer<CChar>?
    let value = body(&text)
    if let text { throw failure(text) }
    return value
}

@inline(never)
private func failure(_ text: UnsafeMutablePointer<CChar>) -> RocksFailure {
    defer { rocksdb_free(text) }
    return RocksFailure(text: String(cString: text))
}

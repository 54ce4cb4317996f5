import Glibc
import Synchronization

/// A file that appears, complete, when a command is ready, and goes with the command. Scripts wait for it.
final class ReadyFile: Sendable {
    private let path: String
    /// Rights of the file; nil for those that the process's mask leaves.
    private let mode: mode_t?
    /// The file that ``write(_:)`` made; nil before.
    private let made = Mutex<WholeFile.Identity?>(nil)

    /// Checks that the file can be made, before anything else of the command begins.
    /// - Parameter callersMask: file mode creation mask of the process that started the command, if the command has
    ///   changed its mask. A worker's other files are readable for the worker alone, but this file isn't.
    init(path: String, callersMask: mode_t? = nil) throws(CommandFailure) {
        self.path = path
        mode = callersMask.map { 0o666 & ~$0 }
        try WholeFile.check(path, "--ready-file")
    }

    /// Writes the text beside the path and moves it there.
    func write(_ text: String) throws(CommandFailure) {
        let file = try WholeFile.write(text, to: path, mode: mode, "--ready-file")
        made.withLock { $0 = file }
    }

    /// Removes the file, because it means "ready". Another file at the path stays.
    func remove() {
        guard let file = made.withLock({ $0.take() }), WholeFile.identity(path) == file else { return }
        unlink(path)
    }
}

/// Writes files that appear complete, and replace no device, directory or link.
enum WholeFile {
    /// Tells a file apart from others that had, or get, its path.
    struct Identity: Equatable {
        var device: UInt
        var node: UInt

        fileprivate init(_ status: stat) { (device, node) = (UInt(status.st_dev), UInt(status.st_ino)) }
    }

    /// Returns the identity of whatever lies at the path; nil when nothing does.
    static func identity(_ path: String) -> Identity? {
        var status = stat()
        return lstat(path, &status) == 0 ? Identity(status) : nil
    }

    /// Makes and removes a file beside the path.
    /// - Parameter option: the option that names the path, for the error.
    static func check(_ path: String, _ option: String) throws(CommandFailure) {
        let (descriptor, partial) = try make(path, option)
        close(descriptor)
        unlink(partial)
    }

    /// Writes the text and a line break beside the path and moves them there, so that a reader never sees half of it.
    /// - Parameters:
    ///   - mode: rights; nil for those that the process's mask leaves.
    ///   - option: the option that names the path, for the error.
    @discardableResult
    static func write(
        _ text: String, to path: String, mode: mode_t? = nil, _ option: String
    ) throws(CommandFailure) -> Identity {
        let (descriptor, partial) = try make(path, option)
        defer { close(descriptor) }
        var status = stat()
        let bytes = Array((text + "\n").utf8)
        var written = 0
        while written < bytes.count {
            let count = bytes.withUnsafeBytes {
                Glibc.write(descriptor, $0.baseAddress! + written, bytes.count - written)
            }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            written += count
        }
        guard written == bytes.count, mode.map({ fchmod(descriptor, $0) == 0 }) ?? true,
            fstat(descriptor, &status) == 0, rename(partial, path) == 0
        else {
            let code = errno
            unlink(partial)
            throw failure(path, option, String(cString: strerror(code)))
        }
        return Identity(status)
    }

    private static func make(
        _ path: String, _ option: String
    ) throws(CommandFailure) -> (descriptor: Int32, partial: String) {
        var status = stat()
        if lstat(path, &status) == 0, status.st_mode & S_IFMT != S_IFREG {
            throw failure(path, option, "a directory, device or link lies there; name another path")
        }
        let partial = "\(path).\(getpid())"
        let flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
        var descriptor = open(partial, flags, 0o666)
        if descriptor < 0, errno == EEXIST {
            // An ended process of the same number has left the file.
            unlink(partial)
            descriptor = open(partial, flags, 0o666)
        }
        guard descriptor >= 0 else { throw failure(path, option, String(cString: strerror(errno))) }
        return (descriptor, partial)
    }

    private static func failure(_ path: String, _ option: String, _ reason: String) -> CommandFailure {
        CommandFailure(.unavailable, "\(option): can't write \(path): \(reason)")
    }
}

import Foundation

/// A file that appears, complete, when a command is ready. Scripts wait for it.
struct ReadyFile: Sendable {
    let path: String
    /// Rights that the caller's mask leaves. A worker's other files are readable for the worker alone, but this file
    /// isn't.
    private let mode: mode_t

    /// - Parameter callersMask: file mode creation mask of the process that started the command.
    init(path: String, callersMask: mode_t) {
        self.path = path
        mode = 0o666 & ~callersMask
    }

    /// Writes the text as the static function does. Everybody whom the caller's mask permits can read it.
    func write(_ text: String) throws(CommandFailure) {
        let partial = "\(path).\(getpid())"
        try Self.write(text, to: partial)
        guard chmod(partial, mode) == 0, rename(partial, path) == 0 else {
            let reason = String(cString: strerror(errno))
            unlink(partial)
            throw CommandFailure(.unavailable, "can't write the ready file \(path): \(reason)")
        }
    }

    /// Removes the file when the command ends, because the file means "ready".
    func remove() { Self.remove(path) }

    /// Writes the text beside the path and moves it there, so that a reader never sees half of it.
    static func write(_ text: String, to path: String) throws(CommandFailure) {
        do {
            try (text + "\n").write(toFile: path, atomically: true, encoding: .utf8)
        } catch {
            throw CommandFailure(
                .unavailable, "can't write the ready file \(path): \(error.localizedDescription)")
        }
    }

    /// Removes the file when the command ends, because the file means "ready".
    static func remove(_ path: String) {
        unlink(path)
    }
}

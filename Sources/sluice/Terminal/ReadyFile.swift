import Foundation

/// A file that appears, complete, when a command is ready: for scripts, which wait for it.
struct ReadyFile: Sendable {
    let path: String
    /// Rights that the caller's mask leaves: a worker's own files are its alone, and this one isn't.
    private let mode: mode_t

    /// - Parameter callersMask: file mode creation mask of whoever started the command.
    init(path: String, callersMask: mode_t) {
        self.path = path
        mode = 0o666 & ~callersMask
    }

    /// Writes the text, as the static function does, for all whom the caller lets read it.
    func write(_ text: String) throws(CommandFailure) {
        let partial = "\(path).\(getpid())"
        try Self.write(text, to: partial)
        guard chmod(partial, mode) == 0, rename(partial, path) == 0 else {
            let reason = String(cString: strerror(errno))
            unlink(partial)
            throw CommandFailure(.unavailable, "can't write the ready file \(path): \(reason)")
        }
    }

    /// Goes when the command does, as it says "ready".
    func remove() { Self.remove(path) }

    /// Writes the text beside the path and moves it there, so that nobody reads half of it.
    static func write(_ text: String, to path: String) throws(CommandFailure) {
        do {
            try (text + "\n").write(toFile: path, atomically: true, encoding: .utf8)
        } catch {
            throw CommandFailure(
                .unavailable, "can't write the ready file \(path): \(error.localizedDescription)")
        }
    }

    /// It says "ready", so it goes when the command does.
    static func remove(_ path: String) {
        unlink(path)
    }
}

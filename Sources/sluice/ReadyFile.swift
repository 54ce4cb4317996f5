import Foundation

/// A file that appears, complete, when a command is ready: for scripts, which wait for it.
enum ReadyFile {
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

import Logging
import Synchronization

/// Keeps the messages that a worker logs, with their metadata.
struct LogRecorder: LogHandler {
    /// Shared by the copies that loggers make of a handler.
    final class Messages: Sendable {
        private let lines = Mutex<[(text: String, leftOut: Int)]>([])

        func append(_ text: String, leftOut: Int) { lines.withLock { $0.append((text, leftOut)) } }

        func count(containing text: String) -> Int {
            lines.withLock { $0.count { $0.text.contains(text) } }
        }

        /// Returns the number of notices that the lines with a text stand for: each line's own, and those left out.
        func notices(containing text: String) -> Int {
            lines.withLock { $0.reduce(0) { $0 + ($1.text.contains(text) ? 1 + $1.leftOut : 0) } }
        }
    }

    let messages = Messages()
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.error

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let metadata = event.metadata ?? [:]
        messages.append(
            "\(event.message) \(metadata)", leftOut: metadata["left-out"].flatMap { Int("\($0)") } ?? 0)
    }
}

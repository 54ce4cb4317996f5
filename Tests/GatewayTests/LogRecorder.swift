import Logging
import Synchronization

/// Keeps the messages that a worker logs, with their metadata.
struct LogRecorder: LogHandler {
    /// Shared by the copies that loggers make of a handler.
    final class Messages: Sendable {
        private let lines = Mutex<[String]>([])

        func append(_ line: String) { lines.withLock { $0.append(line) } }

        func count(containing text: String) -> Int {
            lines.withLock { $0.count { $0.contains(text) } }
        }
    }

    let messages = Messages()
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.error

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) { messages.append("\(event.message) \(event.metadata ?? [:])") }
}

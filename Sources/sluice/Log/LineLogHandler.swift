import Configuration
import Foundation
import Gateway
import Logging
import SluiceModel
import Synchronization

/// Writes log lines to standard error: text for people, or one JSON object each.
///
/// ```
/// 2026-11-21T03:12:45.123Z info    worker started apns=api.push.apple.com:443 shards=1
/// {"time":"2026-11-21T03:12:45.123Z","level":"info","message":"worker started","apns":"…","shards":"1"}
/// ```
///
/// JSON lines have no key twice. Fields whose key is the line's own get a prefix, as in `field.message`.
struct LineLogHandler: LogHandler {
    let format: Configuration.Log.Format
    /// Level of all copies of this handler.
    private let shared: LogLevel
    /// Level of this copy alone; nil: the shared one.
    private var own: Logger.Level?
    var logLevel: Logger.Level {
        get { own ?? shared.level }
        set { own = newValue }
    }
    var metadata: Logger.Metadata = [:]
    var metadataProvider: Logger.MetadataProvider?

    /// - Parameter level: level that may change later; nil: a constant one, the configuration's.
    init(_ configuration: Configuration.Log, level: LogLevel? = nil) {
        format = configuration.format
        shared = level ?? LogLevel(configuration)
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        // A single write keeps the lines of several threads apart.
        Terminal.error(line(event, at: LineLogHandler.timestamp()))
    }

    /// Returns the line of an event, without its line end.
    func line(_ event: LogEvent, at time: String) -> String {
        var fields = metadata
        if let provided = metadataProvider?.get() { fields.merge(provided) { $1 } }
        if let own = event.metadata { fields.merge(own) { $1 } }
        if let error = event.error { fields["error"] = "\(error)" }
        let sorted = fields.sorted { $0.key < $1.key }
        switch format {
        case .text:
            var line = "\(time) \(event.level.rawValue)"
            line +=
                String(repeating: " ", count: max(1, 8 - event.level.rawValue.count))
                + ForeignText.escaped(event.message.description)
            for (key, value) in sorted {
                line += " \(ForeignText.escaped(key))=\(LineLogHandler.quoted(value.description))"
            }
            return line
        case .json:
            var writer = ByteWriter()
            writer.append(text: "{\"time\":\"\(time)\",\"level\":\"\(event.level.rawValue)\",\"message\":")
            LineLogHandler.append(event.message.description, to: &writer)
            for (key, value) in sorted {
                writer.append(",")
                LineLogHandler.append(LineLogHandler.fieldName(key), to: &writer)
                writer.append(":")
                LineLogHandler.append(value.description, to: &writer)
            }
            writer.append("}")
            return ForeignText.escaped(String(decoding: writer.bytes, as: UTF8.self))
        }
    }

    private static let ownKeys: Set<String> = ["time", "level", "message"]
    private static let fieldPrefix = "field."

    /// Returns the key of a field in JSON. Keys that begin with the prefix get another prefix, so that two keys stay
    /// two.
    private static func fieldName(_ key: String) -> String {
        ownKeys.contains(key) || key.hasPrefix(fieldPrefix) ? fieldPrefix + key : key
    }

    private static func append(_ text: String, to writer: inout ByteWriter) {
        var text = text
        text.withUTF8 { writer.append(jsonString: UnsafeRawBufferPointer($0)) }
    }

    /// Quotes a value that would not be one word.
    private static func quoted(_ value: String) -> String {
        let isWord =
            !value.isEmpty
            && !value.unicodeScalars.contains {
                " \"=".unicodeScalars.contains($0) || ForeignText.isObeyed($0)
            }
        guard !isWord else { return value }
        let escaped = value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
        return "\"\(ForeignText.escaped(escaped))\""
    }

    /// Returns the time in RFC 3339, UTC, with milliseconds.
    private static func timestamp() -> String {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        var seconds = now.tv_sec
        var parts = tm()
        gmtime_r(&seconds, &parts)
        return String(
            format: "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900, parts.tm_mon + 1,
            parts.tm_mday,
            parts.tm_hour, parts.tm_min, parts.tm_sec, Int32(now.tv_nsec / 1_000_000))
    }
}

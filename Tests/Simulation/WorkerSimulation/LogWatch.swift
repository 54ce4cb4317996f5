import Logging

/// Log lines of a worker, some of which show mistakes that nothing else shows from outside.
// Sendable: one thread runs at a time, as `Scheduler` says.
struct LogWatch: LogHandler, @unchecked Sendable {
    private var next: any LogHandler
    /// Called when a connection is closed because its requests may not be sent any more.
    private let permitEnded: () -> Void

    init(_ next: any LogHandler, permitEnded: @escaping () -> Void) {
        self.next = next
        self.permitEnded = permitEnded
    }

    var logLevel: Logger.Level {
        get { min(next.logLevel, .warning) }
        set { next.logLevel = newValue }
    }

    var metadata: Logger.Metadata {
        get { next.metadata }
        set { next.metadata = newValue }
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { next[metadataKey: key] }
        set { next[metadataKey: key] = newValue }
    }

    func log(event: LogEvent) {
        if case .string(let reason)? = event.metadata?["reason"],
            reason.hasSuffix("process was stopped for too long")
        {
            permitEnded()
        }
        if event.level >= next.logLevel { next.log(event: event) }
    }
}

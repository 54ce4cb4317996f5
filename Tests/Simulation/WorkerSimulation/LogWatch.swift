import Logging

/// Log lines of a worker, some of which show mistakes that nothing else shows from outside.
// Sendable: one thread runs at a time, as `Scheduler` says.
struct LogWatch: LogHandler, @unchecked Sendable {
    private var next: any LogHandler
    private let seen: (Line) -> Void

    enum Line {
        /// A connection is closed because its requests may not be sent any more.
        case permitEnded
        /// A partition's pushes are sent before the uncommitted records from an offset on were read.
        case catchUpCut(partition: Int32, readTo: Int64)
        /// A worker ends without its last commit, and jobs with outcomes are processed again.
        case commitLeftOut
        /// Kafka takes a record in no form, and its partition waits for a restart of the worker.
        case partitionStopped
        /// Pushes of an app beyond its share begin to wait in the store.
        case parked
    }

    init(_ next: any LogHandler, seen: @escaping (Line) -> Void) {
        self.next = next
        self.seen = seen
    }

    var logLevel: Logger.Level {
        get { min(next.logLevel, .info) }
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
            seen(.permitEnded)
        }
        if let partition = event.metadata?["partition"], let readTo = event.metadata?["read-to"] {
            seen(.catchUpCut(partition: Int32("\(partition)") ?? -1, readTo: Int64("\(readTo)") ?? 0))
        }
        if event.level == .error, "\(event.message)".hasPrefix("the last offsets are not committed") {
            seen(.commitLeftOut)
        }
        if event.level == .error, "\(event.message)".hasPrefix("a partition stopped") {
            seen(.partitionStopped)
        }
        if event.level == .warning, "\(event.message)".hasSuffix("its pushes wait in the store") {
            seen(.parked)
        }
        if event.level >= next.logLevel { next.log(event: event) }
    }
}

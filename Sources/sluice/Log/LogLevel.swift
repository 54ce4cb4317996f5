import Configuration
import Logging
import Synchronization

/// Level of a process's log, which an operator may change. Any thread.
final class LogLevel: Sendable {
    private let value: Atomic<Int>

    init(_ configuration: Configuration.Log) {
        value = Atomic(Self.index(Logger.Level(rawValue: configuration.level.rawValue) ?? .info))
    }

    var level: Logger.Level { Logger.Level.allCases[value.load(ordering: .relaxed)] }

    /// Sets the level by its name. Returns false when there is no such level.
    func set(_ name: String) -> Bool {
        guard Self.names.contains(name), let level = Logger.Level(rawValue: name) else { return false }
        value.store(Self.index(level), ordering: .relaxed)
        return true
    }

    /// Names of the levels that the setting `log.level` has, from the most detailed.
    static let names = Configuration.Log.Level.allCases.map(\.rawValue)

    private static func index(_ level: Logger.Level) -> Int {
        Logger.Level.allCases.firstIndex(of: level) ?? 0
    }
}

import DeliveryCore
import Gateway

/// Switches of a worker, as the admin endpoint uses them. All closures may be called on any thread.
public struct SwitchControl: Sendable {
    /// Returns the state of the switches.
    public var status: @Sendable () -> SwitchStatus
    /// Returns the reason for which a scope can't be paused; nil when it can.
    public var problem: @Sendable (PauseScope) -> String?
    /// Pauses or resumes a scope. The last argument is called once, on any thread.
    public var change:
        @Sendable (
            _ scope: PauseScope, _ isPaused: Bool, _ by: String, _ note: String,
            _ completion: @escaping @Sendable (SwitchChange) -> Void
        ) -> Void

    public init(
        status: @escaping @Sendable () -> SwitchStatus, problem: @escaping @Sendable (PauseScope) -> String?,
        change:
            @escaping @Sendable (
                PauseScope, Bool, String, String, @escaping @Sendable (SwitchChange) -> Void
            ) -> Void
    ) {
        self.status = status
        self.problem = problem
        self.change = change
    }

    /// Uses the switches of a worker.
    init(_ worker: Worker) {
        self.init(
            status: { worker.switches.status }, problem: { worker.problem(of: $0) },
            change: { worker.switches.change($0, isPaused: $1, by: $2, note: $3, completion: $4) })
    }
}

/// Commands to the process as a whole. All closures may be called on any thread.
public struct ProcessControl: Sendable {
    /// Begins an orderly stop, as SIGTERM does.
    public var drain: @Sendable () -> Void
    /// Level of the log from now on, by its name; returns false for an unknown name.
    public var setLogLevel: @Sendable (String) -> Bool
    /// Returns the name of the log's level.
    public var logLevel: @Sendable () -> String
    /// Names of the log's levels, from the most detailed.
    public var logLevels: [String]

    public init(
        drain: @escaping @Sendable () -> Void, logLevels: [String],
        logLevel: @escaping @Sendable () -> String, setLogLevel: @escaping @Sendable (String) -> Bool
    ) {
        self.drain = drain
        self.logLevels = logLevels
        self.logLevel = logLevel
        self.setLogLevel = setLogLevel
    }
}

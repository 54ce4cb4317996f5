/// A simulated process: loops that are suspended and killed together, and a wall clock of its own.
// Sendable: as `Scheduler`.
public final class SimulatedProcess: @unchecked Sendable {
    /// Name in reports.
    public let name: String
    /// Milliseconds by which the process's wall clock deviates.
    public var wallDeviation: Int64 = 0
    public private(set) var isAlive = true
    /// Time at which a suspended process runs again; 0 for one that isn't suspended.
    public private(set) var suspendedUntil: UInt64 = 0
    /// Weak, because a loop that was never started ends with its owner.
    private struct Member { weak var loop: EventLoop? }
    private var members: [Member] = []
    /// Acts of the system at the process's death, as the end of its sockets.
    private var deathHandlers: [() -> Void] = []

    public init(_ name: String) { self.name = name }

    /// Calls `body` once the process is killed, after its last instruction.
    public func atDeath(_ body: @escaping () -> Void) { deathHandlers.append(body) }

    /// Runs `body` as code of the process, outside of its loops.
    public func run<Result, Failure>(_ body: () throws(Failure) -> Result) throws(Failure) -> Result {
        try Scheduler.current.run(as: self, body)
    }

    /// Ends the process at once: nothing of it runs any more. Code that is blocked on the stack returns from its wait, and
    /// finds that the process is dead.
    public func kill() {
        isAlive = false
        for member in members { member.loop?.kill() }
        members = []
        for handler in deathHandlers { handler() }
        deathHandlers = []
    }

    /// Suspends all loops until a time, as `SIGSTOP` or a slow machine does. Time goes on.
    public func suspend(until time: UInt64) {
        suspendedUntil = max(suspendedUntil, time)
        for member in members { member.loop?.delay(until: time) }
    }

    func adopt(_ loop: EventLoop) {
        members.removeAll { $0.loop == nil }
        members.append(Member(loop: loop))
    }
}

/// A flag whose wait blocks a simulated thread while all others run.
// Sendable: as `Scheduler`.
public final class BlockingFlag: @unchecked Sendable {
    private var isSet = false

    public init() {}

    public func set() { isSet = true }

    public func wait() { Scheduler.current.block { isSet } }

    public func wait(seconds: Int) -> Bool { wait(milliseconds: seconds * 1000) }

    public func wait(milliseconds: Int) -> Bool {
        let scheduler = Scheduler.current
        return scheduler.block(until: scheduler.now &+ UInt64(max(0, milliseconds)) * 1_000_000) { isSet }
    }
}

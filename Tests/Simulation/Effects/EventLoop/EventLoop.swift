import Metrics

/// A simulated event loop: the interface of the real module's loop, over the virtual time of a ``Scheduler``. The order of
/// a turn is the same: readiness, inbox, timers, then the handlers of the turn's end.
// Sendable: as `Scheduler`.
public final class EventLoop: @unchecked Sendable {
    /// Name of the loop.
    public let name: String
    let process: SimulatedProcess?
    private unowned let scheduler: Scheduler

    /// Time of the next turn; `.max` while nothing is to be done, and before the start.
    private(set) var wakesAt = UInt64.max
    /// Whether a turn of the loop is under way, maybe in a blocking call.
    private(set) var isOnStack = false
    private(set) var hasEnded = false
    private var hasStarted = false
    private var isStopping = false
    private var inbox: [@Sendable () -> Void] = []

    private struct Slot {
        var descriptor: Int32 = -1
        var generation: UInt32 = 0
        var interest: Readiness = []
        var handler: (any ReadinessHandler)?
        var isQueued = false
    }
    private var slots: [Slot] = []
    private var freeSlots: [Int] = []
    /// Slots whose descriptors may be ready.
    private var ready: [Int] = []
    private var timers = TimerHeap()
    private var turnEnd: [any TurnEndHandler] = []

    /// Time at the start of the current turn, or of the last ``refreshNow()``.
    public private(set) var now: MonotonicTime

    public init(name: String) throws(SystemError) {
        self.name = name
        scheduler = Scheduler.current
        process = scheduler.process
        now = MonotonicTime(nanoseconds: scheduler.now)
        process?.adopt(self)
    }

    // MARK: Any thread

    /// Lets the loop run. Call once.
    public func start() {
        precondition(!hasStarted, "event loop \(name) was started twice")
        hasStarted = true
        guard process?.isAlive != false else {
            hasEnded = true
            return
        }
        scheduler.started(self)
        wake()
    }

    @discardableResult
    public func execute(_ work: @escaping @Sendable () -> Void) -> Bool {
        guard !hasEnded, process?.isAlive != false else { return false }
        inbox.append(work)
        wake()
        return true
    }

    public func stop() {
        isStopping = true
        wake()
    }

    /// Waits until the loop has ended.
    public func join() {
        guard hasStarted else { return }
        scheduler.block { hasEnded }
    }

    public func runBlocking<T: Sendable>(_ body: @escaping @Sendable () -> T) -> T {
        guard let result = runBlockingIfRunning(body) else {
            preconditionFailure("event loop \(name) has ended")
        }
        return result
    }

    public func runBlockingIfRunning<T: Sendable>(_ body: @escaping @Sendable () -> T) -> T? {
        let answer = BlockingAnswer<T>()
        return execute { answer.set(body()) } ? answer.wait() : nil
    }

    // MARK: The loop's thread

    public var isCurrent: Bool { scheduler.isRunning(self) }

    public func usage() -> LoopUsage { LoopUsage(name: name, busy: 0, turns: HistogramSnapshot()) }

    public func refreshNow() { now = MonotonicTime(nanoseconds: scheduler.now) }

    public func register(
        _ fileDescriptor: Int32, interest: Readiness, handler: any ReadinessHandler
    ) throws(SystemError) -> Registration {
        let slot = freeSlots.popLast() ?? slots.count
        if slot == slots.count { slots.append(Slot()) }
        guard scheduler.watch(fileDescriptor, (self, slot)) else {
            freeSlots.append(slot)
            throw SystemError(call: "epoll_ctl", code: 9)
        }
        slots[slot].descriptor = fileDescriptor
        slots[slot].interest = interest
        slots[slot].handler = handler
        readinessChanged(slot)
        return Registration(slot: Int32(slot), generation: slots[slot].generation)
    }

    public func modify(_ registration: Registration, interest: Readiness) {
        guard isLive(registration) else { return }
        slots[Int(registration.slot)].interest = interest
        readinessChanged(Int(registration.slot))
    }

    public func deregister(_ registration: Registration) {
        guard isLive(registration) else { return }
        let slot = Int(registration.slot)
        _ = scheduler.watch(slots[slot].descriptor, nil)
        slots[slot].handler = nil
        slots[slot].descriptor = -1
        slots[slot].generation &+= 1
        freeSlots.append(slot)
    }

    package var timerCount: Int { timers.count }

    @discardableResult
    public func schedule(at deadline: MonotonicTime, handler: any TimerHandler) -> TimerID {
        defer { wakeForTimers() }
        return timers.insert(deadline: deadline.nanoseconds, handler: handler)
    }

    @discardableResult
    public func schedule(after delay: Duration, handler: any TimerHandler) -> TimerID {
        schedule(at: now + delay, handler: handler)
    }

    public func cancel(_ timer: TimerID) { timers.cancel(timer) }

    public func atTurnEnd(_ handler: any TurnEndHandler) {
        turnEnd.append(handler)
        // Outside of a turn, as by a caller in the world, the end of the next turn is meant.
        if !isOnStack { wake() }
    }

    public func makeWakeup(_ handler: @escaping () -> Void) throws(SystemError) -> Wakeup {
        let wakeup = Wakeup(handler: handler)
        _ = try register(wakeup.signalDescriptor, interest: .read, handler: wakeup)
        return wakeup
    }

    // MARK: The scheduler

    /// Runs one turn.
    func turn() {
        isOnStack = true
        wakesAt = .max
        refreshNow()
        // Other threads may signal after the loop has asked the kernel, and before it takes its inbox.
        let isLate = !inbox.isEmpty && !ready.isEmpty && scheduler.below(8) == 0
        if !isLate { handleReadiness() }
        runInbox()
        while !hasEnded, let (id, handler) = timers.popDue(now: now.nanoseconds) { handler.timerFired(id) }
        var index = 0
        while !hasEnded, index < turnEnd.count {
            turnEnd[index].turnEnded()
            index += 1
        }
        turnEnd.removeAll(keepingCapacity: true)
        isOnStack = false
        if isStopping, !hasEnded {
            while !inbox.isEmpty { runInbox() }
            end()
        }
        if hasEnded { return clear() }
        if !inbox.isEmpty || !self.ready.isEmpty { wake() }
        wakeForTimers()
        if let process, process.suspendedUntil > scheduler.now { delay(until: process.suspendedUntil) }
    }

    /// A descriptor's readiness or the interest in it has changed.
    func readinessChanged(_ slot: Int) {
        guard !slots[slot].isQueued, !reported(slot).isEmpty else { return }
        slots[slot].isQueued = true
        ready.append(slot)
        wake()
    }

    func kill() {
        end()
        if !isOnStack { clear() }
    }

    func delay(until time: UInt64) {
        if wakesAt < time { wakesAt = time }
    }

    // MARK: Inside

    private func handleReadiness() {
        let ready = ready
        self.ready.removeAll(keepingCapacity: true)
        for slot in ready { slots[slot].isQueued = false }
        for slot in ready {
            let readiness = reported(slot)
            guard !readiness.isEmpty, let handler = slots[slot].handler else { continue }
            handler.ready(readiness)
            if !hasEnded { readinessChanged(slot) }
        }
    }

    private func runInbox() {
        let work = inbox
        inbox.removeAll()
        for item in work where process?.isAlive != false { item() }
    }

    private func reported(_ slot: Int) -> Readiness {
        guard slots[slot].handler != nil else { return [] }
        return scheduler.readiness(of: slots[slot].descriptor)
            .intersection(slots[slot].interest.union([.hangup, .error]))
    }

    private func wake() {
        guard hasStarted, !hasEnded, !isOnStack else { return }
        wakesAt = min(wakesAt, scheduler.turnTime())
        if let process { delay(until: process.suspendedUntil) }
    }

    private func wakeForTimers() {
        guard hasStarted, !hasEnded, !isOnStack, let deadline = timers.nextDeadline(), deadline < wakesAt
        else {
            return
        }
        wakesAt = min(wakesAt, max(deadline, scheduler.turnTime()))
        if let process { delay(until: process.suspendedUntil) }
    }

    private func end() {
        hasEnded = true
        wakesAt = .max
        scheduler.ended(self)
    }

    /// Drops handlers and work, whose owners may end with that.
    private func clear() {
        let (slots, work, handlers) = (slots, inbox, turnEnd)
        for slot in self.slots.indices {
            if self.slots[slot].handler != nil { _ = scheduler.watch(self.slots[slot].descriptor, nil) }
            self.slots[slot].handler = nil
        }
        inbox = []
        turnEnd = []
        timers = TimerHeap()
        withExtendedLifetime((slots, work, handlers)) {}
    }

    private func isLive(_ registration: Registration) -> Bool {
        let index = Int(registration.slot)
        return index < slots.count && slots[index].generation == registration.generation
            && slots[index].handler != nil
    }
}

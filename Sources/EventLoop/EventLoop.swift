import CEpoll
import Glibc
import Metrics
import Synchronization

/// A thread that waits with epoll for descriptors, timers and work from other threads, and runs their handlers one
/// after another. The order of a turn is: wait, readiness, inbox, timers, then the handlers of the turn's end, which
/// gather writes.
// Sendable: only the loop's own thread uses the state, except for the inbox, the stop flag, the thread's lock and its
// identity, which are made for several threads. Other threads may use the state before `start()`.
public final class EventLoop: @unchecked Sendable {
    /// Name of the loop and its thread.
    public let name: String

    private let epoll: Int32
    private let wakeDescriptor: Int32

    private struct Inbox {
        var work: [@Sendable () -> Void] = []
        var wakePending = false
        var ended = false
    }
    private let inbox = Mutex(Inbox())
    private let stopping = Atomic<Bool>(false)
    private let thread = Mutex<pthread_t?>(nil)
    /// The loop's thread while it runs, 0 otherwise; any thread reads it. The thread itself sees its own store, and
    /// another thread never finds itself there.
    private let owner = Atomic<UInt>(0)

    private struct Slot {
        var fileDescriptor: Int32 = -1
        var generation: UInt32 = 0
        var handler: (any ReadinessHandler)?
    }
    private var slots: [Slot] = []
    private var freeSlots: [Int32] = []
    private var timers = TimerHeap()
    private var turnEnd: [any TurnEndHandler] = []

    private var busyNanoseconds: UInt64 = 0
    private let turns = ExponentialHistogram()

    private static let wakeToken = UInt64.max
    private static let eventsPerTurn = 256

    /// Time at the start of the current turn, or of the last ``refreshNow()``. Loop's thread only.
    public private(set) var now = MonotonicTime.read()

    /// - Parameter name: Name of the thread; the system's tools show at most 15 bytes.
    /// - Throws: if the system cannot create an epoll or eventfd descriptor.
    public init(name: String) throws(SystemError) {
        self.name = name
        epoll = epoll_create1(Int32(EPOLL_CLOEXEC))
        guard epoll >= 0 else { throw SystemError(call: "epoll_create1") }
        wakeDescriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        // From here on all properties have values, so that `deinit` closes the descriptors of a failed loop.
        guard wakeDescriptor >= 0 else { throw SystemError(call: "eventfd") }
        var event = epoll_event()
        event.events = EPOLLIN.rawValue
        event.data.u64 = Self.wakeToken
        guard epoll_ctl(epoll, EPOLL_CTL_ADD, wakeDescriptor, &event) == 0 else {
            throw SystemError(call: "epoll_ctl")
        }
    }

    deinit {
        close(epoll)
        if wakeDescriptor >= 0 { close(wakeDescriptor) }
    }

    // MARK: Any thread

    /// Starts the thread. Call once.
    public func start() {
        // A closed connection must be an error of the write, not the end of the process.
        signal(SIGPIPE, SIG_IGN)
        thread.withLock { thread in
            precondition(thread == nil, "event loop \(name) was started twice")
            var created = pthread_t()
            let context = Unmanaged.passRetained(self).toOpaque()
            let result = pthread_create(
                &created, nil,
                { context in
                    Unmanaged<EventLoop>.fromOpaque(context!).takeRetainedValue().runThread()
                    return nil
                }, context)
            precondition(result == 0, "pthread_create failed with \(result)")
            thread = created
        }
    }

    /// Runs `work` on the loop's thread, in the order of the calls. Returns false if the loop has ended; `work` then
    /// never runs.
    @discardableResult
    public func execute(_ work: @escaping @Sendable () -> Void) -> Bool {
        let (accepted, wake) = inbox.withLock { inbox in
            guard !inbox.ended else { return (false, false) }
            inbox.work.append(work)
            let wake = !inbox.wakePending
            inbox.wakePending = true
            return (true, wake)
        }
        if wake { writeWake() }
        return accepted
    }

    /// Ends the thread after its current turn; the inbox is still run.
    public func stop() {
        stopping.store(true, ordering: .releasing)
        writeWake()
    }

    /// Waits until the thread has ended. Not from the loop's own thread.
    public func join() {
        let waiting = thread.withLock { thread -> pthread_t? in
            defer { thread = nil }
            return thread
        }
        if let waiting { pthread_join(waiting, nil) }
    }

    /// Runs `body` on the loop and returns its result to the awaiting task. The loop must be running.
    public func run<T: Sendable>(_ body: @escaping @Sendable () -> T) async -> T {
        await withCheckedContinuation { continuation in
            let accepted = execute { continuation.resume(returning: body()) }
            precondition(accepted, "event loop \(name) has ended")
        }
    }

    /// Runs `body` on the loop and waits for its result. The loop must be running. Not from the loop's own thread.
    public func runBlocking<T: Sendable>(_ body: @escaping @Sendable () -> T) -> T {
        guard let result = runBlockingIfRunning(body) else {
            preconditionFailure("event loop \(name) has ended")
        }
        return result
    }

    /// Runs `body` as ``runBlocking(_:)`` does, on a loop that may have ended; returns nil if the loop has ended.
    public func runBlockingIfRunning<T: Sendable>(_ body: @escaping @Sendable () -> T) -> T? {
        let answer = BlockingAnswer<T>()
        return execute { answer.set(body()) } ? answer.wait() : nil
    }

    // MARK: The loop's thread

    /// Whether the caller is on the loop's thread.
    public var isCurrent: Bool { owner.load(ordering: .relaxed) == UInt(pthread_self()) }

    /// Returns how busy the thread has been. Loop's thread only.
    public func usage() -> LoopUsage {
        LoopUsage(name: name, busy: Double(busyNanoseconds) / 1e9, turns: turns.snapshot())
    }

    /// Reads the clock again, for code that has worked long within a turn.
    public func refreshNow() {
        now = MonotonicTime.read()
    }

    /// Watches `fileDescriptor`, level-triggered. The loop keeps the handler until ``deregister(_:)``, which must
    /// precede the closing of the descriptor. Loop's thread only, or before ``start()``.
    /// - Throws: if epoll refuses the descriptor.
    public func register(
        _ fileDescriptor: Int32, interest: Readiness, handler: any ReadinessHandler
    ) throws(SystemError) -> Registration {
        let slot: Int32
        if let free = freeSlots.popLast() {
            slot = free
        } else {
            slot = Int32(slots.count)
            slots.append(Slot())
        }
        let index = Int(slot)
        slots[index].fileDescriptor = fileDescriptor
        slots[index].handler = handler
        let registration = Registration(slot: slot, generation: slots[index].generation)
        guard control(EPOLL_CTL_ADD, registration, fileDescriptor, interest) else {
            let error = SystemError(call: "epoll_ctl")
            release(slot)
            throw error
        }
        return registration
    }

    /// Changes the readiness that the descriptor is watched for.
    public func modify(_ registration: Registration, interest: Readiness) {
        guard isLive(registration) else { return }
        _ = control(EPOLL_CTL_MOD, registration, slots[Int(registration.slot)].fileDescriptor, interest)
    }

    /// Ends the watch. Events already fetched for it are dropped.
    public func deregister(_ registration: Registration) {
        guard isLive(registration) else { return }
        _ = epoll_ctl(epoll, EPOLL_CTL_DEL, slots[Int(registration.slot)].fileDescriptor, nil)
        release(registration.slot)
    }

    /// Number of timers that have neither fired nor been cancelled. Loop's thread.
    package var timerCount: Int { timers.count }

    /// Calls `handler` once, at or soon after `deadline`. The system's timers are late by some 50 µs, or by up to a
    /// millisecond on kernels before 5.11.
    @discardableResult
    public func schedule(at deadline: MonotonicTime, handler: any TimerHandler) -> TimerID {
        timers.insert(deadline: deadline.nanoseconds, handler: handler)
    }

    /// Calls `handler` once, `delay` from now.
    @discardableResult
    public func schedule(after delay: Duration, handler: any TimerHandler) -> TimerID {
        schedule(at: now + delay, handler: handler)
    }

    /// Cancels the timer; without effect when the timer has fired.
    public func cancel(_ timer: TimerID) {
        timers.cancel(timer)
    }

    /// Calls `handler` once at the end of this turn. The caller ensures at most one call per turn.
    public func atTurnEnd(_ handler: any TurnEndHandler) {
        turnEnd.append(handler)
    }

    /// Creates a wakeup for other threads; the loop keeps it for its lifetime.
    /// - Throws: if the system cannot create or watch the descriptor.
    public func makeWakeup(_ handler: @escaping () -> Void) throws(SystemError) -> Wakeup {
        let wakeup = try Wakeup(handler: handler)
        try wakeup.attach(to: self)
        return wakeup
    }

    // MARK: Inside

    private func runThread() {
        var signals = sigset_t()
        sigfillset(&signals)
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        sluice_set_thread_name(name)
        owner.store(UInt(pthread_self()), ordering: .relaxed)
        withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: Self.eventsPerTurn) { events in
            var end = MonotonicTime.read()
            while !stopping.load(ordering: .acquiring) { end = turn(events, after: end) }
        }
        // Runs accepted work, so that no thread waits for an answer that never comes.
        while runInbox(ending: true) {}
        for slot in slots.indices { slots[slot].handler = nil }
        turnEnd.removeAll()
        timers = TimerHeap()
        // A later thread can get the same identity.
        owner.store(0, ordering: .relaxed)
    }

    /// - Parameter before: end of the turn before.
    /// - Returns: the turn's end.
    private func turn(
        _ events: UnsafeMutableBufferPointer<epoll_event>, after before: MonotonicTime
    ) -> MonotonicTime {
        let count = sluice_epoll_wait(
            epoll, events.baseAddress, Int32(events.count), waitNanoseconds(at: before))
        refreshNow()
        let start = now
        var wake = false
        if count > 0 {
            for index in 0..<Int(count) {
                let event = events[index]
                if event.data.u64 == Self.wakeToken {
                    wake = true
                    continue
                }
                let registration = Registration(packed: event.data.u64)
                guard isLive(registration), let handler = slots[Int(registration.slot)].handler else {
                    continue
                }
                handler.ready(Readiness(epollEvents: event.events))
            }
        }
        if wake {
            var value: UInt64 = 0
            _ = read(wakeDescriptor, &value, 8)
            _ = runInbox(ending: false)
        }
        while let (id, handler) = timers.popDue(now: now.nanoseconds) {
            handler.timerFired(id)
        }
        var index = 0
        while index < turnEnd.count {
            turnEnd[index].turnEnded()
            index += 1
        }
        turnEnd.removeAll(keepingCapacity: true)
        let end = MonotonicTime.read()
        let worked = end.nanoseconds(since: start)
        busyNanoseconds &+= worked
        turns.record(nanoseconds: worked)
        return end
    }

    private func waitNanoseconds(at time: MonotonicTime) -> Int64 {
        guard let deadline = timers.nextDeadline() else { return -1 }
        guard deadline > time.nanoseconds else { return 0 }
        return Int64(min(deadline - time.nanoseconds, 60_000_000_000))
    }

    private func runInbox(ending: Bool) -> Bool {
        let work = inbox.withLock { inbox in
            let work = inbox.work
            inbox.work = []
            inbox.wakePending = false
            if ending, work.isEmpty { inbox.ended = true }
            return work
        }
        for item in work { item() }
        return !work.isEmpty
    }

    private func writeWake() {
        var one: UInt64 = 1
        _ = write(wakeDescriptor, &one, 8)
    }

    private func isLive(_ registration: Registration) -> Bool {
        let index = Int(registration.slot)
        return index < slots.count && slots[index].generation == registration.generation
            && slots[index].handler != nil
    }

    private func release(_ slot: Int32) {
        slots[Int(slot)].handler = nil
        slots[Int(slot)].fileDescriptor = -1
        slots[Int(slot)].generation &+= 1
        freeSlots.append(slot)
    }

    private func control(
        _ operation: Int32, _ registration: Registration, _ fileDescriptor: Int32, _ interest: Readiness
    ) -> Bool {
        var event = epoll_event()
        event.events = interest.epollEvents
        event.data.u64 = registration.packed
        return epoll_ctl(epoll, operation, fileDescriptor, &event) == 0
    }
}

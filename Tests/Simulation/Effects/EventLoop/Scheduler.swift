import Glibc
import HeapModule
import SluiceModel

/// The deterministic scheduler of a simulation: virtual time, simulated processes with their loops, and the events of
/// the world around them. All choices come from the seed.
///
/// One thread at a time runs a simulation. The thread that drives takes the steps; once a turn blocks, another thread drives
/// until the turn's wait is over. The modules under test find their simulation by ``current``.
// Sendable: the threads of a simulation run in turns, which the semaphores of `SimulatedThread` order.
public final class Scheduler: @unchecked Sendable {
    /// Generator of the simulation's choices.
    public var random: SeededGenerator
    /// Nanoseconds of the monotonic clock.
    public private(set) var now: UInt64 = 1_000_000_000
    /// Milliseconds of the wall clock at monotonic time 0, without a process's own deviation.
    public var wallMilliseconds: Int64 = 1_800_000_000_000
    /// Turns of loops and events of the world so far.
    public private(set) var steps = 0
    /// Most nanoseconds from a loop's wakeup to its turn.
    public var latency: UInt64 = 50_000

    private struct Event: Comparable {
        var at: UInt64
        var order: UInt64
        var body: () -> Void

        static func == (left: Event, right: Event) -> Bool { left.order == right.order }
        static func < (left: Event, right: Event) -> Bool {
            left.at != right.at ? left.at < right.at : left.order < right.order
        }
    }

    private var events = Heap<Event>()
    private var nextOrder: UInt64 = 0
    private var loops: [EventLoop] = []
    /// The loop whose turn runs; nil outside of turns.
    private var running: EventLoop?
    /// Process of code outside of the loops; see ``SimulatedProcess/run(_:)``.
    private var outside: SimulatedProcess?
    /// The thread that the simulation belongs to. It drives whenever it isn't blocked.
    private let main = SimulatedThread {}
    /// The thread that takes the steps.
    private var driver: SimulatedThread
    /// The thread that runs between two steps, while the driver waits for it; nil while the driver runs.
    private var thread: SimulatedThread?
    /// Threads that are blocked, and the one that runs between two steps.
    private var threads: [SimulatedThread] = []
    /// Former drivers, which have nothing to do.
    private var idle: [SimulatedThread] = []
    private var isEnding = false
    private var descriptors: [Int32: Descriptor] = [:]
    private var nextDescriptor: Int32 = 1_000_000
    /// Parts of the world by type, as the network, which code under test finds by the scheduler.
    public var parts: [ObjectIdentifier: AnyObject] = [:]

    public init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        driver = main
    }

    // MARK: The thread's simulation

    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        let code = pthread_key_create(&key, nil)
        precondition(code == 0, "pthread_key_create failed with \(code)")
        return key
    }()

    /// The simulation of this thread, within ``run(_:)``.
    public static var current: Scheduler {
        guard let current = currentIfAny else { preconditionFailure("no simulation runs on this thread") }
        return current
    }

    /// The same, nil outside of ``run(_:)``.
    public static var currentIfAny: Scheduler? {
        pthread_getspecific(key).map { Unmanaged<Scheduler>.fromOpaque($0).takeUnretainedValue() }
    }

    /// Makes the simulation the thread's own for the time of `body`.
    public func run<Result, Failure>(_ body: () throws(Failure) -> Result) throws(Failure) -> Result {
        let before = pthread_getspecific(Self.key)
        pthread_setspecific(Self.key, Unmanaged.passUnretained(self).toOpaque())
        defer { pthread_setspecific(Self.key, before) }
        return try body()
    }

    // MARK: Time

    /// Runs `body` at a time, after what was planned for the same time before.
    public func schedule(at time: UInt64, _ body: @escaping () -> Void) {
        nextOrder += 1
        events.insert(Event(at: max(time, now), order: nextOrder, body: body))
    }

    public func schedule(after nanoseconds: UInt64, _ body: @escaping () -> Void) {
        schedule(at: now &+ nanoseconds, body)
    }

    /// Runs the next turn or event that begins before `limit`.
    /// - Returns: false if there is none; the time is then `limit`, unless that is `.max`.
    public func step(before limit: UInt64 = .max) -> Bool {
        resumeThreads()
        if isEnding { return false }
        var next: EventLoop?
        for loop in loops where loop.wakesAt < (next?.wakesAt ?? limit) && !loop.isOnStack { next = loop }
        if let event = events.min, event.at < limit, event.at <= (next?.wakesAt ?? .max) {
            now = max(now, event.at)
            steps += 1
            // Code of the world belongs to no process.
            let before = outside
            outside = nil
            events.removeMin().body()
            outside = before
            return true
        }
        guard let next else {
            if limit != .max { now = max(now, limit) }
            return false
        }
        now = max(now, next.wakesAt)
        steps += 1
        running = next
        next.turn()
        running = nil
        if next.hasEnded { loops.removeAll { $0 === next } }
        return true
    }

    /// Runs everything that begins before `limit`.
    public func run(until limit: UInt64) {
        while step(before: limit) {}
    }

    /// Blocks the caller, which may be a loop, while all others run.
    /// - Parameters:
    ///   - limit: time at which the wait ends; `.max` waits without limit, and nothing left to run is then a deadlock.
    ///   - isDone: condition that ends the wait. The death of the caller's process ends the wait as well.
    /// - Returns: whether the condition holds.
    @discardableResult
    public func block(until limit: UInt64 = .max, _ isDone: () -> Bool = { false }) -> Bool {
        let process = process
        while true {
            guard process?.isAlive != false, !isEnding else { return false }
            // A suspended process learns of nothing.
            let resumesAt = process?.suspendedUntil ?? 0
            if now >= resumesAt {
                if isDone() { return true }
                if now >= limit { return false }
            }
            let next = now < resumesAt ? resumesAt : limit
            if next != .max { schedule(at: next) {} }
            // The thread is parked for as long as its wait's condition lives.
            withoutActuallyEscaping(isDone) {
                park(SimulatedThread.Wait(process: process, limit: next, isDone: $0))
            }
        }
    }

    /// Delays the caller, as a call does that takes time.
    public func sleep(_ nanoseconds: UInt64) { block(until: now &+ nanoseconds) }

    /// Kills all processes and drops what is planned, so that nothing of the simulation stays in memory.
    public func end() {
        for process in threads.compactMap(\.wait.process) + loops.compactMap(\.process) { process.kill() }
        isEnding = true
        while !threads.isEmpty { resumeThreads() }
        for thread in idle { thread.resume() }
        isEnding = false
        idle = []
        for loop in loops { loop.kill() }
        // What is dropped may close descriptors in turn.
        let dropped = (events, parts, descriptors)
        (events, parts, descriptors) = (Heap(), [:], [:])
        withExtendedLifetime(dropped) {}
    }

    // MARK: Threads

    /// Runs `body` from now on as a thread of the process, which may block.
    public func startThread(of process: SimulatedProcess?, _ body: @escaping () -> Void) {
        let thread = SimulatedThread(SimulatedThread.Wait(process: process), body)
        thread.start(in: self)
        threads.append(thread)
    }

    /// Blocks the thread that runs. The driver goes on; the driver itself is replaced.
    private func park(_ wait: SimulatedThread.Wait) {
        let (loop, before) = (running, outside)
        if let thread {
            thread.park(wait)
        } else {
            let blocked = driver
            threads.append(blocked)
            driver = idle.popLast() ?? makeDriver()
            (running, outside) = (nil, nil)
            blocked.park(wait, runs: driver)
        }
        (running, outside) = (loop, before)
    }

    private func makeDriver() -> SimulatedThread {
        let thread = SimulatedThread { [unowned self] in drive() }
        thread.start(in: self)
        return thread
    }

    /// Takes steps on a thread of its own.
    private func drive() {
        while !isEnding {
            if let thread {
                // The turn that blocked this thread is over, and another thread drives meanwhile.
                threads.removeAll { $0 === thread }
                idle.append(thread)
                thread.park()
            } else if !step(), !isEnding {
                preconditionFailure("a simulated thread waits for ever, because nothing else runs")
            }
        }
    }

    /// Lets threads run whose waits are over. Called by the driver before each step.
    private func resumeThreads() {
        // A thread that runs may end the wait of another.
        while let each = threads.first(where: { isEnding || $0.wait.isOver(at: now) }) {
            if each === main {
                threads.removeAll { $0 === main }
                let former = driver
                idle.append(former)
                driver = main
                former.park(runs: main)
                continue
            }
            let before = outside
            (running, outside, thread) = (nil, each.wait.process, each)
            each.resume()
            (running, outside, thread) = (nil, before, nil)
            if each.hasEnded { threads.removeAll { $0 === each } }
        }
    }

    // MARK: Processes and loops

    /// Process of the code that runs; nil for the world outside.
    public var process: SimulatedProcess? { running?.process ?? outside }

    func run<Result, Failure>(
        as process: SimulatedProcess, _ body: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let before = outside
        outside = process
        defer { outside = before }
        return try body()
    }

    func started(_ loop: EventLoop) { loops.append(loop) }

    func ended(_ loop: EventLoop) {
        if !loop.isOnStack { loops.removeAll { $0 === loop } }
    }

    func isRunning(_ loop: EventLoop) -> Bool { running === loop }

    /// A number of 0..<`count`, which must be above 0.
    public func below(_ count: UInt64) -> UInt64 { UInt64.random(in: 0..<count, using: &random) }

    /// Time of the turn that a wakeup now brings to a loop.
    func turnTime() -> UInt64 { now &+ 1_000 &+ (latency > 0 ? below(latency) : 0) }

    // MARK: Descriptors

    private struct Descriptor {
        var readiness: Readiness = []
        var watch: (loop: EventLoop, slot: Int)?
    }

    /// Makes a descriptor, which is ready for nothing.
    public func openDescriptor() -> Int32 {
        nextDescriptor += 1
        descriptors[nextDescriptor] = Descriptor()
        return nextDescriptor
    }

    /// Sets what the descriptor is ready for; its watcher is told as by a level-triggered epoll. A closed descriptor is
    /// left alone.
    public func setReadiness(_ readiness: Readiness, of descriptor: Int32) {
        guard var entry = descriptors[descriptor] else { return }
        entry.readiness = readiness
        descriptors[descriptor] = entry
        entry.watch?.loop.readinessChanged(entry.watch!.slot)
    }

    public func readiness(of descriptor: Int32) -> Readiness { descriptors[descriptor]?.readiness ?? [] }

    public func closeDescriptor(_ descriptor: Int32) {
        // The loop that watched it may end with that, and close others.
        let closed = descriptors.removeValue(forKey: descriptor)
        withExtendedLifetime(closed) {}
    }

    /// - Returns: false if the descriptor is closed.
    func watch(_ descriptor: Int32, _ watch: (loop: EventLoop, slot: Int)?) -> Bool {
        guard descriptors[descriptor] != nil else { return false }
        descriptors[descriptor]!.watch = watch
        return true
    }
}

import Glibc
import HeapModule
import SluiceModel

/// The deterministic scheduler of a simulation: virtual time, simulated processes with their loops, and the events of
/// the world around them. All choices come from the seed.
///
/// One thread runs a simulation. The modules under test find their simulation by ``current``.
// Sendable: one thread has the simulation; code under test captures it in closures that stay on this thread.
public final class Scheduler: @unchecked Sendable {
    /// Generator of the simulation's choices.
    public var random: SeededGenerator
    /// Nanoseconds of the monotonic clock.
    public private(set) var now: UInt64 = 1_000_000_000
    /// Milliseconds of the wall clock at monotonic time 0, without a process's own deviation.
    public var wallMilliseconds: Int64 = 1_800_000_000_000
    /// Turns of loops and events of the world so far.
    public private(set) var steps = 0
    /// Most nanoseconds by which a wait has ended late, because blocked loops end in the reverse order of their waits.
    public private(set) var longestOverrun: UInt64 = 0
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
    /// Loops whose turns are on the stack, the innermost last.
    private var running: [EventLoop] = []
    /// Process of code outside of the loops; see ``SimulatedProcess/run(_:)``.
    private var outside: SimulatedProcess?
    private var threads: [SimulatedThread] = []
    /// The thread that runs; nil while the scheduler's own does.
    private var thread: SimulatedThread?
    private var descriptors: [Int32: Descriptor] = [:]
    private var nextDescriptor: Int32 = 1_000_000
    /// Parts of the world by type, as the network, which code under test finds by the scheduler.
    public var parts: [ObjectIdentifier: AnyObject] = [:]

    public init(seed: UInt64) { random = SeededGenerator(seed: seed) }

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
        var next: EventLoop?
        for loop in loops where loop.wakesAt < (next?.wakesAt ?? limit) && !loop.isOnStack { next = loop }
        if let event = events.min, event.at < limit, event.at <= (next?.wakesAt ?? .max) {
            now = max(now, event.at)
            steps += 1
            // Code of the world belongs to no process, also while a loop is blocked.
            let (blocked, before) = (running, outside)
            (running, outside) = ([], nil)
            events.removeMin().body()
            (running, outside) = (blocked, before)
            resumeThreads()
            return true
        }
        guard let next else {
            if limit != .max { now = max(now, limit) }
            return false
        }
        now = max(now, next.wakesAt)
        steps += 1
        running.append(next)
        next.turn()
        running.removeLast()
        if next.hasEnded { loops.removeAll { $0 === next } }
        resumeThreads()
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
            guard process?.isAlive != false else { return false }
            // A suspended process learns of nothing.
            let resumesAt = process?.suspendedUntil ?? 0
            if now >= resumesAt {
                if isDone() { return true }
                if now >= limit {
                    longestOverrun = max(longestOverrun, now - limit)
                    return false
                }
            }
            let next = now < resumesAt ? resumesAt : limit
            if let thread, running.isEmpty {
                if next != .max { schedule(at: next) {} }
                // The thread is parked for as long as its wait's condition lives.
                withoutActuallyEscaping(isDone) { thread.park(until: next, $0) }
                continue
            }
            guard step(before: next) || next != .max else {
                preconditionFailure("a simulated thread waits for ever, because nothing else runs")
            }
        }
    }

    /// Delays the caller, as a call does that takes time.
    public func sleep(_ nanoseconds: UInt64) { block(until: now &+ nanoseconds) }

    /// Kills all processes and drops what is planned, so that nothing of the simulation stays in memory.
    public func end() {
        for process in threads.compactMap(\.process) + loops.compactMap(\.process) { process.kill() }
        resumeThreads()
        for loop in loops { loop.kill() }
        events = Heap()
        parts = [:]
        descriptors = [:]
    }

    // MARK: Threads

    /// Runs `body` from now on as a thread of the process, which may block.
    public func startThread(of process: SimulatedProcess?, _ body: @escaping () -> Void) {
        let thread = SimulatedThread(process, body)
        thread.start(in: self)
        threads.append(thread)
        schedule(at: now) {}
    }

    private func resumeThreads() {
        guard thread == nil else { return }
        for each in threads where each.mayRun(at: now) {
            let (loops, before) = (running, outside)
            (running, outside, thread) = ([], each.process, each)
            each.resume()
            (running, outside, thread) = (loops, before, nil)
        }
        threads.removeAll { $0.hasEnded }
    }

    // MARK: Processes and loops

    /// Process of the code that runs; nil for the world outside.
    public var process: SimulatedProcess? { running.last?.process ?? outside }

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

    func isRunning(_ loop: EventLoop) -> Bool { running.last === loop }

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

    public func closeDescriptor(_ descriptor: Int32) { descriptors[descriptor] = nil }

    /// - Returns: false if the descriptor is closed.
    func watch(_ descriptor: Int32, _ watch: (loop: EventLoop, slot: Int)?) -> Bool {
        guard descriptors[descriptor] != nil else { return false }
        descriptors[descriptor]!.watch = watch
        return true
    }
}

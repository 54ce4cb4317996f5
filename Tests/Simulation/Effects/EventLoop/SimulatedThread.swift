import Glibc

/// A thread of a simulated process beside its loops, such as the main thread. The scheduler and the thread run in turns,
/// never at once, so that the thread may block for long while everything else runs.
// Sendable: the semaphores order every access of the two threads.
final class SimulatedThread: @unchecked Sendable {
    let process: SimulatedProcess?
    /// Time at which the wait ends in any case.
    private(set) var limit: UInt64 = 0
    private(set) var hasEnded = false
    private var isDone: () -> Bool = { true }
    /// Nil once the thread has run.
    private var body: (() -> Void)?
    /// Signalled when the thread may run, and when it has parked or ended.
    private let turns = UnsafeMutablePointer<sem_t>.allocate(capacity: 2)

    init(_ process: SimulatedProcess?, _ body: @escaping () -> Void) {
        self.process = process
        self.body = body
        sem_init(turns, 0, 0)
        sem_init(turns + 1, 0, 0)
    }

    deinit {
        sem_destroy(turns)
        sem_destroy(turns + 1)
        turns.deallocate()
    }

    func start(in scheduler: Scheduler) {
        var thread = pthread_t()
        let context = Unmanaged.passRetained(Start(thread: self, scheduler: scheduler)).toOpaque()
        let code = pthread_create(
            &thread, nil,
            { context in
                let start = Unmanaged<Start>.fromOpaque(context!).takeRetainedValue()
                wait(start.thread.turns)
                start.scheduler.run {
                    start.thread.body?()
                    // What only the thread has kept ends within the simulation, before the scheduler goes on.
                    start.thread.body = nil
                }
                start.thread.hasEnded = true
                sem_post(start.thread.turns + 1)
                return nil
            }, context)
        precondition(code == 0, "pthread_create failed with \(code)")
        pthread_detach(thread)
    }

    private final class Start {
        let thread: SimulatedThread
        let scheduler: Scheduler

        init(thread: SimulatedThread, scheduler: Scheduler) {
            self.thread = thread
            self.scheduler = scheduler
        }
    }

    /// Whether the thread's wait is over.
    func mayRun(at now: UInt64) -> Bool {
        guard let process else { return isDone() || now >= limit }
        return !process.isAlive || now >= process.suspendedUntil && (isDone() || now >= limit)
    }

    /// Runs the thread until it parks or ends. Called by the scheduler.
    func resume() {
        sem_post(turns)
        wait(turns + 1)
    }

    /// Lets the scheduler run until it resumes the thread. Called on the thread.
    func park(until limit: UInt64, _ isDone: @escaping () -> Bool) {
        (self.limit, self.isDone) = (limit, isDone)
        sem_post(turns + 1)
        wait(turns)
        self.isDone = { true }
    }
}

private func wait(_ semaphore: UnsafeMutablePointer<sem_t>) {
    while sem_wait(semaphore) != 0 {}
}

import Glibc

/// A thread of a simulation: a process's thread beside its loops, as the main thread, or one that takes the scheduler's
/// steps. The threads run in turns, never at once, so that one may block for long while everything else runs.
// Sendable: the semaphores order every access of the threads.
final class SimulatedThread: @unchecked Sendable {
    /// What a blocked thread waits for.
    struct Wait {
        /// Process whose code is blocked; nil for code of the world.
        var process: SimulatedProcess?
        /// Time at which the wait ends in any case.
        var limit = UInt64.max
        var isDone: () -> Bool = { true }

        func isOver(at now: UInt64) -> Bool {
            guard let process else { return isDone() || now >= limit }
            return !process.isAlive || now >= process.suspendedUntil && (isDone() || now >= limit)
        }
    }

    private(set) var wait: Wait
    private(set) var hasEnded = false
    /// Nil once the thread has run.
    private var body: (() -> Void)?
    /// Signalled when the thread may run, and when it has parked or ended.
    private let turns = UnsafeMutablePointer<sem_t>.allocate(capacity: 2)

    init(_ wait: Wait = Wait(), _ body: @escaping () -> Void) {
        self.wait = wait
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
                waitFor(start.thread.turns)
                start.scheduler.run {
                    start.thread.body?()
                    // What only the thread has kept ends within the simulation, before another thread goes on.
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

    /// Runs the thread until it parks or ends. Called on the thread that drives.
    func resume() {
        sem_post(turns)
        waitFor(turns + 1)
    }

    /// Parks the thread until it is resumed or driven again. Called on the thread.
    /// - Parameter next: the thread that runs now; nil: the one that has resumed this thread.
    func park(_ wait: Wait = Wait(), runs next: SimulatedThread? = nil) {
        self.wait = wait
        sem_post(next?.turns ?? turns + 1)
        waitFor(turns)
        self.wait.isDone = { true }
    }
}

private func waitFor(_ semaphore: UnsafeMutablePointer<sem_t>) {
    while sem_wait(semaphore) != 0 {}
}

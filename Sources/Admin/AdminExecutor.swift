import Foundation

/// The thread of an admin server: all of its tasks run there one after another, and none on the threads that Swift's
/// tasks share, which may be busy.
final class AdminExecutor: SerialExecutor, TaskExecutor {
    let queue = DispatchQueue(label: "sluice.admin")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { [self] in
            job.runSynchronously(
                isolatedTo: asUnownedSerialExecutor(), taskExecutor: asUnownedTaskExecutor())
        }
    }

    func checkIsolated() { dispatchPrecondition(condition: .onQueue(queue)) }

    func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }
    func asUnownedTaskExecutor() -> UnownedTaskExecutor { UnownedTaskExecutor(ordinary: self) }
}

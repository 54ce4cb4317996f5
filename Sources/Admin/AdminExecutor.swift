import Foundation

/// The thread of an admin server, which runs all of the server's tasks one after another. None of them runs on the
/// threads that Swift's tasks share, because those may be busy.
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

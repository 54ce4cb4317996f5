import Configuration
import EventLoop
import Gateway
import Logging

/// A machine that runs one worker process after the other.
// Sendable: one thread runs at a time, as `Scheduler` says.
final class WorkerHost: @unchecked Sendable {
    let number: Int
    private let scheduler: Scheduler
    private let configuration: Configuration
    private let bounds: WorkerBounds
    private(set) var process: SimulatedProcess?
    private var supervisor: WorkerSupervisor?
    /// The worker of the running process; nil while there is none.
    private(set) var worker: Worker?
    /// Nanoseconds from which the next process may start.
    private(set) var startsAt: UInt64 = 0
    /// Number of workers so far. A process may have several, one after the other.
    private(set) var runs = 0
    /// Number of processes so far.
    private(set) var starts = 0
    /// Reason for which the last process ended by itself; nil: it was killed or asked to stop.
    private(set) var failure: String?

    /// Receives the lines of the worker's log that the auditor knows.
    private let logged: (LogWatch.Line) -> Void

    init(
        number: Int, _ configuration: Configuration, _ bounds: WorkerBounds, _ scheduler: Scheduler,
        logged: @escaping (LogWatch.Line) -> Void
    ) {
        self.number = number
        self.configuration = configuration
        self.bounds = bounds
        self.scheduler = scheduler
        self.logged = logged
    }

    var isRunning: Bool { process != nil }

    func start() {
        let process = SimulatedProcess("worker-\(number)-\(starts)")
        self.process = process
        starts += 1
        let supervisor = WorkerSupervisor(
            configuration: configuration,
            logger: Logger(
                label: "worker",
                factory: { [logged] _ in LogWatch(SimulationLog.handler, seen: logged) }),
            bounds: bounds,
            started: { [unowned self] in
                guard self.process === process else { return }
                worker = $0
                runs += 1
            })
        self.supervisor = supervisor
        scheduler.startThread(of: process) { [unowned self] in
            var failure: String?
            do {
                failure = try supervisor.run().failure?.reason
            } catch {
                failure = "\(error)"
            }
            ended(process, failure)
        }
    }

    private func ended(_ process: SimulatedProcess, _ failure: String?) {
        guard self.process === process else { return }
        self.failure = failure
        process.kill()
        forget()
    }

    private func forget() {
        process = nil
        supervisor = nil
        worker = nil
        startsAt = scheduler.now + 100_000_000 + scheduler.below(2_000_000_000)
    }

    func kill() {
        guard let process else { return }
        process.kill()
        // The code of the thread still runs to its end, and must not start over.
        supervisor?.requestStop()
        failure = nil
        forget()
    }

    func requestStop() {
        supervisor?.requestStop()
    }

    /// Path of the store; nil without one.
    var store: String? { configuration.store?.directory }
}

/// Where the workers' log lines go: nowhere, or to the standard error.
public enum SimulationLog {
    // nonisolated(unsafe): set before the first world, and only read later.
    nonisolated(unsafe) public static var isPrinted = false

    static var handler: any LogHandler {
        isPrinted ? StreamLogHandler.standardError(label: "worker") : SwiftLogNoOpLogHandler()
    }
}

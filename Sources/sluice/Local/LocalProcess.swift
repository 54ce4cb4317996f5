import Foundation

/// A process of `sluice demo`, `sluice dev` or `sluice bench`: this executable again, with another command.
///
/// The process never outlives its starter, which stops it by its identifier. Its standard input is a socket whose other
/// end only the starter holds. So the process stops by itself (`--stop-with-input`) even if the starter is killed.
final class LocalProcess {
    let name: String
    let identifier: pid_t
    /// Standard output and standard error.
    let logPath: String
    private let lifeline: Int32
    private var status: Int32?
    private var isStopRequested = false
    /// Processor time of the process in seconds, once the process has ended.
    private(set) var cpuSeconds: Double?

    init(_ name: String, _ arguments: [String], files: LocalFiles) throws(CommandFailure) {
        self.name = name
        logPath = files.path("\(name).log")
        var ends: [Int32] = [-1, -1]
        // Close-on-exec from the beginning, so that no other child inherits an end and keeps it open.
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else {
            throw CommandFailure(
                .internalError, "can't make a socket pair: \(String(cString: strerror(errno)))")
        }
        lifeline = ends[0]

        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        posix_spawn_file_actions_adddup2(&actions, ends[1], 0)
        posix_spawn_file_actions_addopen(&actions, 1, logPath, O_WRONLY | O_CREAT | O_APPEND, 0o600)
        posix_spawn_file_actions_adddup2(&actions, 1, 2)
        // A process group of its own, so that Ctrl-C reaches the starter alone. The starter then stops the other processes in
        // order. No signal is blocked in the process, because the starter's threads block the signals that it
        // handles.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP))
        // SLUICE_ variables are settings of a worker, and this worker has its own. POD_NAME is the name of one worker.
        let environment = ProcessInfo.processInfo.environment.filter {
            !$0.key.hasPrefix("SLUICE_") && $0.key != "POD_NAME"
        }
        var argv: [UnsafeMutablePointer<CChar>?] = (["sluice"] + arguments).map { strdup($0) } + [nil]
        var envp: [UnsafeMutablePointer<CChar>?] = environment.map { strdup("\($0)=\($1)") } + [nil]
        var identifier: pid_t = 0
        // The executable's own name where that still works, so that a list of processes shows it.
        let own = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
        let path =
            files.executable
            ?? (FileManager.default.isExecutableFile(atPath: own) ? own : "/proc/self/exe")
        let result = posix_spawn(&identifier, path, &actions, &attributes, &argv, &envp)
        for text in argv + envp { free(text) }
        posix_spawn_file_actions_destroy(&actions)
        posix_spawnattr_destroy(&attributes)
        close(ends[1])
        self.identifier = identifier
        guard result == 0 else {
            status = 0
            throw CommandFailure(.internalError, "can't start \(name): \(String(cString: strerror(result)))")
        }
    }

    deinit {
        if exitStatus() == nil {
            kill(identifier, SIGKILL)
            var status: Int32 = 0
            while waitpid(identifier, &status, 0) == -1, errno == EINTR {}
        }
        close(lifeline)
    }

    /// Returns the wait status; nil while the process runs.
    func exitStatus() -> Int32? {
        if let status { return status }
        var raw: Int32 = 0
        var usage = rusage()
        if wait4(identifier, &raw, WNOHANG, &usage) == identifier {
            status = raw
            let seconds = { (time: timeval) in Double(time.tv_sec) + Double(time.tv_usec) / 1e6 }
            cpuSeconds = seconds(usage.ru_utime) + seconds(usage.ru_stime)
        }
        return status
    }

    /// The process's end, for people.
    var ending: String {
        guard let status = exitStatus() else { return "is running" }
        let signal = status & 0x7f
        return signal == 0 ? "ended with status \((status >> 8) & 0xff)" : "was killed by signal \(signal)"
    }

    /// Exit status for the starter: that of a process which has ended for lack of a resource or by a wrong
    /// configuration, `failure` for others.
    private var failure: ExitStatus {
        switch exitStatus().map({ ($0 >> 8) & 0xff }) {
        case ExitStatus.unavailable.rawValue: .unavailable
        case ExitStatus.configuration.rawValue: .configuration
        default: .failure
        }
    }

    /// Asks the process to stop. Further calls have no effect, because a second signal ends a process at once.
    func requestStop() {
        if !isStopRequested { signal(SIGTERM) }
    }

    /// Sends a signal, unless the process has ended.
    func signal(_ signal: Int32) {
        if signal == SIGTERM { isStopRequested = true }
        if exitStatus() == nil { kill(identifier, signal) }
    }

    /// Asks the process to stop, and waits. Kills the process when the time is over.
    /// - Returns: whether the process ended by itself, with status 0.
    @discardableResult
    func stop(within limit: Duration) -> Bool {
        requestStop()
        let deadline = ContinuousClock.now + limit
        while exitStatus() == nil, ContinuousClock.now < deadline { usleep(5_000) }
        if exitStatus() == nil { kill(identifier, SIGKILL) }
        while exitStatus() == nil { usleep(1_000) }
        return exitStatus() == 0
    }

    /// Returns the lines of the file that the process writes when it is ready; nil while there is no such file.
    /// - Throws: when the process has ended.
    func readyLines(_ path: String) throws(CommandFailure) -> [String]? {
        if let text = try? String(contentsOfFile: path, encoding: .utf8) {
            let lines = text.split(separator: "\n").map(String.init)
            return lines.isEmpty ? [""] : lines
        }
        try check()
        return nil
    }

    /// Throws when the process has ended, with the end of its log.
    func check() throws(CommandFailure) {
        if exitStatus() != nil { throw CommandFailure(failure, "\(name) \(ending)\n\(logTail)") }
    }

    /// Waits for the file that the process writes when it is ready.
    /// - Returns: the lines of the file, at least one.
    /// - Throws: when the process ends, is not ready in time, or a stop is requested meanwhile.
    func waitUntilReady(
        _ path: String, within limit: Duration = .seconds(60), stop: StopSignals
    ) throws(CommandFailure) -> [String] {
        let deadline = ContinuousClock.now + limit
        while !stop.isRequested {
            if let lines = try readyLines(path) { return lines }
            if ContinuousClock.now > deadline { throw notReady(within: limit) }
            usleep(5_000)
        }
        throw CommandFailure(.failure, "stopped")
    }

    /// Failure of a process that is not ready in time.
    func notReady(within limit: Duration) -> CommandFailure {
        CommandFailure(.failure, "\(name) was not ready within \(limit)\n\(logTail)")
    }

    /// Last lines of the process's log.
    var logTail: String {
        let text = (try? String(contentsOfFile: logPath, encoding: .utf8)) ?? ""
        return text.split(separator: "\n").suffix(15).map { "  \(name): \($0)" }.joined(separator: "\n")
    }
}

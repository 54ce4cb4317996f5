import Foundation

/// A process of `sluice demo` or `sluice dev`: this executable again, with another command.
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

    init(_ name: String, _ arguments: [String], directory: String) throws(CommandFailure) {
        self.name = name
        logPath = "\(directory)/\(name).log"
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
        // SLUICE_ variables are settings of a worker, and this worker has its own.
        let environment = ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("SLUICE_") }
        var argv: [UnsafeMutablePointer<CChar>?] = (["sluice"] + arguments).map { strdup($0) } + [nil]
        var envp: [UnsafeMutablePointer<CChar>?] = environment.map { strdup("\($0)=\($1)") } + [nil]
        var identifier: pid_t = 0
        // The executable's own name where that still works, so that a list of processes shows it.
        let own = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
        let path = FileManager.default.isExecutableFile(atPath: own) ? own : "/proc/self/exe"
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
        if waitpid(identifier, &raw, WNOHANG) == identifier { status = raw }
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

    func requestStop() {
        if exitStatus() == nil { kill(identifier, SIGTERM) }
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

    /// Waits for the file that the process writes when it is ready.
    /// - Returns: the first line of the file; nil when a stop was requested meanwhile.
    func waitUntilReady(
        _ path: String, within limit: Duration, stop: StopSignals
    ) throws(CommandFailure) -> String? {
        let deadline = ContinuousClock.now + limit
        while !stop.isRequested {
            if let text = try? String(contentsOfFile: path, encoding: .utf8) {
                return text.split(separator: "\n").first.map(String.init) ?? ""
            }
            if exitStatus() != nil { throw CommandFailure(failure, "\(name) \(ending)\n\(logTail)") }
            if ContinuousClock.now > deadline {
                throw CommandFailure(.failure, "\(name) was not ready within \(limit)\n\(logTail)")
            }
            usleep(5_000)
        }
        return nil
    }

    /// Last lines of the process's log.
    var logTail: String {
        let text = (try? String(contentsOfFile: logPath, encoding: .utf8)) ?? ""
        return text.split(separator: "\n").suffix(15).map { "  \(name): \($0)" }.joined(separator: "\n")
    }
}

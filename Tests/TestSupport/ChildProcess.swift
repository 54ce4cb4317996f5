import Foundation

/// A process that a test starts. Its output is captured, and the process never outlives the test.
///
/// Output is written to files, so that a child never waits for a reader. Only the test holds the other end of its
/// standard input. A child that watches its input notices even a crashed test.
public final class ChildProcess {
    /// How a process ended.
    public enum Exit: Equatable, Sendable, CustomStringConvertible {
        case status(Int32)
        case signal(Int32)

        public var description: String {
            switch self {
            case .status(let status): "exit status \(status)"
            case .signal(let signal): "signal \(signal)"
            }
        }
    }

    public let name: String
    public let identifier: pid_t
    private let directory: TemporaryDirectory
    private var input: Int32
    private var ended: Exit?

    /// Starts a program.
    ///
    /// - Parameters:
    ///   - executable: A path, or a name that is looked up in `PATH`.
    ///   - environment: Added to this process's environment, from which `SLUICE_…` variables are removed.
    public init(
        _ executable: String, _ arguments: [String] = [], environment: [String: String] = [:]
    ) throws {
        name = URL(filePath: executable).lastPathComponent
        directory = try TemporaryDirectory("process")
        var ends: [Int32] = [0, 0]
        // A pair of sockets, unlike a pipe, is close-on-exec from the beginning. No other child of this process
        // inherits an end and keeps it open.
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw ChildProcess.error() }
        defer { close(ends[0]) }
        input = ends[1]

        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[0], 0)
        let create = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND
        posix_spawn_file_actions_addopen(&actions, 1, directory.file("stdout"), create, 0o600)
        posix_spawn_file_actions_addopen(&actions, 2, directory.file("stderr"), create, 0o600)

        // The child begins with default signal handling, whatever this thread blocks.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var all = sigset_t()
        sigfillset(&all)
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigdefault(&attributes, &all)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK))

        var variables = ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("SLUICE_") }
        variables.merge(environment) { $1 }
        var identifier: pid_t = 0
        let result = ChildProcess.withCStrings([executable] + arguments) { argv in
            ChildProcess.withCStrings(variables.map { "\($0)=\($1)" }) { envp in
                posix_spawnp(&identifier, executable, &actions, &attributes, argv, envp)
            }
        }
        guard result == 0 else {
            close(ends[1])
            throw POSIXError(POSIXErrorCode(rawValue: result) ?? .EIO)
        }
        self.identifier = identifier
    }

    deinit {
        if exitIfEnded() == nil {
            kill(identifier, SIGKILL)
            var status: Int32 = 0
            while waitpid(identifier, &status, 0) == -1, errno == EINTR {}
        }
        if input >= 0 { close(input) }
    }

    // MARK: Output and input

    public var standardOutput: String { directory.read("stdout") ?? "" }
    public var standardError: String { directory.read("stderr") ?? "" }
    /// Path of the file with standard error.
    public var standardErrorFile: String { directory.file("stderr") }

    /// Writes to the child's standard input. Text beyond the socket's buffer blocks until the child reads.
    public func write(_ text: String) {
        var rest = Array(text.utf8)
        while !rest.isEmpty {
            let written = send(input, rest, rest.count, Int32(MSG_NOSIGNAL))
            if written <= 0 { return }
            rest.removeFirst(written)
        }
    }

    public func closeInput() {
        if input >= 0 { close(input) }
        input = -1
    }

    // MARK: End

    /// How the process ended; nil while it runs.
    public func exitIfEnded() -> Exit? {
        if let ended { return ended }
        var status: Int32 = 0
        let result = waitpid(identifier, &status, WNOHANG)
        guard result == identifier else { return nil }
        let signal = status & 0x7f
        ended = signal == 0 ? .status((status >> 8) & 0xff) : .signal(signal)
        return ended
    }

    public var isRunning: Bool { exitIfEnded() == nil }

    /// Waits for the process to end. Throws `TimedOut`, with the last output, after `timeout`.
    @discardableResult
    public func wait(timeout: Duration = .seconds(120)) throws -> Exit {
        do {
            return try eventually("\(name) ended", timeout: timeout) { exitIfEnded() }
        } catch let error as TimedOut {
            throw TimedOut(waitedFor: "\(error.waitedFor)\n\(outputForMessages)", timeout: timeout)
        }
    }

    /// Waits until the child has written a text. Throws ``Ended`` at once when the child ends before.
    public func waitForOutput(_ text: String, timeout: Duration = .seconds(120)) throws {
        try eventually("\(name) wrote `\(text)`", timeout: timeout) {
            if standardOutput.contains(text) || standardError.contains(text) { return true }
            if let exit = exitIfEnded() { throw Ended(name: name, exit: exit, output: outputForMessages) }
            return false
        }
    }

    /// Waits for a condition that the child should bring about. Throws ``Ended`` at once when the child ends before.
    public func waits(
        for what: String, timeout: Duration = .seconds(120), _ condition: () throws -> Bool
    ) throws {
        try eventually(what, timeout: timeout) {
            if try condition() { return true }
            if let exit = exitIfEnded() { throw Ended(name: name, exit: exit, output: outputForMessages) }
            return false
        }
    }

    public func signal(_ signal: Int32) {
        if exitIfEnded() == nil { kill(identifier, signal) }
    }

    /// SIGSTOP, then waits until all threads of the child have stopped. Threads on other cores run on for a moment.
    public func suspend() {
        signal(SIGSTOP)
        var information = siginfo_t()
        while waitid(P_PID, id_t(identifier), &information, WSTOPPED | WEXITED | WNOWAIT) != 0, errno == EINTR
        {}
    }

    /// Sends SIGTERM and waits for the end.
    @discardableResult
    public func stop(timeout: Duration = .seconds(120)) throws -> Exit {
        signal(SIGTERM)
        return try wait(timeout: timeout)
    }

    /// Thrown when a process ends that should continue.
    public struct Ended: Error, CustomStringConvertible {
        public var name: String
        public var exit: Exit
        public var output: String

        public var description: String { "\(name) ended early with \(exit)\n\(output)" }
    }

    private var outputForMessages: String {
        "stdout: …\(standardOutput.suffix(2_000))\nstderr: …\(standardError.suffix(4_000))"
    }

    /// Runs a program to its end, with `input` on standard input.
    public static func run(
        _ executable: String, _ arguments: [String] = [], input: String = "",
        environment: [String: String] = [:], timeout: Duration = .seconds(120)
    ) throws -> (exit: Exit, standardOutput: String, standardError: String) {
        let process = try ChildProcess(executable, arguments, environment: environment)
        process.write(input)
        process.closeInput()
        let exit = try process.wait(timeout: timeout)
        return (exit, process.standardOutput, process.standardError)
    }

    private static func error() -> POSIXError { POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO) }

    private static func withCStrings<Result>(
        _ texts: [String], _ body: ([UnsafeMutablePointer<CChar>?]) -> Result
    ) -> Result {
        let pointers = texts.map { strdup($0) }
        defer { pointers.forEach { free($0) } }
        return body(pointers + [nil])
    }
}

/// Paths of programs.
public enum Executables {
    /// The `sluice` that was built together with the running tests.
    public static var sluice: String {
        get throws { try built("sluice") }
    }

    /// A program of this package that was built together with the running tests.
    public static func built(_ name: String) throws -> String {
        // swift test's process is …/debug/NAME.xctest or swiftpm-testing-helper with the bundle's path.
        var candidates = CommandLine.arguments.filter { $0.hasSuffix(".xctest") }
        if let own = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe") {
            candidates.append(own)
        }
        for candidate in candidates {
            let beside = URL(filePath: candidate).deletingLastPathComponent().appending(path: name)
                .path(percentEncoded: false)
            if FileManager.default.isExecutableFile(atPath: beside) { return beside }
        }
        throw POSIXError(.ENOENT)
    }

    /// Returns the path of a program in `PATH`, or nil. Tests that need the program are disabled then.
    public static func find(_ name: String) -> String? {
        (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin").split(separator: ":")
            .map { "\($0)/\(name)" }
            .first { FileManager.default.isExecutableFile(atPath: $0) }
    }
}

import Foundation
import Synchronization
import TestSupport
import Testing

@testable import Admin
@testable import sluice

/// `sluice top` as a process against endpoints in the test's process: plain lines, and a terminal of tmux.
struct TopCommandTests {
    /// An endpoint whose counters grow with each scrape.
    private func endpoint(step: Int = 10, isReady: Bool = true) throws -> AdminTestServer {
        let scrapes = Mutex(0)
        return try AdminTestServer([
            "/metrics": { _ in
                let count = scrapes.withLock { count in
                    count += 1
                    return count
                }
                let text =
                    "sluice_jobs_total \(count * step)\nsluice_outcomes_total{kind=\"accepted\"} \(count * step)\n"
                return AdminResponse(
                    status: 200, contentType: "text/plain; version=0.0.4", body: Data(text.utf8))
            },
            "/readyz": { _ in
                .json(
                    isReady ? 200 : 503,
                    ["ready": isReady, "reasons": isReady ? [] : ["the worker is stopping"]])
            },
        ])
    }

    private func top(
        _ arguments: String..., environment: [String: String] = [:]
    ) throws -> (exit: ChildProcess.Exit, standardOutput: String, standardError: String) {
        try ChildProcess.run(Executables.sluice, ["top"] + arguments, environment: environment)
    }

    // MARK: Plain lines

    @Test func withoutATerminalPlainLinesShowEachWorkerAndTheDownOne() throws {
        let (ready, stopping) = (try endpoint(), try endpoint(isReady: false))
        let result = try top(
            "--once", "--interval", "0.2", "\(ready.address)", "\(stopping.address)", "127.0.0.1:1")
        #expect(result.exit == .status(0))
        let output = result.standardOutput
        #expect(output.contains("3 workers, 1 ready, 1 down"))
        #expect(output.contains("\(stopping.address): the worker is stopping"))
        #expect(output.contains("127.0.0.1:1: no connection"))
        #expect(!output.contains("\u{1B}"))
        let row = output.split(separator: "\n").first { $0.contains("\(ready.address)  ready") }
        #expect(row?.split(separator: " ")[2] != "–", "the rate of two scrapes: \(output)")
    }

    @Test func onceWithoutAnyMetricsFails() throws {
        let result = try top("--once", "--interval", "0.2", "127.0.0.1:1")
        #expect(result.exit == .status(1))
        #expect(result.standardOutput.contains("1 down"))
    }

    @Test func brokenMetricsAreReportedAndNeverATrap() throws {
        let server = try AdminTestServer([
            "/metrics": { _ in
                let bytes: [UInt8] = Array("sluice_jobs_total 1\n{{{\n".utf8) + [0xFF, 0, 0x0A]
                return AdminResponse(status: 200, contentType: "text/plain", body: Data(bytes))
            },
            "/readyz": { _ in .json(200, [:]) },
        ])
        let result = try top("--once", "--interval", "0.2", "\(server.address)")
        #expect(result.exit == .status(0))
        #expect(result.standardOutput.contains("metrics: line 2: no name"))
    }

    @Test func wrongOptionsExitWith64() throws {
        #expect(try top("--interval", "0").exit == .status(64))
        #expect(try top("--interval", "nan").exit == .status(64))
        #expect(try top("no address").exit == .status(64))
    }

    @Test func plainLinesEndWithSIGTERM() throws {
        let server = try endpoint()
        let process = try ChildProcess(Executables.sluice, ["top", "--interval", "0.2", "\(server.address)"])
        try process.waitForOutput("OUTCOMES/S")
        #expect(try process.stop() == .status(0))
    }

    // MARK: Terminal

    /// A terminal of tmux with a server of its own, which ends with the last reference.
    private final class Tmux {
        private let directory: TemporaryDirectory
        private let program: String

        /// - Parameter command: runs in a shell.
        init(_ program: String, columns: Int, rows: Int, command: String) throws {
            directory = try TemporaryDirectory("tmux")
            self.program = program
            try run("-f", "/dev/null", "new-session", "-d", "-x", "\(columns)", "-y", "\(rows)", "exec sh")
            try run("set-option", "-g", "remain-on-exit", "on")
            try send("\(command)", "Enter")
        }

        deinit { _ = try? run("kill-server") }

        @discardableResult
        func run(_ arguments: String...) throws -> String {
            let result = try ChildProcess.run(program, ["-S", directory.file("socket")] + arguments)
            #expect(result.exit == .status(0), "tmux \(arguments): \(result.standardError)")
            return result.standardOutput
        }

        func send(_ keys: String...) throws { for key in keys { try run("send-keys", key) } }

        var screen: String { (try? run("capture-pane", "-p")) ?? "" }

        func shows(_ text: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
            var last = ""
            do {
                try eventually("the terminal shows `\(text)`") {
                    last = screen
                    return last.contains(text)
                }
            } catch {
                Issue.record("\(error)\n\(last)", sourceLocation: sourceLocation)
                throw error
            }
        }
    }

    private static let tmux = Executables.find("tmux")

    @Test(.enabled(if: tmux != nil, "tmux is not installed"))
    func terminalShowsWorkersTakesKeysAndIsRestored() throws {
        let (first, second) = (try endpoint(), try endpoint(isReady: false))
        let sluice = try Executables.sluice
        let terminal = try Tmux(
            try #require(Self.tmux), columns: 120, rows: 40,
            command:
                "\(sluice) top --interval 0.2 \(first.address) \(second.address) 127.0.0.1:1; echo status=$?")
        try terminal.shows("3 workers, 1 ready, 1 down")
        try terminal.shows("\(second.address): the worker is stopping")
        try terminal.shows("all workers")
        try terminal.shows("q quit")
        #expect(!terminal.screen.contains("status="), "the alternate screen hides the shell")
        try terminal.send("Tab")
        try terminal.shows("worker \(first.address)")
        try terminal.send("BTab")
        try terminal.shows("all workers")
        try terminal.send("s")
        try terminal.shows("s sort (jobs)")
        try terminal.send("p")
        try terminal.shows("paused")
        try terminal.run("resize-window", "-x", "70", "-y", "8")
        try terminal.shows("(0 above")
        #expect(terminal.screen.split(separator: "\n").allSatisfy { $0.count <= 70 })
        try terminal.send("End")
        try terminal.shows("QUEUES")
        try terminal.send("q")
        try terminal.shows("status=0")
        try terminal.send("stty -a | tr ' ' '\\n' | grep icanon", "Enter")
        try terminal.shows("\nicanon")
    }

    @Test(.enabled(if: tmux != nil, "tmux is not installed"), arguments: ["INT", "TERM", "HUP", "QUIT"])
    func signalRestoresTheTerminal(_ signal: String) throws {
        let server = try endpoint()
        let sluice = try Executables.sluice
        let terminal = try Tmux(
            try #require(Self.tmux), columns: 100, rows: 20,
            command: "\(sluice) top --interval 0.2 \(server.address); echo status=$?")
        try terminal.shows("q quit")
        let pane = try terminal.run("display-message", "-p", "#{pane_pid}").trimmingCharacters(in: .newlines)
        let child = try eventually("the shell has a child") { () -> String? in
            let children = try? String(contentsOfFile: "/proc/\(pane)/task/\(pane)/children", encoding: .utf8)
            return children?.split(separator: " ").first.map(String.init)
        }
        let number: [String: Int32] = ["INT": SIGINT, "TERM": SIGTERM, "HUP": SIGHUP, "QUIT": SIGQUIT]
        kill(try #require(pid_t(child)), try #require(number[signal]))
        try terminal.shows("status=0")
        try terminal.send("stty -a | tr ' ' '\\n' | grep icanon", "Enter")
        try terminal.shows("\nicanon")
    }

    // MARK: Keys

    @Test func sequencesOfKeysAreReadAndForeignOnesIgnored() {
        let bytes = Array("q\u{1B}[A\u{1B}OB\u{1B}[5~\t\u{1B}[Z\u{1B}[1;5Cx\u{1B}".utf8) + [0xFF, 0]
        #expect(
            TopTerminal.keys(bytes) == [
                .character("q"), .up, .down, .pageUp, .tab, .backTab, .character("x"),
            ])
        #expect(TopTerminal.keys([0x1B, 0x5B]) == [])
        var choices = TopChoices()
        #expect(!TopScreen.apply(.character("q"), to: &choices, rows: 10, workers: 2))
        for expected in [0, 1, nil] {
            _ = TopScreen.apply(.tab, to: &choices, rows: 10, workers: 2)
            #expect(choices.selected == expected)
        }
    }

    @Test func coloursAreLeftOutWithoutColour() {
        let line = TopLine("down", .bad)
        #expect(TopTerminal.ansi(line, hasColour: true) == "\u{1B}[1;31mdown\u{1B}[0m")
        #expect(TopTerminal.ansi(TopLine("ready", .good), hasColour: false) == "ready")
    }
}

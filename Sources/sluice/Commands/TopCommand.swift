import ArgumentParser
import Foundation

struct TopCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "top",
        abstract: "Show workers: rates, latencies, pools, queues, partitions, store and errors.",
        discussion: """
            Reads /metrics and /readyz of each worker's admin endpoint. Rates and latencies are those between the last \
            two scrapes. The sign – stands for a figure that the worker lacks.

            Without an address, the worker of this machine is shown: admin.listen of SLUICE_ADMIN__LISTEN or of the file \
            of --config, otherwise 127.0.0.1:9464.

            On a terminal the view takes the screen. Elsewhere plain lines follow each other. NO_COLOR turns colours off.

            KEYS
              q        quit
              p        pause, or continue
              s        sort workers by name, jobs, latency, lag or busyness
              Tab      next worker, or the sum of all; Shift-Tab the one before
              ↑ ↓      scroll; also Page Up, Page Down, Home, End

            EXIT STATUS
              0   ended on request; with --once, at least one worker gave its metrics
              1   with --once: no worker gave its metrics
              64  the command line is wrong
            """)

    @Argument(
        help: ArgumentHelp("Admin endpoints, such as worker-0.sluice:9464.", valueName: "host:port"))
    var addresses: [String] = []

    @Option(
        name: [.short, .long],
        help: ArgumentHelp("The worker's configuration file, read for admin.listen alone.", valueName: "path")
    )
    var config: String?

    @Option(help: ArgumentHelp("Time between two scrapes, 0.2 to 60.", valueName: "seconds"))
    var interval = 1.0

    @Option(help: ArgumentHelp("Longest wait for an answer, 0.1 to 60.", valueName: "seconds"))
    var timeout = 3.0

    @Flag(help: "Scrape twice, show the figures between as plain lines, and end.")
    var once = false

    @Flag(help: "Show plain lines on a terminal too.")
    var plain = false

    private static let mostWorkers = 256

    func validate() throws {
        guard (0.2...60).contains(interval) else { throw ValidationError("--interval: 0.2 to 60 seconds") }
        guard (0.1...60).contains(timeout) else { throw ValidationError("--timeout: 0.1 to 60 seconds") }
        guard addresses.count <= Self.mostWorkers else {
            throw ValidationError("at most \(Self.mostWorkers) addresses")
        }
    }

    func run() throws {
        let environment = ProcessInfo.processInfo.environment
        var targets: [AdminAddress] = []
        for text in addresses {
            guard let address = AdminAddress(text) else {
                throw ValidationError("`\(text)` is not \(AdminAddress.grammar)")
            }
            if !targets.contains(address) { targets.append(address) }
        }
        if targets.isEmpty {
            targets = [try .ofThisMachine(option: nil, config: config, environment: environment)]
        }
        let signals = TopSignals()
        let pollers = targets.map {
            WorkerPoller(
                $0, interval: .milliseconds(Int(interval * 1_000)), limit: .milliseconds(Int(timeout * 1_000))
            )
        }
        for poller in pollers { poller.start() }
        defer { for poller in pollers { poller.end() } }
        let hasColour = environment["NO_COLOR", default: ""].isEmpty && environment["TERM"] != "dumb"
        let isPlain = once || plain || environment["TERM"] == "dumb"
        if !isPlain, let terminal = TopTerminal(hasColour: hasColour) {
            TopScreen(pollers: pollers, terminal: terminal, signals: signals).run()
        } else {
            try printLines(pollers, signals)
        }
    }

    private func printLines(_ pollers: [WorkerPoller], _ signals: TopSignals) throws {
        // Rates need two scrapes.
        while pollers.contains(where: { $0.scrapes < 2 }) {
            if signals.next(within: 20) != nil { return }
        }
        while true {
            let view = TopView(
                workers: pollers.map(\.worker), now: Date().timeIntervalSince1970,
                clock: TopScreen.clock())
            for line in view.lines() where !Terminal.output(line.text) { return }
            if once {
                if !view.workers.contains(where: { $0.figures != nil }) { throw CommandFailure(.failure) }
                return
            }
            if !Terminal.output("") { return }
            if signals.next(within: Int(interval * 1_000)) != nil { return }
        }
    }
}

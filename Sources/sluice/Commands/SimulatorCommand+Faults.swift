import APNSSimulator
import ArgumentParser
import Configuration
import HTTP2

/// Faults by script of the simulator's command line.
struct FaultOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Timeline of faults, a YAML or JSON file: answers, latency, unanswered, goaway, disconnect, stream-limit, "
                + "black-hole, slow-reads, no-window-updates, throttle, certificate and environment, each with at and "
                + "for. Times count from the start, or from SIGHUP, which reads the file again. Deploy/simulator.md explains them; Schemas/faults.schema.json is "
                + "their schema.",
            valueName: "path"))
    var faults: String?

    func apply(to options: inout SimulatorOptions) throws {
        guard let faults else { return }
        do throws(ConfigurationError) {
            options.faultTimeline = try FaultTimeline.load(path: faults)
        } catch {
            throw CommandFailure(.configuration, error.description)
        }
    }

    /// Reads the file again after SIGHUP, and plays it from its beginning. A wrong file is reported, and the timeline
    /// before continues.
    /// - Parameter announce: called when the faults are in force in all simulators.
    func playAgain(
        after signals: StopSignals, in simulators: [Simulator],
        then announce: @escaping @Sendable () throws(CommandFailure) -> Void
    ) {
        guard let faults else { return }
        signals.onHangup {
            do {
                let timeline = try FaultTimeline.load(path: faults)
                for simulator in simulators { try simulator.replaceFaults(with: timeline) }
            } catch {
                return Terminal.error("sluice: SIGHUP: the faults before continue: \(error)")
            }
            Terminal.output("SIGHUP: the faults of \(faults) begin")
            do throws(CommandFailure) { try announce() } catch { Terminal.error("sluice: SIGHUP: \(error)") }
        }
    }
}

extension ExcessStreams: ExpressibleByArgument {}

/// `n` or `off` of `--error-budget`.
struct ErrorBudgetArgument: ExpressibleByArgument, CustomStringConvertible {
    /// Nil for `off`.
    let points: Int?

    init(points: Int?) { self.points = points }

    init?(argument: String) {
        if argument == "off" {
            points = nil
        } else if let number = Int(argument), (1...1_000_000_000).contains(number) {
            points = number
        } else {
            return nil
        }
    }

    var description: String { points.map(String.init) ?? "off" }
}

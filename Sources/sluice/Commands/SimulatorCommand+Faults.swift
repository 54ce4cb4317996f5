import APNSSimulator
import ArgumentParser
import Configuration

/// Faults by script of the simulator's command line.
struct FaultOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Timeline of faults, a YAML or JSON file: answers, latency, unanswered, goaway, disconnect, stream-limit, "
                + "black-hole, slow-reads, no-window-updates, throttle, certificate and environment, each with at and "
                + "for. Times count from the start. Deploy/simulator.md explains them; Schemas/faults.schema.json is "
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
}

import ArgumentParser
import Foundation
import Gateway

/// The command line's root: parses and runs commands, and converts failures into exit statuses.
@main
enum Entry {
    static func main() {
        // A reader that ends (`sluice outcomes | head`) must be an error of the write, not the process's death.
        signal(SIGPIPE, SIG_IGN)
        do {
            var command = try SluiceCommand.parseAsRoot()
            try command.run()
        } catch let failure as CommandFailure {
            if !failure.message.isEmpty { Terminal.error(lines: "sluice: \(failure.message)") }
            exit(failure.status.rawValue)
        } catch {
            SluiceCommand.exit(withError: error)
        }
    }
}

struct SluiceCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sluice",
        abstract: "A push gateway between Kafka and the Apple Push Notification service.",
        discussion: """
            Services produce notification jobs to a Kafka topic; workers (`sluice run`) push them to APNs and \
            produce one outcome for each. `sluice kafka` and `sluice simulator` replace a cluster and APNs \
            on a developer's machine; `sluice demo` runs all of them together. `sluice config check --connect` tries each \
            part of a configuration before the first start.

            EXIT STATUS
              0    done, or stopped on request with everything finished
              1    the command ran and failed: records not acknowledged, counts that don't match, a damaged store
              64   the command line is wrong
              65   the input is wrong: a file of jobs that isn't JSON lines
              69   a needed resource can't be reached: Kafka, a topic, a port
              70   an internal error
              75   stopped before all jobs were finished (the rest is redelivered)
              78   the configuration is wrong
              130, 143  stopped at once by a second SIGINT or SIGTERM

            SIGINT (Ctrl-C) and SIGTERM ask a command to finish its work; a second signal stops it at once.
            """,
        version: BuildInfo.text,
        subcommands: subcommands
    )

    private static let subcommands: [any ParsableCommand.Type] = [
        RunCommand.self, DemoCommand.self, DevCommand.self, SimulatorCommand.self, KafkaCommand.self,
        ProduceCommand.self, TraceCommand.self,
        OutcomesCommand.self, RedriveCommand.self, ChannelsCommand.self, InspectCommand.self,
        ConfigCommand.self,
        HealthCommand.self, TopCommand.self, ControlCommand.self, PlanCommand.self, BenchCommand.self,
    ]
}

/// Exit statuses, with the names of sysexits.h. `SluiceCommand`'s help documents them.
enum ExitStatus: Int32 {
    case failure = 1
    case dataError = 65
    case unavailable = 69
    case internalError = 70
    case unfinished = 75
    case configuration = 78
}

/// Ends a command with a status and a message on standard error.
struct CommandFailure: Error {
    var status: ExitStatus
    /// The fault, its place, and the remedy; empty when everything has been reported.
    var message: String

    init(_ status: ExitStatus, _ message: String = "") {
        self.status = status
        self.message = message
    }
}

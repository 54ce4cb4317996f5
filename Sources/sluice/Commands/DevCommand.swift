import ArgumentParser
import Foundation

struct DevCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dev",
        abstract: "Run Kafka, a worker and an APNs simulator with devices to look at, for app developers.",
        discussion: """
            Starts an embedded Kafka cluster, an APNs simulator with devices, and a worker on this machine, and prints \
            the address of the page that shows the devices. Push with `sluice produce`, with any Kafka client, or past \
            the worker with any APNs client. `sluice ctl` commands the worker through DIR/worker.sock. Ends with Ctrl-C.

            Without --apps there are three devices with a sample app, com.example.news. The file declares an app's \
            categories, permissions, strings and extensions. DIR/apps.yaml is a sample to begin with; it stays as you \
            edit it, and is read again at the next start.

            EXIT STATUS
              0   stopped by a signal
              1   a process failed; its log is printed
              69  a port or the directory is not available
            """)

    @Option(help: ArgumentHelp("Declarations of apps and devices.", valueName: "path"))
    var apps: String?

    @Option(help: ArgumentHelp("Port of Kafka. 0: any free port.", valueName: "port"))
    var kafkaPort: UInt16 = 9092

    @Option(help: ArgumentHelp("Port of APNs. 0: any free port.", valueName: "port"))
    var port: UInt16 = 8443

    @Option(help: ArgumentHelp("Port of APNs' sandbox environment. 0: any free port.", valueName: "port"))
    var sandboxPort: UInt16 = 8444

    @Option(help: ArgumentHelp("Port of the page. 0: any free port.", valueName: "port"))
    var httpPort: UInt16 = 8080

    @Option(
        help: ArgumentHelp(
            "Directory for the worker's configuration, the signing key, the authority and logs. Default: a temporary "
                + "directory, which is removed at the end.", valueName: "path"))
    var directory: String?

    @Option(
        help: ArgumentHelp(
            "Write the addresses to this file once all is ready; removed at the end.", valueName: "path"))
    var readyFile: String?

    func run() throws {
        let stop = StopSignals()
        let ready = try readyFile.map { path throws(CommandFailure) in try ReadyFile(path: path) }
        let files = try LocalFiles(directory: directory)
        let declared = try DevApps(file: apps, files: files)
        var plan = LocalStage.Plan(apps: declared.apps, group: "dev")
        plan.kafkaPort = kafkaPort
        plan.simulatorPort = port
        plan.sandboxPort = sandboxPort
        plan.pagePort = httpPort
        plan.simulatorArguments = ["--apps", declared.path]
        let stage: LocalStage
        do {
            stage = try LocalStage(plan: plan, files: files, stop: stop)
        } catch {
            if stop.isRequested { return }
            throw error
        }
        for line in stage.hints(declared.sample) { Terminal.output(line) }
        try ready?.write(
            [stage.bootstrapServers, stage.simulatorAddress, stage.page].joined(separator: "\n"))
        defer { ready?.remove() }
        while !stop.wait(for: .milliseconds(200)) { try stage.check() }
        let bad = stage.end()
        guard bad.isEmpty else { throw CommandFailure(.failure, bad.joined(separator: ", ")) }
    }
}

import ArgumentParser
import Foundation

struct HealthCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "health",
        abstract: "Ask a worker on this machine whether it lives, or whether it is ready.",
        discussion: """
            For health checks of containers without a shell or curl. Asks the worker's admin endpoint for /livez, or \
            with --ready for /readyz. Reasons are written to standard error, one a line.

            The address is that of --admin; otherwise admin.listen of SLUICE_ADMIN__LISTEN or of the file of --config; \
            otherwise 127.0.0.1:9464. A worker that listens at 0.0.0.0 or [::] is asked at the loopback address.

            EXIT STATUS
              0   the worker lives, or is ready
              1   the worker doesn't live, isn't ready, or gave no answer in time
              64  the command line is wrong
              78  section admin of the configuration is wrong, or names no fixed port
            """)

    @Flag(help: "Ask whether the worker is ready: it has partitions and can proceed with them.")
    var ready = false

    @Option(help: ArgumentHelp("Address of the admin endpoint.", valueName: "host:port"))
    var admin: String?

    @Option(
        name: [.short, .long],
        help: ArgumentHelp("The worker's configuration file, read for admin.listen alone.", valueName: "path")
    )
    var config: String?

    @Option(help: ArgumentHelp("Longest wait for the answer, 0.1 to 60.", valueName: "seconds"))
    var timeout = 4.0

    func validate() throws {
        guard (0.1...60).contains(timeout) else { throw ValidationError("--timeout: 0.1 to 60 seconds") }
    }

    func run() throws {
        let address = try AdminAddress.ofThisMachine(
            option: admin, config: config, environment: ProcessInfo.processInfo.environment)
        let reasons = HealthVerdict.ask(address, ready: ready, limit: .milliseconds(Int(timeout * 1_000)))
        guard reasons.isEmpty else {
            for reason in reasons { Terminal.error("sluice: \(reason)") }
            throw CommandFailure(.failure)
        }
    }
}

/// Judgement of a worker by its probe.
enum HealthVerdict {
    /// Asks a worker. Returns reasons against its health; none for a healthy worker. Blocks for at most `limit`.
    static func ask(_ address: AdminAddress, ready: Bool, limit: Duration) -> [String] {
        let path = ready ? "/readyz" : "/livez"
        do throws(AdminCall.Failure) {
            let answer = try AdminCall.get(path, from: address, limit: limit, mostBytes: 1 << 20)
            return reasons(answer, place: "http://\(address)\(path)")
        } catch {
            return ["http://\(address)\(path): \(error)"]
        }
    }

    /// Returns the reasons of an answer; none for a 200.
    static func reasons(_ answer: AdminCall.Answer, place: String) -> [String] {
        if answer.status == 200 { return [] }
        let reasons = document(of: answer)?["reasons"] as? [String] ?? []
        return reasons.isEmpty ? [refusal(answer, place: place)] : reasons
    }

    /// Returns a text for an answer other than 200: its status, and the member `error` of its document.
    static func refusal(_ answer: AdminCall.Answer, place: String) -> String {
        let error = document(of: answer)?["error"] as? String ?? ""
        return "\(place): status \(answer.status)" + (error.isEmpty ? ", without a reason" : ": \(error)")
    }

    private static func document(of answer: AdminCall.Answer) -> [String: Any]? {
        try? JSONSerialization.jsonObject(with: Data(answer.body)) as? [String: Any]
    }
}

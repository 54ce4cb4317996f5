import Foundation
import HTTP2

/// The demo's directory: a signing key, the worker's configuration, logs. Removed at the end, unless it is to be kept
/// for inspection.
final class DemoFiles {
    static let keyID = "DEMOKEY001"
    static let teamID = "DEMOTEAM01"

    let directory: String
    var isKept = false

    init() throws(CommandFailure) {
        var template = Array(
            "\(URL.temporaryDirectory.path(percentEncoded: false))sluice-demo-XXXXXX".utf8CString)
        guard let created = mkdtemp(&template) else {
            throw CommandFailure(
                .internalError, "can't make a temporary directory: \(String(cString: strerror(errno)))")
        }
        directory = String(cString: created)
        do {
            // An EC P-256 key in PKCS #8, the form in which Apple issues keys.
            let key = try CertificateAuthority(commonName: "sluice demo").privateKeyPEM
            try write(key, to: "AuthKey.p8")
        } catch {
            throw CommandFailure(.internalError, "can't write the demo's key: \(error)")
        }
    }

    deinit {
        if !isKept { try? FileManager.default.removeItem(atPath: directory) }
    }

    func path(_ name: String) -> String { "\(directory)/\(name)" }

    func write(_ text: String, to name: String) throws {
        let path = path(name)
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        chmod(path, 0o600)
    }

    /// Writes the worker's configuration.
    func writeConfiguration(
        bootstrapServers: String, simulatorPort: String, shards: Int
    ) throws(CommandFailure) {
        let apps = DemoLoad.apps.map { "  - {name: \($0.name), topics: [\($0.bundle)], credential: team}" }
        let text = """
            kafka:
              bootstrap-servers: "\(bootstrapServers)"
              group-id: demo
              # The embedded cluster answers an empty fetch only after this.
              consumer-properties: {fetch.wait.max.ms: 10}
            apns:
              environment: custom
              host: localhost
              port: \(simulatorPort)
              ca-file: ca.pem
            credentials:
              team: {type: token, key-file: AuthKey.p8, key-id: \(DemoFiles.keyID), team-id: \(DemoFiles.teamID)}
            apps:
            \(apps.joined(separator: "\n"))
            delivery:
              shards: \(shards)
              drain-deadline: 5s
              # Short, so that the demo ends soon after its last job.
              retry: {initial: 100ms, maximum: 1s, max-attempts: 8}
            metrics: {stats-interval: 1s}
            admin: {listen: off}
            """
        do {
            try write(text, to: "sluice.yaml")
        } catch {
            throw CommandFailure(.internalError, "can't write the demo's configuration: \(error)")
        }
    }
}

import Configuration
import Foundation
import TestSupport
import Testing

@testable import Admin
@testable import sluice

/// `sluice health` as a process against endpoints in the test's process.
struct HealthCommandTests {
    private func health(
        _ arguments: [String], environment: [String: String] = [:]
    ) throws -> (exit: ChildProcess.Exit, standardOutput: String, standardError: String) {
        try ChildProcess.run(Executables.sluice, ["health"] + arguments, environment: environment)
    }

    @Test func startingWorkerLivesAndIsNotReadyWithItsReason() throws {
        let server = try AdminTestServer(AdminEndpoints().routes)
        let live = try health(["--admin", "\(server.address)"])
        #expect(live.exit == .status(0))
        #expect(live.standardError == "")
        let ready = try health(["--ready", "--admin", "http://\(server.address)/"])
        #expect(ready.exit == .status(1))
        #expect(
            ready.standardError
                == "sluice: the worker is starting; it opens its store and connects to Kafka\n")
    }

    @Test func eachReasonOfAnUnhealthyWorkerIsALine() throws {
        let server = try AdminTestServer(["/livez": { _ in .json(503, ["reasons": ["one", "two"]]) }])
        let result = try health(["--admin", "\(server.address)"])
        #expect(result.exit == .status(1))
        #expect(result.standardError == "sluice: one\nsluice: two\n")
        #expect(result.standardOutput == "")
    }

    @Test func answerWithoutReasonsNamesItsStatusAndError() throws {
        let server = try AdminTestServer(["/readyz": { _ in .json(503, ["reasons": [String]()]) }])
        let absent = try health(["--admin", "\(server.address)"])
        #expect(absent.exit == .status(1))
        #expect(
            absent.standardError
                == "sluice: http://\(server.address)/livez: status 404: there is no such path\n")
        let silent = try health(["--ready", "--admin", "\(server.address)"])
        #expect(silent.exit == .status(1))
        #expect(
            silent.standardError
                == "sluice: http://\(server.address)/readyz: status 503, without a reason\n")
    }

    @Test func addressIsTheVariablesOtherwiseTheFiles() throws {
        let server = try AdminTestServer(AdminEndpoints().routes)
        let directory = try TemporaryDirectory("health")
        // Only section admin counts: the key doesn't exist.
        let right = try directory.write(
            "admin: {listen: \"\(server.address)\"}\napps: [{name: a, credential: {key-file: missing.p8}}]\n",
            to: "right.yaml")
        #expect(try health(["--config", right]).exit == .status(0))
        let elsewhere = try directory.write("admin: {listen: off}\n", to: "off.yaml")
        #expect(
            try health(
                ["--config", elsewhere],
                environment: ["SLUICE_ADMIN__LISTEN": "0.0.0.0:\(server.address.port)"]
            ).exit == .status(0))
        let off = try health(["--config", elsewhere])
        #expect(off.exit == .status(78))
        #expect(off.standardError.contains("admin.listen is `off`"))
    }

    @Test func wrongAddressesAndConfigurationsAreReported() throws {
        #expect(try health(["--admin", "a b:1"]).exit == .status(64))
        #expect(try health(["--timeout", "0"]).exit == .status(64))
        let wrong = try health([], environment: ["SLUICE_ADMIN__LISTEN": "nowhere"])
        #expect(wrong.exit == .status(78))
        #expect(wrong.standardError.contains("SLUICE_ADMIN__LISTEN: admin.listen"))
        let any = try health([], environment: ["SLUICE_ADMIN__LISTEN": "127.0.0.1:0"])
        #expect(any.exit == .status(78))
        #expect(any.standardError.contains("port 0"))
    }

    @Test func absentAndSilentEndpointsAreUnhealthy() throws {
        let absent = HealthVerdict.ask(
            AdminAddress(host: "127.0.0.1", port: 1), ready: false, limit: .seconds(60))
        #expect(absent.count == 1 && absent[0].contains("no connection"), "\(absent)")
        let silent = try SilentListener()
        let reasons = HealthVerdict.ask(
            AdminAddress(host: "127.0.0.1", port: silent.port), ready: false, limit: .milliseconds(50))
        #expect(reasons == ["http://127.0.0.1:\(silent.port)/livez: no answer in time"])
    }

    @Test func addressesAreReadInTheirForms() {
        #expect(AdminAddress("127.0.0.1:80") == AdminAddress(host: "127.0.0.1", port: 80))
        #expect(AdminAddress(":9000") == AdminAddress(host: "127.0.0.1", port: 9000))
        #expect(AdminAddress("worker-0.sluice") == AdminAddress(host: "worker-0.sluice", port: 9464))
        #expect(AdminAddress("[::1]:80")?.description == "[::1]:80")
        #expect(AdminAddress("http://[::1]/")?.description == "[::1]:9464")
        for wrong in ["", "a:", "a:x", "a:0", "a:65536", "::1", "[::1", "[a]:1", "[::1]x", "a/b:1", "a\r\nb"]
        {
            #expect(AdminAddress(wrong) == nil, "\(wrong)")
        }
    }

    /// A port whose connections are never answered.
    private final class SilentListener {
        private let descriptor: Int32
        let port: UInt16

        init() throws {
            descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_addr.s_addr = in_addr_t(0x7f00_0001).bigEndian
            var size = socklen_t(MemoryLayout<sockaddr_in>.size)
            let descriptor = descriptor
            let isBound = withUnsafeMutablePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(descriptor, $0, size) == 0 && listen(descriptor, 8) == 0
                        && getsockname(descriptor, $0, &size) == 0
                }
            }
            guard isBound else { throw POSIXError(.EIO) }
            port = UInt16(bigEndian: address.sin_port)
        }

        deinit { close(descriptor) }
    }
}

import EventLoop
import Glibc
import HTTP2
import TestSupport
import Testing

@testable import APNSSimulator

/// Tests the simulator against clients that share no code with the simulator.
@Suite struct SimulatorClientsTests {
    @Test(.enabled(if: Executables.find("curl") != nil, "curl is not installed"))
    func curlIsAnsweredWithAcceptanceAndRejection() throws {
        let directory = try TemporaryDirectory("simulator")
        let fixture = try SimulatorFixture { options, _ in options.certificateDirectory = directory.path }
        func push(_ headers: [String]) throws -> String {
            let result = try ChildProcess.run(
                "curl",
                [
                    "--silent", "--show-error", "--http2", "--cacert", directory.file("ca.pem"), "--include",
                    "--data", #"{"aps":{"alert":"hello"}}"#,
                    "https://localhost:\(fixture.simulator.port)/3/device/\(String(repeating: "0a", count: 32))",
                ] + headers.flatMap { ["--header", $0] })
            #expect(result.exit == .status(0), "\(result.standardError)")
            return result.standardOutput
        }
        let good = try push([
            "authorization: bearer \(fixture.token)", "apns-topic: com.example.app", "apns-push-type: alert",
        ])
        #expect(good.hasPrefix("HTTP/2 200"))
        #expect(good.contains("apns-id: "))
        let bad = try push(["apns-topic: com.example.app"])
        #expect(bad.hasPrefix("HTTP/2 403"))
        #expect(bad.hasSuffix(#"{"reason":"MissingProviderToken"}"#))
    }

    @Test(.enabled(if: Executables.find("curl") != nil, "curl is not installed"))
    func curlFindsNoContentInTheAnswerToHEAD() throws {
        let directory = try TemporaryDirectory("simulator")
        let fixture = try SimulatorFixture { options, _ in options.certificateDirectory = directory.path }
        let result = try ChildProcess.run(
            "curl",
            [
                "--silent", "--show-error", "--http2", "--cacert", directory.file("ca.pem"), "--head",
                "https://localhost:\(fixture.simulator.port)/3/device/00",
            ])
        #expect(result.exit == .status(0), "\(result.standardError)")
        #expect(result.standardOutput.hasPrefix("HTTP/2 405"))
        #expect(!result.standardOutput.contains("MethodNotAllowed"))
    }

    @Test(.enabled(if: Executables.find("nghttp") != nil, "nghttp is not installed"))
    func nghttpSeesTheStreamLimitRise() throws {
        let directory = try TemporaryDirectory("simulator")
        let fixture = try SimulatorFixture()
        let body = try directory.write(#"{"aps":{}}"#, to: "body.json")
        let result = try ChildProcess.run(
            "nghttp",
            [
                "--verbose", "--data", body, "--header", ":method: POST",
                "--header", "authorization: bearer \(fixture.token)", "--header",
                "apns-topic: com.example.app",
                "https://localhost:\(fixture.simulator.port)/3/device/\(String(repeating: "0a", count: 32))",
            ])
        #expect(result.exit == .status(0), "\(result.standardError)")
        #expect(result.standardOutput.contains(":status: 200"))
        #expect(result.standardOutput.contains("SETTINGS_MAX_CONCURRENT_STREAMS(0x03):1]"))
        #expect(result.standardOutput.contains("SETTINGS_MAX_CONCURRENT_STREAMS(0x03):1000]"))
    }

    @Test(
        .enabled(if: Executables.find("h2load") != nil, "h2load is not installed"), arguments: [false, true])
    func h2loadRequestsAllSucceed(isNull: Bool) throws {
        let directory = try TemporaryDirectory("simulator")
        let fixture = try SimulatorFixture { options, _ in
            if isNull { options = .null }
            // h2load opens its streams before it has read the server's SETTINGS.
            options.streamsBeforeToken = 1_000
        }
        let body = try directory.write(
            #"{"aps":{"alert":"\#(String(repeating: "x", count: 230))"}}"#, to: "body.json")
        let count = 5_000
        let result = try ChildProcess.run(
            "h2load",
            [
                "-n", "\(count)", "-c", "2", "-m", "500", "-d", body,
                "-H", "authorization: bearer \(fixture.token)", "-H", "apns-topic: com.example.app",
                "-H", "apns-push-type: alert",
                "https://localhost:\(fixture.simulator.port)/3/device/\(String(repeating: "0a", count: 32))",
            ])
        #expect(result.exit == .status(0), "\(result.standardError)")
        #expect(
            result.standardOutput.contains(
                "\(count) done, \(count) succeeded, 0 failed, 0 errored, 0 timeout"),
            "\(result.standardOutput)")
        #expect(result.standardOutput.contains("\(count) 2xx"))
        #expect(fixture.simulator.summary.accepted == UInt64(count))
    }
}

/// Runs blocking work on a thread of its own.
final class Stopper: Sendable {
    private let done = BlockingFlag()

    init(_ body: @escaping @Sendable () -> Void) {
        let work = Work(body: body, done: done)
        var thread = pthread_t()
        pthread_create(
            &thread, nil,
            { argument in
                let work = Unmanaged<Work>.fromOpaque(argument!).takeRetainedValue()
                work.body()
                work.done.set()
                return nil
            }, Unmanaged.passRetained(work).toOpaque())
        pthread_detach(thread)
    }

    func wait() { done.wait() }

    private final class Work: Sendable {
        let body: @Sendable () -> Void
        let done: BlockingFlag

        init(body: @escaping @Sendable () -> Void, done: BlockingFlag) {
            self.body = body
            self.done = done
        }
    }
}

import TestSupport
import Testing

@testable import HTTP2

/// Tests the server against clients that share no code with the server.
@Suite struct ServerClientsTests {
    @Test(.enabled(if: Executables.find("curl") != nil, "curl is not installed"))
    func curlRequestIsAnsweredOverHTTP2() throws {
        let server = try ServerFixture()
        let result = try ChildProcess.run(
            "curl",
            [
                "--silent", "--show-error", "--http2", "--cacert", server.authorityFile, "--write-out",
                "%{http_version} %{http_code}", "--header", "apns-topic: com.example.app", "--data",
                #"{"aps":{"alert":"hello"}}"#, "\(server.url)/3/device/00ff",
            ])
        #expect(result.exit == .status(0), "\(result.standardError)")
        #expect(result.standardOutput == "2 200")
        let request = try #require(server.log.requests.first)
        #expect(request.method == "POST")
        #expect(request.path == "/3/device/00ff")
        #expect(request.authority == server.authority)
        #expect(request.headers["apns-topic"] == "com.example.app")
        #expect(request.body == #"{"aps":{"alert":"hello"}}"#)
    }

    @Test(.enabled(if: Executables.find("curl") != nil, "curl is not installed"))
    func curlRefusesAnUnknownAuthority() throws {
        let server = try ServerFixture()
        let result = try ChildProcess.run("curl", ["--silent", "--http2", "\(server.url)/"])
        #expect(result.exit == .status(60))
        #expect(server.log.requests.isEmpty)
    }

    @Test(.enabled(if: Executables.find("nghttp") != nil, "nghttp is not installed"))
    func nghttpRequestIsAnsweredWithoutReset() throws {
        let server = try ServerFixture()
        let body = try server.directory.write(#"{"aps":{}}"#, to: "body.json")
        let result = try ChildProcess.run(
            "nghttp",
            ["--verbose", "--data", body, "--header", ":method: POST", "\(server.url)/3/device/aa"])
        #expect(result.exit == .status(0), "\(result.standardError)")
        #expect(result.standardOutput.contains(":status: 200"))
        #expect(!result.standardOutput.contains("RST_STREAM"))
        #expect(server.log.requests.first?.body == #"{"aps":{}}"#)
    }

    @Test(
        .enabled(if: Executables.find("h2load") != nil, "h2load is not installed"),
        arguments: [(1, 1), (1, 200), (4, 50)])
    func h2loadRequestsAllSucceed(connections: Int, streams: Int) throws {
        let server = try ServerFixture(options: { $0.requestParts = [.headers] })
        let body = try server.directory.write(String(repeating: "x", count: 250), to: "body.json")
        let count = 4_000
        let result = try ChildProcess.run(
            "h2load",
            [
                "-n", "\(count)", "-c", "\(connections)", "-m", "\(streams)", "-d", body,
                "\(server.url)/3/device/aa",
            ])
        #expect(result.exit == .status(0), "\(result.standardError)")
        #expect(
            result.standardOutput.contains(
                "\(count) done, \(count) succeeded, 0 failed, 0 errored, 0 timeout"),
            "\(result.standardOutput)")
        #expect(server.log.requests.count == count)
        #expect(server.log.requests.allSatisfy { $0.bodyLength == 250 && $0.body.isEmpty })
    }
}

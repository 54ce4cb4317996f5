import Foundation
import SluiceModel
import TestSupport
import Testing

@testable import APNSSimulator

/// Tests the simulator against APNs clients of others, from PyPI.
@Suite struct ForeignClientTests {
    private struct Answer: Decodable {
        var status: Int
        var reason: String?
        var id: String?
        var sent: String?
        var timestamp: Int64?
        var http: String?
    }

    private struct Answers: Decodable {
        var good: Answer
        var collapsed: Answer
        var gone: Answer
        var bad: Answer
        var topic: Answer
        var token: Answer?
        /// Accepted pushes of the burst.
        var burst: Int
    }

    @Test(
        .enabled(
            if: PythonPackages.interpreter != nil, "the packages of Tests/requirements.txt are not installed"),
        arguments: ["aioapns", "httpx"])
    func foreignClientsSeeAPNsAnswers(client: String) throws {
        let directory = try TemporaryDirectory("simulator")
        let fixture = try SimulatorFixture { options, _ in
            options.certificateDirectory = directory.path
            options.topics = ["com.example.app"]
            options.maximumStreams = 50
            options.deviceRules = [
                SimulatorOptions.DeviceRule(prefix: "dead", reason: .unregistered),
                SimulatorOptions.DeviceRule(prefix: "bad0", reason: .badDeviceToken),
            ]
        }
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(
            path: "Clients/foreign_clients.py"
        ).path(percentEncoded: false)
        let burst = 400
        let result = try ChildProcess.run(
            PythonPackages.interpreter ?? "",
            [
                script, client, "\(fixture.simulator.port)", directory.file("ca.pem"),
                try directory.write(fixture.key.privateKeyPEM, to: "key.p8"), fixture.key.keyID,
                fixture.key.teamID, "com.example.app", "\(burst)",
            ])
        #expect(result.exit == .status(0), "\(result.standardError)")
        let answers = try JSONDecoder().decode(Answers.self, from: Data(result.standardOutput.utf8))
        #expect(answers.good.status == 200)
        #expect(answers.good.id == answers.good.sent)
        #expect(answers.collapsed.status == 200)
        #expect(answers.gone.status == 410)
        #expect(answers.gone.reason == "Unregistered")
        #expect((answers.gone.timestamp ?? 0) > 1_700_000_000_000)
        #expect(answers.bad.status == 400)
        #expect(answers.bad.reason == "BadDeviceToken")
        #expect(answers.topic.reason == "TopicDisallowed")
        if client == "httpx" {
            #expect(answers.good.http == "HTTP/2")
            #expect(answers.token?.status == 403)
            #expect(answers.token?.reason == "InvalidProviderToken")
        }
        // Each client keeps the stream limit, so that nothing of the burst is lost.
        #expect(answers.burst == burst)
        #expect(fixture.simulator.summary.accepted == UInt64(burst) + 2)
    }
}

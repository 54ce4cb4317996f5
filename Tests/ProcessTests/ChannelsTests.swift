import Foundation
import HTTP2
import KafkaTestSupport
import TestSupport
import Testing

/// `sluice channels` against a simulator in a process of its own.
@Suite("Command line: channels")
struct ChannelsTests {
    /// A simulator with channel management, and a configuration for it.
    private final class Bed {
        let directory: TemporaryDirectory
        let configuration: String
        let port: String
        private let simulator: ChildProcess

        init(_ arguments: [String] = [], topics: String = "[com.example.scores]") throws {
            let directory = try TemporaryDirectory("channels")
            self.directory = directory
            try directory.write(CertificateAuthority(commonName: "test").privateKeyPEM, to: "team.p8")
            let ready = directory.file("simulator.ready")
            simulator = try ChildProcess(
                Executables.sluice,
                [
                    "simulator", "--port", "0", "--management-port", "0", "--directory", directory.path,
                    "--stop-with-input", "--ready-file", ready,
                    "--key", "ABC123DEFG:DEF123GHIJ:\(directory.file("team.p8"))",
                ] + arguments)
            try simulator.waits(for: "the simulator is ready") { directory.read("simulator.ready") != nil }
            let lines = try #require(directory.read("simulator.ready")).split(separator: "\n")
            port = String(try #require(lines[1].split(separator: ":").last))
            configuration = try directory.write(
                """
                kafka: {bootstrap-servers: "127.0.0.1:9"}
                apns: {environment: custom, host: localhost, port: \(lines[0].split(separator: ":")[1]), ca-file: ca.pem}
                apps:
                  - name: scores
                    topics: \(topics)
                    credential: {type: token, key-file: team.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}
                """, to: "sluice.yaml")
        }

        func run(
            _ arguments: String...
        ) throws -> (exit: ChildProcess.Exit, standardOutput: String, standardError: String) {
            try ChildProcess.run(
                Executables.sluice, ["channels"] + arguments + ["-c", configuration, "--port", port])
        }
    }

    /// Each command signs a provider token of its own; all of them have the same issue time.
    @Test func channelLivesFromCreationToDeletion() throws {
        let bed = try Bed(["--count-token-updates", "issue-time"])
        let none = try bed.run("list")
        #expect(none.exit == .status(0))
        #expect(none.standardOutput == "")
        #expect(none.standardError.contains("com.example.scores has no channels"))

        let created = try bed.run("create", "--storage", "newest")
        #expect(created.exit == .status(0), "\(created.standardError)")
        let channel = created.standardOutput.trimmingCharacters(in: .newlines)
        #expect(Data(base64Encoded: channel)?.isEmpty == false)

        let shown = try bed.run("show", channel)
        #expect(shown.exit == .status(0))
        #expect(shown.standardOutput.contains("newest broadcast, for at most eight hours"))
        #expect(
            try bed.run("show", channel, "--json").standardOutput
                == """
                {"app":"com.example.scores","channel":"\(channel)","environment":"custom","message-storage-policy":1,"push-type":"LiveActivity"}

                """)
        #expect(try bed.run("list").standardOutput == "\(channel)\n")
        #expect(
            try bed.run("list", "--json").standardOutput
                == #"{"app":"com.example.scores","channels":["\#(channel)"],"environment":"custom"}"# + "\n")

        let refused = try bed.run("delete", channel)
        #expect(refused.exit == .status(64))
        #expect(refused.standardError.contains("add --yes"))
        #expect(try bed.run("list").standardOutput == "\(channel)\n")
        #expect(try bed.run("delete", channel, "--yes").standardOutput == "deleted \(channel)\n")
        let gone = try bed.run("show", channel)
        #expect(gone.exit == .status(1))
        #expect(gone.standardError.contains("APNs answered ChannelNotRegistered (apns-request-id "))
        #expect(!gone.standardError.contains("ABC123DEFG"))
    }

    @Test func identifierThatIsNoBase64IsRefusedBeforeConnecting() throws {
        for channel in ["a b", "\u{e9}", "", String(repeating: "A", count: 257)] {
            let result = try ChildProcess.run(Executables.sluice, ["channels", "show", channel])
            #expect(result.exit == .status(64))
        }
    }

    @Test func simulatorRefusesUnknownWaysOfCounting() throws {
        let result = try sluice("simulator", "--port", "0", "--count-token-updates", "team")
        #expect(result.exit == .status(64))
        #expect(result.standardError.contains("issue-time"))
        #expect(try sluice("simulator", "--null", "--management-port", "0").exit == .status(64))
    }

    @Test func produceMakesABroadcastToAChannel() throws {
        let kafka = try TestKafka([("jobs", 1)])
        let broadcast = [
            "--kind", "broadcast", "--channel-id", "dHN0LXNyY2gtY2hubA==", "--topic", "com.example.scores",
            "--payload", #"{"aps":{"event":"update"}}"#,
        ]
        let target = ["produce", "-b", kafka.bootstrapServers, "--jobs-topic", kafka.topic("jobs")]
        for mode in ["binary", "structured"] {
            let result = try ChildProcess.run(
                Executables.sluice, target + broadcast + ["--ttl", "0", "--mode", mode])
            #expect(result.exit == .status(0), "\(result.standardError)")
            #expect(
                result.standardOutput.hasPrefix("produced to \(kafka.topic("jobs")), partition 0, offset "))
        }
        let endless = try ChildProcess.run(Executables.sluice, target + broadcast)
        #expect(endless.exit == .status(65))
        #expect(endless.standardError.contains("a broadcast must have an expiration or a ttl"))
        for (options, message) in [
            (["--device-token", deviceToken], "--device-token is not for --kind broadcast"),
            (["--collapse-id", "x"], "--collapse-id is not for --kind broadcast"),
            (["--alert", "x"], "--alert is only for --kind push"),
            (["--event", "online"], "--event is only for --kind device"),
            (["--expiration", "0", "--ttl", "0"], "--expiration and --ttl exclude each other"),
        ] {
            let wrong = try ChildProcess.run(Executables.sluice, target + broadcast + options)
            #expect(wrong.exit == .status(64))
            #expect(wrong.standardError.contains(message), "\(wrong.standardError)")
        }
        let push = try sluice(
            "produce", "--device-token", deviceToken, "--topic", "a.b", "--alert", "x", "--channel-id", "AA=="
        )
        #expect(push.standardError.contains("--channel-id is only for --kind broadcast"))
    }

    @Test func creationNeedsAStorage() throws {
        for arguments in [["create"], ["create", "--storage", "all"]] {
            let result = try ChildProcess.run(Executables.sluice, ["channels"] + arguments)
            #expect(result.exit == .status(64))
            #expect(result.standardError.contains("--storage"))
        }
    }

    @Test func refusalExitsWith1AndNamesTheRemedy() throws {
        let bed = try Bed(["--without-broadcast", "com.example.scores"])
        let result = try bed.run("create", "--storage", "none")
        #expect(result.exit == .status(1))
        #expect(result.standardOutput == "")
        #expect(result.standardError.contains("APNs answered FeatureNotEnabled"))
        #expect(result.standardError.contains("turn it on"))
    }

    @Test func throttledCommandWaitsAndGivesUp() throws {
        let bed = try Bed(["--management-per-second", "0", "--retry-after", "300"])
        let result = try bed.run("list", "--json")
        #expect(result.exit == .status(1))
        #expect(result.standardError.contains("TooManyRequests"))
        #expect(result.standardError.contains("APNs asks for a pause of 300 s"))
    }

    @Test func appAndBundleIdentifierMustBeClear() throws {
        let bed = try Bed(topics: "[com.example.scores, com.example.news]")
        let unclear = try bed.run("list")
        #expect(unclear.exit == .status(78))
        #expect(unclear.standardError.contains("--bundle-id: com.example.scores, com.example.news"))
        #expect(try bed.run("list", "--bundle-id", "com.example.news").exit == .status(0))
        #expect(try bed.run("list", "--bundle-id", "com.example.other").exit == .status(78))
        #expect(try bed.run("list", "--app", "other").exit == .status(78))
        let both = try bed.run("list", "--app", "scores", "--bundle-id", "com.example.other")
        #expect(both.standardError.contains("app scores has other topics"))
    }

    @Test func serverThatIsNotThereExitsWith69() throws {
        let bed = try Bed()
        let port = "\(try freePort())"
        let result = try ChildProcess.run(
            Executables.sluice, ["channels", "list", "-c", bed.configuration, "--port", port])
        #expect(result.exit == .status(69))
        #expect(result.standardError.contains("localhost:\(port): connect to "), "\(result.standardError)")
        // Environment custom has no port of its own.
        let portless = try ChildProcess.run(
            Executables.sluice, ["channels", "list", "-c", bed.configuration])
        #expect(portless.exit == .status(78))
        #expect(portless.standardError.contains("--port"))
    }
}

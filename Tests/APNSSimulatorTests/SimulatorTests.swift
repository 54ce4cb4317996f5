import CNghttp2
import EventLoop
import HTTP2
import SluiceModel
import TestSupport
import Testing

@testable import APNSSimulator

@Suite struct StreamLimitTests {
    @Test func firstSettingsMatchAPNs() throws {
        let fixture = try SimulatorFixture()
        let client = try fixture.connect()
        #expect(client.setting(NGHTTP2_SETTINGS_HEADER_TABLE_SIZE) == 4_096)
        #expect(client.streamLimit == 1)
        #expect(client.setting(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE) == 65_535)
        #expect(client.setting(NGHTTP2_SETTINGS_MAX_FRAME_SIZE) == 16_384)
        #expect(client.setting(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE) == 8_000)
    }

    /// A token counts as accepted even when the push itself is rejected.
    @Test func streamLimitRisesWithTheFirstAcceptedToken() throws {
        let fixture = try SimulatorFixture()
        let client = try fixture.connect()
        var request = fixture.good()
        request["authorization"] = nil
        #expect(try client.push(request).reason == "MissingProviderToken")
        #expect(client.streamLimit == 1)
        request = fixture.good()
        request["apns-priority"] = "3"
        #expect(try client.push(request).reason == "BadPriority")
        try client.run { client.streamLimit == 1_000 }
        #expect(client.streamLimit == 1_000)
    }

    /// An expired token lowers the limit to one stream until the next accepted push.
    @Test func streamLimitFallsWithAnExpiredToken() throws {
        let fixture = try SimulatorFixture()
        let client = try fixture.connect()
        #expect(try client.push(fixture.good()).status == 200)
        try client.run { client.streamLimit == 1_000 }
        #expect(try client.push(.good(token: fixture.key.token(age: 4_000))).reason == "ExpiredProviderToken")
        try client.run { client.streamLimit == 1 }
        #expect(client.streamLimit == 1)
        #expect(try client.push(fixture.good()).status == 200)
        try client.run { client.streamLimit == 1_000 }
        #expect(client.streamLimit == 1_000)
    }

    @Test func optionsSetBothStreamLimits() throws {
        let fixture = try SimulatorFixture { options, _ in
            options.streamsBeforeToken = 7
            options.maximumStreams = 70
        }
        let client = try fixture.connect()
        #expect(client.streamLimit == 7)
        #expect(try client.push(fixture.good()).status == 200)
        try client.run { client.streamLimit == 70 }
        #expect(client.streamLimit == 70)
    }
}

@Suite struct SimulatorBehaviourTests {
    @Test func onlySandboxAnswersWithAUniqueIdentifier() throws {
        for (environment, isGiven) in [(SimulatorOptions.Environment.sandbox, true), (.production, false)] {
            let fixture = try SimulatorFixture { options, _ in options.environment = environment }
            let client = try fixture.connect()
            let first = try client.push(fixture.good()).headers["apns-unique-id"]
            let second = try client.push(fixture.good()).headers["apns-unique-id"]
            #expect((first?.utf8.count == 36) == isGiven)
            #expect((first != second) == isGiven)
        }
    }

    @Test func missingIdentifierIsReplacedByARandomUUID() throws {
        let fixture = try SimulatorFixture()
        let client = try fixture.connect()
        var request = fixture.good()
        request["apns-id"] = nil
        var seen: Set<String> = []
        for _ in 0..<20 {
            let identifier = try #require(try client.push(request).headers["apns-id"])
            #expect(identifier.allSatisfy { $0 == "-" || $0.isHexDigit && !$0.isUppercase })
            #expect(Array(identifier)[14] == "4")
            seen.insert(identifier)
        }
        #expect(seen.count == 20)
    }

    @Test func faultsFollowTheirShareAndRepeatWithTheSeed() throws {
        func answers(seed: UInt64) throws -> [String?] {
            let fixture = try SimulatorFixture { options, _ in
                options.faults = try! SimulatorOptions.parseFaults(
                    "InternalServerError=0.2,TooManyRequests=0.1")
                options.seed = seed
            }
            let client = try fixture.connect()
            return try (0..<300).map { _ in try client.push(fixture.good()).reason }
        }
        let first = try answers(seed: 5)
        #expect(try answers(seed: 5) == first)
        #expect(try answers(seed: 6) != first)
        #expect((40...80).contains(first.count { $0 == "InternalServerError" }))
        #expect((15...50).contains(first.count { $0 == "TooManyRequests" }))
    }

    @Test(arguments: [
        ("InternalServerError", 500), ("ServiceUnavailable", 503), ("Shutdown", 503),
        ("TooManyRequests", 429),
    ])
    func faultIsAnsweredWithItsStatus(reason: String, status: Int) throws {
        let fixture = try SimulatorFixture { options, _ in
            options.faults = try! SimulatorOptions.parseFaults("\(reason)=1")
        }
        let response = try fixture.connect().push(fixture.good())
        #expect(response.status == status)
        #expect(response.reason == reason)
    }

    @Test(arguments: [
        ("ServiceUnavailable", "7"), ("TooManyRequests", "7"), ("InternalServerError", nil),
    ])
    func retryAfterIsSentWithRetryableFaults(reason: String, expected: String?) throws {
        let fixture = try SimulatorFixture { options, _ in
            options.faults = try! SimulatorOptions.parseFaults("\(reason)=1")
            options.retryAfterSeconds = 7
        }
        let response = try fixture.connect().push(fixture.good())
        #expect(response.headers["retry-after"] == expected)
        #expect(response.reason == reason)
    }

    @Test func requestsAboveTheDeviceRateAreRejected() throws {
        let fixture = try SimulatorFixture { options, _ in options.requestsPerDeviceSecond = 5 }
        let client = try fixture.connect()
        var reasons: [String?] = []
        for _ in 0..<200 where !reasons.contains("TooManyRequests") {
            reasons.append(try client.push(fixture.good()).reason)
        }
        #expect(reasons.prefix(5).allSatisfy { $0 == nil })
        #expect(reasons.last == "TooManyRequests")
        var other = fixture.good()
        other.device = String(repeating: "0b", count: 32)
        #expect(try client.push(other).status == 200)
    }

    /// Jitter changes the order of the answers.
    @Test func delayedAnswersAllArrive() throws {
        let fixture = try SimulatorFixture { options, _ in
            options.latency = .milliseconds(5)
            options.jitter = .milliseconds(20)
        }
        let client = try fixture.connect()
        #expect(try client.push(fixture.good()).status == 200)
        try client.run { client.streamLimit == 1_000 }
        let streams = (0..<500).map { _ in client.submit(fixture.good()) }
        try client.run { streams.allSatisfy { client.inbox.closed[$0] != nil } }
        #expect(streams.allSatisfy { client.inbox.responses[$0]?.status == 200 })
        #expect(fixture.simulator.summary.accepted == 501)
    }

    /// A second connection closes while its answers are outstanding.
    @Test func nullModeAnswersAfterItsLatency() throws {
        let latency = Duration.milliseconds(50)
        let fixture = try SimulatorFixture { options, _ in
            options = .null
            options.latency = latency
            options.maximumStreams = 300
        }
        let client = try fixture.connect()
        #expect(client.streamLimit == 300)
        var closingClient: PushClient? = try fixture.connect()
        for _ in 0..<100 { closingClient!.submit(fixture.good()) }
        try closingClient!.run { true }
        try eventually("the requests arrived") { fixture.simulator.summary.accepted == 100 }
        closingClient = nil
        let start = MonotonicTime.read()
        let streams = (0..<300).map { _ in client.submit(fixture.good()) }
        try client.run { !client.inbox.closed.isEmpty }
        #expect(MonotonicTime.read().nanoseconds(since: start) >= latency.wholeNanoseconds)
        try client.run { streams.allSatisfy { client.inbox.closed[$0] != nil } }
        #expect(streams.allSatisfy { client.inbox.responses[$0]?.status == 200 })
        let summary = fixture.simulator.summary
        #expect(summary.accepted == 400)
        #expect(summary.mostConnections == 2)
    }

    @Test func resetRequestIsCountedAsCancelled() throws {
        let fixture = try SimulatorFixture { options, _ in options.latency = .seconds(600) }
        let client = try fixture.connect()
        let stream = client.submit(fixture.good())
        try eventually("the request arrived") {
            try client.run { true }
            return fixture.simulator.summary.accepted == 1
        }
        client.reset(stream)
        try client.run { true }
        try eventually("the reset arrived") { fixture.simulator.summary.cancelled == 1 }
    }

    @Test func stopSendsGoAwayWithShutdownAndCloses() throws {
        let fixture = try SimulatorFixture()
        let client = try fixture.connect()
        #expect(try client.push(fixture.good()).status == 200)
        let simulator = fixture.simulator
        let stopper = Stopper { simulator.stop() }
        try client.run { false }
        stopper.wait()
        #expect(client.inbox.goAway?.debugData == #"{"reason":"Shutdown"}"#)
        #expect(simulator.summary.openConnections == 0)
    }

    @Test func idleConnectionIsClosedWithIdleTimeout() throws {
        let fixture = try SimulatorFixture { options, _ in options.idleTimeout = .milliseconds(30) }
        let client = try fixture.connect()
        try client.run { false }
        #expect(client.inbox.goAway?.debugData == #"{"reason":"IdleTimeout"}"#)
    }

    @Test func summaryCountsRequestsByReason() throws {
        let fixture = try SimulatorFixture { options, _ in options.threads = 2 }
        for _ in 0..<4 {
            let client = try fixture.connect()
            #expect(try client.push(fixture.good()).status == 200)
            var request = fixture.good()
            request.body = ""
            #expect(try client.push(request).reason == "PayloadEmpty")
        }
        let summary = fixture.simulator.summary
        #expect(summary.accepted == 4)
        #expect(summary.rejected == [.payloadEmpty: 4])
        #expect(summary.connections == 4)
        #expect(summary.description.contains("requests 8: accepted 4, PayloadEmpty 4"))
    }

    @Test func certificateDirectoryIsWrittenAndReused() throws {
        let directory = try TemporaryDirectory("simulator")
        func start() throws -> SimulatorFixture {
            try SimulatorFixture { options, _ in options.certificateDirectory = directory.file("certificates")
            }
        }
        let first = try start()
        let authority = try #require(directory.read("certificates/ca.pem"))
        #expect(authority == first.simulator.authority.certificatePEM)
        let second = try start()
        #expect(second.simulator.authority.certificatePEM == authority)
        let client = try PushClient(port: second.simulator.port, authority: first.simulator.authority)
        #expect(try client.push(second.good()).status == 200)
        for file in ["server.pem", "server-key.pem", "ca-key.pem"] {
            #expect(directory.read("certificates/\(file)")?.contains("-----BEGIN") == true)
        }
    }
}

@Suite struct PushLogTests {
    private func lines(showsTokens: Bool) throws -> [String] {
        let directory = try TemporaryDirectory("push-log")
        let fixture = try SimulatorFixture { options, _ in
            options.pushLog = .init(path: directory.file("log"), showsTokens: showsTokens)
        }
        let client = try fixture.connect()
        var request = fixture.good()
        request.device = String(repeating: "0A", count: 32)
        #expect(try client.push(request).status == 200)
        request["apns-priority"] = "3"
        request["apns-collapse-id"] = "a \"quoted\" one"
        #expect(try client.push(request).status == 400)
        fixture.simulator.stop()
        return try #require(directory.read("log")).split(separator: "\n").map(String.init)
    }

    @Test func pushLogHasOneLinePerPushWithoutTokens() throws {
        let lines = try lines(showsTokens: false)
        try #require(lines.count == 2)
        let hash = PushLogEntry.hash(ofToken: String(repeating: "0a", count: 32))
        #expect(hash.utf8.count == 32)
        #expect(
            lines[0].hasSuffix(
                #","apnsId":"123e4567-e89b-12d3-a456-426614174000","tokenHash":"\#(hash)","topic":"com.example.app","#
                    + #""pushType":"alert","collapseId":"order-1","status":200}"#))
        #expect(lines[1].contains(#""collapseId":"a \"quoted\" one""#))
        #expect(lines[1].hasSuffix(#","status":400,"reason":"BadPriority"}"#))
        #expect(!lines[0].contains("0a0a0a"))
    }

    @Test func deviceTokensAreLoggedOnRequest() throws {
        let lines = try lines(showsTokens: true)
        #expect(lines.allSatisfy { $0.contains(#""token":"\#(String(repeating: "0a", count: 32))""#) })
    }
}

import TestSupport
import Testing

@testable import APNSSimulator

@Suite struct BroadcastTests {
    static let app = "com.example.app"

    /// A broadcast that is accepted.
    private static func good(_ token: String, _ channel: String) -> PushRequestTemplate {
        var request = PushRequestTemplate()
        request.path = "/4/broadcasts/apps/\(app)"
        request["authorization"] = "bearer \(token)"
        request["apns-channel-id"] = channel
        request["apns-push-type"] = "liveactivity"
        request["apns-priority"] = "10"
        request["apns-expiration"] = "0"
        request["apns-request-id"] = PushCase.unique
        request.body = #"{"aps":{"event":"update","timestamp":1,"content-state":{}}}"#
        return request
    }

    static let cases: [PushCase] = [
        PushCase("good", 200) { _ in },
        PushCase("GET", 405, "MethodNotAllowed") { $0.method = "GET" },
        PushCase("no app", 404, "BadPath") { $0.path = "/4/broadcasts/apps/" },
        PushCase("path behind the app", 404, "BadPath") { $0.path += "/channels" },
        PushCase("no token", 403, "MissingProviderToken") { $0["authorization"] = nil },
        PushCase("bad token", 403, "InvalidProviderToken") { $0["authorization"] = "bearer a.b.c" },
        PushCase("app with a suffix", 400, "TopicDisallowed") { $0.path += ".push-type.liveactivity" },
        PushCase("no channel", 400, "MissingChannelId") { $0["apns-channel-id"] = nil },
        PushCase("channel not base64", 400, "BadChannelId") { $0["apns-channel-id"] = "no base64" },
        PushCase("long channel", 400, "BadChannelId") {
            $0["apns-channel-id"] = String(repeating: "A", count: 132)
        },
        PushCase("other channel", 400, "ChannelNotRegistered") { $0["apns-channel-id"] = "AAAA" },
        PushCase("no expiration", 400, "BadExpirationDate") { $0["apns-expiration"] = nil },
        PushCase("expiration no number", 400, "BadExpirationDate") { $0["apns-expiration"] = "soon" },
        PushCase("expiration without storage", 400, "BadExpirationDate") {
            $0["apns-expiration"] = "2000000000"
        },
        PushCase("no priority", 400, "BadPriority") { $0["apns-priority"] = nil },
        PushCase("priority 7", 400, "BadPriority") { $0["apns-priority"] = "7" },
        PushCase("priority 1", 200) { $0["apns-priority"] = "1" },
        PushCase("no push type", 400, "MissingPushType") { $0["apns-push-type"] = nil },
        PushCase("push type alert", 400, "InvalidPushType") { $0["apns-push-type"] = "alert" },
        PushCase("push type as Apple's table spells it", 200) { $0["apns-push-type"] = "Liveactivity" },
        PushCase("request id no UUID", 400, "BadMessageId") { $0["apns-request-id"] = "1" },
        PushCase("no request id", 200) { $0["apns-request-id"] = nil },
        PushCase("header twice", 400, "DuplicateHeaders") { $0.headers.append(("apns-priority", "10")) },
        PushCase("no payload", 400, "PayloadEmpty") { $0.body = "" },
        PushCase("payload no JSON", 400, "BadRequestPayload") { $0.body = "{" },
        PushCase("start", 400, "BadRequestPayload") { $0.body = #"{"aps":{"event":"start"}}"# },
        PushCase("payload of 5,120 bytes", 200) { $0.body = Self.body(5_120) },
        PushCase("payload of 5,121 bytes", 413, "PayloadTooLarge") { $0.body = Self.body(5_121) },
        PushCase("order: token before channel", 403, "MissingProviderToken") {
            $0["authorization"] = nil
            $0["apns-channel-id"] = nil
        },
    ]

    private static func body(_ count: Int) -> String {
        let frame = #"{"aps":{"event":"end"},"x":""}"#
        return #"{"aps":{"event":"end"},"x":"\#(String(repeating: "y", count: count - frame.utf8.count))"}"#
    }

    @Test(arguments: cases) func eachBroadcastGetsItsDocumentedAnswer(row: PushCase) throws {
        let fixture = try SimulatorFixture()
        let channel = try #require(fixture.simulator.createChannel(app: Self.app, storage: .none))
        var request = Self.good(fixture.token, channel)
        row.change(&request)
        let response = try fixture.connect().push(request)
        #expect(response.status == row.status)
        #expect(response.reason == row.reason)
        let identifier = try #require(response.headers["apns-request-id"])
        if let own = request["apns-request-id"], own == PushCase.unique { #expect(identifier == own) }
        #expect((response.headers["apns-unique-id"] != nil) == (row.status == 200))
        #expect(response.headers["apns-id"] == nil)
        let state = try #require(fixture.simulator.channel(app: Self.app, channel))
        #expect(state.published == (row.status == 200 ? 1 : 0))
        #expect(fixture.simulator.summary.broadcasts == state.published)
    }

    @Test func capabilityThatIsOffAndForeignAppsAreRefused() throws {
        let fixture = try SimulatorFixture { options, _ in
            options.topics = ["com.example.app", "com.example.off"]
            options.appsWithoutBroadcast = ["com.example.off"]
        }
        let client = try fixture.connect()
        for (app, reason) in [
            ("com.example.off", "FeatureNotEnabled"), ("com.example.other", "TopicMismatch"),
            ("com.example.app", "ChannelNotRegistered"),
        ] {
            var request = Self.good(fixture.token, "AAAA")
            request.path = "/4/broadcasts/apps/\(app)"
            #expect(try client.push(request).reason == reason)
        }
    }

    @Test func topicSpecificKeyBroadcastsToItsAppsOnly() throws {
        let fixture = try SimulatorFixture { options, key in
            var known = key.simulatorKey
            known.topics = ["com.example.other"]
            options.providerTokens = .keys([known])
        }
        let response = try fixture.connect().push(Self.good(fixture.token, "AAAA"))
        #expect(response.status == 403)
        #expect(response.reason == "TopicMismatch")
    }

    @Test func certificateBroadcastsToItsAppOnly() throws {
        let fixture = try SimulatorFixture()
        let identity = try fixture.simulator.authority.issueClient(
            commonName: "Apple Push Services: com.example.app", userID: "com.example.app")
        let client = try fixture.connect(identity: identity)
        let channel = try #require(fixture.simulator.createChannel(app: Self.app, storage: .none))
        var request = Self.good(fixture.token, channel)
        request["authorization"] = nil
        #expect(try client.push(request).status == 200)
        request.path = "/4/broadcasts/apps/com.example.other"
        #expect(try client.push(request).reason == "TopicMismatch")
    }

    @Test func acceptedBroadcastOpensAConnectionsStreams() throws {
        let fixture = try SimulatorFixture()
        let channel = try #require(fixture.simulator.createChannel(app: Self.app, storage: .none))
        let client = try fixture.connect()
        #expect(client.streamLimit == 1)
        #expect(try client.push(Self.good(fixture.token, channel)).status == 200)
        try client.run { client.streamLimit == 1_000 }
    }

    @Test func channelsAreSharedByTheThreads() throws {
        let fixture = try SimulatorFixture { options, _ in
            options.threads = 3
            options.broadcastsPerSecond = nil
        }
        let channel = try #require(fixture.simulator.createChannel(app: Self.app, storage: .newest))
        for _ in 0..<12 {
            #expect(try fixture.connect().push(Self.good(fixture.token, channel)).status == 200)
        }
        #expect(fixture.simulator.channel(app: Self.app, channel)?.published == 12)
    }

    @Test func newestBroadcastIsStoredAndReplayedToANewActivity() throws {
        let fixture = try SimulatorFixture()
        let channel = try #require(fixture.simulator.createChannel(app: Self.app, storage: .newest))
        let client = try fixture.connect()
        var broadcast = Self.good(fixture.token, channel)
        broadcast["apns-expiration"] = "4000000000"
        #expect(try client.push(broadcast).status == 200)
        #expect(
            fixture.simulator.channel(app: Self.app, channel)?.storedPayload == Array(broadcast.body.utf8))
        #expect(try client.push(LiveActivityStartTests.start(fixture.token, channel: channel)).status == 200)
        let state = try #require(fixture.simulator.channel(app: Self.app, channel))
        #expect(state.subscriptions == 1)
        #expect(state.replayed == 1)
    }

    @Test func faultsAndRatesApplyToBroadcasts() throws {
        let faulty = try SimulatorFixture { options, _ in
            options.faults = [.init(reason: .serviceUnavailable, share: 1)]
            options.retryAfterSeconds = 3
        }
        let response = try faulty.connect().push(Self.good(faulty.token, "AAAA"))
        #expect(response.reason == "ServiceUnavailable")
        #expect(response.headers["retry-after"] == "3")

        let limited = try SimulatorFixture { options, _ in options.broadcastsPerSecond = 0 }
        let channel = try #require(limited.simulator.createChannel(app: Self.app, storage: .newest))
        #expect(try limited.connect().push(Self.good(limited.token, channel)).reason == "TooManyRequests")
    }

    @Test func latencyDelaysTheAnswerToABroadcast() throws {
        let fixture = try SimulatorFixture { options, _ in options.latency = .milliseconds(20) }
        let channel = try #require(fixture.simulator.createChannel(app: Self.app, storage: .none))
        let start = ContinuousClock.now
        #expect(try fixture.connect().push(Self.good(fixture.token, channel)).status == 200)
        #expect(ContinuousClock.now - start >= .milliseconds(20))
    }

    @Test func logHasBroadcastsWithTheirChannel() throws {
        let directory = try TemporaryDirectory("broadcast-log")
        let path = directory.file("pushes.jsonl")
        let fixture = try SimulatorFixture { options, _ in
            options.pushLog = .init(path: path)
        }
        let channel = try #require(fixture.simulator.createChannel(app: Self.app, storage: .none))
        let client = try fixture.connect()
        #expect(try client.push(Self.good(fixture.token, channel)).status == 200)
        var refused = Self.good(fixture.token, channel)
        refused["apns-expiration"] = "2000000000"
        #expect(try client.push(refused).status == 400)
        fixture.simulator.stop()
        let lines = try #require(directory.read("pushes.jsonl")).split(separator: "\n")
        let tail =
            #""requestId":"123e4567-e89b-12d3-a456-426614174000","channel":"\#(channel)","topic":"com.example.app","#
            + #""pushType":"liveactivity","expiration":"#
        #expect(lines.count == 2)
        #expect(lines[0].hasSuffix(tail + #""0","priority":"10","status":200}"#))
        #expect(
            lines[1].hasSuffix(
                tail + #""2000000000","priority":"10","status":400,"reason":"BadExpirationDate"}"#))
    }
}

/// Pushes that start Live Activities.
@Suite struct LiveActivityStartTests {
    static func start(_ token: String, channel: String? = nil, more: String = "") -> PushRequestTemplate {
        var request = PushRequestTemplate.good(token: token)
        request["apns-topic"] = "com.example.app.push-type.liveactivity"
        request["apns-push-type"] = "liveactivity"
        let input = channel.map { #","input-push-channel":"\#($0)""# } ?? ""
        request.body =
            #"{"aps":{"event":"start","attributes-type":"A","attributes":{},"alert":{}\#(input)\#(more)}}"#
        return request
    }

    @Test func startWithAChannelIsCountedAsItsSubscription() throws {
        let fixture = try SimulatorFixture()
        let channel = try #require(fixture.simulator.createChannel(app: "com.example.app", storage: .none))
        let client = try fixture.connect()
        #expect(try client.push(Self.start(fixture.token, channel: channel)).status == 200)
        // Some encoders escape the slashes of base64.
        let escaped = channel.replacing("/", with: #"\/"#)
        #expect(try client.push(Self.start(fixture.token, channel: escaped)).status == 200)
        #expect(fixture.simulator.channel(app: "com.example.app", channel)?.subscriptions == 2)
    }

    @Test(
        arguments: [
            ("no channel and no token", #"{"aps":{"event":"start"}}"#, nil),
            ("token", #"{"aps":{"event":"start","input-push-token":1}}"#, nil),
            (
                "token of another value", #"{"aps":{"event":"start","input-push-token":2}}"#,
                "BadRequestPayload"
            ),
            (
                "token as text", #"{"aps":{"event":"start","input-push-token":"1"}}"#, "BadRequestPayload"
            ),
            ("token in an update", #"{"aps":{"event":"update","input-push-token":1}}"#, "BadRequestPayload"),
            (
                "unknown channel", #"{"aps":{"event":"start","input-push-channel":"AAAA"}}"#,
                "ChannelNotRegistered"
            ),
            ("channel not base64", #"{"aps":{"event":"start","input-push-channel":"?"}}"#, "BadChannelId"),
            ("channel no text", #"{"aps":{"event":"start","input-push-channel":7}}"#, "BadChannelId"),
            (
                "channel in an update", #"{"aps":{"input-push-channel":"AAAA","event":"update"}}"#,
                "BadRequestPayload"
            ),
            ("member elsewhere", #"{"input-push-channel":"?","aps":{"event":"start"},"x":[{}]}"#, nil),
            ("aps no object", #"{"aps":[1]}"#, nil), ("empty aps", #"{"aps":{}}"#, nil),
            ("no JSON", "{", nil),
        ] as [(String, String, String?)])
    func startGetsItsAnswer(_ name: String, body: String, reason: String?) throws {
        let fixture = try SimulatorFixture()
        var request = Self.start(fixture.token)
        request.body = body
        let response = try fixture.connect().push(request)
        #expect(response.reason == reason)
        #expect(response.status == (reason == nil ? 200 : 400))
    }
}

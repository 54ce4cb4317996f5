import TestSupport
import Testing

@testable import APNSSimulator

@Suite struct ChannelManagementTests {
    static let path = "/1/apps/com.example.app/channels"
    static let create = #"{"message-storage-policy":1,"push-type":"LiveActivity"}"#

    private func fixture(_ change: (inout SimulatorOptions) -> Void = { _ in }) throws -> SimulatorFixture {
        try SimulatorFixture { options, _ in
            options.managementPort = 0
            change(&options)
        }
    }

    private func connect(_ fixture: SimulatorFixture) throws -> PushClient {
        try PushClient(
            port: try #require(fixture.simulator.managementPort), authority: fixture.simulator.authority)
    }

    private func request(
        _ fixture: SimulatorFixture, _ method: String, _ path: String = Self.path, channel: String? = nil,
        body: String = ""
    ) -> PushRequestTemplate {
        var request = PushRequestTemplate()
        request.method = method
        request.path = path
        request["authorization"] = "bearer \(fixture.token)"
        request["apns-channel-id"] = channel
        request.body = body
        return request
    }

    @Test func channelIsCreatedReadListedAndDeleted() throws {
        let fixture = try fixture()
        let client = try connect(fixture)
        let created = try client.push(request(fixture, "POST", body: Self.create))
        #expect(created.status == 201)
        #expect(created.body == "")
        let channel = try #require(created.headers["apns-channel-id"])
        #expect(created.headers["apns-request-id"] != nil)

        let read = try client.push(request(fixture, "GET", channel: channel))
        #expect(read.status == 200)
        #expect(read.body == #"{"message-storage-policy":1,"push-type":"LiveActivity"}"#)
        #expect(read.headers["apns-channel-id"] == nil)

        let list = try client.push(request(fixture, "GET", "/1/apps/com.example.app/all-channels"))
        #expect(list.status == 200)
        #expect(list.body == #"{"channels":["\#(channel)"]}"#)
        #expect(
            try client.push(request(fixture, "GET", "/1/apps/com.example.other/all-channels")).body
                == #"{"channels":[]}"#)

        let deleted = try client.push(request(fixture, "DELETE", channel: channel))
        #expect(deleted.status == 204)
        #expect(deleted.body == "")
        #expect(try client.push(request(fixture, "GET", channel: channel)).reason == "ChannelNotRegistered")
        #expect(
            try client.push(request(fixture, "DELETE", channel: channel)).reason == "ChannelNotRegistered")
        #expect(fixture.simulator.summary.managementRequests == 7)
    }

    static let cases: [PushCase] = [
        PushCase("good", 201) { _ in },
        PushCase("other path", 404, "BadPath") { $0.path = "/1/apps/com.example.app/channel" },
        PushCase("no app", 404, "BadPath") { $0.path = "/1/apps//channels" },
        PushCase("push on this port", 404, "BadPath") { $0.path = "/3/device/00" },
        PushCase("PUT", 405, "MethodNotAllowed") { $0.method = "PUT" },
        PushCase("POST to the list", 405, "MethodNotAllowed") {
            $0.path = "/1/apps/com.example.app/all-channels"
        },
        PushCase("no token", 403, "MissingProviderToken") { $0["authorization"] = nil },
        PushCase("bad token", 403, "InvalidProviderToken") { $0["authorization"] = "bearer x" },
        PushCase("app with a suffix", 400, "TopicDisallowed") {
            $0.path = "/1/apps/com.example.app.voip/channels"
        },
        PushCase("request id no UUID", 400, "BadMessageId") { $0["apns-request-id"] = "x" },
        PushCase("header twice", 400, "DuplicateHeaders") {
            $0.headers += [("apns-request-id", PushCase.unique), ("apns-request-id", PushCase.unique)]
        },
        PushCase("no body", 400, "PayloadEmpty") { $0.body = "" },
        PushCase("body no JSON", 400, "BadRequestPayload") { $0.body = "{" },
        PushCase("long body", 413, "PayloadTooLarge") { $0.body = String(repeating: " ", count: 6_000) },
        PushCase("unknown attribute", 400, "BadRequestParams") {
            $0.body = #"{"message-storage-policy":1,"push-type":"LiveActivity","name":"x"}"#
        },
        PushCase("no policy", 400, "MissingChannelQueueSize") { $0.body = #"{"push-type":"LiveActivity"}"# },
        PushCase("policy 2", 400, "MissingChannelQueueSize") {
            $0.body = #"{"message-storage-policy":2,"push-type":"LiveActivity"}"#
        },
        PushCase("no push type", 400, "MissingPushType") { $0.body = #"{"message-storage-policy":0}"# },
        PushCase("push type alert", 400, "InvalidPushType") {
            $0.body = #"{"message-storage-policy":0,"push-type":"alert"}"#
        },
        PushCase("read without channel", 400, "MissingChannelId") { $0.method = "GET" },
        PushCase("delete with a bad channel", 400, "BadChannelId") {
            $0.method = "DELETE"
            $0["apns-channel-id"] = "???"
        },
    ]

    @Test(arguments: cases) func eachRequestGetsItsDocumentedAnswer(row: PushCase) throws {
        let fixture = try fixture()
        var request = request(fixture, "POST", body: Self.create)
        row.change(&request)
        let response = try connect(fixture).push(request)
        #expect(response.status == row.status)
        #expect(response.reason == row.reason)
        #expect(response.headers["apns-request-id"] != nil)
        #expect((response.headers["apns-channel-id"] != nil) == (row.status == 201))
    }

    @Test func limitsOfChannelsAndRequestsAreAnswered() throws {
        let few = try fixture { $0.channelsPerApp = 1 }
        let client = try connect(few)
        #expect(try client.push(request(few, "POST", body: Self.create)).status == 201)
        #expect(
            try client.push(request(few, "POST", body: Self.create)).reason == "CannotCreateChannelConfig")

        let slow = try fixture {
            $0.managementRequestsPerSecond = 0
            $0.retryAfterSeconds = 2
        }
        let refused = try connect(slow).push(request(slow, "POST", body: Self.create))
        #expect(refused.status == 429)
        #expect(refused.reason == "TooManyRequests")
        #expect(refused.headers["retry-after"] == "2")
    }

    @Test func environmentsGiveDifferentIdentifiers() throws {
        let identifiers = try [SimulatorOptions.Environment.sandbox, .production].map { environment in
            let fixture = try fixture { $0.environment = environment }
            return try #require(fixture.simulator.createChannel(app: "com.example.app", storage: .none))
        }
        #expect(identifiers[0] != identifiers[1])
    }

    @Test func stopEndsTheManagementConnections() throws {
        let fixture = try fixture()
        let client = try connect(fixture)
        #expect(try client.push(request(fixture, "POST", body: Self.create)).status == 201)
        let simulator = fixture.simulator
        simulator.stop()
        try client.run { client.inbox.goAway != nil }
        #expect(client.inbox.goAway?.debugData == #"{"reason":"Shutdown"}"#)
    }
}

import HTTP2
import SluiceModel
import TestSupport
import Testing

@testable import APNSSimulator

@Suite struct ErrorBudgetTests {
    @Test func badDeviceTokensCostMoreAndSomeAnswersNothing() {
        #expect(ErrorBudget.cost(of: .badDeviceToken) == 4)
        #expect(ErrorBudget.cost(of: .badTopic) == 1)
        #expect(ErrorBudget.cost(of: .payloadTooLarge) == 1)
        for reason in [
            Reason.absent, .unregistered, .expiredToken, .tooManyRequests, .tooManyProviderTokenUpdates,
            .internalServerError, .shutdown,
        ] { #expect(ErrorBudget.cost(of: reason) == 0) }
    }

    @Test func limitFallsInStepsAndTheLastPointEndsTheConnection() {
        var budget = ErrorBudget(capacity: 80, now: 0)
        var limits: [UInt32] = []
        var isExhausted = false
        while !isExhausted {
            let limit = budget.limit(of: 1_000)
            if limits.last != limit { limits.append(limit) }
            isExhausted = budget.record(.badTopic, now: 0)
        }
        #expect(limits == [1_000, 500, 250, 125, 1])
        #expect(budget.remaining == 0)
    }

    @Test func acceptedPushesAndTimeRefillTheBudget() {
        var budget = ErrorBudget(capacity: 100, now: 0)
        for _ in 0..<20 { _ = budget.record(.badDeviceToken, now: 0) }
        #expect(budget.remaining == 20)
        for _ in 0..<30 { _ = budget.record(.absent, now: 0) }
        #expect(budget.remaining == 50)
        #expect(budget.limit(of: 1_000) == 500)
        for _ in 0..<7 { _ = budget.record(.absent, now: 0) }
        #expect(budget.limit(of: 1_000) == 1_000)
        for _ in 0..<7 { _ = budget.record(.badTopic, now: 0) }
        #expect(budget.remaining == 50)
        #expect(budget.limit(of: 1_000) == 1_000)
        _ = budget.record(.unregistered, now: 60_000_000_000)
        #expect(abs(budget.remaining - 60) < 0.001)
        _ = budget.record(.unregistered, now: 900_000_000_000)
        #expect(budget.remaining == 100)
        // A clock that goes back changes nothing.
        _ = budget.record(.badTopic, now: 0)
        #expect(budget.remaining == 99)
    }

    @Test func goodAndBadPushesInTurnDoNotChangeTheLimitEachTime() {
        for start in stride(from: 0, to: 1_000, by: 125) {
            var budget = ErrorBudget(capacity: 1_000, now: 0)
            for _ in 0..<start { _ = budget.record(.badTopic, now: 0) }
            var changes = 0
            var limit = budget.limit(of: 1_000)
            for _ in 0..<100 {
                for reason in [Reason.badTopic, .absent] {
                    _ = budget.record(reason, now: 0)
                    if budget.limit(of: 1_000) != limit { changes += 1 }
                    limit = budget.limit(of: 1_000)
                }
            }
            #expect(changes <= 1, "from \(1_000 - start) points")
        }
    }

    @Test func openRequestsOfAConnectionThatEndsDoNotCountItAgain() throws {
        let fixture = try SimulatorFixture { options, _ in options.errorBudget = 4 }
        let client = try fixture.connect()
        #expect(try client.push(fixture.good()).status == 200)
        try client.run { client.streamLimit == 1_000 }
        var bad = fixture.good()
        bad.device = "no-token"
        for _ in 0..<5 { client.submit(bad) }
        try client.run { client.isClosed }
        #expect(client.inbox.responses.values.count { $0.reason == "BadDeviceToken" } == 5)
        #expect(fixture.simulator.summary.exhaustedConnections == 1)
    }

    @Test func errorsLowerTheStreamLimitThenEndTheConnection() throws {
        let fixture = try SimulatorFixture { options, _ in options.errorBudget = 40 }
        let client = try fixture.connect()
        #expect(try client.push(fixture.good()).status == 200)
        var bad = fixture.good()
        bad.device = "no-token"
        for _ in 0..<7 { #expect(try client.push(bad).reason == "BadDeviceToken") }
        try client.run { client.streamLimit == 250 }
        #expect(client.streamLimit == 250)
        // Accepted pushes restore the limit slowly.
        for _ in 0..<11 { #expect(try client.push(fixture.good()).status == 200) }
        try client.run { client.streamLimit == 1_000 }
        #expect(client.streamLimit == 1_000)
        var answered = 0
        while client.inbox.goAway == nil, answered < 40 {
            #expect(try client.push(bad).reason == "BadDeviceToken")
            answered += 1
        }
        let goAway = try #require(client.inbox.goAway)
        #expect(goAway.errorCode == 0)
        #expect(goAway.debugData == #"{"reason":"BadDeviceToken"}"#)
        // The answer that used the budget up is still sent.
        #expect(answered == 6)
        try client.run { client.isClosed }
        #expect(fixture.simulator.summary.exhaustedConnections == 1)
        #expect(try fixture.connect().push(fixture.good()).status == 200)
    }

    @Test func unregisteredDevicesHaveNoConsequence() throws {
        let fixture = try SimulatorFixture { options, _ in
            options.errorBudget = 4
            options.deviceRules = [.init(prefix: "dead", reason: .unregistered)]
        }
        let client = try fixture.connect()
        var dead = fixture.good()
        dead.device = "dead" + String(repeating: "0", count: 60)
        for _ in 0..<50 { #expect(try client.push(dead).status == 410) }
        #expect(client.inbox.goAway == nil)
        #expect(client.streamLimit == 1_000)
    }

    @Test func withoutABudgetErrorsHaveNoConsequence() throws {
        let fixture = try SimulatorFixture { options, _ in options.errorBudget = nil }
        let client = try fixture.connect()
        var bad = fixture.good()
        bad.device = "no-token"
        for _ in 0..<1_100 { #expect(try client.push(bad).reason == "BadDeviceToken") }
        #expect(client.inbox.goAway == nil)
        #expect(client.streamLimit == 1_000)
    }
}

@Suite struct SimulatorLetterTests {
    @Test func answerToHEADHasNoBody() throws {
        let fixture = try SimulatorFixture()
        var request = fixture.good()
        request.method = "HEAD"
        request.body = ""
        let response = try fixture.connect().push(request)
        #expect(response.status == 405)
        #expect(response.body.isEmpty)
        #expect(response.headers["apns-id"] == request["apns-id"])
    }

    @Test func longHeaderListIsAnsweredWithIdentifierAndReason() throws {
        let fixture = try SimulatorFixture()
        let client = try fixture.connect()
        var request = fixture.good()
        request["x-long"] = String(repeating: "a", count: 8_000)
        let response = try client.push(request)
        #expect(response.status == 431)
        #expect(response.headers["apns-id"] == request["apns-id"])
        #expect(response.headers["content-type"] == "application/json")
        #expect(response.reason == "RequestHeaderFieldsTooLarge")
        #expect(try client.push(fixture.good()).status == 200)
    }

    @Test func bundleIdentifierThatEndsLikeASuffixIsAcceptedWhenItIsKnown() throws {
        let fixture = try SimulatorFixture { options, _ in options.topics = ["com.example.voip"] }
        var request = fixture.good()
        request["apns-topic"] = "com.example.voip"
        #expect(try fixture.connect().push(request).status == 200)
        request["apns-topic"] = "com.example.voip.voip"
        #expect(try fixture.connect().push(request).reason == "BadTopic")
    }

    @Test func alertOnATopicOfMDMIsRefused() throws {
        let fixture = try SimulatorFixture()
        var request = fixture.good()
        request["apns-topic"] = "com.apple.mgmt.External.1"
        #expect(try fixture.connect().push(request).reason == "BadTopic")
        request["apns-push-type"] = "mdm"
        #expect(try fixture.connect().push(request).status == 200)
    }

    @Test func identifiersDifferBetweenStartsUnlessASeedIsGiven() throws {
        func identifiers(seed: UInt64?) throws -> [String?] {
            let fixture = try SimulatorFixture { options, _ in
                options.environment = .sandbox
                options.seed = seed
            }
            var request = fixture.good()
            request["apns-id"] = nil
            let response = try fixture.connect().push(request)
            let channel = fixture.simulator.createChannel(app: "com.example.app", storage: .none)
            return [response.headers["apns-id"], response.headers["apns-unique-id"], channel]
        }
        let first = try identifiers(seed: nil)
        let second = try identifiers(seed: nil)
        #expect(first.allSatisfy { $0 != nil })
        for (first, second) in zip(first, second) { #expect(first != second) }
        #expect(try identifiers(seed: 9) == identifiers(seed: 9))
    }

    @Test(arguments: ExcessStreams.allCases)
    func treatmentOfExcessStreamsReachesTheServer(way: ExcessStreams) {
        var options = SimulatorOptions()
        #expect(SimulatorShard.serverOptions(options).excessStreams == .refuse)
        options.excessStreams = way
        #expect(SimulatorShard.serverOptions(options).excessStreams == way)
    }
}

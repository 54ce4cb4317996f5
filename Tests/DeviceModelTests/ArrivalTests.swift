import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct ArrivalTests {
    @Test func anUnknownTokenMakesADeviceWhenTheSettingsAdopt() {
        var world = DeviceWorld()
        #expect(world.push(token: Tokens.first, now: 1_000) == .accepted)
        #expect(world.status(now: 1_000).devices == 1)
        #expect(world.device(ofToken: Tokens.first) == 0)
        #expect(world.push(token: Tokens.first, now: 2_000) == .accepted)
        #expect(world.status(now: 2_000).devices == 1)
    }

    @Test func anUnknownTokenIsRefusedWhenTheSettingsRefuse() {
        var settings = DeviceSettings()
        settings.unknownTokens = .refuse
        var world = DeviceWorld(settings: settings)
        #expect(world.push(token: Tokens.first, now: 1_000) == .refused(.badDeviceToken, since: nil))
        #expect(world.pushes(PushQuery()).first?.fate == "rejected")
    }

    @Test func aTokenOfTheOtherEnvironmentIsRefused() {
        var world = DeviceWorld()
        #expect(world.push(token: Tokens.first, now: 1_000) == .accepted)
        #expect(
            world.push(token: Tokens.first, environment: .sandbox, now: 2_000)
                == .refused(.badDeviceToken, since: nil))
    }

    @Test func aTokenOfAnotherTopicIsRefused() {
        var world = DeviceWorld()
        #expect(world.push(token: Tokens.first, now: 1_000) == .accepted)
        #expect(
            world.push(token: Tokens.first, topic: "com.example.other", now: 2_000)
                == .refused(.deviceTokenNotForTopic, since: nil))
    }

    @Test func anUninstalledAppAnswers410AfterALostPushAndTheDelay() throws {
        var settings = DeviceSettings()
        settings.goneDelay = 0
        var world = DeviceWorld(settings: settings)
        #expect(world.push(token: Tokens.first, now: 1_000) == .accepted)
        try world.perform(DeviceAction(.uninstall, app: "com.example.news"), on: 0, now: 5_000)
        #expect(world.push(token: Tokens.first, now: 6_000) == .accepted)
        #expect(world.pushes(PushQuery()).first?.fate == "dropped")
        #expect(world.push(token: Tokens.first, now: 7_000) == .refused(.unregistered, since: 5_000))
    }

    @Test func aDeviceThatIsOffGetsTheNewestPushWhenItIsBack() throws {
        var world = DeviceWorld()
        _ = world.push(token: Tokens.first, now: 1_000)
        try world.perform(DeviceAction(.power, on: false), on: 0, now: 2_000)
        _ = world.push(token: Tokens.first, now: 3_000)
        _ = world.push(token: Tokens.first, now: 4_000)
        #expect(world.status(now: 4_000).stored == 1)
        #expect(world.push(2)?.fate == "replaced")
        #expect(world.push(3)?.fate == "stored")
        try world.perform(DeviceAction(.power, on: true), on: 0, now: 5_000)
        #expect(world.status(now: 5_000).stored == 0)
        #expect(world.push(3)?.steps.contains { $0.rule == "delivered-from-storage" } == true)
    }

    @Test func aPushWithExpiration0IsNotStored() throws {
        var world = DeviceWorld()
        _ = world.push(token: Tokens.first, now: 1_000)
        try world.perform(DeviceAction(.airplane, on: true), on: 0, now: 2_000)
        _ = world.push(token: Tokens.first, expiration: 0, now: 3_000)
        #expect(world.push(2)?.fate == "dropped")
        #expect(world.status(now: 3_000).stored == 0)
    }

    @Test func aStoredPushExpires() throws {
        var world = DeviceWorld()
        _ = world.push(token: Tokens.first, now: 1_000)
        try world.perform(DeviceAction(.network, on: false), on: 0, now: 2_000)
        _ = world.push(token: Tokens.first, expiration: 10, now: 3_000)
        #expect(world.nextDue == 10_000)
        world.advance(to: 10_000)
        #expect(world.push(2)?.fate == "expired")
        #expect(world.push(2)?.steps.last?.rule == "expired-in-storage")
    }

    @Test func eventsHaveNumbersWithoutGaps() throws {
        var world = DeviceWorld()
        for number in 1...20 { _ = world.push(token: Tokens.first, now: Int64(number)) }
        let batch = world.events(after: 0, limit: 1_000)
        #expect(!batch.lost)
        #expect(batch.events.map(\.number) == Array(1...batch.next))
    }
}

enum Tokens {
    static let first = String(repeating: "0a", count: 32)
    static let second = String(repeating: "0b", count: 32)
}

extension DeviceWorld {
    /// Hands over a push with a literal payload.
    mutating func push(
        token: String, topic: String = "com.example.news", environment: PushEnvironment = .production,
        type: PushType = .alert, priority: Priority = .immediate, expiration: Int64? = nil,
        collapseID: String? = nil, payload: String = #"{"aps":{"alert":{"title":"T","body":"B"}}}"#,
        now: Int64
    ) -> PushAnswer {
        let identifier = APNSID(high: UInt64(now), low: 1)
        return Array(token.utf8).withUnsafeBytes { token in
            Array(topic.utf8).withUnsafeBytes { topic in
                Array(payload.utf8).withUnsafeBytes { payload in
                    Array((collapseID ?? "").utf8).withUnsafeBytes { collapse in
                        receive(
                            ArrivedPush(
                                token: token, environment: environment, topic: topic, type: type,
                                priority: priority, expiration: expiration,
                                collapseID: collapseID == nil ? nil : collapse, apnsID: identifier,
                                payload: payload),
                            now: now)
                    }
                }
            }
        }
    }
}

import Foundation
import SluiceModel
import Testing

@testable import DeviceModel

/// Inputs from outside that are damaged or arbitrary. Nothing traps, and the lists stay within their limits.
@Suite struct DeviceFuzzTests {
    private static let special = [
        "", "\u{0}", "{", "[", "null", "1", "\"\"", "{}", #"{"aps":null}"#, #"{"aps":{"alert":"\ud800"}}"#,
        #"{"aps":{"alert":"\udc00\ud800","thread-id":"\u0000"}}"#, #"{"aps":{"badge":1e999999}}"#,
        #"{"aps":{"alert":{"loc-key":"K","loc-args":[1e999,null,{},[]]}}}"#,
        #"{"aps":{"alert":"A","relevance-score":-1e999,"sound":{"volume":1e999,"critical":1}}}"#,
        #"{"aps":{"badge":-99999999999999999999,"content-available":99999999999999999999}}"#,
        #"{"aps":{"alert":"A"}}\#u{0}"#, #"{"aps":{"alert":"A"}},"#, #"{"aps":{"alert":"A"},"aps":1}"#,
    ]

    private func makeWorld() throws -> DeviceWorld {
        var app = AppDeclaration(bundle: Script.bundle)
        app.addMessageCategory(options: ["custom-dismiss"])
        app.strings = ["en": ["K": "%@ %9999999$@ %1$@ %u {x}"]]
        app.sounds = ["bell.caf"]
        var rule = SilentRule()
        rule.member = "x"
        rule.setsBadge = "k"
        rule.removesDelivered = "x"
        app.silent = [rule, SilentRule()]
        app.contentExtensions = [
            ContentExtensionDeclaration(
                categories: ["message"],
                fields: [ContentExtensionDeclaration.Field(kind: "text", value: "{x} {title} {")])
        ]
        var settings = DeviceSettings()
        settings.maximumDelivered = 5
        settings.wakesPerHour = 1_000_000
        settings.wakesPerDay = 1_000_000
        settings.maximumPushes = 500
        settings.maximumEvents = 500
        var world = DeviceWorld(apps: [app], settings: settings)
        _ = try world.addDevice(now: Script.start)
        return world
    }

    /// Reads all views, which parse the payloads.
    private func read(_ world: DeviceWorld, now: Int64) {
        let view = world.device(0, now: now)
        for app in view?.apps ?? [] {
            #expect(app.delivered.count <= 5)
            #expect(app.pending.count <= PendingList.limit)
            #expect(app.responses.count <= DeviceWorld.mostResponses)
        }
        _ = world.devices(DeviceQuery())
        var query = PushQuery()
        query.query = "a"
        query.limit = 20
        _ = world.pushes(query)
        _ = world.check(WaitCondition(), now: now)
    }

    @Test(arguments: [UInt64](1...4))
    func payloadsOfAnyBytesAreHandled(_ seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var world = try makeWorld()
        let token = world.tokens(TokenQuery())[0].token
        var now = Script.start
        for round in 0..<3_000 {
            now += 500
            var payload: [UInt8]
            switch round % 4 {
            case 0: payload = RandomPayload.make(&random)
            case 1:
                payload = Array(Self.special.randomElement(using: &random)!.utf8)
                if Bool.random(using: &random) { RandomPayload.damage(&payload, &random) }
            case 2:
                payload = (0..<Int.random(in: 0...64, using: &random)).map { _ in
                    UInt8.random(in: 0...255, using: &random)
                }
            default:
                payload = Array(
                    #"{"aps":{"alert":{"title":"T","body":"B"},"category":"message"},"x":"a"}"#.utf8)
                RandomPayload.damage(&payload, &random)
            }
            let answer = world.receive(
                bytes: payload, token: token, isSilent: Bool.random(using: &random),
                collapse: Bool.random(using: &random) ? payload : nil,
                expiration: [nil, .min, -1, 0, 1, .max].randomElement(using: &random)!, now: now)
            #expect(answer == .accepted)
            if round % 50 == 0 {
                try? world.perform(
                    DeviceAction(.lock, on: Bool.random(using: &random)), on: 0, now: now)
                read(world, now: now)
            }
        }
        read(world, now: now)
    }

    @Test func deeplyNestedPayloadsAreHandled() throws {
        var world = try makeWorld()
        let token = world.tokens(TokenQuery())[0].token
        for depth in [100, 127, 128, 129, 1_000, 100_000] {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let value =
                    String(repeating: open, count: depth) + "1" + String(repeating: close, count: depth)
                for payload in [
                    "{\"aps\":{\"alert\":\"A\",\"x\":\(value)}}", value, String(value.dropLast()),
                ] {
                    _ = world.receive(
                        bytes: Array(payload.utf8), token: token, isSilent: false, collapse: nil,
                        now: Script.start)
                }
            }
        }
        read(world, now: Script.start)
    }

    @Test(arguments: [UInt64](1...4))
    func actionsWithMissingAndStrangeMembersAreHandled(_ seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var world = try makeWorld()
        let token = world.tokens(TokenQuery())[0].token
        var now = Script.start
        var done = 0
        for round in 0..<2_000 {
            now += Int64.random(in: 0...10_000, using: &random)
            if round % 3 == 0 {
                _ = world.receive(
                    bytes: Array(#"{"aps":{"alert":"A","category":"message","badge":1}}"#.utf8), token: token,
                    isSilent: false, collapse: round % 2 == 0 ? Array("a".utf8) : nil, now: now)
            }
            let action = Self.action(&random)
            do throws(DeviceFault) {
                try world.perform(action, on: random.next() % 8 == 0 ? 7 : 0, now: now)
                done += 1
            } catch {
                #expect(!error.description.isEmpty)
            }
            if round % 50 == 0 { read(world, now: now) }
        }
        #expect(done > 200)
    }

    /// An action of the notifications' part, with random members, some of them missing.
    private static func action(_ random: inout SeededGenerator) -> DeviceAction {
        let kinds: [DeviceAction.Kind] = [
            .tap, .dismiss, .act, .flick, .expand, .clearGroup, .clearAll, .removeDelivered, .removePending,
            .removeAllDelivered, .removeAllPending, .setBadge, .schedule, .lock, .power, .location, .focus,
            .settings, .launch, .home, .forceQuit, .reboot, .lowPower,
        ]
        let texts: [String?] = [
            nil, "", "a", "message", "home", "\u{0}", "\u{FFFD}", String(repeating: "x", count: 10_000),
            "mark",
            "reply",
        ]
        let numbers: [Int?] = [nil, .min, -1, 0, 1, .max]
        let doubles: [Double?] = [nil, -1, 0, 1e-9, 59, 60, 1e308, .infinity, -.infinity, .nan]
        func text() -> String? { texts.randomElement(using: &random)! }
        func flag() -> Bool? { [nil, true, false].randomElement(using: &random)! }
        var action = DeviceAction(
            kinds.randomElement(using: &random)!, app: random.next() % 8 == 0 ? text() : Script.bundle,
            identifier: text(), on: flag())
        action.text = text()
        action.number = numbers.randomElement(using: &random)!
        action.choice = text()
        if flag() ?? false {
            action.focus = FocusState(name: "", allowedApps: [Script.bundle], filter: text())
        }
        if flag() ?? false {
            var settings = NotificationSettings()
            settings.scheduledSummary = flag() ?? false
            settings.notificationCentre = flag() ?? true
            action.settings = settings
        }
        if flag() ?? true {
            var request = LocalRequest(identifier: text() ?? "r\(random.next() % 100)")
            request.payload = JSONValue(RandomPayload.make(&random))
            if flag() ?? true {
                var trigger = LocalTrigger()
                trigger.interval = doubles.randomElement(using: &random)!
                if flag() ?? false { trigger.minuteOfDay = numbers.randomElement(using: &random)! }
                if flag() ?? false { trigger.region = text() }
                trigger.on = random.next() % 3 == 0 ? text() : nil
                trigger.repeats = flag()
                request.trigger = trigger
            }
            action.request = request
        }
        return action
    }

    /// Actions arrive as JSON. What decodes is carried out or refused.
    @Test func damagedActionsInJSONAreHandled() throws {
        var random = SeededGenerator(seed: 5)
        var world = try makeWorld()
        let token = world.tokens(TokenQuery())[0].token
        let texts = [
            #"{"action":"schedule","app":"com.example.news","request":{"identifier":"a","payload":{"aps":{"alert":"A"}},"trigger":{"interval":60,"repeats":true}}}"#,
            #"{"action":"act","app":"com.example.news","identifier":"a","choice":"reply","text":"Yes"}"#,
            #"{"action":"set-badge","app":"com.example.news","number":7}"#,
            #"{"action":"tap","app":"com.example.news","identifier":"a"}"#,
            #"{"action":"clear-group","app":"com.example.news","text":""}"#,
        ]
        var decoded = 0
        for round in 0..<4_000 {
            let now = Script.start + Int64(round) * 1_000
            _ = world.receive(
                bytes: Array(#"{"aps":{"alert":"A","category":"message"}}"#.utf8), token: token,
                isSilent: false, collapse: Array("a".utf8), now: now)
            var bytes = Array(texts.randomElement(using: &random)!.utf8)
            RandomPayload.damage(&bytes, &random)
            guard let action = try? JSONDecoder().decode(DeviceAction.self, from: Data(bytes)) else {
                continue
            }
            decoded += 1
            try? world.perform(action, on: 0, now: now)
        }
        #expect(decoded > 100)
        read(world, now: Script.start + 5_000_000)
    }
}

extension DeviceWorld {
    /// Hands over a push with arbitrary bytes.
    mutating func receive(
        bytes: [UInt8], token: String, isSilent: Bool, collapse: [UInt8]?, expiration: Int64? = nil,
        now: Int64
    ) -> PushAnswer {
        Array(token.utf8).withUnsafeBytes { token in
            Array(Script.bundle.utf8).withUnsafeBytes { topic in
                bytes.withUnsafeBytes { payload in
                    (collapse ?? []).withUnsafeBytes { name in
                        receive(
                            ArrivedPush(
                                token: token, environment: .production, topic: topic,
                                type: isSilent ? .background : .alert, priority: .immediate,
                                expiration: expiration,
                                collapseID: collapse == nil ? nil : name,
                                apnsID: APNSID(high: UInt64(now), low: 2), payload: payload), now: now)
                    }
                }
            }
        }
    }
}

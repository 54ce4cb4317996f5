import SluiceModel
import Testing

@testable import DeviceModel

/// Tokens over a long time: places are used again, and no token comes back.
@Suite struct TokenTableTests {
    private static func world(_ body: (inout DeviceSettings) -> Void = { _ in }) -> DeviceWorld {
        var settings = DeviceSettings()
        settings.goneDelay = 0
        body(&settings)
        var world = DeviceWorld(apps: [AppDeclaration(bundle: Script.bundle)], settings: settings)
        world.tokens = TokenTable(seed: settings.seed, mostInvalid: 3)
        return world
    }

    private static func reinstall(_ world: inout DeviceWorld, _ device: UInt32, _ now: Int64) throws {
        for kind in [.uninstall, .install, .launch] as [DeviceAction.Kind] {
            try world.perform(DeviceAction(kind, app: Script.bundle), on: device, now: now)
        }
    }

    private static func token(_ world: DeviceWorld, _ device: UInt32) throws -> String {
        try #require(world.device(device, now: Script.start)?.apps.first?.tokens.first?.token)
    }

    @Test func placesOfForgottenTokensAreUsedAgain() throws {
        var world = Self.world()
        let device = try world.addDevice(now: Script.start)
        for round in 1...50 { try Self.reinstall(&world, device, Script.start + Int64(round)) }
        #expect(world.tokens.places <= 5)
        #expect(world.tokens.count <= 4)
        #expect(world.tokens(TokenQuery()).count == world.tokens.count)
        #expect(world.tokens(from: 0, limit: 100).views.count == world.tokens.count)
    }

    @Test(arguments: [DeviceSettings.UnknownTokens.adopt, .refuse])
    func aForgottenTokenAnswers410AndIsNeverGivenOutAgain(_ unknown: DeviceSettings.UnknownTokens) throws {
        var world = Self.world { $0.unknownTokens = unknown }
        let device = try world.addDevice(now: Script.start)
        var seen: [String] = [try Self.token(world, device)]
        for round in 1...20 {
            try Self.reinstall(&world, device, Script.start + Int64(round) * 1_000)
            seen.append(try Self.token(world, device))
        }
        #expect(Set(seen).count == seen.count)
        let devices = world.counts.all
        let now = Script.start + 100_000
        #expect(world.push(token: seen[0], now: now) == .refused(.unregistered, since: Script.start + 1_000))
        // The text counts in either case.
        #expect(
            world.push(token: seen[5].uppercased(), now: now)
                == .refused(.unregistered, since: Script.start + 6_000))
        #expect(world.push(token: seen[20], now: now) == .accepted)
        #expect(world.counts.all == devices)
    }

    /// A load generator may derive tokens from their facts, so that their generations go on one by one.
    @Test func generationsGoOnWithoutASearch() throws {
        var world = Self.world()
        let device = try world.addDevice(now: Script.start)
        for generation in 0...10 as ClosedRange<UInt32> {
            let name = TokenName(
                seed: world.settings.seed, device: device, bundle: Script.bundle, purpose: .alert,
                generation: generation)
            #expect(try Self.token(world, device) == name.text)
            try Self.reinstall(&world, device, Script.start + Int64(generation))
        }
    }

    @Test func aPushOfAForgottenTokenDoesNotShowTheTokenThatTookItsPlace() throws {
        var world = Self.world()
        let device = try world.addDevice(now: Script.start)
        let first = try Self.token(world, device)
        _ = world.push(token: first, now: Script.start)
        #expect(world.push(1)?.token == first)
        for round in 1...20 { try Self.reinstall(&world, device, Script.start + Int64(round)) }
        #expect(world.push(1)?.token == "")
        let events = world.events(after: 0, limit: .max).events.filter { $0.kind == .token }
        #expect(events.first?.token == nil)
        #expect(events.last?.token == (try Self.token(world, device)))
        for event in events { if let token = event.token { #expect(token != first) } }
    }

    @Test func theMemoryOfForgottenTokensIsBounded() {
        var tokens = ForgottenTokens(limit: 100)
        func key(_ number: UInt64) -> DeviceKey { DeviceKey(high: number, low: 0) }
        for number in 1...250 as ClosedRange<UInt64> {
            tokens.insert(key(number), since: Int64(number) * 1_000 + 7, .expiredToken)
        }
        #expect(tokens.count == 100)
        #expect(tokens[key(150)] == nil)
        #expect(tokens[key(151)]?.since == 151_000)
        #expect(tokens[key(250)]?.reason == .expiredToken)
    }
}

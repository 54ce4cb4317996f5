import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct TokenEndTests {
    private func tokenEvents(_ script: Script) -> [DeviceModel.DeviceEvent] {
        script.world.events(after: 0, limit: 10_000).events.filter { $0.kind == .token && $0.token != nil }
    }

    @Test func aRestoredDeviceLosesWhatAPNsStores() throws {
        var script = try Script()
        try script.act(.airplane, on: true)
        let push = script.push()
        try script.act(.restore)
        #expect(script.fate(push) == "dropped")
        #expect(script.rules(push).last == .lostFromStorage)
        #expect(script.world.status(now: script.now).stored == 0)
    }

    @Test func aDeviceRestoredWithoutNetworkReportsTheFormerTokenAtItsReturn() throws {
        var script = try Script()
        let former = try #require(script.app.tokens.first?.token)
        try script.act(.airplane, on: true)
        try script.act(.restore)
        try script.act(.restore)
        #expect(script.app.tokens.isEmpty)
        try script.act(.airplane, on: false)
        let event = try #require(tokenEvents(script).last)
        #expect(event.formerToken == former)
        #expect(event.token == script.app.tokens.first?.token)
        try script.act(.restore)
        #expect(tokenEvents(script).last?.formerToken == event.token)
    }

    @Test func aReinstalledAppsTokenHasNoFormerToken() throws {
        var script = try Script()
        try script.act(.airplane, on: true)
        try script.act(.restore)
        try script.act(.uninstall)
        try script.act(.install)
        try script.act(.airplane, on: false)
        try script.act(.launch)
        #expect(script.app.tokens.count == 1)
        #expect(tokenEvents(script).last?.formerToken == nil)
    }

    @Test func anAppThatWasNeverLaunchedHasNoTokenAfterARestoredBackup() throws {
        var script = try Script()
        try script.act(.uninstall)
        try script.act(.install)
        try script.act(.restore)
        #expect(script.app.tokens.isEmpty)
        try script.act(.launch)
        #expect(script.app.tokens.count == 1)
    }

    @Test func aMadeUpDeviceKeepsItsEnvironment() throws {
        var world = DeviceWorld()
        #expect(world.push(token: Tokens.first, environment: .sandbox, now: 1_000) == .accepted)
        try world.perform(DeviceAction(.restore), on: 0, now: 2_000)
        let app = try #require(world.device(0, now: 2_000)?.apps.first)
        #expect(app.environment == .sandbox)
        #expect(app.tokens.map(\.environment) == [.sandbox])
    }

    @Test func the410OfAnUnreachableDeviceStartsAfterItsReturn() throws {
        var world = DeviceWorld()
        _ = world.push(token: Tokens.first, now: 1_000)
        try world.perform(DeviceAction(.airplane, on: true), on: 0, now: 2_000)
        try world.perform(DeviceAction(.uninstall, app: "com.example.news"), on: 0, now: 3_000)
        for now in [4_000, 100_000, 10_000_000] as [Int64] {
            #expect(world.push(token: Tokens.first, now: now) == .accepted)
        }
        try world.perform(DeviceAction(.airplane, on: false), on: 0, now: 11_000_000)
        #expect(
            world.push(token: Tokens.first, now: 11_060_000) == .refused(.unregistered, since: 3_000))
    }

    @Test func aRemovedDeviceAnswers410AlsoWhenItWasUnreachable() throws {
        var world = DeviceWorld()
        _ = world.push(token: Tokens.first, now: 1_000)
        try world.perform(DeviceAction(.airplane, on: true), on: 0, now: 2_000)
        try world.removeDevice(0, now: 3_000)
        #expect(world.push(token: Tokens.first, now: 100_000) == .accepted)
        #expect(world.push(token: Tokens.first, now: 100_000) == .refused(.unregistered, since: 3_000))
    }
}

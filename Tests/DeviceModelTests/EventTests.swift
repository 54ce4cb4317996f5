import SluiceModel
import Testing

@testable import DeviceModel

/// Each change of a device has an event, and no fate outlives what it tells of.
@Suite struct EventTests {
    private static func request(
        _ identifier: String, aps: [String: JSONValue], interval: Double? = nil
    ) -> LocalRequest {
        var request = LocalRequest(identifier: identifier)
        request.payload = .object(["aps": .object(aps)])
        if let interval {
            request.trigger = LocalTrigger()
            request.trigger?.interval = interval
        }
        return request
    }

    @Test func aRequestThatWaitsAndATriggerWithoutEntryAreReported() throws {
        var script = try Script()
        try script.act(.schedule) {
            $0.request = Self.request("a", aps: ["sound": .string("default")], interval: 60)
        }
        #expect(script.details(.notification) == ["pending"])
        script.wait(60_000)
        #expect(script.details(.notification) == ["pending", "fired"])
        #expect(script.app.pending.isEmpty)
        try script.act(.schedule) {
            $0.request = Self.request("b", aps: ["alert": .string("B")], interval: 60)
        }
        script.wait(60_000)
        #expect(script.details(.notification) == ["pending", "fired", "pending", "shown"])
    }

    @Test func aBadgeOfALocalNotificationIsReported() throws {
        var script = try Script()
        try script.act(.schedule) { $0.request = Self.request("a", aps: ["badge": .integer(3)]) }
        #expect(script.app.badge == 3)
        #expect(script.details(.app).last == "badge 3")
    }

    @Test func anUninstallationEndsHeldAndListedPushes() throws {
        var script = try Script(settings: { $0.wakesPerHour = 0 })
        let held = script.silent()
        let listed = script.push()
        try script.set { $0.scheduledSummary = true }
        let waiting = script.push()
        #expect([held, listed, waiting].map { script.fate($0) } == ["held", "shown", "held"])
        try script.act(.uninstall)
        #expect([held, listed, waiting].map { script.fate($0) } == ["dropped", "removed", "removed"])
        for push in [held, listed, waiting] { #expect(script.rules(push).last == .notInstalled) }
    }

    @Test func aRemovedDeviceLeavesNoPushThatIsShown() throws {
        var script = try Script()
        let push = script.push()
        try script.world.removeDevice(script.device, now: script.now)
        #expect(script.fate(push) == "removed")
    }

    @Test func anAnswerInTheSettingsClosesThePrompt() throws {
        for on in [true, false] {
            var script = try Script { app in
                app.permission = PermissionRequest()
                app.permission?.answer = .wait
            }
            #expect(script.app.isAsking)
            try script.act(.settings, on: on)
            #expect(!script.app.isAsking)
            #expect(
                fault { () throws(DeviceFault) in try script.act(.answer, on: true) }?.kind == .impossible)
        }
    }

    // MARK: - Processes

    private static func sleeper(_ app: inout AppDeclaration) {
        var rule = SilentRule()
        rule.result = "never"
        app.silent = [rule]
    }

    @Test func aHandlerThatIsNotCalledEndsOnlyItsOwnProcess() throws {
        var script = try Script(Self.sleeper)
        let push = script.silent()
        try script.act(.forceQuit)
        try script.act(.launch)
        script.wait(DeviceWorld.handlerTime)
        #expect(script.app.state == .foreground)
        #expect(!script.rules(push).contains(.handlerNotCalled))
    }

    @Test func aProcessThatEndsAtItsHandlerTakesTheHeldPushWithIt() throws {
        var script = try Script(Self.sleeper, settings: { $0.wakesPerHour = 1 })
        _ = script.silent()
        let held = script.silent()
        #expect(script.fate(held) == "held")
        script.wait(DeviceWorld.handlerTime)
        #expect(script.app.state == .notRunning)
        #expect(script.fate(held) == "dropped")
        #expect(script.rules(held).last == .handlerNotCalled)
    }

    // MARK: - Storage

    @Test func aStoredPushOfPriority10TakesWhatRestsWithIt() throws {
        // The token of alerts is made first, so that the script pushes to it.
        var script = try Script { $0.purposes = [.voip, .alert] }
        try script.act(.screen, on: false)
        try script.act(.network, on: false)
        let resting = script.push(priority: .powerAware)
        let call = try #require(script.app.tokens.first { $0.purpose == .voip }?.token)
        _ = script.world.push(
            token: call, topic: Script.bundle + ".voip", type: .voip, payload: "{}", now: script.now)
        try script.act(.network, on: true)
        #expect(script.world.status(now: script.now).stored == 0)
        #expect(script.rules(resting).contains(.deliveredFromStorage))
        #expect(!script.rules(resting).contains(.storedForPower))
    }

    @Test(arguments: [Int64.min, -1, 0, 1, .max])
    func anExpirationOfAnySizeIsTaken(_ expiration: Int64) throws {
        var world = DeviceWorld()
        #expect(world.push(token: Tokens.first, expiration: expiration, now: 1_000) == .accepted)
        try world.perform(DeviceAction(.airplane, on: true), on: 0, now: 2_000)
        #expect(world.push(token: Tokens.first, expiration: expiration, now: 3_000) == .accepted)
        #expect(world.status(now: 3_000).stored == (expiration == .max ? 1 : 0))
    }
}

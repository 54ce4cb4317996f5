import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct RestartTests {
    @Test func aSilentPushStoredForAForceQuitAppWakesItAfterTheStart() throws {
        var script = try Script()
        try script.act(.forceQuit)
        try script.act(.power, on: false)
        let push = script.silent()
        #expect(script.fate(push) == "stored")
        try script.act(.power, on: true)
        #expect(script.fate(push) == "woken")
        #expect(script.app.state == .background)
    }

    @Test func aCallStoredForASwitchedOffDeviceRingsAfterTheStart() throws {
        var script = try Script { $0.purposes = [.voip] }
        try script.act(.power, on: false)
        _ = script.world.push(
            token: try #require(script.app.tokens.first?.token), topic: Script.bundle + ".voip", type: .voip,
            payload: "{}", now: script.now)
        try script.act(.power, on: true)
        #expect(script.view.call?.app == Script.bundle)
        try script.act(.power, on: false)
        #expect(script.view.call == nil)
    }

    @Test func aRestartOfALockedDeviceIsReported() throws {
        var script = try Script()
        try script.act(.launch)
        try script.act(.reboot)
        let events = script.world.lastEvent
        try script.act(.reboot)
        #expect(script.app.state == .notRunning)
        #expect(script.world.lastEvent > events)
        #expect(script.details(.device).count { $0 == "started" } == 2)
    }

    @Test func anAppThatIsNotInFrontCannotBeLeft() throws {
        var script = try Script()
        try script.act(.launch)
        try script.act(.home)
        #expect(script.app.state == .background)
        try script.act(.forceQuit)
        #expect(fault { () throws(DeviceFault) in try script.act(.home) }?.kind == .impossible)
        #expect(script.app.state == .forceQuit)
    }

    // MARK: - Service extensions

    private static func bed() throws -> (ExtensionBed, UInt64) {
        var declaration = ServiceExtensionDeclaration()
        declaration.takes = 10
        declaration.set = ["body": "changed"]
        var bed = try ExtensionBed(declaration)
        ExtensionPresentationTests.push(&bed, ExtensionBed.payload(aps: #""sound":"default""#))
        return (bed, bed.world.journal.next - 1)
    }

    @Test func theOriginalOfARunThatEndedWithTheDeviceComesAtTheStartWithoutSound() throws {
        var (bed, push) = try Self.bed()
        try bed.world.perform(DeviceAction(.power, on: false), on: bed.device, now: bed.now + 1_000)
        #expect(bed.receipts == ["crashed"])
        bed.pass(20_000)
        #expect(ExtensionPresentationTests.views(bed).isEmpty)
        #expect(bed.world.push(push)?.fate == "held")
        try bed.world.perform(DeviceAction(.power, on: true), on: bed.device, now: bed.now)
        #expect(ExtensionPresentationTests.views(bed).map(\.body) == ["B"])
        let view = try #require(bed.world.device(bed.device, now: bed.now))
        #expect(view.banner == nil)
        #expect(view.lockScreen.count == 1)
        #expect(bed.rules(push).contains("shown-after-start"))
        #expect(!bed.rules(push).contains("sound"))
        #expect(bed.receipts == ["crashed"])
        #expect(bed.world.extensions.interruptedCount == 0)
    }

    @Test func aRestartEndsTheRunAndShowsTheOriginal() throws {
        var (bed, push) = try Self.bed()
        try bed.world.perform(DeviceAction(.reboot), on: bed.device, now: bed.now + 1_000)
        #expect(bed.world.extensions.count == 0)
        #expect(bed.world.push(push)?.fate == "shown")
        bed.pass(20_000)
        #expect(ExtensionPresentationTests.views(bed).map(\.body) == ["B"])
        #expect(bed.receipts == ["crashed"])
    }

    @Test func interruptedPushesCountAgainstTheLimitOfRuns() throws {
        var declaration = ServiceExtensionDeclaration()
        declaration.takes = 10
        var settings = DeviceSettings()
        settings.maximumExtensionRuns = 1
        var bed = try ExtensionBed(declaration, settings: settings)
        ExtensionPresentationTests.push(&bed, ExtensionBed.payload())
        try bed.world.perform(DeviceAction(.power, on: false), on: bed.device, now: bed.now)
        let other = try bed.world.addDevice(now: bed.now)
        let token = try #require(
            bed.world.device(other, now: bed.now)?.apps.first?.tokens.first?.token)
        _ = bed.world.push(
            token: token, topic: ExtensionBed.bundle, payload: ExtensionBed.payload(), now: bed.now)
        #expect(bed.rules(2).contains("extension-too-many"))
    }

    @Test func aRunEndsWithItsAppAndNothingAppearsInTheNextInstallation() throws {
        for isOff in [false, true] {
            var (bed, push) = try Self.bed()
            func act(_ kind: DeviceAction.Kind, on: Bool? = nil) throws {
                try bed.world.perform(
                    DeviceAction(kind, app: ExtensionBed.bundle, on: on), on: bed.device, now: bed.now)
            }
            if isOff { try act(.power, on: false) }
            try act(.uninstall)
            if isOff { try act(.power, on: true) }
            #expect(bed.world.push(push)?.fate == "dropped")
            #expect(bed.rules(push).last == "not-installed")
            try act(.install)
            try act(.launch)
            bed.pass(20_000)
            #expect(ExtensionPresentationTests.views(bed).isEmpty)
            #expect(bed.world.push(push)?.fate == "dropped")
        }
    }
}

import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct SilentPushTests {
    @Test func anAppIsWokenUntilTheBudgetOfTheHourIsUsed() throws {
        var script = try Script()
        #expect(script.app.wakesLeft == 3)
        let pushes = (0..<5).map { _ in script.silent() }
        #expect(pushes.map(script.fate) == ["woken", "woken", "woken", "replaced", "held"])
        #expect(script.app.wakesLeft == 0)
        #expect(script.app.holdsSilentPush)
        #expect(script.details(.wake).count == 3)
        // The first wake leaves the hour, so that the held push is delivered.
        script.wait(3_600_000 - 4_000)
        #expect(script.fate(pushes[4]) == "woken")
        #expect(!script.app.holdsSilentPush)
        #expect(script.app.wakesLeft == 0)
        script.wait(3_600_000)
        #expect(script.app.wakesLeft == 3)
    }

    @Test func theDailyResetDropsWhatIsHeldAndRenewsTheBudget() throws {
        var script = try Script(settings: {
            $0.wakesPerHour = 10
            $0.wakesPerDay = 2
        })
        let pushes = (0..<3).map { _ in script.silent() }
        let midnight = Script.start / LocalTime.day * LocalTime.day + LocalTime.day
        #expect(script.world.nextDue == midnight)
        script.wait(midnight - script.now)
        #expect(script.fate(pushes[2]) == "dropped")
        #expect(script.rules(pushes[2]).last == .droppedAtReset)
        #expect(script.app.wakesLeft == 2)
        #expect(script.fate { $0.silent() } == "woken")
    }

    @Test func aLaunchByTheUserDeliversTheHeldPush() throws {
        var script = try Script(settings: { $0.wakesPerHour = 0 })
        let push = script.silent()
        #expect(script.fate(push) == "held")
        try script.act(.launch)
        #expect(script.fate(push) == "woken")
        #expect(script.rules(push).last == .handedToApp)
        #expect(script.fate { $0.silent() } == "woken")
    }

    @Test func forceQuitDropsTheHeldPushAndStopsWakesUntilALaunch() throws {
        var script = try Script(settings: { $0.wakesPerHour = 1 })
        _ = script.silent()
        let held = script.silent()
        try script.act(.forceQuit)
        #expect(script.fate(held) == "dropped")
        #expect(script.fate { $0.silent() } == "dropped")
        #expect(script.fate { $0.push() } == "shown")
        try script.act(.launch)
        #expect(script.fate { $0.silent() } == "woken")
    }

    @Test func aRebootEndsTheForceQuit() throws {
        var script = try Script()
        try script.act(.forceQuit)
        try script.act(.reboot)
        #expect(script.app.state == .notRunning)
        #expect(script.fate { $0.push(#"{"aps":{"content-available":1}}"#, type: .background) } == "woken")
        #expect(script.app.state == .background)
    }

    @Test func lowPowerModeHoldsTheNewestUntilItsEnd() throws {
        var script = try Script()
        try script.act(.lowPower, on: true)
        let first = script.silent()
        let second = script.silent()
        #expect(script.fate(first) == "replaced")
        #expect(script.fate(second) == "held")
        try script.act(.lowPower, on: false)
        #expect(script.fate(second) == "woken")
    }

    @Test func theBudgetHoldsOverASwitchedOffDevice() throws {
        var script = try Script(settings: { $0.wakesPerHour = 1 })
        _ = script.silent()
        let held = script.silent()
        try script.act(.power, on: false)
        script.wait(2 * 3_600_000)
        #expect(script.fate(held) == "held")
        try script.act(.power, on: true)
        script.wait(1)
        #expect(script.fate(held) == "woken")
    }

    @Test func theAppsOwnSettingStopsWakes() throws {
        var script = try Script()
        try script.set { $0.backgroundRefresh = false }
        let push = script.silent()
        #expect(script.rules(push).last == .backgroundRefreshOff)
    }

    @Test func aBackgroundPushWithoutContentAvailableDoesNothing() throws {
        var script = try Script()
        let push = script.push(#"{"aps":{"content-available":true}}"#, type: .background)
        #expect(script.rules(push).last == .nothingToShow)
        #expect(script.details(.wake).isEmpty)
    }

    @Test func anAlertWithContentAvailableIsShownAndWakes() throws {
        var script = try Script(settings: { $0.wakesPerHour = 1 })
        let aps = #""alert":"A","content-available":1"#
        let first = script.push(aps: aps)
        #expect(script.fate(first) == "shown")
        #expect(script.rules(first).suffix(3) == [.banner, .list, .wokeApp])
        let second = script.push(aps: aps)
        #expect(script.fate(second) == "shown")
        #expect(script.rules(second).last == .heldForBudget)
        try script.act(.launch)
        #expect(script.rules(second).last == .handedToApp)
        #expect(script.fate(second) == "shown")
    }

    @Test func aDeniedAppIsWokenAllTheSame() throws {
        var script = try Script()
        try script.act(.settings, on: false)
        let push = script.push(aps: #""alert":"A","content-available":1"#)
        #expect(script.rules(push).suffix(2) == [.denied, .wokeApp])
        #expect(script.fate(push) == "woken")
    }

    @Test func theAppsCodeRemovesPostsAndSetsTheBadge() throws {
        var script = try Script { app in
            var other = SilentRule()
            other.member = "kind"
            other.equals = "other"
            other.result = "failed"
            var rule = SilentRule()
            rule.member = "kind"
            rule.removesDelivered = "gone"
            rule.removesPending = "cancel"
            rule.setsBadge = "count"
            rule.posts = LocalRequest(identifier: "posted")
            rule.posts?.payload = .object(["aps": .object(["alert": .string("Posted")])])
            rule.result = "no-data"
            app.silent = [other, rule]
        }
        script.push(collapseID: "a")
        script.push(collapseID: "b")
        script.push(collapseID: "c")
        try script.act(.schedule) {
            var request = LocalRequest(identifier: "p")
            request.trigger = LocalTrigger()
            request.trigger?.region = "home"
            $0.request = request
        }
        let push = script.silent(#""kind":7,"gone":["a","c","unknown",1],"cancel":"p","count":5"#)
        #expect(script.delivered.map(\.identifier) == ["posted", "b"])
        #expect(script.app.pending.isEmpty)
        #expect(script.app.badge == 5)
        #expect(script.fate(1) == "removed")
        #expect(script.fate(push) == "woken")
        #expect(script.details(.wake) == ["no-data"])
        _ = script.silent(#""kind":"other","gone":"b""#)
        #expect(script.details(.wake).last == "failed")
        #expect(script.delivered.count == 2)
        _ = script.silent()
        #expect(script.details(.wake).last == "new-data")
    }

    @Test func anAppThatNeverCallsItsHandlerIsEndedAfterItsTime() throws {
        var script = try Script { app in
            var rule = SilentRule()
            rule.result = "never"
            app.silent = [rule]
        }
        let push = script.silent()
        script.wait(29_999)
        #expect(script.app.state == .background)
        script.wait(1)
        #expect(script.app.state == .notRunning)
        #expect(script.rules(push).last == .handlerNotCalled)
    }
}

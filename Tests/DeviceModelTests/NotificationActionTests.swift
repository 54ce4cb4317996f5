import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct NotificationActionTests {
    private static let message = #""alert":"A","category":"message""#

    @Test func aTapOpensTheAppAndRemovesTheNotification() throws {
        var script = try Script()
        try script.act(.lock, on: true)
        let push = script.push(collapseID: "a")
        try script.act(.tap, "a")
        #expect(script.delivered.isEmpty)
        #expect(script.view.lockScreen.isEmpty)
        #expect(script.app.state == .foreground)
        #expect(!script.view.state.isLocked)
        #expect(script.fate(push) == "opened")
        let response = try #require(script.app.responses.first)
        #expect(response.action == "com.apple.UNNotificationDefaultActionIdentifier")
        #expect(response.identifier == "a")
        #expect(response.appState == .foreground)
        #expect(script.details(.response) == [response.action])
    }

    @Test func aTapOnABannerRemovesIt() throws {
        var script = try Script()
        script.push()
        try script.act(.tap, script.delivered[0].identifier)
        #expect(script.view.banner == nil)
    }

    @Test func aDismissalIsReportedOnlyIfTheCategoryAsksForIt() throws {
        var script = try Script { $0.addMessageCategory(options: ["custom-dismiss"]) }
        script.push(aps: Self.message, collapseID: "a")
        script.push(collapseID: "b")
        try script.act(.dismiss, "b")
        #expect(script.app.responses.isEmpty)
        try script.act(.dismiss, "a")
        #expect(script.app.responses.map(\.action) == ["com.apple.UNNotificationDismissActionIdentifier"])
        #expect(script.app.state == .background)
        #expect(script.delivered.isEmpty)
    }

    @Test func aTextActionNeedsTextAndHandsItToTheApp() throws {
        var script = try Script { $0.addMessageCategory() }
        script.push(aps: Self.message, collapseID: "a")
        #expect(
            fault { () throws(DeviceFault) in try script.act(.act, "a") { $0.choice = "reply" } }?.kind
                == .invalid)
        #expect(script.delivered.count == 1)
        let long = String(repeating: "x", count: 5_000)
        #expect(
            fault { () throws(DeviceFault) in
                try script.act(.act, "a") {
                    $0.choice = "reply"
                    $0.text = long
                }
            }?.kind == .invalid)
        try script.act(.act, "a") {
            $0.choice = "reply"
            $0.text = "Yes"
        }
        #expect(script.app.responses.first?.userText == "Yes")
        #expect(script.app.responses.first?.action == "reply")
        #expect(script.app.responses.first?.appState == .background)
        #expect(script.delivered.isEmpty)
    }

    @Test func actionsUnlockAndComeToTheFrontByTheirOptions() throws {
        var script = try Script { $0.addMessageCategory() }
        for (choice, isLocked, state) in [
            ("mark", true, AppState.background), ("unlock", false, .background), ("open", false, .foreground),
        ] {
            try script.act(.lock, on: true)
            script.push(aps: Self.message, collapseID: "a")
            try script.act(.act, "a") { $0.choice = choice }
            #expect(script.view.state.isLocked == isLocked, "\(choice)")
            #expect(script.app.state == state, "\(choice)")
        }
    }

    @Test func anActionAfterForceQuitRunsTheApp() throws {
        var script = try Script { $0.addMessageCategory() }
        try script.act(.forceQuit)
        script.push(aps: Self.message, collapseID: "a")
        try script.act(.act, "a") { $0.choice = "mark" }
        #expect(script.app.state == .background)
    }

    @Test func contentExtensionsStayDismissOrForward() throws {
        var script = try Script { app in
            app.addMessageCategory()
            for (index, then) in ["stay", "dismiss", "forward"].enumerated() {
                app.categories![0].actions![index].shows = "Going, {name}! {text}"
                app.categories![0].actions![index].then = then
                app.categories![0].actions![index].input = nil
            }
            app.categories![0].actions![0].input = ActionDeclaration.TextInput(button: "Send")
            app.contentExtensions = [ContentExtensionDeclaration(categories: ["message"], fields: [])]
        }
        let payload = "{\"aps\":{\(Self.message)},\"name\":\"Ann\"}"
        let push = script.push(payload, collapseID: "a")
        try script.act(.act, "a") {
            $0.choice = "reply"
            $0.text = "Yes"
        }
        #expect(script.delivered[0].custom?.status == "Going, Ann! Yes")
        #expect(script.delivered[0].original == nil)
        #expect(script.app.responses.isEmpty)
        #expect(script.fate(push) == "shown")
        try script.act(.expand, "a")
        #expect(script.delivered[0].custom?.status == nil)
        try script.act(.act, "a") { $0.choice = "open" }
        #expect(script.delivered.isEmpty)
        #expect(script.app.responses.isEmpty)
        script.push(payload, collapseID: "a")
        try script.act(.act, "a") { $0.choice = "unlock" }
        #expect(script.app.responses.map(\.action) == ["unlock"])
    }

    @Test func aFlickEndsTheBannerOnly() throws {
        var script = try Script()
        let push = script.push(collapseID: "a")
        #expect(fault { () throws(DeviceFault) in try script.act(.flick, "b") }?.kind == .absent)
        try script.act(.flick, "a")
        #expect(script.view.banner == nil)
        #expect(script.delivered.count == 1)
        #expect(script.fate(push) == "shown")
        #expect(fault { () throws(DeviceFault) in try script.act(.flick) }?.kind == .impossible)
    }

    @Test func aGroupAndTheWholeCentreAreCleared() throws {
        var script = try Script { $0.addMessageCategory(options: ["custom-dismiss"]) }
        script.push(aps: #""alert":"1","thread-id":"t""#)
        script.push(aps: #""alert":"2","thread-id":"t""#)
        script.push(aps: Self.message)
        script.push(aps: #""alert":"4","badge":4"#)
        try script.act(.clearGroup) { $0.text = "t" }
        #expect(script.delivered.count == 2)
        #expect(
            fault { () throws(DeviceFault) in try script.act(.clearGroup) { $0.text = "t" } }?.kind == .absent
        )
        try script.act(.clearAll) { $0.app = nil }
        #expect(script.delivered.isEmpty)
        #expect(script.app.responses.count == 1)
        #expect(script.app.badge == 4)
    }

    @Test func theAppRemovesDeliveredNotificationsAndIgnoresUnknownOnes() throws {
        var script = try Script()
        script.push(collapseID: "a")
        script.push(collapseID: "b")
        script.push(collapseID: "c")
        try script.act(.removeDelivered, "a")
        try script.act(.removeDelivered, "unknown")
        #expect(script.delivered.map(\.identifier) == ["c", "b"])
        try script.act(.removeAllDelivered)
        #expect(script.delivered.isEmpty)
    }

    @Test func theBadge0OfTheAppClearsTheListButThatOfAPayloadDoesNot() throws {
        var script = try Script()
        script.push(aps: #""alert":"A","badge":0"#)
        #expect(script.delivered.count == 1)
        try script.act(.setBadge) { $0.number = 7 }
        #expect(script.app.badge == 7)
        #expect(script.delivered.count == 1)
        try script.act(.setBadge) { $0.number = 0 }
        #expect(script.delivered.isEmpty)
        for number in [nil, -1, Int.max] {
            let fault = fault { () throws(DeviceFault) in try script.act(.setBadge) { $0.number = number } }
            #expect(fault?.kind == .invalid)
        }
        try script.set { $0.badges = false }
        #expect(
            fault { () throws(DeviceFault) in try script.act(.setBadge) { $0.number = 1 } }?.kind
                == .impossible)
    }

    @Test func faultsNameWhatIsMissing() throws {
        var script = try Script { $0.addMessageCategory() }
        script.push(aps: Self.message, collapseID: "a")
        let cases: [(DeviceAction.Kind, String?, String?, DeviceFault.Kind)] = [
            (.tap, nil, nil, .invalid), (.tap, "b", nil, .absent), (.dismiss, "b", nil, .absent),
            (.expand, "b", nil, .absent), (.act, "a", nil, .invalid), (.act, "a", "unknown", .absent),
            (.removeDelivered, nil, nil, .invalid), (.removePending, nil, nil, .invalid),
            (.schedule, nil, nil, .invalid),
        ]
        for (kind, identifier, choice, expected) in cases {
            let fault = fault { () throws(DeviceFault) in
                try script.act(kind, identifier) { $0.choice = choice }
            }
            #expect(fault?.kind == expected, "\(kind)")
        }
        let extra = fault { () throws(DeviceFault) in
            try script.act(.act, "a") {
                $0.choice = "mark"
                $0.text = "x"
            }
        }
        #expect(extra?.description == "text: the action `mark` has no text field")
        try script.act(.power, on: false)
        #expect(fault { () throws(DeviceFault) in try script.act(.tap, "a") }?.kind == .impossible)
    }

    @Test func withTheAppItsNotificationsLeave() throws {
        var script = try Script(settings: { $0.wakesPerHour = 0 })
        let push = script.push()
        let held = script.silent()
        try script.act(.uninstall)
        #expect(script.fate(push) == "removed")
        #expect(script.rules(push).last == .notInstalled)
        #expect(script.fate(held) == "dropped")
        #expect(script.view.banner == nil)
    }

    @Test func responsesAreBounded() throws {
        var script = try Script()
        for number in 0..<60 {
            script.push(collapseID: "\(number)")
            try script.act(.tap, "\(number)")
        }
        #expect(script.app.responses.count == 50)
        #expect(script.app.responses[0].identifier == "59")
        #expect(script.app.responses[49].identifier == "10")
    }
}

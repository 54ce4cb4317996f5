import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct NotificationCentreTests {
    @Test func theSameIdentifierReplacesInPlaceAndMovesToTheTop() throws {
        var script = try Script()
        let first = script.push(aps: #""alert":{"title":"1","body":"x"},"badge":4"#, collapseID: "a")
        script.push(aps: #""alert":"2""#, collapseID: "b")
        let third = script.push(aps: #""alert":"3""#, collapseID: "a")
        #expect(script.delivered.map(\.identifier) == ["a", "b"])
        #expect(script.delivered[0].body == "3")
        #expect(script.delivered[0].title == "")
        #expect(script.delivered[0].replaced == 1)
        #expect(script.delivered[0].push == third)
        #expect(script.fate(first) == "replaced")
        #expect(script.details(.notification) == ["shown", "shown", "replaced"])
        // No field is merged, but the badge is a matter of the app.
        #expect(script.delivered[0].badge == nil)
        #expect(script.app.badge == 4)
    }

    @Test func aPushWithoutCollapseIdentifierGetsItsOwnUpperCaseUUID() throws {
        var script = try Script()
        script.push()
        script.push()
        let names = script.delivered.map(\.identifier)
        #expect(Set(names).count == 2)
        for name in names {
            let parts = name.split(separator: "-", omittingEmptySubsequences: false)
            #expect(parts.map(\.count) == [8, 4, 4, 4, 12])
            #expect(name == name.uppercased())
            #expect(parts[2].first == "4")
        }
        var again = try Script()
        again.push()
        #expect(again.delivered[0].identifier == names[1])
        let event = script.world.events(after: 0, limit: 1_000).events.first { $0.kind == .notification }
        #expect(event?.identifier == names[1])
    }

    @Test func aCollapseIdentifierEqualToAGeneratedOneReplacesThatNotification() throws {
        var script = try Script()
        let first = script.push()
        let name = script.delivered[0].identifier
        script.push(collapseID: name)
        #expect(script.delivered.map(\.identifier) == [name])
        #expect(script.fate(first) == "replaced")
    }

    @Test func theListKeepsItsNewestEntries() throws {
        var script = try Script(settings: { $0.maximumDelivered = 3 })
        for number in 1...5 { script.push(aps: #""alert":"\#(number)""#) }
        #expect(script.delivered.map(\.body) == ["5", "4", "3"])
        #expect(script.fate(2) == "removed")
        #expect(script.fate(3) == "shown")
    }

    @Test func soundAndBadgeAloneMakeNoEntry() throws {
        var script = try Script()
        let push = script.push(aps: #""badge":2,"sound":"default""#)
        #expect(script.delivered.isEmpty)
        #expect(script.app.badge == 2)
        #expect(script.fate(push) == "shown")
        script.push()
        #expect(script.app.badge == 2)
        script.push(aps: #""badge":0"#)
        #expect(script.app.badge == 0)
        #expect(script.delivered.count == 1)
    }

    // MARK: - Surfaces

    @Test func anUnlockedDeviceShowsABannerForItsTime() throws {
        var script = try Script()
        script.push(collapseID: "a")
        #expect(
            script.view.banner == ShownView(app: Script.bundle, identifier: "a", until: script.now + 5_000))
        #expect(script.view.lockScreen.isEmpty)
        script.push(collapseID: "b")
        #expect(script.view.banner?.identifier == "b")
        script.wait(5_000)
        #expect(script.view.banner == nil)
        #expect(script.delivered.count == 2)
    }

    @Test func aBannerOfTheStyleAlertStays() throws {
        var script = try Script()
        try script.set { $0.alertStyle = .alert }
        script.push()
        let name = script.delivered[0].identifier
        script.wait(3_600_000)
        #expect(script.view.banner == ShownView(app: Script.bundle, identifier: name, until: nil))
        try script.act(.flick, name)
        #expect(script.view.banner == nil)
        #expect(script.delivered.count == 1)
    }

    @Test func aLockedDeviceShowsTheNewestFirstUntilItIsUnlocked() throws {
        var script = try Script()
        script.push(collapseID: "seen")
        try script.act(.lock, on: true)
        #expect(script.view.banner == nil)
        script.push(collapseID: "a")
        script.push(collapseID: "b")
        #expect(script.view.lockScreen.map(\.identifier) == ["b", "a"])
        #expect(script.view.banner == nil)
        try script.act(.lock, on: false)
        #expect(script.view.lockScreen.isEmpty)
        #expect(script.delivered.map(\.identifier) == ["b", "a", "seen"])
        try script.act(.lock, on: true)
        #expect(script.view.lockScreen.isEmpty)
    }

    @Test func withoutTheListANotificationEndsWithItsBanner() throws {
        var script = try Script()
        try script.set { $0.notificationCentre = false }
        let first = script.push(collapseID: "a")
        #expect(script.delivered.map(\.identifier) == ["a"])
        let second = script.push(collapseID: "b")
        #expect(script.delivered.map(\.identifier) == ["b"])
        #expect(script.fate(first) == "removed")
        script.wait(5_000)
        #expect(script.delivered.isEmpty)
        #expect(script.fate(second) == "removed")
    }

    @Test func withoutTheListANotificationEndsWithTheLockScreen() throws {
        var script = try Script()
        try script.set { $0.notificationCentre = false }
        try script.act(.lock, on: true)
        let push = script.push(collapseID: "a")
        #expect(script.view.lockScreen.map(\.identifier) == ["a"])
        try script.act(.lock, on: false)
        #expect(script.delivered.isEmpty)
        #expect(script.fate(push) == "removed")
    }

    @Test func switchingOffEndsTheBannerAndKeepsTheLists() throws {
        var script = try Script()
        script.push(aps: #""alert":"A","badge":3"#)
        try script.act(.power, on: false)
        #expect(script.view.banner == nil)
        try script.act(.power, on: true)
        #expect(script.delivered.count == 1)
        #expect(script.app.badge == 3)
    }

    @Test func theAppInFrontChoosesThePresentation() throws {
        var script = try Script { $0.foreground = [.list, .badge] }
        try script.act(.launch)
        script.push(aps: #""alert":"A","badge":3,"sound":"default""#)
        #expect(script.view.banner == nil)
        #expect(script.delivered.count == 1)
        #expect(script.app.badge == 3)
        #expect(!script.rules(1).contains(.sound))
        #expect(script.fate(1) == "silent")
        try script.act(.home)
        script.push()
        #expect(script.view.banner != nil)
    }

    @Test func theAppInFrontThatChoosesNothingGetsNoEntry() throws {
        var script = try Script { $0.foreground = [] }
        try script.act(.launch)
        script.push(aps: #""alert":"A","badge":3"#)
        #expect(script.delivered.isEmpty)
        #expect(script.app.badge == 0)
        try script.act(.lock, on: true)
        script.push()
        #expect(script.view.lockScreen.count == 1)
    }

    @Test func provisionalPermissionFillsTheListOnly() throws {
        var script = try Script { app in
            app.permission = PermissionRequest()
            app.permission?.options = ["alert", "badge", "sound", "provisional"]
        }
        let push = script.push(aps: #""alert":"A","badge":3,"sound":"default""#)
        #expect(script.delivered.count == 1)
        #expect(script.app.badge == 0)
        #expect(script.view.banner == nil)
        #expect(script.rules(push).suffix(2) == [.provisional, .list])
        try script.act(.keep, on: true)
        script.push()
        #expect(script.view.banner != nil)
    }

    @Test func optionsThatTheAppHasNotAskedForAreOff() throws {
        var script = try Script { app in
            app.permission = PermissionRequest()
            app.permission?.options = ["alert"]
        }
        let push = script.push(aps: #""alert":"A","badge":3,"sound":"default""#)
        #expect(script.rules(push).contains(.noSound))
        #expect(script.rules(push).contains(.noBadge))
        #expect(script.app.badge == 0)
    }

    @Test func withoutTheOptionForAlertsTheServiceExtensionDoesNotRun() throws {
        var script = try Script { app in
            app.serviceExtension = ServiceExtensionDeclaration()
            app.permission = PermissionRequest()
            app.permission?.options = ["badge"]
        }
        let push = script.push(aps: #""alert":"A","mutable-content":1"#)
        #expect(script.rules(push).contains(.extensionSkippedAlertsOff))
        #expect(script.rules(push).contains(.noAlerts))
        #expect(script.view.banner == nil)
    }

    // MARK: - Levels and Focus

    @Test func timeSensitivePassesAFocusThatAllowsIt() throws {
        var script = try Script { $0.entitlements = [.timeSensitive] }
        let aps = #""alert":"A","interruption-level":"time-sensitive""#
        try script.focus()
        #expect(script.fate { $0.push(aps: aps) } == "shown")
        try script.focus(timeSensitive: false)
        #expect(script.fate { $0.push(aps: aps) } == "silent")
        #expect(script.delivered.count == 2)
    }

    @Test func criticalPassesFocusSummaryAndMuteSwitch() throws {
        var script = try Script { $0.entitlements = [.critical] }
        try script.focus(timeSensitive: false, filter: "work")
        try script.act(.mute, on: true)
        try script.set { $0.scheduledSummary = true }
        let push = script.push(
            aps: #""alert":"A","sound":"default","interruption-level":"critical","filter-criteria":"x""#)
        #expect(script.rules(push).suffix(4) == [.critical, .banner, .list, .sound])
        try script.set { $0.critical = false }
        let second = script.push(aps: #""alert":"A","sound":{"critical":1},"interruption-level":"critical""#)
        #expect(script.rules(second).filter { $0 == .criticalNotEntitled }.count == 1)
        #expect(script.fate(second) == "held")
    }

    @Test func aCriticalSoundSoundsInSpiteOfFocus() throws {
        var script = try Script { $0.entitlements = [.critical] }
        try script.focus()
        let push = script.push(aps: #""alert":"A","sound":{"critical":1,"name":"default"}"#)
        #expect(script.rules(push).contains(.silencedByFocus))
        #expect(script.rules(push).contains(.criticalSound))
        #expect(script.view.banner == nil)
    }

    @Test func aFocusFilterSilencesOtherCriteriaOnly() throws {
        var script = try Script()
        try script.focus(allows: [Script.bundle], filter: "work")
        #expect(script.fate { $0.push(aps: #""alert":"A","filter-criteria":"work""#) } == "shown")
        #expect(script.fate { $0.push(aps: #""alert":"A","filter-criteria":"home""#) } == "silent")
        #expect(script.fate { $0.push() } == "shown")
    }

    // MARK: - Scheduled summary

    @Test func theSummaryShowsWhatWaitsAtItsNextTime() throws {
        var script = try Script()
        try script.set { $0.scheduledSummary = true }
        let low = script.push(aps: #""alert":"low","relevance-score":0.1"#, collapseID: "low")
        let high = script.push(aps: #""alert":"high","relevance-score":0.9,"badge":2"#, collapseID: "high")
        let urgent = script.push(aps: #""alert":"passive","interruption-level":"passive""#)
        #expect([low, high, urgent].map(script.fate) == ["held", "held", "held"])
        #expect(script.view.summary.map(\.identifier).prefix(2) == ["high", "low"])
        #expect(script.app.badge == 2)
        #expect(script.view.banner == nil)
        // The script starts at 22:13 UTC; the summary is due at 08:00 and 18:00.
        let due = Script.start / LocalTime.day * LocalTime.day + LocalTime.day + 8 * 3_600_000
        #expect(script.view.nextSummaryAt == due)
        #expect(script.world.nextDue == due)
        script.wait(due - script.now - 1)
        #expect(script.fate(low) == "held")
        script.wait(1)
        #expect([low, high, urgent].map(script.fate) == ["shown", "shown", "shown"])
        #expect(script.view.summary.isEmpty)
        #expect(script.delivered.count == 3)
    }

    @Test func theSummaryOfALockedDeviceIsOnTheLockScreen() throws {
        var script = try Script()
        try script.set { $0.scheduledSummary = true }
        try script.act(.lock, on: true)
        script.push(collapseID: "a")
        #expect(script.view.lockScreen.isEmpty)
        script.wait(LocalTime.day)
        #expect(script.view.lockScreen.map(\.identifier) == ["a"])
    }

    @Test func theSummaryOfADeviceThatIsOffComesAfterItsReturn() throws {
        var script = try Script()
        try script.set { $0.scheduledSummary = true }
        let push = script.push()
        try script.act(.power, on: false)
        script.wait(LocalTime.day)
        #expect(script.fate(push) == "held")
        try script.act(.power, on: true)
        #expect(script.fate(push) == "held")
        script.wait(LocalTime.day)
        #expect(script.fate(push) == "shown")
    }

    @Test func withoutTheSummaryWhatWaitsIsShown() throws {
        var script = try Script()
        try script.set { $0.scheduledSummary = true }
        let push = script.push()
        try script.set { $0.scheduledSummary = false }
        #expect(script.fate(push) == "shown")
        #expect(script.view.nextSummaryAt == nil)
    }

    @Test func aSummaryIsScheduledOnceForManyNotifications() throws {
        var script = try Script()
        try script.set { $0.scheduledSummary = true }
        for _ in 0..<20 { script.push() }
        #expect(script.world.due.count == 1)
    }

    // MARK: - Groups, previews, views

    @Test func groupsFollowThreadsAndSettings() throws {
        var script = try Script { $0.addMessageCategory() }
        script.push(aps: #""alert":"1","thread-id":"t","category":"message""#, collapseID: "1")
        script.push(aps: #""alert":"2""#, collapseID: "2")
        script.push(aps: #""alert":"3","thread-id":"t","category":"message""#, collapseID: "3")
        script.push(aps: #""alert":"4""#, collapseID: "4")
        script.push(aps: #""alert":"5""#, collapseID: "5")
        #expect(
            script.app.groups == [
                GroupView(thread: "", identifiers: ["5", "4", "2"], summary: "2 more notifications"),
                GroupView(thread: "t", identifiers: ["3", "1"], summary: "1 further messages"),
            ])
        try script.set { $0.grouping = .byApp }
        #expect(script.app.groups.map(\.identifiers) == [["5", "4", "3", "2", "1"]])
        try script.set { $0.grouping = .off }
        #expect(script.app.groups.map(\.identifiers) == [["5"], ["4"], ["3"], ["2"], ["1"]])
        #expect(script.app.groups.allSatisfy { $0.summary == nil })
    }

    @Test func hiddenPreviewsShowWhatTheCategoryAllows() throws {
        var script = try Script { app in
            app.addMessageCategory(options: ["hidden-previews-show-title"])
        }
        let aps = #""alert":{"title":"T","subtitle":"S","body":"B"},"category":"message","thread-id":"t""#
        script.push(aps: aps)
        script.push(aps: aps)
        script.push()
        #expect(script.delivered.allSatisfy { $0.hidden == nil })
        try script.act(.lock, on: true)
        let hidden = script.delivered.map(\.hidden)
        #expect(hidden[0] == NotificationView.HiddenTexts(title: "News", subtitle: "", body: "Notification"))
        #expect(hidden[1] == NotificationView.HiddenTexts(title: "T", subtitle: "", body: "2 messages"))
        try script.set { $0.previews = .always }
        #expect(script.delivered.allSatisfy { $0.hidden == nil })
        try script.set { $0.previews = .never }
        try script.act(.lock, on: false)
        #expect(script.delivered.allSatisfy { $0.hidden != nil })
    }

    @Test func aContentExtensionDrawsItsCategory() throws {
        var script = try Script { app in
            app.addMessageCategory()
            var drawn = ContentExtensionDeclaration(
                categories: ["message"],
                fields: [
                    ContentExtensionDeclaration.Field(
                        kind: "text", label: "From", value: "{from.name}: {body}"),
                    ContentExtensionDeclaration.Field(kind: "image", value: "{absent}"),
                ])
            drawn.hidesDefaultContent = true
            drawn.sizeRatio = -3
            app.contentExtensions = [drawn]
        }
        script.push(#"{"aps":{"alert":"B","category":"message"},"from":{"name":"Ann"}}"#)
        script.push()
        let custom = try #require(script.delivered[1].custom)
        #expect(custom.fields.map(\.value) == ["Ann: B", ""])
        #expect(custom.hidesDefaultContent)
        #expect(custom.sizeRatio == 1)
        #expect(script.delivered[0].custom == nil)
    }

    @Test func aViewHasTheContentOfItsPayload() throws {
        var script = try Script { app in
            app.addMessageCategory()
            app.sounds = []
        }
        script.push(
            #"{"aps":{"alert":{"title":"T"},"sound":"gone.caf","category":"message","target-content-id":"w","relevance-score":0.5,"interruption-level":"passive"},"x":1}"#
        )
        let view = script.delivered[0]
        #expect(view.sound == "default")
        #expect(view.actions.map(\.identifier) == ["reply", "open", "unlock", "mark"])
        #expect(view.targetContent == "w")
        #expect(view.relevance == 0.5)
        #expect(view.level == "passive")
        #expect(view.trigger == "push")
        #expect(view.apnsID != nil)
        #expect(view.payload["x"] == .integer(1))
        #expect(view.original == nil)
    }

    @Test func theExtensionsChangesAreShownBesideTheOriginal() throws {
        var script = try Script { $0.addMessageCategory() }
        let push = script.push(aps: #""alert":"cipher""#)
        let transit = TransitPush(
            number: push, apnsID: APNSID(high: 1, low: 1), at: script.now, device: 0, app: 0, token: 0,
            purpose: .alert, type: .alert, priority: .immediate, collapseID: "c", expires: .max,
            payload: Array(#"{"aps":{"alert":"cipher","sound":"default"}}"#.utf8))
        var changes = ContentChanges()
        changes.body = "clear"
        changes.category = "message"
        changes.thread = "t"
        changes.sound = ""
        script.world.presentAlert(transit, changes: changes, now: script.now)
        let view = script.delivered[0]
        #expect(view.body == "clear")
        #expect(view.original?.body == "cipher")
        #expect(view.actions.count == 4)
        #expect(view.thread == "t")
        #expect(view.sound == nil)
        #expect(script.world.devices(DeviceQuery()).items[0].lastText == "clear")
    }
}

@Suite struct GeneratedIdentifierTests {
    @Test func aGeneratedIdentifierIsFoundByItsValueAndNothingElseIs() {
        for push in 1...200 as ClosedRange<UInt64> {
            let text = GeneratedIdentifier.text(push, seed: 7)
            let name = RequestName(text)
            #expect(name.generated.map { "\($0)".uppercased() } == text)
            let entry = DeliveredNotification(
                identifier: nil, push: push, apnsID: APNSID(high: 0, low: 0), at: 0, payload: [])
            #expect(entry.isNamed(name, seed: 7))
            #expect(!entry.isNamed(name, seed: 8))
            #expect(!entry.isNamed(RequestName(text.lowercased()), seed: 7))
            #expect(!entry.isNamed(RequestName(GeneratedIdentifier.text(push + 1, seed: 7)), seed: 7))
        }
    }

    /// Collapse identifiers that are UUIDs of other forms cost no comparison with generated ones.
    @Test(arguments: [
        "123e4567-e89b-42d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000",
        "123E4567-E89B-42D3-C456-426614174000", "123E4567-E89B-42D3-A456-42661417400G",
        "123E4567-E89B-42D3-A456-4266141740000", "123E4567+E89B-42D3-A456-426614174000", "",
        "ÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄ",
    ])
    func aNameThatIsNotGeneratedHasNoValue(_ name: String) {
        #expect(RequestName(name).generated == nil)
        #expect(RequestName("123E4567-E89B-42D3-A456-426614174000").generated != nil)
    }
}

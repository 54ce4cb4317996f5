import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct ActivityTests {
    @Test func aStartWithAllMembersShowsAnActivityWithAnUpdateToken() throws {
        var bed = try ActivityBed()
        let activity = try bed.started(["input-push-token": "1"])
        #expect(bed.rules.suffix(2) == ["activity-started", "activity-alerted"])
        #expect(bed.fate == "updated")
        #expect(activity.state == "active")
        #expect(activity.type == "Match")
        #expect(activity.channel == nil)
        let token = try #require(activity.token)
        #expect(token.count == 160)
        #expect(
            bed.app()?.tokens.contains { $0.token == token && $0.purpose == .activity && $0.isValid } == true)
        #expect(bed.details(.activity) == ["started"])
        #expect(bed.world.status(now: bed.now).activities == 1)
    }

    @Test(arguments: ["timestamp", "content-state", "attributes-type", "attributes", "alert", "event"])
    func aStartWithoutARequiredMemberIsDropped(_ member: String) throws {
        var bed = try ActivityBed()
        bed.push(ActivityBed.start([member: nil]))
        #expect(bed.rules.last == "activity-incomplete")
        #expect(bed.fate == "dropped")
        #expect(bed.activities.isEmpty)
    }

    @Test func aStartOfAnUndeclaredTypeIsDropped() throws {
        var bed = try ActivityBed()
        bed.push(ActivityBed.start(["attributes-type": #""Other""#]))
        #expect(bed.rules.last == "activity-unknown-type")
        #expect(bed.activities.isEmpty)
    }

    @Test func anAppWithoutDeclarationsShowsAnyTypeWithItsMembers() throws {
        var app = ActivityBed.app()
        app.activities = nil
        var bed = try ActivityBed(app)
        let activity = try bed.started([
            "attributes-type": #""Other""#, "content-state": #"{"b":2,"a":"x","c":[1]}"#,
        ])
        #expect(activity.title == "Game")
        #expect(activity.lines == ["a: x", "b: 2"])
        #expect(activity.leading == "x")
        #expect(activity.trailing == "2")
        #expect(activity.progress == nil)
    }

    @Test func theDeclaredLayoutTakesMembersOfStateAndAttributes() throws {
        var bed = try ActivityBed()
        let activity = try bed.started(["content-state": #"{"home":3,"away":1,"part":1.5}"#])
        #expect(activity.title == "Reds live")
        #expect(activity.lines == ["3:1", ""])
        #expect(activity.leading == "3")
        #expect(activity.trailing == "1")
        #expect(activity.progress == 1)
    }

    @Test func aStateWithoutItsRequiredMembersKeepsTheFormerState() throws {
        var bed = try ActivityBed()
        bed.push(ActivityBed.start(["content-state": #"{"home":1}"#]))
        #expect(bed.rules.last == "activity-not-decoded")
        #expect(bed.activities.isEmpty)
        let activity = try bed.started()
        for state in [#"{"home":4}"#, #"{"home":4,"away":null}"#, "[]", "4"] {
            bed.push(ActivityBed.update(4, at: 200, ["content-state": state]), to: activity.token)
            #expect(bed.rules.last == "activity-not-decoded")
            #expect(bed.fate == "dropped")
        }
        #expect(try bed.activity(activity.id).contentState == activity.contentState)
    }

    @Test func anUpdateReplacesTheWholeState() throws {
        var bed = try ActivityBed()
        let activity = try bed.started(["content-state": #"{"home":0,"away":0,"note":"x"}"#])
        bed.push(ActivityBed.update(2, at: 101), to: activity.token)
        #expect(bed.rules.last == "activity-updated")
        #expect(bed.fate == "updated")
        let updated = try bed.activity(activity.id)
        #expect(updated.contentState == .object(["home": .integer(2), "away": .integer(0)]))
        #expect(!updated.alerted)
        #expect(bed.details(.activity) == ["started", "updated"])
    }

    @Test func anOlderTimestampIsIgnoredAndAnEqualOneIsApplied() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        bed.push(ActivityBed.update(1, at: 150), to: activity.token)
        bed.push(ActivityBed.update(2, at: 149), to: activity.token)
        #expect(bed.rules.last == "activity-outdated")
        #expect(try bed.activity(activity.id).leading == "1")
        bed.push(ActivityBed.update(3, at: 150), to: activity.token)
        #expect(try bed.activity(activity.id).leading == "3")
        bed.push(ActivityBed.end(at: 149), to: activity.token)
        #expect(bed.rules.last == "activity-outdated")
        #expect(try bed.activity(activity.id).state == "active")
    }

    @Test func anUpdateWithoutTimestampOrStateIsIncomplete() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        for member in ["timestamp", "content-state"] {
            bed.push(ActivityBed.update(1, at: 150, [member: nil]), to: activity.token)
            #expect(bed.rules.last == "activity-incomplete")
        }
        bed.push("not JSON", to: activity.token)
        #expect(bed.rules.last == "activity-incomplete")
    }

    @Test func anAlertInAnUpdateLightsTheScreen() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        bed.push(ActivityBed.update(1, at: 150, ["alert": #"{"title":"Goal"}"#]), to: activity.token)
        #expect(bed.rules.last == "activity-alerted")
        #expect(try bed.activity(activity.id).alerted)
    }

    @Test func aStateBecomesStaleAtItsDateAndActiveWithTheNextUpdate() throws {
        var bed = try ActivityBed()
        let stale = bed.now / 1_000 + 60
        let activity = try bed.started(["stale-date": "\(stale)"])
        #expect(activity.staleAt == stale * 1_000)
        bed.pass(59_000)
        #expect(try bed.activity(activity.id).state == "active")
        bed.pass(1_000)
        #expect(try bed.activity(activity.id).state == "stale")
        #expect(bed.rules.last == "activity-stale")
        bed.push(ActivityBed.update(1, at: 150), to: activity.token)
        #expect(try bed.activity(activity.id).state == "active")
        bed.push(ActivityBed.update(1, at: 151, ["stale-date": "5"]), to: activity.token)
        #expect(bed.rules.suffix(2) == ["activity-updated", "activity-stale"])
        #expect(try bed.activity(activity.id).state == "stale")
        #expect(bed.details(.activity) == ["started", "stale", "updated", "updated"])
    }

    @Test func aLaterStaleDateCountsWhenAnEarlierOneWasScheduled() throws {
        var bed = try ActivityBed()
        let seconds = bed.now / 1_000
        let activity = try bed.started(["stale-date": "\(seconds + 60)"])
        bed.push(ActivityBed.update(1, at: 150, ["stale-date": "\(seconds + 120)"]), to: activity.token)
        bed.pass(90_000)
        #expect(try bed.activity(activity.id).state == "active")
        bed.pass(30_000)
        #expect(try bed.activity(activity.id).state == "stale")
    }

    @Test func updatesOfPriority10BeyondTheBudgetAreDropped() throws {
        var settings = DeviceSettings()
        settings.activityUpdatesPerHour = 3
        var bed = try ActivityBed(settings: settings)
        let activity = try bed.started()
        for number in 1...3 {
            bed.push(ActivityBed.update(number, at: 150), to: activity.token, priority: .immediate)
            #expect(bed.rules.last == "activity-updated")
        }
        bed.push(ActivityBed.update(4, at: 150), to: activity.token, priority: .immediate)
        #expect(bed.rules.last == "activity-over-budget")
        #expect(bed.fate == "dropped")
        bed.push(ActivityBed.update(5, at: 150), to: activity.token)
        #expect(bed.rules.last == "activity-updated")
        bed.pass(3_600_000)
        bed.push(ActivityBed.update(6, at: 150), to: activity.token, priority: .immediate)
        #expect(bed.rules.last == "activity-updated")
        bed.push(ActivityBed.end(at: 160), to: activity.token, priority: .immediate)
        #expect(bed.rules.last == "activity-ended")
    }

    @Test func frequentUpdatesNeedSettingAndEntitlement() throws {
        var settings = DeviceSettings()
        settings.activityUpdatesPerHour = 1
        settings.frequentUpdatesPerHour = 2
        var app = ActivityBed.app()
        app.entitlements = [.frequentUpdates]
        for isEntitled in [true, false] {
            if !isEntitled { app.entitlements = [] }
            var bed = try ActivityBed(app, settings: settings)
            var action = DeviceAction(.settings)
            action.settings = NotificationSettings()
            action.settings?.frequentUpdates = true
            try bed.perform(action)
            let activity = try bed.started()
            var applied = 0
            for _ in 1...4 {
                bed.push(ActivityBed.update(1, at: 150), to: activity.token, priority: .immediate)
                applied += bed.rules.last == "activity-updated" ? 1 : 0
            }
            #expect(applied == (isEntitled ? 2 : 1))
        }
    }

    @Test func nothingStartsOrChangesWhileLiveActivitiesAreOff() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        var action = DeviceAction(.settings)
        action.settings = NotificationSettings()
        action.settings?.liveActivities = false
        try bed.perform(action)
        bed.push(ActivityBed.start())
        #expect(bed.rules.last == "activity-disabled")
        bed.push(ActivityBed.update(1, at: 150), to: activity.token)
        #expect(bed.rules.last == "activity-disabled")
        #expect(bed.activities.count == 1)
    }

    @Test func anAppHasAtMostItsLimitOfRunningActivities() throws {
        var bed = try ActivityBed()
        var tokens: [String] = []
        for _ in 1...5 { tokens.append(try #require(try bed.started().token)) }
        #expect(Set(tokens).count == 5)
        bed.push(ActivityBed.start())
        #expect(bed.rules.last == "activity-limit")
        bed.push(ActivityBed.end(at: 200), to: tokens[0])
        bed.push(ActivityBed.start())
        #expect(bed.rules.contains("activity-started"))
    }

    @Test func attributesAndStateBeyond4KBAreRefused() throws {
        var bed = try ActivityBed()
        let long = String(repeating: "x", count: 4_096)
        bed.push(ActivityBed.start(["content-state": #"{"home":"\#(long)","away":0}"#]))
        #expect(bed.rules.last == "activity-too-large")
        let activity = try bed.started()
        bed.push(
            ActivityBed.update(1, at: 150, ["content-state": #"{"home":"\#(long)","away":0}"#]),
            to: activity.token)
        #expect(bed.rules.last == "activity-too-large")
        #expect(try bed.activity(activity.id).leading == "0")
    }

    @Test func eachTokenTakesItsOwnEventsOnly() throws {
        var bed = try ActivityBed()
        bed.push(ActivityBed.update(1, at: 150))
        #expect(bed.rules.last == "activity-wrong-event")
        bed.push(ActivityBed.end(at: 150))
        #expect(bed.rules.last == "activity-wrong-event")
        let activity = try bed.started()
        bed.push(ActivityBed.start(), to: activity.token)
        #expect(bed.rules.last == "activity-wrong-event")
        #expect(bed.activities.count == 1)
    }

    @Test func activitiesAreInTheOrderOfRelevanceThenOfTheirStart() throws {
        var bed = try ActivityBed()
        let first = try bed.started()
        let second = try bed.started(["relevance-score": "75"])
        let third = try bed.started()
        #expect(bed.activities.map(\.id) == [second.id, first.id, third.id])
        bed.push(ActivityBed.update(1, at: 150, ["relevance-score": "100.5"]), to: third.token)
        #expect(bed.activities.map(\.id) == [third.id, second.id, first.id])
    }

    @Test func anUpdateToAMadeUpTokenShowsAnActivityUntilItsEnd() throws {
        var bed = try ActivityBed()
        bed.push(ActivityBed.update(1, at: 150, ["alert": #""Goal""#]), to: Tokens.first)
        #expect(bed.rules.contains("adopted"))
        #expect(bed.rules.contains("activity-updated"))
        let device = try #require(bed.world.device(ofToken: Tokens.first))
        func activity() throws -> ActivityView { try #require(bed.app(on: device)?.activities.first) }
        #expect(try activity().leading == "1")
        #expect(try activity().token == Tokens.first)
        bed.push(ActivityBed.update(2, at: 151), to: Tokens.first)
        #expect(try activity().leading == "2")
        #expect(bed.app(on: device)?.activities.count == 1)
        bed.push(ActivityBed.end(at: 152), to: Tokens.first)
        #expect(try activity().state == "ended")
        #expect(
            bed.world.push(
                token: Tokens.first, topic: ActivityBed.topic, type: .liveActivity, now: bed.now + 1)
                == .accepted)
        #expect(
            bed.world.push(
                token: Tokens.first, topic: ActivityBed.topic, type: .liveActivity, now: bed.now + 2)
                == .refused(.expiredToken, since: bed.now))
        #expect(bed.rules == ["token-expired"])
    }

    @Test func aStartToAMadeUpTokenStartsWithItsOwnUpdateToken() throws {
        var bed = try ActivityBed()
        bed.push(ActivityBed.start(), to: Tokens.first)
        let device = try #require(bed.world.device(ofToken: Tokens.first))
        let started = try #require(bed.app(on: device)?.activities.first)
        #expect(started.token != nil && started.token != Tokens.first)
        bed.push(ActivityBed.update(1, at: 150), to: Tokens.first)
        bed.push(ActivityBed.start(), to: Tokens.first)
        #expect(bed.app(on: device)?.activities.count == 3)
    }

    @Test func anUnusableUpdateToAMadeUpTokenShowsNothing() throws {
        var bed = try ActivityBed()
        bed.push(ActivityBed.update(1, at: 150, ["timestamp": nil]), to: Tokens.first)
        #expect(bed.rules.last == "activity-incomplete")
        bed.push(ActivityBed.update(1, at: 150, ["content-state": #"{"home":1}"#]), to: Tokens.second)
        #expect(bed.rules.last == "activity-not-decoded")
        #expect(bed.world.status(now: bed.now).activities == 0)
    }

    @Test func startsByPushBeyondTheHoursBudgetAreDropped() throws {
        var bed = try ActivityBed(startsPerHour: 2)
        // A refused start costs nothing.
        bed.push(ActivityBed.start(["content-state": "{}"]))
        for _ in 1...2 {
            bed.push(ActivityBed.start())
            #expect(bed.fate == "updated")
        }
        let first = bed.now - 1
        bed.push(ActivityBed.start())
        #expect(bed.rules.last == "activity-starts-used-up")
        #expect(bed.fate == "dropped")
        var action = DeviceAction(.startActivity)
        action.text = ActivityBed.type
        action.payload = .object(["content-state": .object(["home": .integer(0), "away": .integer(0)])])
        try bed.perform(action)
        #expect(bed.activities.count == 3)
        bed.pass(first + 3_600_000 - bed.now - 2)
        bed.push(ActivityBed.start())
        #expect(bed.fate == "dropped")
        bed.push(ActivityBed.start())
        #expect(bed.fate == "updated")
    }
}

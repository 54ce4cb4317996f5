import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct ActivityEndTests {
    @Test func anEndWithoutDismissalDateStaysFourHoursOnTheLockScreen() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        bed.push(ActivityBed.end(at: 200, ["content-state": #"{"home":9,"away":0}"#]), to: activity.token)
        #expect(bed.rules.last == "activity-ended")
        let ended = try bed.activity(activity.id)
        #expect(ended.state == "ended")
        #expect(ended.leading == "9")
        #expect(ended.dismissAt == bed.now + 4 * 3_600_000)
        #expect(
            bed.world.nextDue == activity.startedAt + 8 * 3_600_000 || bed.world.nextDue == ended.dismissAt)
        bed.pass(4 * 3_600_000 - 1)
        #expect(try bed.activity(activity.id).state == "ended")
        bed.pass(1)
        #expect(try bed.activity(activity.id).state == "dismissed")
        #expect(bed.rules.last == "activity-dismissed")
        #expect(bed.world.status(now: bed.now).activities == 0)
        #expect(bed.details(.activity) == ["started", "ended", "dismissed"])
    }

    @Test func anEndWithoutStateKeepsTheLastState() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        bed.push(ActivityBed.update(5, at: 150), to: activity.token)
        bed.push(ActivityBed.end(at: 200), to: activity.token)
        #expect(try bed.activity(activity.id).leading == "5")
    }

    @Test func anEndWithAStateThatDoesNotDecodeEndsWithTheFormerState() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        bed.push(ActivityBed.end(at: 200, ["content-state": #"{"home":9}"#]), to: activity.token)
        #expect(bed.rules.suffix(2) == ["activity-not-decoded", "activity-ended"])
        #expect(try bed.activity(activity.id).leading == "0")
    }

    @Test(arguments: [(-4_000.0, 0), (0, 0), (60, 60_000), (14_400, 14_400_000), (20_000, 14_400_000)])
    func aDismissalDateCountsFromNowToFourHours(_ seconds: Double, _ wait: Int64) throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        let date = Double(bed.now + 1) / 1_000 + seconds
        bed.push(ActivityBed.end(at: 200, ["dismissal-date": "\(date)"]), to: activity.token)
        let ended = try bed.activity(activity.id)
        #expect(ended.state == (wait == 0 ? "dismissed" : "ended"))
        #expect(ended.dismissAt == bed.now + wait)
        bed.pass(wait)
        #expect(try bed.activity(activity.id).state == "dismissed")
    }

    @Test(arguments: [
        "-1e300", "1e300", "-9223372036854775808", "9223372036854775807", "1e999", "true", "\"x\"", "null",
    ])
    func datesOfAnySizeNeitherTrapNorLastTooLong(_ date: String) throws {
        var bed = try ActivityBed()
        let activity = try bed.started(["stale-date": date, "relevance-score": date])
        bed.push(
            ActivityBed.update(1, at: 150, ["stale-date": date, "timestamp": date, "relevance-score": date]),
            to: activity.token)
        bed.push(ActivityBed.end(at: 200, ["dismissal-date": date]), to: activity.token)
        bed.pass(12 * 3_600_000)
        #expect(bed.world.status(now: bed.now).activities == 0)
    }

    @Test func theSystemEndsAnActivityAfterEightHours() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        bed.pass(8 * 3_600_000 - 1)
        #expect(try bed.activity(activity.id).state == "active")
        bed.pass(1)
        let ended = try bed.activity(activity.id)
        #expect(ended.state == "ended")
        #expect(bed.rules.last == "activity-too-long")
        #expect(ended.dismissAt == activity.startedAt + 12 * 3_600_000)
        bed.pass(4 * 3_600_000)
        #expect(try bed.activity(activity.id).state == "dismissed")
        #expect(bed.world.nextDue == nil)
    }

    @Test func theTokenOfAnEndedActivityAnswers410ExpiredToken() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        let token = try #require(activity.token)
        bed.push(ActivityBed.end(at: 200), to: token)
        let end = bed.now
        #expect(bed.app()?.tokens.contains { $0.token == token } == false)
        bed.push(ActivityBed.update(1, at: 201), to: token)
        #expect(bed.rules.last == "lost-to-uninstalled")
        #expect(
            bed.world.push(token: token, topic: ActivityBed.topic, type: .liveActivity, now: bed.now)
                == .refused(.expiredToken, since: end))
        #expect(bed.details(.token).contains("expired"))
    }

    @Test func aPushThatArrivesAfterTheEndIsIgnored() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        try bed.perform(DeviceAction(.network, on: false))
        bed.push(ActivityBed.update(7, at: 200), to: activity.token)
        let number = try #require(bed.world.pushes(PushQuery()).first?.number)
        try bed.act(.endActivity, activity)
        try bed.perform(DeviceAction(.network, on: true))
        #expect(bed.world.push(number)?.steps.last?.rule == "activity-already-ended")
        #expect(bed.world.push(number)?.fate == "dropped")
        #expect(try bed.activity(activity.id).leading == "0")
    }

    @Test func theUsersDismissalEndsAnActivity() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        try bed.act(.dismissActivity, activity)
        #expect(try bed.activity(activity.id).state == "dismissed")
        #expect(bed.rules.last == "activity-dismissed")
        #expect(bed.world.status(now: bed.now).activities == 0)
        #expect(bed.app()?.tokens.contains { $0.purpose == .activity } == false)
        #expect(throws: DeviceFault.self) { try bed.act(.dismissActivity, activity) }
    }

    @Test func aUninstalledAppsActivitiesEndWithTheirSubscriptions() throws {
        var bed = try ActivityBed()
        _ = try bed.started(["input-push-channel": #""AAAA""#])
        #expect(bed.world.channels.count == 1)
        try bed.perform(DeviceAction(.uninstall))
        #expect(bed.world.channels.count == 0)
        bed.pass(24 * 3_600_000)
        #expect(bed.world.status(now: bed.now).activities == 0)
    }

    @Test func aRestoredDeviceHasNoActivities() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        try bed.perform(DeviceAction(.restore))
        #expect(bed.world.status(now: bed.now).activities == 0)
        #expect(bed.app()?.tokens.contains { $0.token == activity.token } == false)
        #expect(bed.app()?.tokens.count == 2)
    }

    @Test func endedAndDismissedActivitiesAreBounded() throws {
        var bed = try ActivityBed()
        for _ in 1...60 {
            let activity = try bed.started()
            bed.push(ActivityBed.end(at: 200), to: activity.token)
        }
        #expect(bed.activities.count { $0.state == "ended" } == ActivityList.mostEnded)
        #expect(bed.activities.count { $0.state == "dismissed" } == ActivityList.mostDismissed)
        #expect(bed.app()?.tokens.count == 2)
        #expect(bed.activities.filter { $0.state == "ended" }.map(\.id).min() == 45)
    }
}

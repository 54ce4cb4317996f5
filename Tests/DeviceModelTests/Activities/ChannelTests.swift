import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct ChannelTests {
    /// Member that lets an activity listen to a channel.
    static let listens: [String: String?] = ["input-push-channel": #""AAAA""#]

    @Test func aStartWithAChannelSubscribesAndHasNoToken() throws {
        var bed = try ActivityBed()
        let activity = try bed.started(Self.listens)
        #expect(activity.channel == "AAAA")
        #expect(activity.token == nil)
        #expect(bed.rules.last == "channel-subscribed")
        #expect(bed.world.channels.count == 1)
    }

    @Test func aBroadcastReachesAllActivitiesOfItsChannelAndNoOther() throws {
        var bed = try ActivityBed()
        let first = try bed.started(Self.listens)
        let second = try bed.started(Self.listens)
        let other = try bed.started(["input-push-channel": #""BBBB""#])
        bed.broadcast(ActivityBed.update(4, at: 150))
        #expect(bed.rules == ["accepted", "activity-updated"])
        #expect(bed.fate == "updated")
        #expect(bed.details(.activity).last == "broadcast reached 2 of 2 Live Activities")
        #expect(try bed.activity(first.id).leading == "4")
        #expect(try bed.activity(second.id).leading == "4")
        #expect(try bed.activity(other.id).leading == "0")
        bed.broadcast(ActivityBed.update(5, at: 151), environment: .sandbox)
        #expect(bed.rules.last == "broadcast-unheard")
        #expect(bed.fate == "dropped")
        bed.broadcast(ActivityBed.update(5, at: 151), app: "com.example.other")
        #expect(bed.rules.last == "broadcast-unheard")
        #expect(try bed.activity(first.id).leading == "4")
    }

    @Test func aBroadcastCannotStartAnActivity() throws {
        var bed = try ActivityBed()
        _ = try bed.started(Self.listens)
        bed.broadcast(ActivityBed.start())
        #expect(bed.rules.last == "activity-wrong-event")
        bed.broadcast("{}")
        #expect(bed.rules.last == "activity-incomplete")
        #expect(bed.activities.count == 1)
    }

    @Test func anOfflineDeviceGetsTheNewestStoredBroadcastAtItsReturn() throws {
        var bed = try ActivityBed()
        let activity = try bed.started(Self.listens)
        try bed.perform(DeviceAction(.airplane, on: true))
        bed.broadcast(ActivityBed.update(1, at: 150))
        bed.broadcast(ActivityBed.update(2, at: 151))
        #expect(bed.rules.last == "stored-offline")
        #expect(bed.fate == "stored")
        #expect(try bed.activity(activity.id).leading == "0")
        try bed.perform(DeviceAction(.airplane, on: false))
        #expect(try bed.activity(activity.id).leading == "2")
        #expect(bed.rules.contains("broadcast-replayed"))
        #expect(bed.fate == "updated")
        let updated = try bed.activity(activity.id).updatedAt
        try bed.perform(DeviceAction(.airplane, on: true))
        try bed.perform(DeviceAction(.airplane, on: false))
        #expect(try bed.activity(activity.id).updatedAt == updated)
    }

    @Test func aBroadcastOfAChannelWithoutStorageIsLostOffline() throws {
        var bed = try ActivityBed()
        let activity = try bed.started(Self.listens)
        try bed.perform(DeviceAction(.airplane, on: true))
        bed.broadcast(ActivityBed.update(1, at: 150), isStored: false, expiration: 0)
        #expect(bed.rules.last == "not-stored")
        #expect(bed.fate == "dropped")
        try bed.perform(DeviceAction(.airplane, on: false))
        #expect(try bed.activity(activity.id).leading == "0")
    }

    @Test(arguments: [(60, 59_000, true), (60, 61_000, false), (1_000_000, 8 * 3_600_000 - 10_000, true)])
    func aStoredBroadcastLastsUntilItsExpiration(_ seconds: Int64, _ wait: Int64, _ arrives: Bool) throws {
        var bed = try ActivityBed()
        let activity = try bed.started(Self.listens)
        try bed.perform(DeviceAction(.airplane, on: true))
        bed.broadcast(ActivityBed.update(1, at: 150), expiration: bed.now / 1_000 + seconds)
        bed.pass(wait)
        try bed.perform(DeviceAction(.airplane, on: false))
        #expect(try bed.activity(activity.id).leading == (arrives ? "1" : "0"))
    }

    @Test func aStoredBroadcastLastsEightHoursAtMost() throws {
        var bed = try ActivityBed()
        bed.broadcast(ActivityBed.update(1, at: 150), expiration: Int64.max)
        bed.pass(8 * 3_600_000)
        let activity = try bed.started(Self.listens)
        #expect(activity.leading == "0")
    }

    @Test func aNewSubscriptionReceivesTheStoredBroadcastAtOnce() throws {
        var bed = try ActivityBed()
        bed.broadcast(ActivityBed.update(6, at: 150))
        let activity = try bed.started(Self.listens)
        #expect(activity.leading == "6")
        bed.broadcast(ActivityBed.update(7, at: 151), expiration: 0)
        bed.push(ActivityBed.start(Self.listens))
        #expect(bed.activities.max { $0.id < $1.id }?.leading == "0")
    }

    @Test func anEndByBroadcastEndsSubscriptions() throws {
        var bed = try ActivityBed()
        let activity = try bed.started(Self.listens)
        bed.broadcast(ActivityBed.end(at: 150))
        #expect(try bed.activity(activity.id).state == "ended")
        #expect(bed.world.channels.count == 0)
        bed.broadcast(ActivityBed.update(1, at: 151))
        #expect(bed.rules.last == "broadcast-unheard")
    }

    @Test func noActivityStartsWithADeletedOrMalformedChannel() throws {
        var bed = try ActivityBed()
        let activity = try bed.started(Self.listens)
        bed.world.closeChannel(
            app: ActivityBed.bundle, channel: "AAAA", environment: .production, now: bed.now)
        for channel in ["AAAA", "", "AAA", "A+=!", String(repeating: "A", count: 132)] {
            bed.push(ActivityBed.start(["input-push-channel": "\"\(channel)\""]))
            #expect(bed.rules.last == "channel-unknown")
        }
        // Activities that have subscribed before still receive what is published.
        bed.broadcast(ActivityBed.update(1, at: 150))
        #expect(try bed.activity(activity.id).leading == "1")
        bed.world.reset(now: bed.now)
        #expect(bed.world.channels.count == 0)
        #expect(!bed.world.channels.isOpen(Self.closed("AAAA")))
    }

    private static func closed(_ channel: String) -> ClosedChannel {
        ClosedChannel(app: ActivityBed.bundle, environment: .production, channel: channel)
    }

    @Test func aDeletedChannelOfAnAppThatAPushMadeStaysDeletedAfterAReset() throws {
        var bed = try ActivityBed()
        // The app is made by its first push, and has another index after the reset.
        for app in ["com.example.other", "com.example.made"] { bed.adopt(app) }
        bed.world.closeChannel(
            app: "com.example.made", channel: "AAAA", environment: .production, now: bed.now)
        // A channel can be deleted before the devices know its app.
        bed.world.closeChannel(
            app: "com.example.late", channel: "AAAA", environment: .production, now: bed.now)
        bed.world.reset(now: bed.now)
        for app in ["com.example.made", "com.example.other", "com.example.late"] {
            bed.adopt(app, ActivityBed.start(Self.listens))
            let rules = bed.rules
            #expect(rules.last == (app == "com.example.other" ? "channel-subscribed" : "channel-unknown"))
        }
    }

    // MARK: - Fates of stored broadcasts

    @Test func aStoredBroadcastThatIsReplacedOrExpiresHasThatFate() throws {
        var bed = try ActivityBed()
        _ = try bed.started(Self.listens)
        try bed.perform(DeviceAction(.airplane, on: true))
        let end = bed.now / 1_000 + 60
        bed.broadcast(ActivityBed.update(1, at: 150), expiration: end + 1_000)
        let first = bed.world.status(now: bed.now).pushes
        bed.broadcast(ActivityBed.update(2, at: 151), expiration: end)
        #expect(bed.world.push(first)?.fate == "replaced")
        #expect(bed.world.push(first)?.steps.last?.rule == "replaced-in-storage")
        #expect(bed.fate == "stored")
        bed.world.advance(to: end * 1_000 - 1)
        #expect(bed.fate == "stored")
        bed.world.advance(to: end * 1_000)
        #expect(bed.fate == "expired")
        #expect(bed.rules.last == "expired-in-storage")
    }

    @Test func aStoredBroadcastThatReachedADeviceKeepsItsFate() throws {
        var bed = try ActivityBed()
        _ = try bed.started(Self.listens)
        bed.broadcast(ActivityBed.update(1, at: 150), expiration: bed.now / 1_000 + 60)
        bed.pass(70_000)
        #expect(bed.fate == "updated")
    }

    @Test func manyBroadcastsOfAChannelHaveOneEntryOfWhatIsDue() throws {
        var bed = try ActivityBed()
        let before = bed.world.due.count
        for number in 1...2_000 { bed.broadcast(ActivityBed.update(1, at: number)) }
        #expect(bed.world.due.count == before + 1)
        bed.pass(2 * ChannelIndex.longest)
        #expect(bed.world.due.count == before)
    }

    @Test func theMemoryOfDeletedChannelsAndStoredBroadcastsIsBounded() throws {
        var index = ChannelIndex()
        func key(_ number: Int) -> ChannelKey {
            let text = String(number)
            let zeros = String(repeating: "0", count: 8 - text.count)
            return ChannelKey(app: 0, environment: .production, channel: zeros + text)
        }
        let message = ActivityMessage(Array(ActivityBed.update(1, at: 1).utf8))
        let count = ChannelIndex.mostRemembered + 10
        for number in 1...count {
            index.close(Self.closed(key(number).channel))
            _ = index.store(
                ChannelIndex.StoredBroadcast(
                    number: UInt64(number), priority: .immediate, expires: 1_000, message: message),
                for: key(number))
        }
        #expect(
            (1...count).count { !index.isOpen(Self.closed(key($0).channel)) } == ChannelIndex.mostRemembered)
        #expect((1...count).count { index.stored(key($0), now: 0) != nil } == ChannelIndex.mostRemembered)
        #expect(index.isOpen(Self.closed(key(1).channel)))
        #expect(index.stored(key(1), now: 0) == nil)
        #expect(index.stored(key(count), now: 1_000) == nil)
    }

    @Test func manySubscribersHaveAnEventForTheFirstOnly() throws {
        var bed = try ActivityBed()
        for _ in 1...220 {
            let device = try bed.world.addDevice(now: bed.now)
            for _ in 1...5 { try bed.perform(ActivityActionTests.start(channel: "AAAA"), on: device) }
        }
        let before = bed.details(.activity).count
        bed.broadcast(ActivityBed.update(4, at: 2_000_000))
        #expect(bed.details(.activity).count == before + DeviceWorld.mostBroadcastEvents + 1)
        #expect(bed.details(.activity).last == "broadcast reached 1100 of 1100 Live Activities")
        for device in bed.device + 1...bed.device + 220 {
            #expect(bed.app(on: device)?.activities.map(\.leading) == ["4", "4", "4", "4", "4"])
        }
    }
}

import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct ActivityActionTests {
    static func start(
        _ state: String = #"{"home":1,"away":2}"#, type: String? = ActivityBed.type, channel: String? = nil,
        attributes: String = "{}"
    ) -> DeviceAction {
        var action = DeviceAction(.startActivity)
        action.text = type
        action.choice = channel
        action.payload = JSONValue(Array(#"{"attributes":\#(attributes),"content-state":\#(state)}"#.utf8))
        return action
    }

    @Test func anAppStartsAnActivityWithAToken() throws {
        var bed = try ActivityBed()
        try bed.perform(Self.start())
        let activity = try #require(bed.activities.first)
        #expect(activity.leading == "1")
        #expect(activity.token != nil)
        #expect(!activity.alerted)
        bed.push(ActivityBed.update(3, at: Int(bed.now / 1_000) + 1), to: activity.token)
        #expect(try bed.activity(activity.id).leading == "3")
    }

    @Test func anActivityThatStartsOfflineGetsItsTokenWithTheNetwork() throws {
        var bed = try ActivityBed()
        try bed.perform(DeviceAction(.airplane, on: true))
        try bed.perform(Self.start())
        #expect(bed.activities.first?.token == nil)
        try bed.perform(DeviceAction(.airplane, on: false))
        #expect(bed.activities.first?.token != nil)
    }

    @Test func anAppStartsAnActivityWithAChannelInPlaceOfAToken() throws {
        var bed = try ActivityBed()
        try bed.perform(Self.start(channel: "AAAA"))
        #expect(bed.activities.first?.channel == "AAAA")
        #expect(bed.activities.first?.token == nil)
        bed.broadcast(ActivityBed.update(5, at: Int(bed.now / 1_000) + 1))
        #expect(bed.activities.first?.leading == "5")
    }

    @Test func aStartThatIsImpossibleNamesTheCause() throws {
        var bed = try ActivityBed()
        func kind(_ action: DeviceAction) -> DeviceFault.Kind? {
            do {
                try bed.perform(action)
                return nil
            } catch {
                return (error as? DeviceFault)?.kind
            }
        }
        #expect(kind(Self.start(type: nil)) == .invalid)
        #expect(kind(Self.start(type: "Other")) == .invalid)
        #expect(kind(Self.start("{}")) == .invalid)
        #expect(kind(Self.start(attributes: "[]")) == .invalid)
        #expect(kind(Self.start(channel: "not base64")) == .invalid)
        #expect(
            kind(Self.start(#"{"home":"\#(String(repeating: "x", count: 5_000))","away":1}"#)) == .invalid)
        for _ in 1...5 { #expect(kind(Self.start()) == nil) }
        #expect(kind(Self.start()) == .impossible)
        var action = DeviceAction(.settings)
        action.settings = NotificationSettings()
        action.settings?.liveActivities = false
        #expect(kind(action) == nil)
        #expect(kind(Self.start()) == .impossible)
        #expect(kind(DeviceAction(.power, on: false)) == nil)
        #expect(kind(Self.start()) == .impossible)
    }

    @Test func anAppEndsAnActivityWithStateAndDate() throws {
        var bed = try ActivityBed()
        try bed.perform(Self.start())
        let activity = try #require(bed.activities.first)
        var action = DeviceAction(.endActivity)
        action.number = Int(activity.id)
        action.payload = JSONValue(Array(#"{"content-state":{"home":1}}"#.utf8))
        #expect(throws: DeviceFault.self) { try bed.perform(action) }
        let date = Double(bed.now) / 1_000 + 60
        action.payload = JSONValue(
            Array(#"{"content-state":{"home":8,"away":2},"dismissal-date":\#(date)}"#.utf8))
        try bed.perform(action)
        #expect(try bed.activity(activity.id).leading == "8")
        #expect(try bed.activity(activity.id).dismissAt == Int64(date * 1_000))
        #expect(throws: DeviceFault.self) { try bed.perform(action) }
    }

    @Test func aTapUnlocksTheDeviceAndOpensTheApp() throws {
        var bed = try ActivityBed()
        let activity = try bed.started()
        try bed.perform(DeviceAction(.lock, on: true))
        try bed.act(.tapActivity, activity)
        #expect(bed.world.device(bed.device, now: bed.now)?.state.isLocked == false)
        #expect(bed.app()?.state == .foreground)
        #expect(bed.details(.activity).last == "tapped")
    }

    @Test func anUnknownNumberIsAbsent() throws {
        var bed = try ActivityBed()
        for number in [0, 1, -1, Int.max, Int.min] {
            var action = DeviceAction(.dismissActivity)
            action.number = number
            #expect(throws: DeviceFault.self) { try bed.perform(action) }
        }
        #expect(throws: DeviceFault.self) { try bed.perform(DeviceAction(.tapActivity)) }
    }

    @Test func anUpdateInTheSecondOfTheAppsStartIsApplied() throws {
        var bed = try ActivityBed()
        bed.now += 700
        var action = DeviceAction(.startActivity)
        action.text = ActivityBed.type
        action.payload = .object([
            "content-state": .object(["home": .integer(0), "away": .integer(0)]), "attributes": .object([:]),
        ])
        try bed.perform(action)
        let token = try #require(bed.activities.first?.token)
        bed.push(ActivityBed.update(4, at: Int(bed.now / 1_000)), to: token)
        #expect(bed.rules.last == "activity-updated")
        #expect(bed.activities.first?.leading == "4")
    }
}

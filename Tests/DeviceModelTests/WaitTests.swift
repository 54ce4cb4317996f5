import SluiceModel
import Testing

@testable import DeviceModel

/// Conditions, and looks at what has changed.
@Suite struct WaitTests {
    private static func condition(_ body: (inout WaitCondition) -> Void) -> WaitCondition {
        var condition = WaitCondition()
        body(&condition)
        return condition
    }

    private func holds(_ script: Script, _ body: (inout WaitCondition) -> Void) -> Bool {
        script.world.check(Self.condition(body), now: script.now).matches
    }

    @Test func aConditionAboutADeviceOrAppThatIsAbsentDoesNotHold() throws {
        let script = try Script()
        #expect(holds(script) { $0.isOnline = true })
        #expect(holds(script) { $0.badge = 0 })
        for device in [7, .max] as [UInt32] {
            #expect(!holds(script) { ($0.device, $0.isOnline) = (device, true) })
            #expect(!holds(script) { ($0.device, $0.isOnline) = (device, false) })
            #expect(!holds(script) { ($0.device, $0.count) = (device, 0) })
            #expect(holds(script) { ($0.device, $0.isOnline, $0.isAbsent) = (device, true, true) })
        }
        #expect(!holds(script) { ($0.app, $0.badge) = ("not.installed", 5) })
        #expect(!holds(script) { ($0.app, $0.badge) = ("not.installed", 0) })
        #expect(!holds(script) { ($0.app, $0.count) = ("not.installed", 0) })
        #expect(holds(script) { ($0.app, $0.count) = (Script.bundle, 0) })
    }

    @Test func oneAppWithTheBadgeIsEnough() throws {
        var script = try Script()
        _ = try script.world.addDevice(now: script.now)
        script.push(aps: #""alert":"A","badge":3"#)
        #expect(holds(script) { $0.badge = 3 })
        #expect(holds(script) { ($0.badge, $0.app) = (3, Script.bundle) })
        #expect(!holds(script) { $0.badge = 4 })
    }

    @Test func anApnsIDIsThatOfThePushAndNotOfATextThatHasIt() throws {
        var script = try Script()
        let push = script.push()
        let id = try #require(script.world.push(push)?.apnsID)
        let other = "\(APNSID(high: 5, low: 6))"
        script.push(aps: #""alert":"\#(other)""#)
        #expect(holds(script) { $0.apnsID = id })
        #expect(holds(script) { ($0.apnsID, $0.fate) = (id.uppercased(), "shown") })
        #expect(!holds(script) { ($0.apnsID, $0.fate) = (id, "opened") })
        for text in [other, "", "x", "\(other)0"] { #expect(!holds(script) { $0.apnsID = text }) }
        var query = PushQuery()
        query.query = id
        #expect(script.world.pushes(query).map(\.number) == [push])
        #expect(script.world.push(apnsID: id)?.number == push)
        #expect(script.world.push(apnsID: other) == nil)
        var devices = DeviceQuery()
        devices.query = id
        #expect(script.world.devices(devices).items.map(\.id) == [script.device])
    }

    @Test func listsOfAResultAreBounded() throws {
        var bed = try ActivityBed()
        for _ in 0..<25 {
            let device = try bed.world.addDevice(now: bed.now)
            for _ in 0..<5 { try bed.perform(ActivityActionTests.start(channel: "AAAA"), on: device) }
        }
        let result = bed.world.check(Self.condition { $0.activity = "active" }, now: bed.now)
        #expect(result.matches)
        #expect(result.activities.count == DeviceWorld.mostFound)
    }

    // MARK: - Looks

    /// Ends the look that is under way.
    private func look(_ world: DeviceWorld, _ watch: inout ConditionWatch) -> WaitResult? {
        while true {
            switch world.look(&watch) {
            case .more: continue
            case .nothing: return nil
            case .matched(let result): return result
            }
        }
    }

    @Test func aLookVisitsAPortionAndALaterLookOnlyWhatHasChanged() throws {
        var script = try Script()
        for _ in 0..<5_000 { _ = try script.world.addDevice(apps: [], now: script.now) }
        var watch = ConditionWatch(Self.condition { $0.title = "Late" })
        #expect(script.world.look(&watch) == .more)
        #expect(script.world.look(&watch) == .more)
        #expect(look(script.world, &watch) == nil)
        #expect(watch.restOfDevices.isEmpty)
        #expect(script.world.look(&watch) == .nothing)
        script.push(#"{"aps":{"alert":{"title":"Late"}}}"#)
        // A single look is enough, because a single device has changed.
        guard case .matched(let result) = script.world.look(&watch) else {
            Issue.record("the change is not seen")
            return
        }
        #expect(result.notifications.map(\.title) == ["Late"])
    }

    @Test func changesDuringTheFirstLookAreSeen() throws {
        var script = try Script()
        for _ in 0..<5_000 { _ = try script.world.addDevice(apps: [], now: script.now) }
        var watch = ConditionWatch(Self.condition { ($0.title, $0.isAbsent) = ("T", true) })
        #expect(script.world.look(&watch) == .more)
        // The device was visited already.
        script.push()
        #expect(look(script.world, &watch) == nil)
        try script.act(.clearAll)
        #expect(look(script.world, &watch) != nil)
    }

    /// After each step of a random world a watch says the same as a look at everything.
    @Test(arguments: [1, 2, 3, 4] as [UInt64])
    func aWatchAlwaysAgreesWithALookAtEverything(_ seed: UInt64) throws {
        let bundle = RandomWorld.bundles[0]
        let conditions: [WaitCondition] = [
            Self.condition { ($0.identifier, $0.app) = ("a", bundle) },
            Self.condition { ($0.identifier, $0.isAbsent) = ("b", true) },
            Self.condition { ($0.title, $0.count) = ("T", 3) },
            Self.condition { ($0.badge, $0.app, $0.device) = (4, bundle, 1) },
            Self.condition { ($0.isOnline, $0.device) = (false, 2) },
            Self.condition { $0.isOnline = false },
            Self.condition { ($0.fate, $0.device) = ("opened", 0) },
            Self.condition { ($0.fate, $0.isAbsent) = ("stored", true) },
            Self.condition { $0.response = "reply" },
            Self.condition { $0.level = "passive" },
        ]
        var script = try RandomWorld(seed: seed)
        var watches = conditions.map { ConditionWatch($0) }
        var held = 0
        for step in 0..<600 {
            script.step()
            if step == 300 {
                script.world.reset(now: script.now)
                for _ in 0..<3 { _ = try script.world.addDevice(now: script.now) }
            }
            for index in watches.indices {
                let expected = script.world.check(conditions[index], now: script.now)
                let seen = look(script.world, &watches[index])
                #expect(
                    (seen != nil) == expected.matches, "seed \(seed), step \(step), condition \(index)")
                if let seen { #expect(seen == expected) }
                held += expected.matches ? 1 : 0
            }
        }
        #expect(held > 100)
    }

    @Test func changesThatWereForgottenLetTheWatchBeginAnew() throws {
        var script = try Script()
        let other = try script.world.addDevice(now: script.now)
        var watch = ConditionWatch(Self.condition { ($0.badge, $0.device) = (9, script.device) })
        #expect(look(script.world, &watch) == nil)
        try script.act(.setBadge) { $0.number = 9 }
        for _ in 0...TouchLog.limit {
            for device in [other, script.device] {
                script.world.touched.endCall()
                script.world.touched.append(device)
            }
        }
        #expect(watch.touched < script.world.touched.oldest)
        #expect(look(script.world, &watch) != nil)
    }

    // MARK: - Counts and pages

    @Test(arguments: [1, 2, 3] as [UInt64])
    func theStatusCountsWhatTheListsHave(_ seed: UInt64) throws {
        var script = try RandomWorld(seed: seed)
        for _ in 0..<400 {
            script.step()
            let apps = (0..<UInt32(3)).compactMap { script.world.device($0, now: script.now) }.flatMap(\.apps)
            let status = script.world.status(now: script.now)
            #expect(status.delivered == apps.reduce(0) { $0 + $1.delivered.count })
            #expect(
                status.activities == apps.flatMap(\.activities).count { $0.state != "dismissed" })
        }
    }

    @Test func aPageAfterRemovedDevicesIsFoundWithoutASearch() throws {
        var script = try Script()
        for _ in 1..<3_000 { _ = try script.world.addDevice(apps: [], now: script.now) }
        for id in stride(from: 0, to: 3_000, by: 3) as StrideTo<Int> {
            try script.world.removeDevice(UInt32(id), now: script.now)
        }
        let existing = (0..<UInt32(3_000)).filter { $0 % 3 != 0 }
        for offset in [0, 1, 681, 682, 683, 1_365, 1_990, 2_000, 5_000] {
            var query = DeviceQuery()
            (query.offset, query.limit) = (offset, 20)
            let page = script.world.devices(query)
            #expect(page.total == 2_000)
            #expect(page.items.map(\.id) == Array(existing.dropFirst(offset).prefix(20)), "\(offset)")
        }
        var all: [UInt32] = []
        var next: UInt32? = 0
        while let first = next {
            let part = script.world.devices(from: first, limit: 50, now: script.now)
            #expect(part.views.count <= 50)
            all += part.views.map(\.id)
            next = part.next
        }
        #expect(all == existing)
    }

    @Test func pushesInPortionsAreThoseOfOneSearch() throws {
        var script = try Script()
        for index in 0..<1_000 { script.push(aps: #""alert":"\#(index % 7 == 0 ? "Seven" : "Other")""#) }
        var query = PushQuery()
        query.query = "seven"
        query.limit = 1_000
        let (first, before) = script.world.portion(of: query)
        #expect(before == 1_000 - UInt64(DeviceWorld.lookedTexts) + 1)
        #expect((1...DeviceWorld.lookedTexts).contains(first.count))
        #expect(script.world.pushes(query).count == 143)
        query.limit = 100
        #expect(script.world.pushes(query).count == 100)
    }
}

import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct LocalNotificationTests {
    private static func request(
        _ identifier: String, body: String = "L", _ trigger: (inout LocalTrigger) -> Void = { _ in }
    ) -> LocalRequest {
        var request = LocalRequest(identifier: identifier)
        request.payload = .object(["aps": .object(["alert": .string(body), "badge": .integer(2)])])
        var wanted = LocalTrigger()
        trigger(&wanted)
        if wanted != LocalTrigger() { request.trigger = wanted }
        return request
    }

    private func schedule(_ script: inout Script, _ request: LocalRequest) throws(DeviceFault) {
        try script.act(.schedule) { $0.request = request }
    }

    @Test func aRequestWithoutTriggerIsDeliveredAtOnce() throws {
        var script = try Script()
        try schedule(&script, Self.request("a"))
        #expect(script.delivered.map(\.identifier) == ["a"])
        #expect(script.delivered[0].trigger == "none")
        #expect(script.delivered[0].apnsID == nil)
        #expect(script.delivered[0].push == nil)
        #expect(script.app.badge == 2)
        #expect(script.view.banner?.identifier == "a")
        try script.act(.tap, "a")
        #expect(script.app.responses.first?.identifier == "a")
    }

    @Test func anIntervalFiresOnceWithoutNetworkAndWithTheAppEnded() throws {
        var script = try Script()
        try schedule(&script, Self.request("a") { $0.interval = 1.5 })
        let due = script.now + 1_500
        #expect(script.app.pending.map(\.at) == [due])
        #expect(script.app.pending[0].body == "L")
        try script.act(.forceQuit)
        script.wait(500)
        #expect(script.delivered.map(\.at) == [due])
        #expect(script.delivered[0].trigger == "interval")
        #expect(script.app.pending.isEmpty)
    }

    @Test func aRepeatingIntervalCountsFromItsScheduling() throws {
        var script = try Script()
        try schedule(
            &script,
            Self.request("a") {
                $0.interval = 60
                $0.repeats = true
            })
        let first = script.now + 60_000
        script.wait(60_000 * 5 + 1)
        #expect(script.delivered.map(\.at) == [first + 4 * 60_000])
        #expect(script.delivered[0].replaced == 4)
        #expect(script.app.pending.map(\.at) == [first + 5 * 60_000])
        try script.act(.removePending, "a")
        #expect(script.app.pending.isEmpty)
    }

    @Test func aCalendarTriggerFollowsTheLocalTime() throws {
        var script = try Script()
        try script.world.change(script.device, now: script.now) { $0.timeZoneMinutes = 120 }
        try schedule(
            &script,
            Self.request("a") {
                $0.minuteOfDay = 8 * 60 + 30
                $0.repeats = true
            })
        // 08:30 at UTC+2 is 06:30 UTC.
        let due = Script.start / LocalTime.day * LocalTime.day + LocalTime.day + 6 * 3_600_000 + 30 * 60_000
        #expect(script.app.pending.map(\.at) == [due])
        #expect(script.app.pending[0].trigger == "calendar")
        script.wait(due - script.now)
        #expect(script.delivered.map(\.at) == [due])
        #expect(script.app.pending.map(\.at) == [due + LocalTime.day])
    }

    @Test func localTimesAreRightForAllZones() {
        for zone in stride(from: -720, through: 840, by: 45) {
            for now in [Int64(0), -1, 1_700_000_000_000, 1_700_006_399_999, 1_700_006_400_000] {
                let midnight = LocalTime.midnight(after: now, zone: zone)
                #expect(midnight > now && midnight <= now + LocalTime.day)
                #expect((midnight + Int64(zone) * 60_000) % LocalTime.day == 0)
                let noon = LocalTime.next(minute: 720, after: now, zone: zone)
                #expect(noon > now && noon <= now + LocalTime.day)
            }
        }
    }

    @Test func regionsFireAtTheirBorders() throws {
        var script = try Script()
        for on in ["enter", "exit", "both"] {
            try schedule(
                &script,
                Self.request(on) {
                    $0.region = "home"
                    $0.on = on
                    $0.repeats = on == "both"
                })
        }
        #expect(script.app.pending.allSatisfy { $0.at == nil })
        try script.act(.location) { $0.text = "work" }
        #expect(script.delivered.isEmpty)
        try script.act(.location) { $0.text = "home" }
        #expect(Set(script.delivered.map(\.identifier)) == ["enter", "both"])
        #expect(script.app.pending.map(\.identifier) == ["exit", "both"])
        try script.act(.location) { $0.text = nil }
        #expect(Set(script.delivered.map(\.identifier)) == ["enter", "exit", "both"])
        #expect(script.delivered.first { $0.identifier == "both" }?.replaced == 1)
        #expect(script.app.pending.map(\.identifier) == ["both"])
    }

    @Test func theSoonest64RequestsStay() throws {
        var script = try Script()
        try schedule(&script, Self.request("region") { $0.region = "home" })
        for number in 0..<70 {
            try schedule(&script, Self.request("\(number)") { $0.interval = Double(100_000 - number * 100) })
        }
        #expect(script.app.pending.count == 64)
        #expect(script.app.pending.first?.identifier == "69")
        #expect(script.app.pending.last?.identifier == "6")
        #expect(script.details(.notification).count { $0 == "removed" } == 7)
        #expect(script.details(.notification).count { $0 == "pending" } == 71)
    }

    @Test func theSameIdentifierReplacesAPendingRequest() throws {
        var script = try Script()
        try schedule(&script, Self.request("a", body: "1") { $0.interval = 100 })
        try schedule(&script, Self.request("a", body: "2") { $0.interval = 200 })
        #expect(script.app.pending.map(\.body) == ["2"])
        script.wait(150_000)
        #expect(script.delivered.isEmpty)
        script.wait(100_000)
        #expect(script.delivered.map(\.body) == ["2"])
    }

    @Test func aPushTakesThePlaceOfAPendingRequest() throws {
        var script = try Script()
        try schedule(&script, Self.request("a", body: "local") { $0.interval = 100 })
        script.push(collapseID: "a")
        #expect(script.app.pending.isEmpty)
        script.wait(200_000)
        #expect(script.delivered.map(\.body) == ["B"])
    }

    @Test func whatWasDueWhileTheDeviceWasOffFiresAtItsReturn() throws {
        var script = try Script()
        try schedule(&script, Self.request("once") { $0.interval = 10 })
        try schedule(
            &script,
            Self.request("again") {
                $0.interval = 60
                $0.repeats = true
            })
        let first = script.now + 60_000
        try script.act(.power, on: false)
        script.wait(600_000)
        #expect(script.delivered.isEmpty)
        try script.act(.power, on: true)
        #expect(Set(script.delivered.map(\.identifier)) == ["once", "again"])
        #expect(script.view.lockScreen.count == 2)
        let next = try #require(script.app.pending.first?.at)
        #expect(next > script.now && (next - first) % 60_000 == 0)
        script.wait(next - script.now)
        #expect(script.delivered[0].at == next)
    }

    @Test func declaredRequestsAreScheduledAtTheFirstLaunch() throws {
        var script = try Script { app in
            app.local = [Self.request("a") { $0.interval = 60 }, Self.request("") { $0.interval = 60 }]
        }
        #expect(script.app.pending.map(\.identifier) == ["a"])
        #expect(script.details(.app).contains { $0.hasPrefix("request refused: request.identifier") })
        try script.act(.launch)
        #expect(script.app.pending.count == 1)
    }

    @Test func aDeniedAppMaySchedulNothing() throws {
        var script = try Script()
        try script.act(.settings, on: false)
        #expect(
            fault { () throws(DeviceFault) in try schedule(&script, Self.request("a")) }?.kind == .impossible)
    }

    @Test func faultyRequestsAreRefused() throws {
        var script = try Script()
        let long = String(repeating: "x", count: 20_000)
        var deep = JSONValue.null
        for _ in 0..<300 { deep = .array([deep]) }
        var payloads = [Self.request("a"), Self.request("a"), Self.request("a")]
        payloads[0].payload = .string("text")
        payloads[1].payload = .object(["x": .string(long)])
        payloads[2].payload = .object(["x": deep])
        let requests: [LocalRequest] =
            payloads + [
                Self.request(""), Self.request(long), Self.request("a") { $0.interval = 0 },
                Self.request("a") { $0.interval = -1 }, Self.request("a") { $0.interval = .nan },
                Self.request("a") { $0.interval = .infinity }, Self.request("a") { $0.interval = 1e300 },
                Self.request("a") {
                    $0.interval = 59
                    $0.repeats = true
                },
                Self.request("a") {
                    $0.interval = 60
                    $0.region = "home"
                },
                Self.request("a") { $0.minuteOfDay = 1_440 }, Self.request("a") { $0.minuteOfDay = .min },
                Self.request("a") { $0.region = "" },
                Self.request("a") {
                    $0.region = "home"
                    $0.on = "near"
                },
                Self.request("a") { $0.repeats = true },
            ]
        for request in requests {
            let fault = fault { () throws(DeviceFault) in try schedule(&script, request) }
            #expect(fault?.kind == .invalid)
        }
        #expect(script.app.pending.isEmpty)
        #expect(script.delivered.isEmpty)
    }
}

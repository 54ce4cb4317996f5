import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct LocalTimeTests {
    private func zone(_ script: inout Script, _ minutes: Int?) throws(DeviceFault) {
        try script.act(.timeZone) { $0.number = minutes }
    }

    private func times(_ script: inout Script, _ text: String?) throws(DeviceFault) {
        try script.act(.summaryTimes) { $0.text = text }
    }

    /// 22:13:20 UTC is the time of the script's start.
    @Test func calendarTriggersMoveWithTheTimeZone() throws {
        var script = try Script()
        for (identifier, minute) in [("late", 1_380), ("early", 360)] {
            try script.act(.schedule) { action in
                var request = LocalRequest(identifier: identifier)
                request.payload = .object(["aps": .object(["alert": .string(identifier)])])
                request.trigger = LocalTrigger()
                request.trigger?.minuteOfDay = minute
                action.request = request
            }
        }
        let former = script.app.pending.map(\.at)
        #expect(script.app.pending.map(\.identifier) == ["late", "early"])
        try zone(&script, 120)
        // It is past midnight there, so that the early request comes first.
        #expect(script.app.pending.map(\.identifier) == ["early", "late"])
        let midnight = Script.start / LocalTime.day * LocalTime.day + 22 * 3_600_000
        #expect(script.app.pending.map(\.at) == [midnight + 6 * 3_600_000, midnight + 23 * 3_600_000])
        // At the former time of the late request nothing fires.
        script.wait(try #require(former[0]) - script.now)
        #expect(script.delivered.isEmpty)
        script.wait(midnight + 6 * 3_600_000 - script.now)
        #expect(script.delivered.map(\.identifier) == ["early"])
    }

    @Test func theSummaryMovesWithItsTimesAndTheTimeZone() throws {
        var script = try Script()
        try script.set { $0.scheduledSummary = true }
        let push = script.push()
        let day = Script.start / LocalTime.day * LocalTime.day
        #expect(script.view.nextSummaryAt == day + LocalTime.day + 8 * 3_600_000)
        try times(&script, " 23:00, 7:30")
        #expect(script.view.state.summaryTimes == [450, 1_380])
        #expect(script.view.nextSummaryAt == day + 23 * 3_600_000)
        try zone(&script, -60)
        #expect(script.view.nextSummaryAt == day + 24 * 3_600_000)
        script.wait(day + 23 * 3_600_000 - script.now)
        #expect(script.fate(push) == "held")
        script.wait(3_600_000)
        #expect(script.fate(push) == "shown")
    }

    @Test func withoutTimesNothingWaits() throws {
        var script = try Script()
        try script.set { $0.scheduledSummary = true }
        let waiting = script.push()
        try times(&script, "")
        #expect(script.view.nextSummaryAt == nil)
        #expect(script.fate(waiting) == "shown")
        let push = script.push()
        #expect(script.fate(push) == "shown")
    }

    @Test func theDynamicIslandIsASwitch() throws {
        var script = try Script()
        try script.act(.dynamicIsland, on: false)
        #expect(!script.view.state.hasDynamicIsland)
    }

    @Test(arguments: [nil, -721, 841, Int.min, Int.max])
    func anOffsetOutOfRangeIsRefused(_ minutes: Int?) throws {
        var script = try Script()
        #expect(fault { () throws(DeviceFault) in try zone(&script, minutes) }?.kind == .invalid)
        #expect(script.view.state.timeZoneMinutes == 0)
    }

    @Test(arguments: [
        nil, "8", "8:0", "24:00", "8:60", "-1:00", "8:00,", ",", " ", "8:00;9:00", "+8:00", "008:00",
        "0:00,1:00,2:00,3:00,4:00,5:00,6:00,7:00,8:00,9:00,10:00,11:00,12:00",
    ])
    func timesOfAnotherFormAreRefused(_ text: String?) throws {
        var script = try Script()
        #expect(fault { () throws(DeviceFault) in try times(&script, text) }?.kind == .invalid)
        #expect(script.view.state.summaryTimes == [480, 1_080])
    }
}

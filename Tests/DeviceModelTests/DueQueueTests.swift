import SluiceModel
import Testing

@testable import DeviceModel

/// The queue of what is due stays as small as the state that it serves.
@Suite struct DueQueueTests {
    /// Entries that may be left of much that no longer applies.
    private static let mostEntries = 1_100

    @Test func aStoredPushThatIsReplacedAgainAndAgainHasOneEntry() throws {
        var script = try Script()
        try script.act(.airplane, on: true)
        for _ in 0..<5_000 { script.push() }
        #expect(script.world.due.count == 1)
        #expect(script.view.stored.count == 1)
    }

    @Test func earlierEndsOfStoredPushesLeaveNoEntries() throws {
        var script = try Script()
        let token = script.app.tokens[0].token
        try script.act(.airplane, on: true)
        for round in 0..<5_000 {
            script.now += 1
            _ = script.world.push(
                token: token, topic: Script.bundle, type: .alert, priority: .immediate,
                expiration: script.now / 1_000 + Int64(100_000 - round), collapseID: nil,
                payload: Script.alert,
                now: script.now)
        }
        #expect(script.world.due.count <= Self.mostEntries)
    }

    @Test func aNewerPushWithALaterEndExpiresAtItsOwnEnd() throws {
        var script = try Script()
        let token = script.app.tokens[0].token
        try script.act(.airplane, on: true)
        let start = script.now / 1_000
        for seconds in [10, 60] as [Int64] {
            _ = script.world.push(
                token: token, topic: Script.bundle, type: .alert, priority: .immediate,
                expiration: start + seconds, collapseID: nil, payload: Script.alert, now: script.now)
        }
        let push = script.world.status(now: script.now).pushes
        script.world.advance(to: (start + 60) * 1_000 - 1)
        #expect(script.fate(push) == "stored")
        script.world.advance(to: (start + 60) * 1_000)
        #expect(script.fate(push) == "expired")
        #expect(script.rules(push).last == .expiredInStorage)
        #expect(script.world.nextDue == nil)
    }

    @Test func pushesToADeviceThatRestsLeaveNoEntries() throws {
        var script = try Script()
        try script.act(.screen, on: false)
        for _ in 0..<3_000 { script.push(priority: .powerAware) }
        #expect(script.world.due.count <= Self.mostEntries)
        script.wait(script.world.settings.goodMoment)
        #expect(script.view.stored.isEmpty)
    }

    @Test func returnsOfADeviceThatRestsLeaveNoEntries() throws {
        var script = try Script()
        try script.act(.screen, on: false)
        let push = script.push(priority: .powerAware)
        for _ in 0..<2_000 {
            script.now -= 1_998
            try script.act(.airplane, on: true)
            try script.act(.airplane, on: false)
        }
        #expect(script.world.due.count <= Self.mostEntries)
        script.wait(script.world.settings.goodMoment)
        #expect(script.fate(push) == "shown")
    }

    @Test func requestsThatAreReplacedAndRemovedLeaveNoEntries() throws {
        var script = try Script()
        var request = LocalRequest(identifier: "r")
        request.payload = .object(["aps": .object(["alert": .string("Local")])])
        request.trigger = LocalTrigger()
        request.trigger?.interval = 100_000
        for _ in 0..<3_000 { try script.act(.schedule) { $0.request = request } }
        #expect(script.world.due.count <= Self.mostEntries)
        // The same time of day again and again is the same entry.
        request.trigger?.interval = nil
        request.trigger?.minuteOfDay = 0
        for _ in 0..<3_000 {
            script.now -= 2_997
            try script.act(.schedule) { $0.request = request }
            try script.act(.removePending, "r")
            try script.act(.schedule) { $0.request = request }
        }
        #expect(script.world.due.count <= Self.mostEntries)
        script.wait(86_400_000)
        #expect(script.delivered.count == 1)
    }

    /// Compaction is seen by nobody: entries that apply stay, each at its time.
    @Test(arguments: [1, 2, 3] as [UInt64])
    func aQueueThatIsCompactedAllTheTimeGivesTheSameWorld(_ seed: UInt64) throws {
        var first = try RandomWorld(seed: seed)
        var second = try RandomWorld(seed: seed)
        for _ in 0..<500 {
            first.step()
            second.step()
            second.world.compactDue()
        }
        #expect(second.world.due.count <= first.world.due.count)
        for id in 0..<UInt32(3) {
            #expect(first.world.device(id, now: first.now) == second.world.device(id, now: second.now))
        }
        #expect(
            first.world.events(after: 0, limit: .max).events
                == second.world.events(after: 0, limit: .max).events)
    }
}

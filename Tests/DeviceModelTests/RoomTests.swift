import SluiceModel
import Testing

@testable import DeviceModel

/// Rooms for what all devices show, and for the journal.
@Suite struct RoomTests {
    @Test func theOldestNotificationOfAllDevicesLeavesWhenTheRoomIsFull() throws {
        var script = try Script(settings: { $0.deliveredRoom = 2_000 })
        let other = try script.world.addDevice(now: script.now)
        var query = TokenQuery()
        query.device = other
        let token = script.world.tokens(query)[0].token
        let first = script.push()
        for _ in 0..<40 {
            script.now += 1_000
            _ = script.world.push(token: token, now: script.now)
            #expect(script.world.counts.lists.bytes <= 2_000 + 400)
        }
        script.wait(1)
        #expect(script.world.counts.lists.bytes <= 2_000)
        #expect(script.rules(first).last == .droppedFromList)
        #expect(script.fate(first) == "removed")
        let kept = script.world.device(other, now: script.now)?.apps[0].delivered ?? []
        #expect(kept.count == 2_000 / (128 + Script.alert.utf8.count))
        // The newest ones are kept.
        #expect(kept.first?.push == 41)
    }

    @Test func aRoomThatIsTooSmallForANotificationKeepsNone() throws {
        var script = try Script(settings: { $0.deliveredRoom = 0 })
        let push = script.push()
        script.wait(1)
        #expect(script.delivered.isEmpty)
        #expect(script.fate(push) == "removed")
        #expect(script.world.counts.lists.bytes == 0)
    }

    @Test func theOrderOfArrivalsStaysAsSmallAsTheLists() throws {
        var script = try Script()
        for _ in 0..<5_000 { script.push(collapseID: "a") }
        #expect(script.world.arrivals.count <= DeviceWorld.mostStale + 4)
        #expect(script.delivered.count == 1)
    }

    @Test(arguments: [1, 2, 3] as [UInt64])
    func theBytesOfTheListsAreCountedExactly(_ seed: UInt64) throws {
        var script = try RandomWorld(seed: seed)
        for _ in 0..<500 {
            script.step()
            let entries = script.world.devices.compactMap { $0 }.flatMap(\.installations)
                .flatMap(\.centre.delivered)
            #expect(script.world.counts.lists.bytes == entries.reduce(0) { $0 + $1.bytes })
            #expect(script.world.arrivals.count >= entries.count)
        }
    }

    @Test func theJournalKeepsTheNewestPushesThatItsRoomHolds() throws {
        var script = try Script(settings: { $0.journalRoom = 10_000 })
        for _ in 0..<100 { script.push() }
        let kept = 10_000 / (256 + UInt64(Script.alert.utf8.count))
        #expect(script.world.journal.oldest == 100 - kept + 1)
        #expect(script.world.journal.bytes <= 10_000)
        #expect(script.world.push(100 - kept) == nil)
        #expect(script.fate(100 - kept + 1) == "shown")
        // A single push that is larger than the room stays.
        let large = script.push(#"{"aps":{"alert":"\#(String(repeating: "x", count: 20_000))"}}"#)
        #expect(script.fate(large) == "shown")
        #expect(script.world.journal.oldest == large)
    }
}

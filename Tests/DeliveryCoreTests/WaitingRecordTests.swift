import SluiceModel
import Testing

@testable import DeliveryCore

/// Records that wait for their device's items, and marks of moved items.
@Suite struct WaitingRecordTests {
    /// After a crash, the item's place is between the two records, which are read again.
    @Test func recordBehindASkippedItemWaitsForIt() {
        let bed = ResidencyBed(stored: [150])
        bed.residency.hasRead(0, through: 200)
        bed.waits(ResidencyBed.record(100))
        bed.waits(ResidencyBed.record(160, isPush: false))
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([150]) == [])
        #expect(bed.actions() == [.proceed(100)])
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([150]) == [150])
        #expect(bed.actions() == [.proceed(160)])
    }

    /// The store's item is a push that was complete before, so its record outdates the older one without the item.
    @Test func completePushOutdatesTheOlderOneThatWaitedForTheDevice() {
        let bed = ResidencyBed(stored: [150])
        bed.residency.hasRead(0, through: 200)
        let wasAwaited = bed.residency.isAwaited(ResidencyBed.device)
        bed.waits(ResidencyBed.record(100))
        let isAwaited = bed.residency.isAwaited(ResidencyBed.device)
        #expect(!wasAwaited && isAwaited)
        bed.waits(ResidencyBed.record(150, isPush: false, isReplay: true))
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([150]) == [])
        #expect(bed.actions() == [.proceed(100), .proceed(150)])
        // The item itself is restored once the older push is in memory.
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([150]) == [150])
        #expect(bed.actions() == [])
    }

    @Test func restOfAPartlyLoadedDeviceIsLoadedOnceThereIsRoom() {
        let bed = ResidencyBed(stored: [50, 60], room: 1)
        bed.waits(ResidencyBed.record(100, isPush: false))
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([50, 60]) == [50])
        #expect(bed.actions() == [])
        // The first item has ended.
        bed.residency.removeItem(0)
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([60]) == [60])
        #expect(bed.actions() == [.proceed(100)])
    }

    /// An older push of its identity may be among the items that have no room.
    @Test func pushOfAPartlyLoadedDeviceIsRefused() {
        let bed = ResidencyBed(stored: [50, 60], room: 1)
        bed.waits(ResidencyBed.record(100))
        bed.waits(ResidencyBed.record(101, isPush: false, look: .partition(0)))
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([50, 60]) == [50])
        #expect(bed.actions() == [.refuse(100), .proceed(101)])
    }

    /// The push waits for a slot only, and the record behind it for the device's presence as well.
    @Test func recordBehindAPushWithoutSlotHasItsPresenceLoaded() {
        let bed = ResidencyBed()
        bed.residency.deferUntilSlot(ResidencyBed.record(100))
        bed.waits(ResidencyBed.record(101, isPush: false, look: .partition(0)))
        #expect(bed.actions() == [])
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([]) == [])
        #expect(bed.actions() == [.proceed(100), .proceed(101)])
    }

    @Test func pushWithoutSlotWaitsForAnItemThatHasLeftMemory() {
        let bed = ResidencyBed()
        bed.restore(ResidencyBed.place(50))
        bed.residency.deferUntilSlot(ResidencyBed.record(100))
        bed.residency.evict(0)
        #expect(bed.actions() == [])
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([50]) == [50])
        #expect(bed.actions() == [.proceed(100)])
    }

    @Test func markLeavesTheStoreOnceItsRecordIsCommitted() {
        let bed = ResidencyBed()
        for offset: Int64 in [100, 101] {
            let id = APNSID(high: 0, low: UInt64(offset))
            bed.residency.foundMark(ResidencyBed.place(offset), id, forgets: true)
        }
        // The watermark is the offset of the first record that isn't committed.
        bed.residency.committed(0, 101)
        bed.residency.forgetMarks()
        #expect(bed.actions() == [.removeMark(ResidencyBed.place(100))])
    }

    @Test func waitingPushOfAnotherPartitionKeepsNoItemInTheStore() {
        let bed = ResidencyBed(stored: [50])
        bed.begin(1, stored: [])
        bed.waits(ResidencyBed.record(40, in: 1))
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([50]) == [50])
    }

    @Test func marksOfALogThatBeganAnewLeaveTheStore() {
        let bed = ResidencyBed()
        bed.begin(1, stored: [])
        for partition: UInt16 in [0, 1] {
            let id = APNSID(high: 0, low: UInt64(partition))
            bed.residency.foundMark(ResidencyBed.place(100, in: partition), id, forgets: true)
        }
        bed.residency.forgetMarks(1)
        #expect(bed.actions() == [.removeMark(ResidencyBed.place(100, in: 1))])
    }

    @Test func recordIsTakenInWhenItsOwnPartitionBegins() {
        let bed = ResidencyBed()
        bed.residency.deferUntilBegun(7, 1)
        bed.residency.deferUntilBegun(8, 2)
        let isBegun = bed.residency.isBegun(1)
        #expect(!isBegun)
        bed.begin(2, stored: [])
        #expect(bed.actions() == [.takeIn(8)])
        bed.begin(1, stored: [])
        #expect(bed.actions() == [.takeIn(7)])
    }
}

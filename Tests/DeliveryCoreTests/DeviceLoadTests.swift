import SluiceModel
import Testing

@testable import DeliveryCore

/// Items that a load finds: which of them return to memory, and which events continue afterwards.
@Suite struct DeviceLoadTests {
    /// The device stands in the line for its turn as well.
    @Test func pushThatWaitsForItsDeviceOutlivesTheDevicesTurn() {
        let bed = ResidencyBed(stored: [50])
        bed.residency.awaited(ResidencyBed.device, 0)
        bed.waits(ResidencyBed.record(100))
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([50]) == [50])
        #expect(bed.actions() == [.proceed(100)])
    }

    /// The store keeps an ended item until the item's outcome is safe.
    @Test func endedItemThatALoadFindsIsNotRestored() {
        let bed = ResidencyBed(stored: [50, 51])
        _ = bed.residency.itemEnded(
            ResidencyBed.place(50), ResidentFacts(restoredFrom: ResidencyBed.device, due: .max),
            ResidencyBed.device)
        #expect(bed.loadDue([50, 51]) == [51])
    }

    /// Older records of the device may come before the item's own record.
    @Test func itemWhoseRecordIsStillToBeReadStaysInTheStore() {
        let bed = ResidencyBed(stored: [100])
        #expect(bed.loadDue([100]) == [])
        #expect(bed.actions() == [])
        bed.residency.hasRead(0, through: 100)
        #expect(bed.loadDue([100]) == [100])
    }

    @Test func itemsBeyondTheRoomStayInTheStore() {
        let bed = ResidencyBed(stored: [50, 51], room: 1)
        #expect(bed.loadDue([50, 51]) == [50])
        #expect(bed.residency.restoredItems == 1)
    }

    /// A device without enough room waits for as much room as its items need, and no more.
    @Test func deviceIsLoadedAgainWithRoomForItsItems() {
        let bed = ResidencyBed(stored: [50, 51], room: 3)
        bed.restore(ResidencyBed.place(10))
        bed.restore(ResidencyBed.place(11))
        #expect(bed.loadDue([50, 51]) == [50])
        bed.residency.removeItem(0)
        #expect(bed.requestLoads() == [])
        bed.residency.removeItem(1)
        #expect(bed.requestLoads() == [ResidencyBed.request()])
    }

    // MARK: Items of other shards

    private func arrival(_ offset: Int64, isRestored: Bool = true) -> DeferredMigration {
        DeferredMigration(
            handle: UInt32(offset), device: DeviceKey(high: UInt64(offset), low: 2),
            place: ResidencyBed.place(offset), isReleased: true, isRestored: isRestored)
    }

    /// Takes in an item whose device has nothing in the store.
    private func arrive(
        _ bed: ResidencyBed, _ offset: Int64, isRestored: Bool = true
    ) -> [ResidencyAction] {
        let verdict = bed.residency.importItem(arrival(offset, isRestored: isRestored), bed.delivery)
        #expect(verdict == .deferred)
        _ = bed.requestLoads()
        _ = bed.load([])
        return bed.actions()
    }

    /// The other shard has read the record.
    @Test func recordOfAnArrivalCountsAsRead() {
        let bed = ResidencyBed(stored: [100])
        #expect(arrive(bed, 100, isRestored: false) == [.takeOver(100)])
        #expect(bed.loadDue([100]) == [100])
    }

    @Test(arguments: [false, true]) func arrivalThatLeavesReturnsItsRoom(waitsForASlot: Bool) {
        let bed = ResidencyBed(room: 2)
        #expect(arrive(bed, 50) == [.takeOver(50)])
        #expect(arrive(bed, 51) == [.takeOver(51)])
        #expect(arrive(bed, 52) == [], "there is no room for a load")
        if waitsForASlot {
            bed.residency.deferUntilSlot(arrival(50))
        } else {
            bed.residency.removeItem(ResidencyBed.place(50))
        }
        #expect(bed.requestLoads().first == .load(arrival(52).device, 0, withItems: true))
    }

    @Test func itemStaysInTheStoreUntilOlderWaitingPushHasContinued() {
        let bed = ResidencyBed(stored: [101])
        bed.residency.hasRead(0, through: 101)
        bed.waits(ResidencyBed.record(100))
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([101]) == [])
        #expect(bed.actions() == [.proceed(100)])
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.load([101]) == [101])
    }

    /// No item follows that would be left in the store as well.
    @Test func pushWaitsForTheOnlyItemThatFoundNoSlot() {
        let bed = ResidencyBed(stored: [50])
        bed.waits(ResidencyBed.record(100))
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        let retry = bed.loadWithoutSlot(50)
        #expect(bed.actions() == [])
        #expect(bed.residency.evictedDevices == 1)
        #expect(bed.requestLoads(at: retry) == [ResidencyBed.request()])
        #expect(bed.load([50]) == [50])
        #expect(bed.actions() == [.proceed(100)])
    }

    /// After a token change, no scan has told of the item.
    @Test func itemThatAPresenceLookFindsWithoutASlotIsKnown() {
        let bed = ResidencyBed()
        bed.waits(ResidencyBed.record(100, look: .everywhere))
        #expect(bed.requestLoads() == [ResidencyBed.request()])
        #expect(bed.residency.evictedDevices == 0)
        _ = bed.loadWithoutSlot(50)
        #expect(bed.residency.evictedDevices == 1)
    }
}

extension ResidencyBed {
    /// Requests the loads of the device, which is due, and lets them find the items at these offsets. Returns the
    /// offsets of the restored items.
    fileprivate func loadDue(_ offsets: [Int64]) -> [Int64] {
        residency.due(Self.device, 0)
        let requested = requestLoads()
        #expect(requested == [Self.request()])
        return load(offsets)
    }

    /// Lets the requested load find an item without a free slot. Returns the time of the next loads.
    fileprivate func loadWithoutSlot(_ offset: Int64) -> UInt64 {
        var retry: UInt64 = 0
        for load in residency.takeRequests().loads {
            _ = residency.beginLoad(load, last: offset)
            let place = residency.judge(offset: offset, delivery).restore
            #expect(place == Self.place(offset))
            retry = residency.foundNoSlot(at: 1_000_000_000)
            residency.endLoad()
        }
        return retry
    }
}

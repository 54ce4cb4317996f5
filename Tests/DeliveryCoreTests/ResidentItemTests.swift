import SluiceModel
import Testing

@testable import DeliveryCore

/// Items that enter or leave memory while events wait for their device.
@Suite struct ResidentItemTests {
    @Test func pushWaitsForItemsOfAPartitionThatBeginsDuringTheLoad() {
        let bed = ResidencyBed()
        bed.begin(1, stored: [60])
        bed.waits(ResidencyBed.record(100))
        #expect(bed.requestLoads() == [ResidencyBed.request(of: 1)])
        bed.begin(2, stored: [70])
        #expect(bed.load([60]) == [60])
        #expect(bed.actions() == [])
        #expect(bed.requestLoads() == [ResidencyBed.request(of: 2)])
        #expect(bed.load([70]) == [70])
        #expect(bed.actions() == [.proceed(100)])
    }

    @Test func itemOfAnEndedPartitionTakesNoRoom() {
        let bed = ResidencyBed(room: 1)
        bed.restore(ResidencyBed.place(50))
        bed.begin(1, stored: [60])
        bed.waits(ResidencyBed.record(100, in: 1))
        #expect(bed.requestLoads() == [])
        bed.residency.endPartition(0)
        #expect(bed.requestLoads() == [ResidencyBed.request(of: 1)])
    }

    @Test func pushOfARevokedPartitionWaitsNoMore() {
        let bed = ResidencyBed()
        bed.begin(1, stored: [60])
        bed.waits(ResidencyBed.record(100))
        #expect(bed.requestLoads() == [ResidencyBed.request(of: 1)])
        bed.residency.abandon(0)
        #expect(bed.actions() == [.discard(100)])
        #expect(bed.load([60]) == [60])
        #expect(bed.actions() == [])
    }

    @Test func pushWaitsForAnItemThatLeavesMemoryDuringTheLoad() {
        let bed = ResidencyBed()
        bed.restore(ResidencyBed.place(50))
        bed.begin(1, stored: [60])
        bed.waits(ResidencyBed.record(100))
        #expect(bed.requestLoads() == [ResidencyBed.request(of: 1)])
        bed.residency.evict(0)
        #expect(bed.load([60]) == [60])
        #expect(bed.actions() == [])
        #expect(bed.requestLoads() == [ResidencyBed.request(of: 0)])
        #expect(bed.load([50]) == [50])
        #expect(bed.actions() == [.proceed(100)])
    }

    /// Otherwise the index of due times would keep the item's old entry.
    @Test func itemThatIsWrittenAgainReplacesItsDueTime() {
        let bed = ResidencyBed()
        let first = bed.residency.put(0, ResidencyBed.place(100), ResidencyBed.device, due: 5_000)
        #expect(first.replacesDue == nil)
        let second = bed.residency.put(0, ResidencyBed.place(100), ResidencyBed.device, due: 9_000)
        #expect(second.replacesDue == 5_000)
        #expect(second.leaves == nil)
    }
}

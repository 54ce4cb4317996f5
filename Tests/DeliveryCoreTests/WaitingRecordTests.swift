import SluiceModel
import Testing

@testable import DeliveryCore

/// Records that wait for their device's items, and marks of moved items.
@Suite struct WaitingRecordTests {
    /// A store with items of one device in partition 0, whose records up to 99 were read.
    private final class Bed {
        var residency: DeviceResidency
        let delivery: DeliveryMachine
        private var slot: UInt32 = 0

        /// - Parameter stored: offsets of the device's items in the store.
        init(stored: [Int64], room: Int = 64) {
            delivery = DeliveryMachine(limits: DeliveryLimits(capacity: 8, knownDevices: 8), seed: 1)
            residency = DeviceResidency(
                limits: ResidencyLimits(hasStore: true, capacity: 8, room: room, itemsPerLoad: 1))
            residency.beginPartition(0, readThrough: 99)
            for offset in stored { residency.found(WaitingRecordTests.device, offset: offset, 0) }
            residency.scanned(0)
        }

        func waits(_ record: DeferredRecord) {
            let mustWait = residency.mustDefer(record, delivery)
            #expect(mustWait)
            residency.deferUntilLoaded(record, delivery)
        }

        func actions() -> [ResidencyAction] {
            var actions: [ResidencyAction] = []
            while let action = residency.nextAction(delivery) { actions.append(action) }
            return actions
        }

        func requestLoads() -> [ResidencyAction] {
            _ = residency.askForLoads(at: 1_000_000_000, delivery)
            return actions()
        }

        /// Lets every load find the items at these offsets. Returns the offsets of the restored items.
        func load(_ offsets: [Int64]) -> [Int64] {
            var restored: [Int64] = []
            for load in residency.takeRequests().loads {
                let counts = residency.beginLoad(load, last: offsets.last)
                #expect(counts)
                for offset in offsets {
                    guard let place = residency.judge(offset: offset, delivery).restore else { continue }
                    let facts = ResidentFacts(restoredFrom: load.device, due: .max)
                    residency.addItem(slot, place, facts, load.device)
                    slot += 1
                    restored.append(offset)
                }
                residency.endLoad()
            }
            return restored
        }
    }

    private static let device = DeviceKey(high: 1, low: 1)
    private static let load = ResidencyAction.load(device, 0, withItems: true)

    private static func place(_ offset: Int64) -> RecordPlace { .init(partitionSlot: 0, offset: offset) }

    /// Creates a record whose handle is its offset.
    private static func record(
        _ offset: Int64, isPush: Bool, look: PresenceLook = .nowhere
    ) -> DeferredRecord {
        DeferredRecord(
            handle: UInt32(offset), device: device, place: place(offset), look: look, isPush: isPush)
    }

    /// After a crash, the item's place is between the two records, which are read again.
    @Test func recordBehindASkippedItemWaitsForIt() {
        let bed = Bed(stored: [150])
        bed.residency.hasRead(0, through: 200)
        bed.waits(Self.record(100, isPush: true))
        bed.waits(Self.record(160, isPush: false))
        #expect(bed.requestLoads() == [Self.load])
        #expect(bed.load([150]) == [])
        #expect(bed.actions() == [.proceed(100)])
        #expect(bed.requestLoads() == [Self.load])
        #expect(bed.load([150]) == [150])
        #expect(bed.actions() == [.proceed(160)])
    }

    @Test func restOfAPartlyLoadedDeviceIsLoadedOnceThereIsRoom() {
        let bed = Bed(stored: [50, 60], room: 1)
        bed.waits(Self.record(100, isPush: false))
        #expect(bed.requestLoads() == [Self.load])
        #expect(bed.load([50, 60]) == [50])
        #expect(bed.actions() == [])
        // The first item has ended.
        bed.residency.removeItem(0)
        #expect(bed.requestLoads() == [Self.load])
        #expect(bed.load([60]) == [60])
        #expect(bed.actions() == [.proceed(100)])
    }

    /// An older push of its identity may be among the items that have no room.
    @Test func pushOfAPartlyLoadedDeviceIsRefused() {
        let bed = Bed(stored: [50, 60], room: 1)
        bed.waits(Self.record(100, isPush: true))
        bed.waits(Self.record(101, isPush: false, look: .partition(0)))
        #expect(bed.requestLoads() == [Self.load])
        #expect(bed.load([50, 60]) == [50])
        #expect(bed.actions() == [.refuse(100), .proceed(101)])
    }

    /// The push waits for a slot only, and the record behind it for the device's presence as well.
    @Test func recordBehindAPushWithoutSlotHasItsPresenceLoaded() {
        let bed = Bed(stored: [])
        bed.residency.deferUntilSlot(Self.record(100, isPush: true))
        bed.waits(Self.record(101, isPush: false, look: .partition(0)))
        #expect(bed.actions() == [])
        #expect(bed.requestLoads() == [Self.load])
        #expect(bed.load([]) == [])
        #expect(bed.actions() == [.proceed(100), .proceed(101)])
    }

    @Test func pushWithoutSlotWaitsForAnItemThatHasLeftMemory() {
        let bed = Bed(stored: [])
        let facts = ResidentFacts(restoredFrom: Self.device, due: .max)
        bed.residency.addItem(0, Self.place(50), facts, Self.device)
        bed.residency.deferUntilSlot(Self.record(100, isPush: true))
        bed.residency.evict(0)
        #expect(bed.actions() == [])
        #expect(bed.requestLoads() == [Self.load])
        #expect(bed.load([50]) == [50])
        #expect(bed.actions() == [.proceed(100)])
    }

    @Test func markLeavesTheStoreOnceItsRecordIsCommitted() {
        let bed = Bed(stored: [])
        for offset: Int64 in [100, 101] {
            let id = APNSID(high: 0, low: UInt64(offset))
            bed.residency.foundMark(Self.place(offset), id, forgets: true)
        }
        // The watermark is the offset of the first record that isn't committed.
        bed.residency.committed(0, 101)
        bed.residency.forgetMarks()
        #expect(bed.actions() == [.removeMark(Self.place(100))])
    }
}

import SluiceModel
import Testing

@testable import DeliveryCore

/// Items that a load finds: which of them return to memory, and which events continue afterwards.
@Suite struct DeviceLoadTests {
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
            for offset in stored { residency.found(DeviceLoadTests.device, offset: offset, 0) }
            residency.scanned(0)
        }

        /// Makes a push wait, whose handle is its offset.
        func waits(_ offset: Int64) {
            let record = DeferredRecord(
                handle: UInt32(offset), device: DeviceLoadTests.device, place: DeviceLoadTests.place(offset),
                look: .nowhere, isPush: true)
            let mustWait = residency.mustDefer(record, delivery)
            #expect(mustWait)
            residency.deferUntilLoaded(record, delivery)
        }

        func actions() -> [ResidencyAction] {
            var actions: [ResidencyAction] = []
            while let action = residency.nextAction(delivery) { actions.append(action) }
            return actions
        }

        func requestLoads(at now: UInt64 = 1_000_000_000) -> [ResidencyAction] {
            _ = residency.askForLoads(at: now, delivery)
            return actions()
        }

        /// Lets every requested load find the items at these offsets. Returns the restored items' offsets.
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

        /// Does the same for a due device, whose loads are requested first.
        func loadDue(_ offsets: [Int64]) -> [Int64] {
            residency.due(DeviceLoadTests.device, 0)
            let requested = requestLoads()
            #expect(requested == [DeviceLoadTests.request])
            return load(offsets)
        }

        /// Lets the requested load find an item without a free slot. Returns the time of the next loads.
        func loadWithoutSlot(_ offset: Int64) -> UInt64 {
            var retry: UInt64 = 0
            for load in residency.takeRequests().loads {
                _ = residency.beginLoad(load, last: offset)
                let place = residency.judge(offset: offset, delivery).restore
                #expect(place == DeviceLoadTests.place(offset))
                retry = residency.foundNoSlot(at: 1_000_000_000)
                residency.endLoad()
            }
            return retry
        }
    }

    private static let device = DeviceKey(high: 1, low: 1)
    private static let request = ResidencyAction.load(device, 0, withItems: true)

    private static func place(_ offset: Int64) -> RecordPlace {
        RecordPlace(partitionSlot: 0, offset: offset)
    }

    /// The device stands in the line for its turn as well.
    @Test func pushThatWaitsForItsDeviceOutlivesTheDevicesTurn() {
        let bed = Bed(stored: [50])
        bed.residency.awaited(Self.device, 0)
        bed.waits(100)
        #expect(bed.requestLoads() == [Self.request])
        #expect(bed.load([50]) == [50])
        #expect(bed.actions() == [.proceed(100)])
    }

    /// The store keeps an ended item until the item's outcome is safe.
    @Test func endedItemThatALoadFindsIsNotRestored() {
        let bed = Bed(stored: [50, 51])
        _ = bed.residency.itemEnded(
            Self.place(50), ResidentFacts(restoredFrom: Self.device, due: .max), Self.device)
        #expect(bed.loadDue([50, 51]) == [51])
    }

    /// Older records of the device may come before the item's own record.
    @Test func itemWhoseRecordIsStillToBeReadStaysInTheStore() {
        let bed = Bed(stored: [100])
        #expect(bed.loadDue([100]) == [])
        #expect(bed.actions() == [])
        bed.residency.hasRead(0, through: 100)
        #expect(bed.loadDue([100]) == [100])
    }

    @Test func itemsBeyondTheRoomStayInTheStore() {
        let bed = Bed(stored: [50, 51], room: 1)
        #expect(bed.loadDue([50, 51]) == [50])
        #expect(bed.residency.restoredItems == 1)
    }

    @Test func itemStaysInTheStoreUntilOlderWaitingPushHasContinued() {
        let bed = Bed(stored: [101])
        bed.residency.hasRead(0, through: 101)
        bed.waits(100)
        #expect(bed.requestLoads() == [Self.request])
        #expect(bed.load([101]) == [])
        #expect(bed.actions() == [.proceed(100)])
        #expect(bed.requestLoads() == [Self.request])
        #expect(bed.load([101]) == [101])
    }

    /// No item follows that would be left in the store as well.
    @Test func pushWaitsForTheOnlyItemThatFoundNoSlot() {
        let bed = Bed(stored: [50])
        bed.waits(100)
        #expect(bed.requestLoads() == [Self.request])
        let retry = bed.loadWithoutSlot(50)
        #expect(bed.actions() == [])
        #expect(bed.residency.evictedDevices == 1)
        #expect(bed.requestLoads(at: retry) == [Self.request])
        #expect(bed.load([50]) == [50])
        #expect(bed.actions() == [.proceed(100)])
    }
}

import SluiceModel
import Testing

@testable import DeliveryCore

/// Items that enter or leave memory while events wait for their device.
@Suite struct ResidentItemTests {
    /// A device whose items may be in several partitions, of which records up to 99 were read.
    private final class Bed {
        var residency: DeviceResidency
        let delivery: DeliveryMachine
        private var slot: UInt32 = 0

        /// Begins the partition in slot 0, without an item in the store.
        init(room: Int = 64) {
            delivery = DeliveryMachine(limits: DeliveryLimits(capacity: 8, knownDevices: 8), seed: 1)
            residency = DeviceResidency(
                limits: ResidencyLimits(hasStore: true, capacity: 8, room: room, itemsPerLoad: 1))
            begin(0, stored: [])
        }

        /// Begins a partition that has the device's items at these offsets in the store.
        func begin(_ partition: UInt16, stored offsets: [Int64]) {
            residency.beginPartition(partition, readThrough: 99)
            for offset in offsets { residency.found(ResidentItemTests.device, offset: offset, partition) }
            residency.scanned(partition)
        }

        /// Puts an item from the store into the next slot of the delivery machine.
        func restore(_ place: RecordPlace) {
            let facts = ResidentFacts(restoredFrom: ResidentItemTests.device, due: .max)
            residency.addItem(slot, place, facts, ResidentItemTests.device)
            slot += 1
        }

        /// Makes a push wait, whose handle is its offset.
        func waits(_ place: RecordPlace) {
            let record = DeferredRecord(
                handle: UInt32(place.offset), device: ResidentItemTests.device, place: place,
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

        func requestLoads() -> [ResidencyAction] {
            _ = residency.askForLoads(at: 1_000_000_000, delivery)
            return actions()
        }

        /// Lets the requested load find the item at this offset. Returns the actions that follow.
        func load(_ offset: Int64) -> [ResidencyAction] {
            for load in residency.takeRequests().loads {
                let counts = residency.beginLoad(load, last: offset)
                #expect(counts)
                let verdict = residency.judge(offset: offset, delivery)
                #expect(verdict.restore == ResidentItemTests.place(offset, in: load.partitionSlot))
                if let place = verdict.restore { restore(place) }
                residency.endLoad()
            }
            return actions()
        }
    }

    private static let device = DeviceKey(high: 1, low: 1)

    private static func place(_ offset: Int64, in partition: UInt16 = 0) -> RecordPlace {
        RecordPlace(partitionSlot: partition, offset: offset)
    }

    private static func load(of partition: UInt16) -> ResidencyAction {
        .load(device, partition, withItems: true)
    }

    @Test func pushWaitsForItemsOfAPartitionThatBeginsDuringTheLoad() {
        let bed = Bed()
        bed.begin(1, stored: [60])
        bed.waits(Self.place(100))
        #expect(bed.requestLoads() == [Self.load(of: 1)])
        bed.begin(2, stored: [70])
        #expect(bed.load(60) == [])
        #expect(bed.requestLoads() == [Self.load(of: 2)])
        #expect(bed.load(70) == [.proceed(100)])
    }

    @Test func itemOfAnEndedPartitionTakesNoRoom() {
        let bed = Bed(room: 1)
        bed.restore(Self.place(50))
        bed.begin(1, stored: [60])
        bed.waits(Self.place(100, in: 1))
        #expect(bed.requestLoads() == [])
        bed.residency.endPartition(0)
        #expect(bed.requestLoads() == [Self.load(of: 1)])
    }

    @Test func pushOfARevokedPartitionWaitsNoMore() {
        let bed = Bed()
        bed.begin(1, stored: [60])
        bed.waits(Self.place(100))
        #expect(bed.requestLoads() == [Self.load(of: 1)])
        bed.residency.abandon(0)
        #expect(bed.actions() == [.discard(100)])
        #expect(bed.load(60) == [])
    }

    @Test func pushWaitsForAnItemThatLeavesMemoryDuringTheLoad() {
        let bed = Bed()
        bed.restore(Self.place(50))
        bed.begin(1, stored: [60])
        bed.waits(Self.place(100))
        #expect(bed.requestLoads() == [Self.load(of: 1)])
        bed.residency.evict(0)
        #expect(bed.load(60) == [])
        #expect(bed.requestLoads() == [Self.load(of: 0)])
        #expect(bed.load(50) == [.proceed(100)])
    }

    /// Otherwise the index of due times would keep the item's old entry.
    @Test func itemThatIsWrittenAgainReplacesItsDueTime() {
        let bed = Bed()
        let first = bed.residency.put(0, Self.place(100), Self.device, due: 5_000)
        #expect(first.replacesDue == nil)
        let second = bed.residency.put(0, Self.place(100), Self.device, due: 9_000)
        #expect(second.replacesDue == 5_000)
        #expect(second.leaves == nil)
    }

    /// The intake counts the room of a stored job until the job leaves memory.
    @Test func itemThatLeavesMemoryFreesItsRoom() {
        var limits = DeliveryLimits(capacity: 8, knownDevices: 8)
        limits.storeIsDurable = true
        var machine = ShardMachine(
            .init(
                index: 0, shards: 1, mode: .local, delivery: limits,
                residency: ResidencyLimits(hasStore: true, capacity: 8), seed: 1))
        machine.beginPartition(0, partition: 7, readThrough: 99)
        machine.scanned(0)
        let now = DeliveryTime(wallMilliseconds: 1_700_000_000_000, monotonicNanoseconds: 1_000_000_000)
        let facts = PushFacts(
            device: Self.device, notificationKey: 9, topic: 0, partition: 0, offset: 100,
            deliverAtMilliseconds: now.wallMilliseconds + 3_600_000,
            createdMilliseconds: now.wallMilliseconds)
        let settlement = machine.admit(facts, at: now)
        #expect(settlement == .placed(0))
        while machine.nextAction(at: now) != nil {}
        let requests = machine.takeRequests()
        machine.done(requests)
        for put in requests.puts { machine.stored(put, at: now) }
        while machine.nextAction(at: now) != nil {}
        let stored = machine.takeProgress(holdsBack: false)
        #expect(stored?.freed.isEmpty == true)
        let later = DeliveryTime(
            wallMilliseconds: now.wallMilliseconds + 1_000, monotonicNanoseconds: 2_000_000_000)
        machine.advance(to: later)
        let action = machine.nextAction(at: later)
        #expect(action == .evict(0))
        let freed = machine.takeProgress(holdsBack: false)?.freed
        #expect(freed == [0: 1])
    }
}

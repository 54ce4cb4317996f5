import SluiceModel
import Testing

@testable import DeliveryCore

/// A store with items of one device, whose records up to 99 were read in each partition. The delivery machine stays
/// empty.
final class ResidencyBed {
    static let device = DeviceKey(high: 1, low: 1)

    var residency: DeviceResidency
    let delivery: DeliveryMachine
    private var slot: UInt32 = 0

    /// Begins the partition in slot 0.
    /// - Parameter stored: offsets of the device's items in the store.
    init(stored: [Int64] = [], room: Int = 64) {
        delivery = DeliveryMachine(limits: DeliveryLimits(capacity: 8, knownDevices: 8), seed: 1)
        residency = DeviceResidency(
            limits: ResidencyLimits(hasStore: true, capacity: 8, room: room, itemsPerLoad: 1))
        begin(0, stored: stored)
    }

    static func place(_ offset: Int64, in partition: UInt16 = 0) -> RecordPlace {
        RecordPlace(partitionSlot: partition, offset: offset)
    }

    /// Returns the request for the device's items of a partition.
    static func request(of partition: UInt16 = 0) -> ResidencyAction {
        .load(device, partition, withItems: true)
    }

    func begin(_ partition: UInt16, stored offsets: [Int64]) {
        residency.beginPartition(partition, readThrough: 99)
        for offset in offsets { residency.found(Self.device, offset: offset, partition) }
        residency.scanned(partition)
    }

    /// Puts an item from the store into the next slot of the delivery machine.
    func restore(_ place: RecordPlace) {
        let facts = ResidentFacts(restoredFrom: Self.device, due: .max)
        residency.addItem(slot, place, facts, Self.device)
        slot += 1
    }

    /// Creates a record of the device, whose handle is its offset.
    static func record(
        _ offset: Int64, in partition: UInt16 = 0, isPush: Bool = true, isReplay: Bool = false,
        look: PresenceLook = .nowhere
    ) -> DeferredRecord {
        DeferredRecord(
            handle: UInt32(offset), device: device, place: place(offset, in: partition), look: look,
            isPush: isPush, isReplay: isReplay)
    }

    /// Makes a record wait for the device.
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

    func requestLoads(at now: UInt64 = 1_000_000_000) -> [ResidencyAction] {
        _ = residency.askForLoads(at: now, delivery)
        return actions()
    }

    /// Lets each requested load find the items at these offsets. Returns the offsets of the restored items.
    func load(_ offsets: [Int64]) -> [Int64] {
        var restored: [Int64] = []
        for load in residency.takeRequests().loads {
            let counts = residency.beginLoad(load, last: offsets.last)
            #expect(counts)
            for offset in offsets {
                guard let place = residency.judge(offset: offset, delivery).restore else { continue }
                #expect(place.partitionSlot == load.partitionSlot)
                restore(place)
                restored.append(offset)
            }
            residency.endLoad()
        }
        return restored
    }
}

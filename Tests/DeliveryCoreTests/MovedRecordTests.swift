import SluiceModel
import Testing

@testable import DeliveryCore

/// Marks of records whose items were moved to other tokens before a crash.
@Suite struct MovedRecordTests {
    private static let device = DeviceKey(high: 1, low: 1)
    private static let place = RecordPlace(partitionSlot: 0, offset: 100)
    private static let id = APNSID(high: 0, low: 100)

    /// Creates a shard of two that takes over a partition, whose first record to read has a mark.
    private static func machine(index: Int) -> ShardMachine {
        var limits = DeliveryLimits(capacity: 8, knownDevices: 8)
        limits.storeIsDurable = true
        var machine = ShardMachine(
            .init(
                index: index, shards: 2, mode: .changelog, delivery: limits,
                residency: ResidencyLimits(hasStore: true, capacity: 8), seed: 1))
        machine.beginPartition(
            0, partition: 7, readThrough: 99, committed: 100, marks: [(offset: 100, id: id)])
        machine.scanned(0)
        return machine
    }

    /// The record may go to any shard, although a single shard has the mark removed.
    @Test(arguments: [0, 1]) func recordOfAMovedItemIsCompleteAfterATakeOver(_ index: Int) {
        var machine = Self.machine(index: index)
        let isDone = machine.isDone(Self.place, Self.device, Self.id)
        #expect(isDone)
        let completed = machine.takeProgress(holdsBack: false)?.completed
        #expect(completed == [.init(place: Self.place, isRepeated: true)])
    }

    @Test func markIsRemovedOnceItsRecordIsCommitted() {
        var machine = Self.machine(index: 0)
        machine.forgetMarks(at: 200_000_000) { $0(0, 101) }
        let event = machine.nextEvent(at: DeliveryTime(wallMilliseconds: 0, monotonicNanoseconds: 0))
        #expect(event == .removeMark(Self.place))
        let isDone = machine.isDone(Self.place, Self.device, Self.id)
        #expect(!isDone)
    }

    @Test func markStaysWhileItsRecordMayBeReadAgain() {
        var machine = Self.machine(index: 0)
        // Records below the watermark are committed, and this one isn't.
        machine.forgetMarks(at: 200_000_000) { $0(0, 100) }
        let event = machine.nextEvent(at: DeliveryTime(wallMilliseconds: 0, monotonicNanoseconds: 0))
        #expect(event == nil)
        let isDone = machine.isDone(Self.place, Self.device, Self.id)
        #expect(isDone)
    }
}

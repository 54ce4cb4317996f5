import Testing

@testable import DeliveryCore

@Suite struct PartitionSlotsTests {
    private func state(_ partition: Int32) -> PartitionLifecycle {
        PartitionLifecycle(partition: partition, begin: nil, completed: .none)
    }

    @Test func slotIsReusedOnlyAfterAllOthers() {
        var partitions = PartitionSlots()
        let kept = partitions.insert(state(0))!
        var last: UInt16 = 0
        for round in 1...65_534 {
            let place = partitions.insert(state(1))!
            #expect(place == 1)
            let slot = partitions[place].slot
            guard slot == last + 1, partitions.index(ofSlot: slot) == place else {
                Issue.record("round \(round): slot \(slot) after \(last)")
                return
            }
            if round > 1, partitions.index(ofSlot: last) != (last == 0 ? kept : nil) {
                Issue.record("round \(round): slot \(last) is still assigned")
            }
            last = slot
            partitions.remove(place)
        }
        // Slot 0 is still in use, and the last slot marks records of the changelog.
        let next = partitions.insert(state(1))!
        #expect(partitions[next].slot == 1)
        #expect(partitions[kept].slot == 0)
    }

    @Test func partitionsAreFoundByNumberAndSlotAfterRemovals() {
        var partitions = PartitionSlots()
        for number in Int32(0)..<40 { partitions.insert(state(number)) }
        for number in stride(from: Int32(0), to: 40, by: 2) {
            guard let place = partitions.index(ofPartition: number), let removed = partitions.remove(place)
            else {
                Issue.record("partition \(number) is not found")
                continue
            }
            #expect(removed.partition == number)
        }
        #expect(partitions.count == 20)
        partitions.insert(state(100))
        for number in Int32(0)..<41 {
            let place = partitions.index(ofPartition: number)
            #expect((place != nil) == (number % 2 == 1))
            guard let place else { continue }
            #expect(partitions[place].partition == number)
            #expect(partitions.index(ofSlot: partitions[place].slot) == place)
        }
        #expect(partitions.index(ofPartition: 100) != nil)
        #expect(partitions.index(ofPartition: 101) == nil)
        #expect(partitions.index(ofSlot: 2) == nil)
        #expect(
            partitions.numbers.sorted() == stride(from: 1, to: 40, by: 2) + [100])
    }

    @Test func negativeAndUnknownPartitionNumbersAreNotFound() {
        var partitions = PartitionSlots()
        partitions.insert(state(0))
        for number: Int32 in [-1, .min, 1, .max] { #expect(partitions.index(ofPartition: number) == nil) }
    }

    @Test func changelogSlotIsNeverAssigned() {
        var partitions = PartitionSlots()
        var slots = Set<UInt16>()
        for _ in 0..<70_000 {
            let place = partitions.insert(state(0))!
            slots.insert(partitions[place].slot)
            partitions.remove(place)
        }
        #expect(slots.count == 65_535 && !slots.contains(.max))
    }
}

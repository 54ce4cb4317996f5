import SluiceModel
import Testing

@testable import DeliveryCore

@Suite("Items that have ended and are still in the store")
struct EndedItemsTests {
    private let place = RecordPlace(partitionSlot: 1, offset: 5)

    private func device(_ number: UInt64) -> DeviceKey { DeviceKey(high: number, low: number) }

    private func item(_ number: UInt64) -> EndedItem { EndedItem(device: number, place: place) }

    private func key(_ number: UInt64) -> StoredKey { StoredKey(device: device(number), due: Int64(number)) }

    /// Each of a partition's logs has an item at the same offset, of different devices.
    @Test(arguments: [[1, 2, 3], [3, 1, 2], [2, 3, 1]] as [[UInt64]])
    func itemsOfOneOffsetAreDistinguishedByDevice(order: [UInt64]) {
        var items = EndedItems()
        for number: UInt64 in 1...3 { items.insert(place, key(number), device(number)) }
        #expect(items.has(place))
        #expect(items.has(place, storedUnder: device(3)) && !items.has(place, storedUnder: device(4)))
        for (index, number) in order.enumerated() {
            #expect(items.has(partitionSlot: 1))
            let found = items.remove(item(number))
            #expect(found == key(number))
            let again = items.remove(item(number))
            #expect(again == nil, "its removal was requested already")
            let removed = items.removed(item(number))
            #expect(removed?.device == device(number))
            let twice = items.removed(item(number))
            #expect(twice == nil)
            #expect(items.has(place) == (index < 2))
        }
        #expect(items.isEmpty)
    }

    /// Both logs have an item of one device at one offset: one key in the store, and two outcomes.
    @Test func repeatedEndsOfOneItemAreRemovedOneByOne() {
        var items = EndedItems()
        items.insert(place, key(1), device(1))
        items.insert(place, key(1), device(1))
        for _ in 0..<2 {
            let found = items.remove(item(1))
            #expect(found == key(1))
        }
        let third = items.remove(item(1))
        #expect(third == nil)
        for _ in 0..<2 {
            let removed = items.removed(item(1))
            #expect(removed != nil)
        }
        #expect(items.isEmpty)
    }

    @Test func removingAPartitionRemovesItsEndedItems() {
        var items = EndedItems()
        let other = RecordPlace(partitionSlot: 2, offset: 5)
        items.insert(place, key(1), device(1))
        items.insert(place, key(2), device(2))
        items.insert(other, key(3), device(3))
        items.removeAll(1)
        #expect(!items.has(place) && items.has(other))
        #expect(!items.has(partitionSlot: 1) && items.has(partitionSlot: 2))
        let found = items.remove(item(2))
        #expect(found == nil)
    }
}

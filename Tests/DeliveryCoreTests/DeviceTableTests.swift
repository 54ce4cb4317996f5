import SluiceModel
import StreamScheduling
import Testing

@testable import DeliveryCore

struct DeviceTableTests {
    /// Keeps the table full for long. Many keys start their search at the same place.
    @Test(arguments: [UInt64(1), 2, 3]) func onlyInsertedDevicesAreFound(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let capacity = 100
        var table = DeviceTable(capacity: capacity)
        var entries: [DeviceKey: UInt32] = [:]
        var keys: [DeviceKey] = []
        for step in 0..<200_000 {
            if keys.count < capacity, keys.isEmpty || Bool.random(using: &random) {
                let key = DeviceKey(high: random.next(), low: random.next() % 8)
                guard entries[key] == nil else { continue }
                let found = table.find(key)
                #expect(found == nil, "seed \(seed), step \(step)")
                entries[key] = table.findOrInsert(key)
                table.entries[Int(entries[key]!)].pending = 1
                keys.append(key)
            } else {
                let index = Int.random(in: keys.indices, using: &random)
                let key = keys[index]
                let entry = entries.removeValue(forKey: key)!
                guard table.find(key) == entry else {
                    Issue.record("seed \(seed), step \(step): a device isn't found")
                    return
                }
                keys.swapAt(index, keys.count - 1)
                keys.removeLast()
                table.entries[Int(entry)].pending = 0
                table.retire(entry)
            }
            guard step % 1000 == 0 else { continue }
            for (key, entry) in entries where table.find(key) != entry {
                Issue.record("seed \(seed), step \(step): a device isn't found")
                return
            }
        }
        // Recently idle keys may still be there.
        let left = table.count - keys.count
        #expect(left <= 16)
    }
}

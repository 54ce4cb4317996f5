import SluiceModel
import StreamScheduling
import Testing

@testable import DeliveryCore

struct EvictedDevicesTests {
    private struct Entry: Hashable {
        var device: DeviceKey
        var partition: UInt16
    }

    /// All partitions that the set has for the device.
    private func partitions(of device: DeviceKey, _ cold: borrowing EvictedDevices) -> [UInt16] {
        var found: [UInt16] = []
        cold.forEachPartition(of: device) { found.append($0) }
        return found.sorted()
    }

    /// Compares with a set through growth and decline, in one table and in several. Keys vary in either half. Small
    /// tables make many searches wrap around.
    @Test(arguments: Array(UInt64(1)...12)) func randomOperationsMatchASet(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var cold = EvictedDevices(segmentBits: Int(seed % 4))
        var entries: Set<Entry> = []
        var scanned: Set<UInt16> = []
        let devices = (0..<400).map { index in
            switch seed % 3 {
            case 0: DeviceKey(high: random.next(), low: random.next())
            case 1: DeviceKey(high: 1, low: UInt64(index))
            default: DeviceKey(high: UInt64(index), low: random.next() % 2)
            }
        }
        for step in 0..<60_000 {
            let device = devices.randomElement(using: &random)!
            let entry = Entry(device: device, partition: .random(in: 0..<4, using: &random) * 21_845)
            // The set fills for a while, and then empties.
            let fills = step / 10_000 % 2 == 0
            switch Int.random(in: 0..<10_000, using: &random) {
            case 0:
                cold.removeAll(partition: entry.partition)
                entries = entries.filter { $0.partition != entry.partition }
                scanned.remove(entry.partition)
            case 1...3:
                cold.beginScan(entry.partition)
                scanned.insert(entry.partition)
            case 4...10:
                cold.endScan(entry.partition)
                scanned.remove(entry.partition)
            case ..<(fills ? 6_000 : 3_000):
                cold.insert(device, entry.partition)
                entries.insert(entry)
            default:
                cold.remove(device, entry.partition)
                entries.remove(entry)
            }
            guard step % 50 == 0 || step % 10_000 < 100 else { continue }
            var differs = cold.count != entries.count || cold.isEmpty != (entries.isEmpty && scanned.isEmpty)
            for device in step % 1_000 == 0 ? devices : [device] {
                let own = (0..<4).map { Entry(device: device, partition: $0 * 21_845) }
                let expected = own.filter { entries.contains($0) || scanned.contains($0.partition) }
                    .map(\.partition)
                cold.prefetch(device)
                differs =
                    differs || partitions(of: device, cold) != expected
                    || cold.contains(device) != !(expected.isEmpty && scanned.isEmpty)
                    || cold.partition(of: device) != expected.first
                    || cold.partition(of: device, from: 1) != expected.first { $0 >= 1 }
            }
            guard !differs else {
                Issue.record("seed \(seed), step \(step): the set differs")
                return
            }
        }
    }

    /// An entry stays findable through other entries' removals, even past the end of its table.
    @Test(arguments: Array(UInt64(1)...20)) func searchesWrapAroundTheTableEnd(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var cold = EvictedDevices(segmentBits: 0)
        // Two lines: when more than eight entries begin in the second, the rest are in the first.
        for round in 0..<500 {
            let devices = (0..<11).map { _ in DeviceKey(high: random.next(), low: random.next()) }
            for device in devices { cold.insert(device, 7) }
            for gone in devices.indices {
                cold.remove(devices[gone], 7)
                for (index, device) in devices.enumerated() where cold.contains(device) != (index > gone) {
                    Issue.record("seed \(seed), round \(round): device \(index) after \(gone + 1) removals")
                    return
                }
            }
        }
    }

    /// A device may have items in many partitions, of any number.
    @Test func deviceMayHaveItemsInManyPartitions() {
        var cold = EvictedDevices()
        let device = DeviceKey(high: 0, low: 0)
        for partition in [UInt16.max, 0, 300, 5] {
            cold.insert(device, partition)
            cold.insert(device, partition)
        }
        #expect(cold.count == 4)
        #expect(partitions(of: device, cold) == [0, 5, 300, .max])
        var seen: [UInt16] = []
        var next = cold.partition(of: device)
        while let partition = next {
            seen.append(partition)
            cold.remove(device, partition)
            next = cold.partition(of: device)
        }
        #expect(seen == [0, 5, 300, .max])
        #expect(cold.isEmpty == true)
    }

    /// During a scan any device may have items of its partition. Removing the partition ends its scan.
    @Test func runningScanCountsEveryDeviceAsEvicted() {
        var cold = EvictedDevices()
        let (known, other) = (DeviceKey(high: 1, low: 2), DeviceKey(high: 3, low: 4))
        cold.beginScan(9)
        cold.beginScan(9)
        cold.insert(known, 9)
        cold.insert(known, 2)
        #expect(cold.isEmpty == false)
        #expect(cold.contains(other) == true)
        #expect(partitions(of: other, cold) == [9])
        #expect(partitions(of: known, cold) == [2, 9])
        // An entry that the scan has seen may be removed before the scan ends.
        cold.remove(known, 9)
        #expect(partitions(of: known, cold) == [2, 9])
        cold.endScan(9)
        #expect(cold.contains(other) == false)
        #expect(partitions(of: known, cold) == [2])
        cold.beginScan(2)
        cold.removeAll(partition: 2)
        #expect(cold.isEmpty == true)
        #expect(cold.contains(known) == false)
    }

    /// Memory stays below 170 MB for ten million devices, to scale, at every moment. The limit includes a growing
    /// segment beside the segment that it replaces. Removed entries use no memory.
    @Test func memoryPerDeviceIsBounded() {
        var random = SeededGenerator(seed: 3)
        var cold = EvictedDevices(segmentBits: 6)
        var devices: [DeviceKey] = []
        var worst = 0.0
        for index in 0..<156_250 {
            let device = DeviceKey(high: random.next(), low: random.next())
            devices.append(device)
            cold.insert(device, UInt16(index % 500))
            guard index >= 20_000 else { continue }
            let growing = cold.bytes / 64 * 9 / 8
            worst = max(worst, Double(cold.bytes + growing) / Double(index + 1))
        }
        #expect(worst < 17, "\(worst) bytes a device")
        let missing = devices.filter { !cold.contains($0) }.count
        #expect(missing == 0)
        let bytes = cold.bytes
        for (index, device) in devices.enumerated() { cold.insert(device, UInt16(index % 500)) }
        #expect(cold.bytes == bytes, "inserting known entries doesn't grow the table")
        let strangers = (0..<100_000).filter { _ in
            cold.contains(DeviceKey(high: random.next(), low: random.next()))
        }
        #expect(strangers.isEmpty)
        for (index, device) in devices.dropLast(1_000).enumerated() {
            cold.remove(device, UInt16(index % 500))
        }
        #expect(cold.count == 1_000)
        #expect(cold.bytes < 64 * 1_000, "\(cold.bytes) bytes")
        for partition in 0..<UInt16(500) { cold.removeAll(partition: partition) }
        #expect(cold.isEmpty == true)
        #expect(cold.bytes == EvictedDevices(segmentBits: 6).bytes)
    }
}

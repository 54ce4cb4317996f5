import DeliveryCore
import SluiceModel
import StreamScheduling
import Testing

@Suite struct ProduceOrderPropertyTests {
    @Test func eachRecordIsCommittedOnceInOrderOrDropped() {
        var (commits, aborts, stops, records) = (0, 0, 0, 0)
        for seed in UInt64(1)...200 {
            var world = ProduceWorld(seed: seed, shards: 1 + Int(seed % 3))
            do {
                for _ in 0..<2_500 { try world.step() }
                try world.calmDown()
            } catch {
                Issue.record("seed \(seed): \(error)")
                return
            }
            commits += world.commits
            aborts += world.aborts
            stops += world.stops
            records += world.records.count
        }
        #expect(
            commits > 1_000 && aborts > 1_000 && stops > 100,
            "\(commits) commits, \(aborts) aborts, \(stops) stops, \(records) records")
    }

    @Test func eachRecordIsProducedOnceInOrderWithoutTransactions() {
        for seed in UInt64(1)...100 {
            var draw = SeededGenerator(seed: seed)
            let harness = ProduceHarness(isTransactional: false)
            var expected: [Int] = []
            var partitions: [Int: UInt16] = [:]
            var produced = 0
            for number in 0..<2_000 {
                harness.isPermitted = draw.next() % 16 != 0
                harness.answers = draw.next() % 4 == 0 ? [.queued, .queueFull] : []
                switch draw.next() % 40 {
                case 0:
                    // Written records that aren't produced yet.
                    let slot = UInt16(draw.next() % 3)
                    let left = expected[harness.numbers.count...].filter { partitions[$0] == slot }
                    let abandoned = harness.abandon(slot)
                    #expect(abandoned == left.count, "seed \(seed)")
                    expected.removeAll { left.contains($0) }
                case 1..<8: harness.flush()
                case 8..<14: harness.timerDue()
                default:
                    partitions[number] = UInt16(draw.next() % 3)
                    expected.append(number)
                    harness.write(
                        number, draw.next() % 8 == 0 ? .deadLetter : .outcome, partition: partitions[number]!)
                }
                #expect(harness.isPermitted || harness.numbers.count == produced, "seed \(seed): in doubt")
                produced = harness.numbers.count
            }
            harness.isPermitted = true
            harness.answers = []
            harness.flush()
            #expect(harness.numbers == expected, "seed \(seed)")
            #expect(harness.kept.isEmpty && harness.recordsHeld == 0 && harness.waiting == 0, "seed \(seed)")
        }
    }
}

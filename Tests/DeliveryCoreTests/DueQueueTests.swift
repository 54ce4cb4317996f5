import DeliveryCore
import SluiceModel
import StreamScheduling
import Testing

@Suite struct DueQueueTests {
    @Test func earliestDuePopsFirstAndTiesKeepOrder() {
        var queue = DueQueue(capacity: 8)
        for (slot, due) in [(3, 50), (1, 20), (7, 20), (0, 90), (2, 20)] {
            queue.insert(UInt32(slot), due: UInt64(due))
        }
        let next = queue.nextDue
        #expect(next == 20)
        #expect(drain(&queue, now: 19) == [])
        #expect(drain(&queue, now: 50) == [1, 7, 2, 3])
        #expect(drain(&queue, now: .max) == [0])
        let empty = queue.isEmpty
        #expect(empty)
    }

    @Test func reinsertedSlotMoves() {
        var queue = DueQueue(capacity: 3)
        queue.insert(0, due: 10)
        queue.insert(1, due: 20)
        queue.insert(0, due: 30)
        let count = queue.count
        let due = queue.due(of: 0)
        #expect(count == 2)
        #expect(due == 30)
        #expect(drain(&queue, now: 100) == [1, 0])
    }

    @Test func unknownSlotsAreRefused() {
        var queue = DueQueue(capacity: 2)
        let inserted = queue.insert(2, due: 1)
        let removed = queue.remove(1)
        let beyond = queue.remove(99)
        let due = queue.due(of: 99)
        #expect(!inserted && !removed && !beyond && due == nil)
    }

    /// Compares with a dictionary.
    @Test(arguments: UInt64(1)...12)
    func randomOperationsMatchTheModel(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let capacity = Int.random(in: 1...150, using: &random)
        let spread = UInt64.random(in: 1...2000, using: &random)
        var queue = DueQueue(capacity: capacity)
        var model: [UInt32: (due: UInt64, order: Int)] = [:]
        var now: UInt64 = 0
        for step in 0..<2000 {
            let slot = UInt32.random(in: 0..<UInt32(capacity), using: &random)
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<5:
                let due = now + UInt64.random(in: 0...spread, using: &random)
                queue.insert(slot, due: due)
                model[slot] = (due, step)
            case 5..<7:
                let removed = queue.remove(slot)
                if removed != (model.removeValue(forKey: slot) != nil) {
                    Issue.record("seed \(seed) step \(step): remove(\(slot)) answered \(removed)")
                    return
                }
            default:
                now += UInt64.random(in: 0...spread / 4, using: &random)
                let expected = model.filter { $0.value.due <= now }
                    .min { ($0.value.due, $0.value.order) < ($1.value.due, $1.value.order) }
                let popped = queue.popDue(now: now)
                if popped != expected?.key {
                    Issue.record("seed \(seed) step \(step): popped \(String(describing: popped))")
                    return
                }
                if let popped { model[popped] = nil }
            }
            if queue.count != model.count || queue.nextDue != model.values.map(\.due).min() {
                Issue.record("seed \(seed) step \(step): \(queue.count) queued, model \(model.count)")
                return
            }
        }
    }

    private func drain(_ queue: inout DueQueue, now: UInt64) -> [UInt32] {
        var slots: [UInt32] = []
        while let slot = queue.popDue(now: now) { slots.append(slot) }
        return slots
    }
}

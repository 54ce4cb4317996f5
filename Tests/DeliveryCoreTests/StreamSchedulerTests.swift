import DeliveryCore
import SluiceModel
import Testing

@Suite struct StreamSchedulerTests {
    private func scheduler(floor: Int = 50, connections: Int = 8) -> StreamScheduler {
        StreamScheduler(.init(slots: 1000, connections: connections, floorPerMille: floor))
    }

    private func drain(_ scheduler: inout StreamScheduler) -> [StreamScheduler.Assignment] {
        var all: [StreamScheduler.Assignment] = []
        while let next = scheduler.nextAssignment() { all.append(next) }
        return all
    }

    @Test func firstComeFirstServedInsideAClass() {
        var scheduler = scheduler()
        for slot in [5, 3, 9] as [UInt32] {
            scheduler.enqueue(slot: slot, priority: .immediate, bytes: 100, now: 0)
        }
        scheduler.enqueue(slot: 7, priority: .immediate, bytes: 100, now: 0, atFront: true)
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 100, windowFree: 1 << 20, state: .ready)
        #expect(drain(&scheduler).map(\.slot) == [7, 5, 3, 9])
    }

    @Test func strictBetweenClassesWithoutAFloor() {
        var scheduler = scheduler(floor: 0)
        for slot in UInt32(0)..<30 {
            let priority: Priority = slot % 3 == 0 ? .lowPower : slot % 3 == 1 ? .powerAware : .immediate
            scheduler.enqueue(slot: slot, priority: priority, bytes: 1, now: 0)
        }
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 100, windowFree: 1 << 20, state: .ready)
        #expect(
            drain(&scheduler).map { $0.slot % 3 }
                == [2, 1, 0].flatMap { Array(repeating: UInt32($0), count: 10) })
    }

    @Test func lowerClassesGetTheirFloor() {
        var scheduler = scheduler()
        var slot: UInt32 = 0
        for priority in [Priority.immediate, .powerAware, .lowPower] {
            for _ in 0..<300 {
                scheduler.enqueue(slot: slot, priority: priority, bytes: 1, now: 0)
                slot += 1
            }
        }
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 200, windowFree: 1 << 20, state: .ready)
        let slots = drain(&scheduler).map(\.slot)
        #expect(slots.count == 200)
        #expect(slots.filter { $0 < 300 }.count == 190)
        #expect(slots.filter { (300..<600).contains($0) }.count == 10)
        // Evenly: every twentieth, so that no urgent one waits for a burst.
        #expect(slots.indices.filter { slots[$0] >= 300 } == Array(stride(from: 19, to: 200, by: 20)))
    }

    @Test func turnsWithoutAConnectionAreNotLost() {
        var scheduler = scheduler(floor: 500)
        scheduler.enqueue(slot: 0, priority: .immediate, bytes: 1, now: 0)
        scheduler.enqueue(slot: 1, priority: .powerAware, bytes: 1, now: 0)
        for _ in 0..<5 { #expect(drain(&scheduler) == []) }
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 1, windowFree: 1 << 20, state: .ready)
        #expect(drain(&scheduler).map(\.slot) == [0])
    }

    @Test func leastInFlightFirstAndEqualsTakeTurns() {
        var scheduler = scheduler()
        scheduler.connectionChanged(0, inFlight: 2, streamsFree: 10, windowFree: 1 << 20, state: .ready)
        scheduler.connectionChanged(1, inFlight: 0, streamsFree: 10, windowFree: 1 << 20, state: .ready)
        scheduler.connectionChanged(2, inFlight: 1, streamsFree: 10, windowFree: 1 << 20, state: .ready)
        for slot in UInt32(0)..<6 { scheduler.enqueue(slot: slot, priority: .immediate, bytes: 1, now: 0) }
        #expect(drain(&scheduler).map(\.connection) == [1, 2, 1, 0, 2, 1])
    }

    @Test func streamCreditAndStateAreObeyed() {
        var scheduler = scheduler()
        for slot in UInt32(0)..<20 { scheduler.enqueue(slot: slot, priority: .immediate, bytes: 1, now: 0) }
        #expect(drain(&scheduler) == [])
        // A token connection before its first answer.
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 1, windowFree: 65_535, state: .ready)
        #expect(drain(&scheduler).map(\.connection) == [0])
        #expect(drain(&scheduler) == [])
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 5, windowFree: 65_535, state: .draining)
        #expect(drain(&scheduler) == [])
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 5, windowFree: 65_535, state: .suspended)
        #expect(drain(&scheduler) == [])
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 3, windowFree: 65_535, state: .ready)
        #expect(drain(&scheduler).count == 3)
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 3, windowFree: 65_535, state: .ready)
        scheduler.connectionRemoved(0)
        #expect(drain(&scheduler) == [])
        let placeable = scheduler.placeableConnections
        #expect(placeable == 0)
    }

    @Test func sendWindowIsObeyed() {
        var scheduler = scheduler()
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 1000, windowFree: 65_535, state: .ready)
        for slot in UInt32(0)..<20 {
            scheduler.enqueue(slot: slot, priority: .immediate, bytes: 4096, now: 0)
        }
        #expect(drain(&scheduler).count == 15)
        // 4,095 bytes are left: too few for the next, and nothing overtakes it.
        scheduler.enqueue(slot: 100, priority: .powerAware, bytes: 10, now: 0)
        #expect(drain(&scheduler) == [])
        scheduler.connectionChanged(0, inFlight: 15, streamsFree: 985, windowFree: 4096, state: .ready)
        #expect(drain(&scheduler).count == 1)
        scheduler.connectionChanged(1, inFlight: 0, streamsFree: 1, windowFree: -10, state: .ready)
        #expect(drain(&scheduler) == [])
    }

    @Test func agesAndDepths() {
        var scheduler = scheduler()
        scheduler.enqueue(slot: 1, priority: .powerAware, bytes: 1, now: 1000)
        scheduler.enqueue(slot: 2, priority: .powerAware, bytes: 1, now: 5000)
        let age = scheduler.oldestAge(.powerAware, now: 6000)
        let none = scheduler.oldestAge(.immediate, now: 6000)
        #expect(age == 5000)
        #expect(none == nil)
        let removed = scheduler.remove(slot: 1)
        let again = scheduler.remove(slot: 1)
        let depth = scheduler.depth(.powerAware)
        let young = scheduler.oldestAge(.powerAware, now: 6000)
        #expect(removed && !again)
        #expect(depth == 1)
        #expect(young == 1000)
    }

    @Test func misuseIsAnswered() {
        var scheduler = scheduler(connections: 2)
        let foreign = scheduler.enqueue(slot: 1000, priority: .immediate, bytes: 1, now: 0)
        let large = scheduler.enqueue(slot: 1, priority: .immediate, bytes: 5121, now: 0)
        let first = scheduler.enqueue(slot: 1, priority: .immediate, bytes: 5120, now: 0)
        let twice = scheduler.enqueue(slot: 1, priority: .lowPower, bytes: 1, now: 0)
        let beyond = scheduler.connectionChanged(2, inFlight: 0, streamsFree: 1, windowFree: 1, state: .ready)
        scheduler.connectionRemoved(77)
        #expect(!foreign && !large && first && !twice && !beyond)
    }
}

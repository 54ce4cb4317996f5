import SluiceModel
import StreamScheduling
import Testing

@Suite struct StreamSchedulerTests {
    private func scheduler(floor: Int = 50, connections: Int = 8) -> StreamScheduler {
        StreamScheduler(
            .init(connections: connections, floorPerMille: floor, placementRun: 1),
            notifications: NotificationTable(capacity: 1000))
    }

    @Test func firstComeFirstServedInsideAClass() {
        var scheduler = scheduler()
        for slot in [5, 3, 9] as [UInt32] {
            scheduler.enqueue(slot: slot, app: 0, priority: .immediate, bytes: 100, now: 0)
        }
        scheduler.enqueue(slot: 7, app: 0, priority: .immediate, bytes: 100, now: 0, atFront: true)
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 100, windowFree: 1 << 20, state: .ready)
        #expect(drain(&scheduler).map(\.slot) == [7, 5, 3, 9])
    }

    @Test func higherClassesComeFirstWithoutAFloor() {
        var scheduler = scheduler(floor: 0)
        for slot in UInt32(0)..<30 {
            let priority: Priority = slot % 3 == 0 ? .lowPower : slot % 3 == 1 ? .powerAware : .immediate
            scheduler.enqueue(slot: slot, app: 0, priority: priority, bytes: 1, now: 0)
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
                scheduler.enqueue(slot: slot, app: 0, priority: priority, bytes: 1, now: 0)
                slot += 1
            }
        }
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 200, windowFree: 1 << 20, state: .ready)
        let slots = drain(&scheduler).map(\.slot)
        #expect(slots.count == 200)
        #expect(slots.filter { $0 < 300 }.count == 190)
        #expect(slots.filter { (300..<600).contains($0) }.count == 10)
        // Floor turns are spread evenly, so that no urgent notification waits for a burst.
        #expect(slots.indices.filter { slots[$0] >= 300 } == Array(stride(from: 19, to: 200, by: 20)))
    }

    @Test func attemptsWithoutAConnectionUseNoTurn() {
        var scheduler = scheduler(floor: 500)
        scheduler.enqueue(slot: 0, app: 0, priority: .immediate, bytes: 1, now: 0)
        scheduler.enqueue(slot: 1, app: 0, priority: .powerAware, bytes: 1, now: 0)
        for _ in 0..<5 { #expect(drain(&scheduler) == []) }
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 1, windowFree: 1 << 20, state: .ready)
        #expect(drain(&scheduler).map(\.slot) == [0])
    }

    @Test func leastLoadedConnectionIsChosenAndEqualsTakeTurns() {
        var scheduler = scheduler()
        scheduler.connectionChanged(0, inFlight: 2, streamsFree: 10, windowFree: 1 << 20, state: .ready)
        scheduler.connectionChanged(1, inFlight: 0, streamsFree: 10, windowFree: 1 << 20, state: .ready)
        scheduler.connectionChanged(2, inFlight: 1, streamsFree: 10, windowFree: 1 << 20, state: .ready)
        for slot in UInt32(0)..<6 {
            scheduler.enqueue(slot: slot, app: 0, priority: .immediate, bytes: 1, now: 0)
        }
        #expect(drain(&scheduler).map(\.connection) == [1, 2, 1, 0, 2, 1])
    }

    @Test func assignmentsKeepToFreeStreamsAndConnectionState() {
        var scheduler = scheduler()
        for slot in UInt32(0)..<20 {
            scheduler.enqueue(slot: slot, app: 0, priority: .immediate, bytes: 1, now: 0)
        }
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

    @Test func assignmentsKeepToTheSendWindow() {
        var scheduler = scheduler()
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 1000, windowFree: 65_535, state: .ready)
        for slot in UInt32(0)..<20 {
            scheduler.enqueue(slot: slot, app: 0, priority: .immediate, bytes: 4096, now: 0)
        }
        #expect(drain(&scheduler).count == 15)
        // The remaining 4,095 bytes are too few for the next notification, and no other overtakes it.
        scheduler.enqueue(slot: 100, app: 0, priority: .powerAware, bytes: 10, now: 0)
        #expect(drain(&scheduler) == [])
        scheduler.connectionChanged(0, inFlight: 15, streamsFree: 985, windowFree: 4096, state: .ready)
        #expect(drain(&scheduler).count == 1)
        scheduler.connectionChanged(1, inFlight: 0, streamsFree: 1, windowFree: -10, state: .ready)
        #expect(drain(&scheduler) == [])
    }

    @Test func agesAndDepthsFollowTheQueue() {
        var scheduler = scheduler()
        scheduler.enqueue(slot: 1, app: 0, priority: .powerAware, bytes: 1, now: 1000)
        scheduler.enqueue(slot: 2, app: 0, priority: .powerAware, bytes: 1, now: 5000)
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

    @Test func invalidCallsAreRefused() {
        var scheduler = scheduler(connections: 2)
        let foreign = scheduler.enqueue(slot: 1000, app: 0, priority: .immediate, bytes: 1, now: 0)
        let large = scheduler.enqueue(slot: 1, app: 0, priority: .immediate, bytes: 5121, now: 0)
        let first = scheduler.enqueue(slot: 1, app: 0, priority: .immediate, bytes: 5120, now: 0)
        let twice = scheduler.enqueue(slot: 1, app: 0, priority: .lowPower, bytes: 1, now: 0)
        let noApp = scheduler.enqueue(slot: 2, app: 1, priority: .lowPower, bytes: 1, now: 0)
        let beyond = scheduler.connectionChanged(2, inFlight: 0, streamsFree: 1, windowFree: 1, state: .ready)
        scheduler.connectionRemoved(77)
        #expect(!foreign && !large && first && !twice && !noApp && !beyond)
        let notAssigned = (scheduler.ended(slot: 1, now: 9), scheduler.withdrawn(slot: 1, now: 9))
        #expect(notAssigned == (0, false))
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 1, windowFree: 65_535, state: .ready)
        #expect(drain(&scheduler).map(\.slot) == [1])
        let whileAssigned = scheduler.enqueue(slot: 1, app: 0, priority: .lowPower, bytes: 1, now: 0)
        let removed = scheduler.remove(slot: 1)
        let isAssigned = scheduler.isAssigned(slot: 1)
        #expect(!whileAssigned && !removed && isAssigned)
    }

    @Test func endedNotificationReturnsItsAgeOnce() {
        var scheduler = scheduler()
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 2, windowFree: 65_535, state: .ready)
        scheduler.enqueue(slot: 4, app: 0, priority: .immediate, bytes: 1, now: 1000)
        #expect(drain(&scheduler, now: 1500).count == 1)
        let age = scheduler.ended(slot: 4, now: 4000)
        let again = scheduler.ended(slot: 4, now: 5000)
        let free = scheduler.enqueue(slot: 4, app: 0, priority: .immediate, bytes: 1, now: 6000)
        #expect(age == 3000 && again == 0 && free)
    }

    /// The schedulers of a loop share a table.
    @Test func slotBelongsToOneSchedulerOfASharedTable() {
        let table = NotificationTable(capacity: 10)
        var one = StreamScheduler(.init(connections: 1), notifications: table)
        do {
            var other = StreamScheduler(.init(connections: 1), notifications: table)
            other.enqueue(slot: 3, app: 0, priority: .immediate, bytes: 1, now: 0)
            let taken = one.enqueue(slot: 3, app: 0, priority: .immediate, bytes: 1, now: 0)
            let waits = (one.isWaiting(slot: 3), other.isWaiting(slot: 3))
            let removed = one.remove(slot: 3)
            #expect(!taken && !removed)
            #expect(waits == (false, true))
            other.connectionChanged(0, inFlight: 0, streamsFree: 1, windowFree: 65_535, state: .ready)
            #expect(drain(&other).map(\.slot) == [3])
            let ended = one.withdrawn(slot: 3, now: 0)
            #expect(!ended)
            other.enqueue(slot: 4, app: 0, priority: .immediate, bytes: 1, now: 0)
        }
        // The other scheduler's end releases its slots.
        for slot in UInt32(3)...4 {
            let free = one.enqueue(slot: slot, app: 0, priority: .immediate, bytes: 1, now: 0)
            #expect(free)
        }
    }
}

/// Takes assignments until there are none, at most `limit`.
func drain(
    _ scheduler: inout StreamScheduler, now: UInt64 = 0, limit: Int = .max
) -> [StreamScheduler.Assignment] {
    var all: [StreamScheduler.Assignment] = []
    while all.count < limit, let next = scheduler.nextAssignment(now: now) { all.append(next) }
    return all
}

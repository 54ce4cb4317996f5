import SluiceModel
import Testing

@testable import StreamScheduling

/// Tests on which connection a notification is placed.
@Suite struct StreamSchedulerPlacementTests {
    private func scheduler(_ connections: Int, run: Int, waiting: UInt32, bytes: Int = 1) -> StreamScheduler {
        var scheduler = StreamScheduler(
            .init(connections: connections, placementRun: run),
            notifications: NotificationTable(capacity: 10_000))
        for slot in 0..<waiting {
            scheduler.enqueue(slot: slot, app: 0, priority: .immediate, bytes: bytes, now: 0)
        }
        return scheduler
    }

    private func report(
        _ scheduler: inout StreamScheduler, _ connection: UInt32, inFlight: Int = 0, free: Int = 1000,
        window: Int = 1 << 30, _ state: StreamScheduler.ConnectionState = .ready
    ) {
        scheduler.connectionChanged(
            connection, inFlight: inFlight, streamsFree: free, windowFree: window, state: state)
    }

    private func connectionsOf(_ assignments: [StreamScheduler.Assignment]) -> [UInt32] {
        assignments.map(\.connection)
    }

    // MARK: Streams for the urgent

    /// A campaign of lower priority leaves the streams that are kept for priority 10.
    @Test func lowerPriorityLeavesKeptStreamsToUrgentNotifications() {
        var scheduler = StreamScheduler(
            .init(connections: 2, placementRun: 4, urgentPerMille: 50),
            notifications: NotificationTable(capacity: 1000))
        for slot in 0..<UInt32(300) {
            scheduler.enqueue(slot: slot, app: 0, priority: .powerAware, bytes: 1, now: 0)
        }
        for connection in UInt32(0)..<2 { report(&scheduler, connection, free: 100) }
        #expect(drain(&scheduler, limit: 1000).count == 190)
        for slot in UInt32(300)..<320 {
            scheduler.enqueue(slot: slot, app: 0, priority: .immediate, bytes: 1, now: 0)
        }
        let urgent = drain(&scheduler, limit: 1000)
        #expect(urgent.count == 10)
        #expect(urgent.allSatisfy { $0.slot >= 300 })
        let inFlight = (UInt32(0)..<2).map { scheduler.inFlight($0) }
        #expect(inFlight == [100, 100])
    }

    /// While urgent notifications wait, the floor's turns may use kept streams.
    @Test func floorTurnsUseKeptStreamsWhileUrgentOnesWait() {
        var scheduler = StreamScheduler(
            .init(connections: 1, floorPerMille: 500, placementRun: 4, urgentPerMille: 100),
            notifications: NotificationTable(capacity: 1000))
        report(&scheduler, 0, inFlight: 90, free: 10)
        for slot in 0..<UInt32(20) {
            let priority: Priority = slot < 10 ? .lowPower : .immediate
            scheduler.enqueue(slot: slot, app: 0, priority: priority, bytes: 1, now: 0)
        }
        let slots = drain(&scheduler, limit: 1000).map(\.slot)
        #expect(slots == [10, 0, 11, 1, 12, 2, 13, 3, 14, 4])
    }

    /// A floor turn whose body finds no window doesn't delay smaller urgent notifications. The turn isn't lost.
    @Test func floorTurnWithoutWindowIsMadeUpLater() {
        var scheduler = StreamScheduler(
            .init(connections: 1, floorPerMille: 250, placementRun: 4),
            notifications: NotificationTable(capacity: 1000))
        report(&scheduler, 0, window: 100)
        for slot in 0..<UInt32(40) {
            let isLow = slot < 20
            scheduler.enqueue(
                slot: slot, app: 0, priority: isLow ? .lowPower : .immediate, bytes: isLow ? 4000 : 10,
                now: 0)
        }
        #expect(drain(&scheduler, limit: 8).map(\.slot) == Array(20..<28))
        report(&scheduler, 0, inFlight: 8)
        // The floor gets a quarter of twelve turns.
        #expect(drain(&scheduler, limit: 4).map(\.slot) == [0, 1, 28, 2])
    }

    @Test func replacedNotificationWaitsInTheNewPriority() {
        var scheduler = StreamScheduler(
            .init(connections: 1, floorPerMille: 0, placementRun: 4),
            notifications: NotificationTable(capacity: 1000))
        for slot in 0..<UInt32(6) {
            scheduler.enqueue(
                slot: slot, app: 0, priority: slot < 3 ? .immediate : .powerAware, bytes: 1, now: 0)
        }
        for (slot, priority) in [(UInt32(0), Priority.powerAware), (3, .immediate), (4, .lowPower)] {
            let isReplaced = scheduler.replaced(slot: slot, priority: priority, bytes: 2, now: 1)
            #expect(isReplaced)
        }
        report(&scheduler, 0)
        #expect(drain(&scheduler, limit: 10).map(\.slot) == [1, 2, 3, 5, 0, 4])
        let problem = scheduler.checkInvariants()
        #expect(problem == nil)
    }

    /// A token connection begins with a single stream.
    @Test func singleStreamIsOpenToEveryPriority() {
        var scheduler = StreamScheduler(
            .init(connections: 1, urgentPerMille: 500), notifications: NotificationTable(capacity: 10))
        report(&scheduler, 0, free: 1)
        scheduler.enqueue(slot: 0, app: 0, priority: .lowPower, bytes: 1, now: 0)
        #expect(drain(&scheduler, limit: 10).count == 1)
    }

    // MARK: Runs

    @Test func placementRunStaysOnOneConnection() {
        var scheduler = scheduler(3, run: 4, waiting: 100)
        for connection in UInt32(0)..<3 { report(&scheduler, connection) }
        #expect(
            connectionsOf(drain(&scheduler, limit: 14)) == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0])
        let placeable = scheduler.placeableConnections
        let inFlight = (UInt32(0)..<3).map { scheduler.inFlight($0) }
        #expect(placeable == 3)
        #expect(inFlight == [6, 4, 4])
        // The run continues after answers on another connection, and ends with `endRun`.
        report(&scheduler, 1, inFlight: 3)
        #expect(connectionsOf(drain(&scheduler, limit: 1)) == [0])
        scheduler.endRun()
        scheduler.endRun()
        #expect(connectionsOf(drain(&scheduler, limit: 5)) == [1, 1, 1, 1, 2])
        let problem = scheduler.checkInvariants()
        #expect(problem == nil)
    }

    @Test func placementRunEndsWhenTheConnectionIsFull() {
        var scheduler = scheduler(3, run: 8, waiting: 100, bytes: 1000)
        report(&scheduler, 0, free: 3)
        report(&scheduler, 1, window: 7119)
        report(&scheduler, 2, inFlight: 50)
        // Connection 0 runs out of streams, connection 1 of window for the largest body. Connection 2 has both.
        #expect(connectionsOf(drain(&scheduler, limit: 8)) == [0, 0, 0, 1, 1, 2, 2, 2])
        report(&scheduler, 2, inFlight: 53, .draining)
        #expect(connectionsOf(drain(&scheduler, limit: 1)) == [1])
        report(&scheduler, 0, inFlight: 3, free: 9)
        #expect(connectionsOf(drain(&scheduler, limit: 2)) == [0, 0])
        scheduler.connectionRemoved(0)
        let placeable = scheduler.placeableConnections
        #expect(placeable == 1)
        let problem = scheduler.checkInvariants()
        #expect(problem == nil)
    }

    @Test func placementRunEndsWhenAnotherConnectionHasMuchLess() {
        var scheduler = scheduler(2, run: 4, waiting: 100)
        report(&scheduler, 0, inFlight: 20)
        report(&scheduler, 1, inFlight: 21)
        #expect(connectionsOf(drain(&scheduler, limit: 1)) == [0])
        report(&scheduler, 1, inFlight: 13)
        #expect(connectionsOf(drain(&scheduler, limit: 1)) == [0])
        // 22 in flight here, 13 there: more than twice a run apart.
        report(&scheduler, 1, inFlight: 13)
        #expect(connectionsOf(drain(&scheduler, limit: 4)) == [1, 1, 1, 1])
    }

    // MARK: Reserve

    @Test func reserveTakesOnlyWhatReadyConnectionsCannot() {
        var scheduler = scheduler(4, run: 2, waiting: 100)
        report(&scheduler, 0, inFlight: 90, free: 2)
        report(&scheduler, 1, inFlight: 91, free: 1)
        report(&scheduler, 2, free: 3, .reserve)
        report(&scheduler, 3, free: 100, .reserve)
        #expect(connectionsOf(drain(&scheduler, limit: 7)) == [0, 0, 1, 2, 2, 2, 3])
        // A ready connection has room again.
        report(&scheduler, 1, inFlight: 91, free: 1)
        #expect(connectionsOf(drain(&scheduler, limit: 2)) == [1, 3])
        report(&scheduler, 3, inFlight: 2, free: 98, .ready)
        report(&scheduler, 2, inFlight: 0, free: 98, .reserve)
        #expect(connectionsOf(drain(&scheduler, limit: 3)) == [3, 3, 3])
        let problem = scheduler.checkInvariants()
        #expect(problem == nil)
    }

    @Test func reserveWithLittleWindowTakesFittingNotifications() {
        var scheduler = scheduler(2, run: 2, waiting: 10, bytes: 2000)
        report(&scheduler, 0, window: 1999, .ready)
        report(&scheduler, 1, window: 4100, .reserve)
        #expect(connectionsOf(drain(&scheduler)) == [1, 1])
    }

    // MARK: Little window

    /// The windows of 299 connections are too small.
    @Test(arguments: [1, 79, 80, 81, 2000, 5039, 5040, 5041, 5119, 5120])
    func connectionWithEnoughWindowIsFoundAmongMany(bytes: Int) {
        var scheduler = scheduler(300, run: 16, waiting: 1, bytes: bytes)
        // Only the fitting connection is in its step of 80 bytes.
        let step = (bytes - 1) / 80
        for connection in UInt32(0)..<300 {
            report(&scheduler, connection, window: min(Int(connection) * 80 / 4, step * 80))
        }
        #expect(drain(&scheduler) == [])
        report(&scheduler, 137, window: bytes)
        #expect(connectionsOf(drain(&scheduler)) == [137])
        let problem = scheduler.checkInvariants()
        #expect(problem == nil)
    }

    @Test func searchAmongTooSmallWindowsIsSpreadOverCalls() {
        var scheduler = scheduler(40, run: 16, waiting: 1, bytes: 2000)
        for connection in UInt32(0)..<39 { report(&scheduler, connection, window: 1990) }
        report(&scheduler, 39, window: 2000)
        // All connections are in one step. Each call tries some connections, and later calls try others.
        let found = (0..<3).map { _ in connectionsOf(drain(&scheduler)) }
        #expect(found.flatMap(\.self) == [39])
    }
}

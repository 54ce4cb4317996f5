import SluiceModel
import Testing

@testable import StreamScheduling

/// Tests shares and limits of apps. Slots are numbered `app * 100 + index`.
@Suite struct StreamSchedulerAppTests {
    private static let second: UInt64 = 1_000_000_000

    /// Returns a scheduler with a single connection and room for all.
    private func scheduler(apps: Int = 8, floor: Int = 0) -> StreamScheduler {
        var scheduler = StreamScheduler(
            .init(connections: 1, apps: apps, floorPerMille: floor),
            notifications: NotificationTable(capacity: 100 * apps))
        room(&scheduler)
        return scheduler
    }

    private func room(_ scheduler: inout StreamScheduler, _ streams: Int = 100_000) {
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: streams, windowFree: 1 << 40, state: .ready)
    }

    private func fill(
        _ scheduler: inout StreamScheduler, app: UInt32, _ range: Range<UInt32>,
        _ priority: Priority = .immediate, now: UInt64 = 0
    ) {
        for index in range {
            scheduler.enqueue(slot: app * 100 + index, app: app, priority: priority, bytes: 1, now: now)
        }
    }

    private func appsOf(_ assignments: [StreamScheduler.Assignment]) -> [UInt32] {
        assignments.map { $0.slot / 100 }
    }

    // MARK: Shares

    @Test func equalAppsTakeTurns() {
        var scheduler = scheduler()
        for app in [3, 1, 2] as [UInt32] { fill(&scheduler, app: app, 0..<3) }
        #expect(drain(&scheduler).map(\.slot) == [300, 100, 200, 301, 101, 201, 302, 102, 202])
    }

    @Test func weightsSetTheLengthOfTurns() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 1, .init(weight: 3), now: 0)
        scheduler.setLimits(app: 2, .init(weight: 2), now: 0)
        for app in UInt32(0)...2 { fill(&scheduler, app: app, 0..<12) }
        #expect(appsOf(drain(&scheduler, limit: 12)) == [0, 1, 1, 1, 2, 2, 0, 1, 1, 1, 2, 2])
        // A smaller weight can end the current turn; a larger weight counts from the next turn.
        #expect(appsOf(drain(&scheduler, limit: 2)) == [0, 1])
        scheduler.setLimits(app: 1, .init(weight: 1), now: 0)
        scheduler.setLimits(app: 2, .init(weight: 1000), now: 0)
        #expect(appsOf(drain(&scheduler, limit: 6)) == [1, 2, 2, 2, 2, 2])
    }

    @Test func anAppIsAssignedOutOfTurn() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 1, .init(weight: 9), now: 0)
        fill(&scheduler, app: 1, 0..<3)
        fill(&scheduler, app: 2, 0..<2, .lowPower)
        #expect(appsOf(drain(&scheduler, limit: 1)) == [1])
        #expect(scheduler.eligibleApp { $0 == 2 } == 2 && scheduler.eligibleApp { $0 == 3 } == nil)
        #expect(scheduler.nextAssignment(ofApp: 2, now: 0)?.slot == 200)
        #expect(scheduler.nextAssignment(ofApp: 3, now: 0) == nil, "the app has nothing")
        scheduler.setPaused(app: 2, true)
        #expect(scheduler.eligibleApp { $0 == 2 } == nil)
        #expect(scheduler.nextAssignment(ofApp: 2, now: 0) == nil, "the app is paused")
        scheduler.setPaused(app: 2, false)
        #expect(appsOf(drain(&scheduler)) == [1, 1, 2])
    }

    /// The pace of the others goes on.
    @Test func pacedAppsWakeWhileAnotherIsAssigned() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 1, .init(ratePerSecond: 1), now: 0)
        fill(&scheduler, app: 1, 0..<3)
        #expect(drain(&scheduler).count == 1)
        #expect(scheduler.nextWake == Self.second)
        #expect(scheduler.nextAssignment(ofApp: 2, now: 2 * Self.second) == nil)
        #expect(scheduler.nextWake == nil && scheduler.eligibleApp { $0 == 1 } == 1)
    }

    @Test func anAppsTurnOutOfTurnEndsWithIt() {
        var scheduler = scheduler()
        for app in UInt32(1)...3 { fill(&scheduler, app: app, 0..<3) }
        #expect(scheduler.nextAssignment(ofApp: 3, now: 0)?.slot == 300)
        #expect(appsOf(drain(&scheduler)) == [1, 2, 3, 1, 2, 3, 1, 2])
    }

    @Test func aMaximumInFlightChangesAlone() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 1, .init(weight: 2, maximumInFlight: 5), now: 0)
        fill(&scheduler, app: 1, 0..<20)
        let exists = scheduler.setMaximumInFlight(app: 1, 2)
        #expect(exists)
        #expect(drain(&scheduler).count == 2)
        let isValid = scheduler.setMaximumInFlight(app: 1, 0)
        #expect(!isValid)
        scheduler.setMaximumInFlight(app: 1, .max)
        #expect(drain(&scheduler).count == 18)
    }

    @Test func returningAppDoesNotKeepItsUnusedTurn() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 0, .init(weight: 5), now: 0)
        fill(&scheduler, app: 0, 0..<2)
        fill(&scheduler, app: 1, 0..<9)
        // The app's turn ends with its last notification; the rest of the turn is lost.
        #expect(appsOf(drain(&scheduler, limit: 3)) == [0, 0, 1])
        fill(&scheduler, app: 0, 10..<20)
        #expect(appsOf(drain(&scheduler, limit: 8)) == [1, 0, 0, 0, 0, 0, 1, 0])
    }

    @Test func enqueueAtFrontOvertakesOnlyTheSameApp() {
        var scheduler = scheduler()
        fill(&scheduler, app: 0, 0..<2)
        fill(&scheduler, app: 1, 0..<2)
        scheduler.enqueue(slot: 150, app: 1, priority: .immediate, bytes: 1, now: 0, atFront: true)
        #expect(drain(&scheduler).map(\.slot) == [0, 150, 1, 100, 101])
    }

    @Test func eachPriorityClassHasItsOwnTurns() {
        var scheduler = scheduler()
        fill(&scheduler, app: 0, 0..<2, .immediate)
        fill(&scheduler, app: 0, 10..<13, .powerAware)
        fill(&scheduler, app: 1, 0..<2, .powerAware)
        fill(&scheduler, app: 2, 0..<1, .lowPower)
        #expect(drain(&scheduler).map(\.slot) == [0, 1, 10, 100, 11, 101, 12, 200])
    }

    // MARK: Concurrency

    @Test func cappedAppIsParkedUntilANotificationEnds() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 0, .init(maximumInFlight: 2), now: 0)
        fill(&scheduler, app: 0, 0..<5)
        fill(&scheduler, app: 0, 10..<12, .lowPower)
        fill(&scheduler, app: 1, 0..<3)
        #expect(drain(&scheduler).map(\.slot) == [0, 100, 1, 101, 102])
        let seen = (scheduler.blockedApps, scheduler.inFlight(app: 0), scheduler.depth(app: 0, .immediate))
        #expect(seen == (BlockedApps(capped: 1), 2, 3))
        let eligible = scheduler.hasEligible
        #expect(!eligible)
        scheduler.ended(slot: 0, now: 5)
        #expect(drain(&scheduler).map(\.slot) == [2])
        // A withdrawn notification frees its place as well.
        scheduler.withdrawn(slot: 2, now: 5)
        scheduler.enqueue(slot: 2, app: 0, priority: .immediate, bytes: 1, now: 5, atFront: true)
        #expect(drain(&scheduler).map(\.slot) == [2])
        scheduler.setLimits(app: 0, .init(maximumInFlight: 4), now: 0)
        #expect(drain(&scheduler).map(\.slot) == [3, 4])
        // A cap below the number in flight blocks until enough notifications have ended.
        scheduler.setLimits(app: 0, .init(maximumInFlight: 1), now: 0)
        for slot in [1, 2, 3] as [UInt32] {
            scheduler.ended(slot: slot, now: 5)
            #expect(drain(&scheduler) == [])
        }
        scheduler.ended(slot: 4, now: 5)
        #expect(drain(&scheduler).map(\.slot) == [10])
        scheduler.setLimits(app: 0, .init(), now: 0)
        #expect(drain(&scheduler).map(\.slot) == [11])
        let problem = scheduler.checkInvariants()
        #expect(problem == nil)
    }

    // MARK: Pace

    @Test func rateAllowsTheBurstAndThenOnePerInterval() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 0, .init(ratePerSecond: 10, burst: 3), now: 0)
        fill(&scheduler, app: 0, 0..<20)
        #expect(drain(&scheduler, now: 0).count == 3)
        let (wake, blocked) = (scheduler.nextWake, scheduler.blockedApps)
        #expect(wake == 100_000_000)
        #expect(blocked == BlockedApps(paced: 1))
        #expect(drain(&scheduler, now: 99_999_999) == [])
        #expect(drain(&scheduler, now: 100_000_000).map(\.slot) == [3])
        // The clock stands still, so no token is added.
        #expect(drain(&scheduler, now: 100_000_000) == [])
        // Two and a half intervals add two tokens; the half interval is kept.
        #expect(drain(&scheduler, now: 350_000_000).count == 2)
        let next = scheduler.nextWake
        #expect(next == 400_000_000)
        // A clock far ahead allows only the burst.
        #expect(drain(&scheduler, now: .max / 2).count == 3)
        // A clock set back only delays.
        #expect(drain(&scheduler, now: 10 * Self.second) == [])
        #expect(drain(&scheduler, now: .max - 1).count == 3)
        let problem = scheduler.checkInvariants()
        #expect(problem == nil)
    }

    @Test func pacedAppDoesNotDelayOtherApps() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 0, .init(ratePerSecond: 1), now: 0)
        fill(&scheduler, app: 0, 0..<5)
        fill(&scheduler, app: 1, 0..<3)
        #expect(drain(&scheduler).map(\.slot) == [0, 100, 101, 102])
        let none = scheduler.nextAge(.immediate, now: 7)
        let all = scheduler.oldestAge(.immediate, now: 7)
        #expect(none == nil && all == 7)
    }

    @Test func withdrawnNotificationReturnsItsToken() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 0, .init(ratePerSecond: 1), now: 0)
        fill(&scheduler, app: 0, 0..<3)
        #expect(drain(&scheduler, now: 5).map(\.slot) == [0])
        scheduler.withdrawn(slot: 0, now: 5)
        #expect(drain(&scheduler, now: 5).map(\.slot) == [1])
        #expect(drain(&scheduler, now: 6) == [])
        let problem = scheduler.checkInvariants()
        #expect(problem == nil)
    }

    @Test func returnedTokenMovesTheNextWakeForward() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 0, .init(ratePerSecond: 1, burst: 5), now: 0)
        fill(&scheduler, app: 0, 0..<10)
        #expect(drain(&scheduler).count == 5)
        scheduler.setLimits(app: 0, .init(ratePerSecond: 1, burst: 1), now: 0)
        let before = scheduler.nextWake
        scheduler.withdrawn(slot: 0, now: 0)
        let after = scheduler.nextWake
        #expect(before == 5 * Self.second && after == 4 * Self.second)
        #expect(drain(&scheduler, now: 4 * Self.second).map(\.slot) == [5])
    }

    @Test func appThatSpentAReturnedTokenWakesInOrder() {
        var scheduler = scheduler()
        for app in UInt32(0)..<2 { scheduler.setLimits(app: app, .init(ratePerSecond: 1), now: 0) }
        fill(&scheduler, app: 0, 0..<3)
        #expect(drain(&scheduler, now: 0).map(\.slot) == [0])
        fill(&scheduler, app: 1, 0..<2)
        #expect(drain(&scheduler, now: Self.second / 5).map(\.slot) == [100])
        scheduler.withdrawn(slot: 0, now: Self.second / 2)
        #expect(drain(&scheduler, now: Self.second / 2).map(\.slot) == [1])
        #expect(drain(&scheduler, now: 2 * Self.second).map(\.slot) == [101, 2])
    }

    @Test func changedRateKeepsSpentTokens() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 0, .init(ratePerSecond: 1, burst: 5), now: 0)
        fill(&scheduler, app: 0, 0..<50)
        #expect(drain(&scheduler, now: 0).count == 5)
        // The burst is spent, so the first notification follows after 100 ms.
        scheduler.setLimits(app: 0, .init(ratePerSecond: 10, burst: 5), now: 0)
        #expect(drain(&scheduler, now: 99_999_999) == [])
        #expect(drain(&scheduler, now: 100_000_000).count == 1)
        // With a smaller burst, tokens spent beyond it are refilled first.
        scheduler.setLimits(app: 0, .init(ratePerSecond: 10, burst: 2), now: 100_000_000)
        let wake = scheduler.nextWake
        #expect(wake == 500_000_000)
        scheduler.setLimits(app: 0, .init(), now: 100_000_000)
        #expect(drain(&scheduler, now: 100_000_000).count == 44)
        let (none, blocked) = (scheduler.nextWake, scheduler.blockedApps)
        #expect(none == nil)
        #expect(blocked == BlockedApps())
    }

    @Test func pacedAppsWakeInOrderOfTheirTokens() {
        var scheduler = scheduler()
        for (app, rate) in [(0, 1.0), (1, 4.0), (2, 2.0)] {
            scheduler.setLimits(app: UInt32(app), .init(ratePerSecond: rate), now: 0)
            fill(&scheduler, app: UInt32(app), 0..<2)
        }
        #expect(drain(&scheduler).map(\.slot) == [0, 100, 200])
        #expect(drain(&scheduler, now: Self.second).map(\.slot) == [101, 201, 1])
    }

    // MARK: Pause

    @Test func pausedAppWaitsUntilResumed() {
        var scheduler = scheduler()
        fill(&scheduler, app: 0, 0..<2)
        scheduler.setPaused(app: 0, true)
        scheduler.setPaused(app: 1, true)
        fill(&scheduler, app: 1, 0..<2)
        fill(&scheduler, app: 2, 0..<1)
        let blocked = scheduler.blockedApps
        #expect(blocked == BlockedApps(paused: 2))
        #expect(drain(&scheduler).map(\.slot) == [200])
        scheduler.setPaused(app: 1, false)
        scheduler.setPaused(app: 1, false)
        #expect(drain(&scheduler).map(\.slot) == [100, 101])
        scheduler.remove(slot: 0)
        scheduler.remove(slot: 1)
        let empty = scheduler.blockedApps
        #expect(empty == BlockedApps())
        let problem = scheduler.checkInvariants()
        #expect(problem == nil)
    }

    @Test func appIsParkedUntilEveryReasonEnds() {
        var scheduler = scheduler()
        scheduler.setLimits(app: 0, .init(ratePerSecond: 1, maximumInFlight: 1), now: 0)
        fill(&scheduler, app: 0, 0..<3)
        #expect(drain(&scheduler, now: 0).count == 1)
        scheduler.setPaused(app: 0, true)
        let blocked = scheduler.blockedApps
        #expect(blocked == BlockedApps(capped: 1, paced: 1, paused: 1))
        #expect(drain(&scheduler, now: Self.second) == [])
        scheduler.ended(slot: 0, now: Self.second)
        #expect(drain(&scheduler, now: Self.second) == [])
        scheduler.setPaused(app: 0, false)
        #expect(drain(&scheduler, now: Self.second).map(\.slot) == [1])
    }

    // MARK: Misuse and observation

    @Test func limitsOutOfRangeAreRefused() {
        var scheduler = scheduler(apps: 2)
        let wrong: [AppLimits] = [
            .init(weight: 0), .init(weight: 1001), .init(ratePerSecond: 0), .init(ratePerSecond: .nan),
            .init(ratePerSecond: -1), .init(ratePerSecond: .infinity), .init(ratePerSecond: 1, burst: 0),
            .init(maximumInFlight: 0),
        ]
        for limits in wrong {
            let accepted = scheduler.setLimits(app: 0, limits, now: 0)
            #expect(!accepted, "\(limits)")
        }
        let extremes: [AppLimits] = [
            .init(weight: 1000, ratePerSecond: 1e9, burst: 1_000_000_000, maximumInFlight: .max),
            .init(ratePerSecond: 1e-6, burst: 1_000_000_000), .init(ratePerSecond: 1e9),
        ]
        for limits in extremes {
            let accepted = scheduler.setLimits(app: 0, limits, now: .max)
            #expect(accepted, "\(limits)")
        }
        let unknown = (
            scheduler.setLimits(app: 2, .init(), now: 0), scheduler.setPaused(app: 2, true),
            scheduler.inFlight(app: 2), scheduler.depth(app: 2, .immediate)
        )
        #expect(unknown == (false, false, 0, 0))
    }

    @Test func agesAreReportedByAppAndClass() {
        var scheduler = scheduler()
        fill(&scheduler, app: 0, 0..<1, now: 500)
        fill(&scheduler, app: 1, 0..<1, now: 100)
        let class10 = scheduler.oldestAge(.immediate, now: 1000)
        let next = scheduler.nextAge(.immediate, now: 1000)
        let byApp = (0...2).map { scheduler.oldestAge(app: $0, .immediate, now: 1000) }
        let other = scheduler.oldestAge(.powerAware, now: 1000)
        #expect(class10 == 900 && next == 500 && other == nil)
        #expect(byApp == [500, 900, nil])
    }

    /// Tables grow with the used apps and keep their contents.
    @Test func thousandsOfPacedAppsKeepTheirOrder() {
        let apps: UInt32 = 5000
        var scheduler = StreamScheduler(
            .init(connections: 1, apps: Int(apps), floorPerMille: 0),
            notifications: NotificationTable(capacity: 2 * Int(apps)))
        room(&scheduler)
        for app in 0..<apps {
            scheduler.setLimits(app: app, .init(ratePerSecond: 1), now: 0)
            for slot in [app, app + apps] {
                scheduler.enqueue(slot: slot, app: app, priority: .immediate, bytes: 1, now: 0)
            }
        }
        #expect(drain(&scheduler).map(\.slot) == Array(0..<apps))
        let blocked = scheduler.blockedApps
        #expect(blocked == BlockedApps(paced: Int(apps)))
        #expect(drain(&scheduler, now: Self.second).map(\.slot) == Array(apps..<2 * apps))
        let problem = scheduler.checkInvariants()
        #expect(problem == nil)
    }
}

import SluiceModel
import Testing

@testable import DeliveryCore

/// Looks of a worker for presences that have expired.
@Suite struct ExpiredPresenceTests {
    private static let device = DeviceKey(high: 1, low: 1)
    /// Belongs to the second shard.
    private static let other = DeviceKey(high: 2, low: 1 << 32)

    /// Creates a worker with a partition whose first look is due: ten minutes after the assignment.
    private static func script() -> WorkerScript {
        let worker = WorkerScript(.local)
        worker.assign([0], offset: 5)
        worker.pass(601 * WorkerScript.second)
        return worker
    }

    private static func looks(_ actions: [WorkerAction]) -> [ExpirySchedule.Look] {
        actions.compactMap { if case .scanExpired(let look, partition: 0) = $0 { look } else { nil } }
    }

    @Test func assignedPartitionIsLookedThroughForExpiredPresences() {
        let worker = Self.script()
        let found = Self.looks(worker.tick())
        #expect(found.map(\.slot) == [0])
    }

    @Test func nextLookFollowsOnceAllShardsHaveTakenTheLast() throws {
        let worker = Self.script()
        let look = try #require(Self.looks(worker.tick()).first)
        let handed = worker.apply { machine, now in
            machine.foundExpired(look, [Self.device, Self.other], last: Self.other, isEnd: false, at: now)
        }
        #expect(
            handed == [
                .request(shard: 0, .expired(slot: 0, [Self.device])),
                .request(shard: 1, .expired(slot: 0, [Self.other])),
            ])
        worker.report(0, .expiredTaken(slot: 0))
        #expect(Self.looks(worker.passTicks()).isEmpty)
        worker.report(1, .expiredTaken(slot: 0))
        #expect(Self.looks(worker.passTicks()).map(\.after) == [Self.other])
    }
}

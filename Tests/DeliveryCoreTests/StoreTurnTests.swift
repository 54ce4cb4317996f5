import SluiceModel
import Testing

@testable import DeliveryCore

/// Loads that no record asks for, and room of jobs that the store has.
@Suite struct StoreTurnTests {
    @Test func expiredPresenceIsLoadedAndForgotten() throws {
        var bed = ShardMachineTests.Bed(.local)
        bed.take(.expired(slot: 0, [ShardMachineTests.device]))
        _ = bed.machine.askForLoads(at: bed.now.monotonicNanoseconds)
        #expect(bed.events() == [.load(ShardMachineTests.device, 0, withItems: true)])
        let loads = bed.machine.takeRequests().loads
        let load = try #require(loads.first)
        let counts = bed.machine.beginLoad(load, last: nil)
        #expect(counts)
        let presence = KnownPresence(
            device: ShardMachineTests.device, presence: .offline, learned: .none, partition: 0,
            expiryMilliseconds: bed.now.wallMilliseconds)
        let isForgotten = bed.machine.restore(presence, load, at: bed.now)
        #expect(isForgotten)
    }

    @Test func moreDueItemsMayComeOnceTheLineForLoadsIsShort() {
        var bed = ShardMachineTests.Bed(.local, loads: 1)
        bed.machine.found(ShardMachineTests.device, offset: 50, 0)
        let item = DueItem(due: 5, device: ShardMachineTests.device, offset: 50)
        bed.take(.due(slot: 0, [item], readThrough: 99))
        let early = bed.machine.takeReports()
        #expect(early.isEmpty)
        _ = bed.machine.askForLoads(at: bed.now.monotonicNanoseconds)
        let reports = bed.machine.takeReports()
        #expect(reports == [.dueTaken(slot: 0)])
    }

    /// The outcome of such a job doesn't count it off, because its offset is complete.
    @Test func replacedJobThatTheStoreHasLeavesItsRoom() {
        var bed = ShardMachineTests.Bed(.local)
        _ = bed.store(100)
        _ = bed.actions()
        let stored = bed.machine.takeProgress(holdsBack: false)
        #expect(stored?.completed.count == 1)
        let newer = bed.facts(101) {
            $0.notificationKey = 100
            $0.deliverAtMilliseconds = $0.createdMilliseconds + 3_600_000
        }
        guard case .replaced(0, let old) = bed.machine.admit(newer, at: bed.now) else {
            Issue.record("the push hasn't replaced the older push")
            return
        }
        #expect(old.isStored && old.isOffsetDone)
        let freed = bed.machine.takeProgress(holdsBack: false)?.freed
        #expect(freed == [0: 1])
    }

    /// The intake counts the room of a stored job until the job leaves memory.
    @Test func itemThatLeavesMemoryFreesItsRoom() {
        var bed = ShardMachineTests.Bed(.local)
        _ = bed.store(100)
        _ = bed.actions()
        let stored = bed.machine.takeProgress(holdsBack: false)
        #expect(stored?.freed.isEmpty == true)
        bed.now.wallMilliseconds += 1_000
        bed.now.monotonicNanoseconds += 1_000_000_000
        bed.machine.advance(to: bed.now)
        #expect(bed.actions() == [.evict(0)])
        let freed = bed.machine.takeProgress(holdsBack: false)?.freed
        #expect(freed == [0: 1])
    }
}

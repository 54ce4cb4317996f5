import SluiceModel
import Testing

@testable import DeliveryCore

/// Partitions that go away, and the room that their jobs take.
@Suite struct WorkerRevocationTests {
    private func abandonments(_ said: [WorkerAction]) -> [ShardRequest] {
        said.compactMap(\.request).filter { if case .abandon = $0 { true } else { false } }
    }

    @Test func aPartitionIsLostAndItsShardsAreToldThatItHasEnded() {
        let script = WorkerScript()
        script.assign([0, 1])
        let lost = script.tell { $0.revoked([1], isLost: true, at: $1) }
        #expect(lost.compactMap(\.request).contains(.end(slots: [1])))
    }

    @Test func aPartitionIsLostAndEachJobThatComesBackFreesRoomForOne() {
        let script = WorkerScript()
        script.assign([0])
        for offset in Int64(0)..<3 { _ = script.take(offset) }
        script.tell { $0.revoked([0], isLost: true, at: $1) }
        #expect(script.machine.gate.total.jobs == 3)
        script.report(1, .gaveBack(slot: 0))
        #expect(script.machine.gate.total.jobs == 2)
    }

    @Test func aRevocationWaitsForOneJobWhichComesBackAndTheCommitBeginsAtOnce() {
        let script = WorkerScript()
        script.assign([0])
        _ = script.take(0)
        script.tell { $0.revoked([0], isLost: false, at: $1) }
        let abandoned = script.reportAll { _ in .abandoned([SlotCount(slot: 0, count: 0)]) }
        #expect(abandoned.allSatisfy { $0.commit == nil }, "a job is in flight")
        let said = script.report(0, .gaveBack(slot: 0))
        #expect(said.compactMap(\.commit).map(\.set.kind) == [.revocation])
    }

    /// Changes for the changelog wait for a permit that never comes again once the partition has gone.
    @Test(arguments: [StoreMode.local, .changelog])
    func theMembershipIsInDoubtAndARevocationEndsWithoutItsCommit(mode: StoreMode) {
        let script = WorkerScript(mode)
        script.assign([0], offset: 0)
        _ = script.take(0)
        script.pass(30 * WorkerScript.second)
        script.tick()
        #expect(script.read { $0.isMembershipInDoubt })
        let revoked = script.tell { $0.revoked([0], isLost: false, at: $1) }
        #expect(abandonments(revoked) == [.abandon(slots: [0], isLost: false)])
        // The job's outcome never comes, and neither does an answer of the group.
        var said: [WorkerAction] = []
        for _ in 0..<2 {
            script.pass(10 * WorkerScript.second)
            said += script.tick()
        }
        #expect(said.contains(.unassign([0])))
        let expected: [ShardRequest] = mode == .changelog ? [.abandon(slots: [0], isLost: true)] : []
        #expect(abandonments(said) == expected)
    }
}

import SluiceModel
import Testing

@testable import DeliveryCore

/// Partitions that are revoked or lost, and the room of their jobs.
@Suite struct WorkerRevocationTests {
    private func abandonments(_ emitted: [WorkerAction]) -> [ShardRequest] {
        emitted.compactMap(\.request).filter { if case .abandon = $0 { true } else { false } }
    }

    @Test func lostPartitionEndsOnEveryShard() {
        let script = WorkerScript()
        script.assign([0, 1])
        let lost = script.apply { $0.revoked([1], isLost: true, at: $1) }
        #expect(lost.compactMap(\.request).contains(.end(slots: [1])))
    }

    @Test func returnedJobOfLostPartitionFreesRoom() {
        let script = WorkerScript()
        script.assign([0])
        for offset in Int64(0)..<3 { _ = script.take(offset) }
        script.apply { $0.revoked([0], isLost: true, at: $1) }
        #expect(script.machine.gate.total.jobs == 3)
        script.report(1, .gaveBack(slot: 0))
        #expect(script.machine.gate.total.jobs == 2)
    }

    @Test func outcomeOfALostPartitionFreesTheRoomOfItsJobAlone() {
        let script = WorkerScript()
        script.assign([0])
        for offset in Int64(0)..<4 { _ = script.take(offset) }
        script.apply { $0.revoked([0], isLost: true, at: $1) }
        func place(_ offset: Int64) -> OutcomePlace {
            OutcomePlace(RecordPlace(partitionSlot: 0, offset: offset), isOffsetDone: false)
        }
        script.apply { machine, now in
            _ = machine.lost(
                place(0), KafkaFault("away", .retriable), topic: "outcomes",
                form: ProducedForm(kind: .outcome, cuts: 1, bytes: 300), at: now)
        }
        #expect(script.machine.gate.total.jobs == 3)
        script.report(
            0, .neverFits(place(1), topic: "letters", KafkaFault("too large", [.ofRecord, .lasting])))
        #expect(script.machine.gate.total.jobs == 2)
    }

    @Test func revocationCommitsAtOnceWhenItsLastJobReturns() {
        let script = WorkerScript()
        script.assign([0])
        _ = script.take(0)
        script.apply { $0.revoked([0], isLost: false, at: $1) }
        let abandoned = script.reportAll { _ in .abandoned(SlotCount(slot: 0, count: 0)) }
        #expect(abandoned.allSatisfy { $0.commit == nil }, "a job is in flight")
        let emitted = script.report(0, .gaveBack(slot: 0))
        #expect(emitted.compactMap(\.commit).map(\.set.kind) == [.revocation])
    }

    /// Changes for the changelog wait for a permit, which never arrives after the partition has gone.
    @Test(arguments: [StoreMode.local, .changelog])
    func revocationEndsWithoutCommitWhileMembershipIsDoubtful(mode: StoreMode) {
        let script = WorkerScript(mode)
        script.assign([0], offset: 0)
        _ = script.take(0)
        script.pass(30 * WorkerScript.second)
        script.tick()
        #expect(script.read { $0.isMembershipInDoubt })
        let revoked = script.apply { $0.revoked([0], isLost: false, at: $1) }
        #expect(abandonments(revoked) == [.abandon(slots: [0], isLost: false)])
        // The job's outcome never arrives, and neither does the group's answer.
        var emitted: [WorkerAction] = []
        for _ in 0..<2 {
            script.pass(10 * WorkerScript.second)
            emitted += script.tick()
        }
        #expect(emitted.contains(.unassign([0])))
        let expected: [ShardRequest] = mode == .changelog ? [.abandon(slots: [0], isLost: true)] : []
        #expect(abandonments(emitted) == expected)
    }
}

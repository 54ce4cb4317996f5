import Testing

@testable import HTTP2

/// Replacement of connections because their credential changes.
@Suite struct PoolRenewalTests {
    private let ms: UInt64 = 1_000_000

    /// A machine with two open connections.
    private func machine() -> PoolStateMachine {
        var limits = PoolLimits()
        limits.minimum = 2
        limits.maximum = 4
        limits.openInterval = 0
        var machine = PoolStateMachine(limits, seed: 1)
        machine.maintain(now: 0)
        while let number = machine.takeOpening() { machine.opened(number, now: 0) }
        _ = machine.take()
        return machine
    }

    @Test func connectionsServeUntilTheirSuccessorsAreOpen() {
        var machine = machine()
        machine.renew(generation: 1, atOnce: false, now: 1000 * ms)
        #expect(
            machine.take() == [
                .changed(.rotates(connection: 0, .renewal)), .changed(.rotates(connection: 1, .renewal)),
                .open(2), .open(3),
            ])
        machine.opened(2, now: 1001 * ms)
        #expect(machine.take() == [.report(2), .drain(0)])
        machine.opened(3, now: 1002 * ms)
        #expect(machine.take() == [.report(3), .drain(1)])
        #expect(machine.members[2].generation == 1)
        machine.ended(0, .ours, now: 1003 * ms)
        machine.ended(1, .ours, now: 1003 * ms)
        #expect(machine.failures == 0)
        #expect(machine.take() == [])
    }

    @Test func connectionsServeOnWhileNoSuccessorOpens() {
        var machine = machine()
        machine.answered(0)
        machine.renew(generation: 1, atOnce: false, now: 1000 * ms)
        _ = machine.take()
        for attempt in UInt64(0)..<8 {
            machine.ended(2, .failed, now: (1000 + attempt) * ms)
            machine.ended(3, .failed, now: (1000 + attempt) * ms)
            machine.maintain(now: (60_000 * attempt) * ms)
            while machine.takeOpening() != nil {}
        }
        #expect(machine.count(.retiring) == 2)
        #expect(machine.circuit == .closed)
    }

    @Test func refusedCredentialTakesNoFurtherRequest() {
        var machine = machine()
        machine.renew(generation: 1, atOnce: true, now: 1000 * ms)
        #expect(
            machine.take() == [
                .changed(.rotates(connection: 0, .renewal)), .drain(0),
                .changed(.rotates(connection: 1, .renewal)), .drain(1), .open(2), .open(3),
            ])
        #expect(machine.failures == 0)
    }

    /// The connections of the generation in use stay.
    @Test func refusedEarlierGenerationTakesNoFurtherRequest() {
        var machine = machine()
        machine.renew(generation: 1, atOnce: false, now: 1000 * ms)
        machine.opened(2, now: 1001 * ms)
        #expect(machine.count(.retiring) == 1)
        machine.drain(generation: 0, now: 1002 * ms)
        #expect(machine.count(.retiring) == 0)
        #expect(machine.members[2].phase == .active)
        #expect(machine.failures == 0)
    }

    @Test func undoneRenewalKeepsTheConnectionsBefore() {
        var machine = machine()
        machine.renew(generation: 1, atOnce: false, now: 1000 * ms)
        machine.opened(2, now: 1001 * ms)
        _ = machine.take()
        machine.renew(generation: 0, atOnce: true, now: 1002 * ms)
        #expect(machine.members[1].phase == .active)
        #expect(machine.members[2].phase == .draining)
        // The opening with the refused credential is of no use either.
        machine.opened(3, now: 1003 * ms)
        #expect(machine.members[3].phase == .draining)
    }

    @Test func connectionThatOpensAfterARenewalIsReplaced() {
        var limits = PoolLimits()
        limits.minimum = 1
        limits.openInterval = 0
        var machine = PoolStateMachine(limits, seed: 1)
        machine.maintain(now: 0)
        #expect(machine.take() == [.open(0)])
        machine.renew(generation: 1, atOnce: false, now: 1 * ms)
        machine.opened(0, now: 2 * ms)
        #expect(machine.take() == [.drain(0), .open(1)])
        #expect(machine.members[1].generation == 1)
    }

    @Test func youngConnectionsAreReplacedAndOthersStay() {
        var machine = machine()
        machine.answered(1)
        machine.replaceNow(1, now: 500_000 * ms)
        _ = machine.take()
        machine.opened(2, now: 500_001 * ms)
        machine.ended(1, .ours, now: 500_002 * ms)
        _ = machine.take()
        machine.renewYoung(generation: 0, age: 1_200_000 * ms, now: 1_200_001 * ms)
        #expect(
            machine.take() == [.changed(.rotates(connection: 2, .renewal)), .drain(2), .open(1)])
        #expect(machine.members[0].phase == .active)
    }

    @Test func youngConnectionsStayWhileNoSuccessorMayBeOpened() {
        var machine = machine()
        machine.notBefore = 70_000 * ms
        machine.renewYoung(generation: 0, age: 1_200_000 * ms, now: 60_000 * ms)
        #expect(machine.take() == [])
        machine.renewYoung(generation: 3, age: 1_200_000 * ms, now: 80_000 * ms)
        #expect(machine.take() == [])
    }

    @Test func failedOpeningWithAReplacedCredentialDelaysNoOther() {
        var limits = PoolLimits()
        limits.minimum = 1
        limits.openInterval = 0
        var machine = PoolStateMachine(limits, seed: 1)
        machine.maintain(now: 0)
        _ = machine.take()
        machine.renew(generation: 1, atOnce: false, now: 1 * ms)
        machine.ended(0, .settings, now: 2 * ms)
        #expect(machine.failures == 0)
        #expect(machine.take() == [.open(0)])
    }

    @Test func generationIsProvenByAnAcceptedAnswer() {
        var machine = machine()
        machine.renew(generation: 1, atOnce: false, now: 1000 * ms)
        #expect(!machine.isGenerationProven)
        machine.opened(2, now: 1001 * ms)
        machine.answered(0)
        machine.answered(2, isAccepted: false)
        #expect(!machine.isGenerationProven)
        machine.answered(2)
        #expect(machine.isGenerationProven)
        machine.renew(generation: 0, atOnce: true, now: 1002 * ms)
        #expect(machine.isGenerationProven)
    }
}

import DeliveryCore
import Testing

@Suite struct IntakeGateTests {
    private static let second: UInt64 = 1_000_000_000

    private func gate(
        jobs: Int = 100, bytes: Int = 1 << 30, share: Double = 0.5, partitions: Int = 2
    ) -> IntakeGate {
        var gate = IntakeGate(limits: .init(jobs: jobs, bytes: bytes, partitionShare: share), now: 0)
        for partition in 0..<partitions { gate.add(partition) }
        return gate
    }

    private func take(_ gate: inout IntakeGate, _ partition: Int, _ offsets: Range<Int64>, bytes: Int = 10) {
        for offset in offsets { gate.admit(partition, offset: offset, bytes: bytes) }
    }

    private func finish(_ gate: inout IntakeGate, _ partition: Int, _ offsets: Range<Int64>, bytes: Int = 10)
    {
        for offset in offsets { gate.finish(partition, offset: offset, bytes: bytes) }
    }

    private func drain(_ gate: inout IntakeGate) -> [IntakeGate.Action] {
        var actions: [IntakeGate.Action] = []
        while let action = gate.nextAction() { actions.append(action) }
        return actions
    }

    @Test func gateIsNearItsLimitAtThreeQuartersOfJobsOrBytes() {
        var gate = gate(jobs: 100, bytes: 4_000)
        func state(_ gate: borrowing IntakeGate) -> [Int] { [gate.isNearLimit ? 1 : 0, gate.roomForJobs] }
        take(&gate, 0, 0..<74)
        let below = state(gate)
        #expect(below == [0, 100])
        take(&gate, 1, 0..<1)
        let near = state(gate)
        #expect(near == [1, 100])
        finish(&gate, 0, 0..<74)
        finish(&gate, 1, 0..<1)
        gate.bytesHeld = 3_000
        let held = state(gate)
        #expect(held == [1, 100], "bytes that are held count, and say nothing about the size of jobs")
        take(&gate, 0, 100..<105, bytes: 400)
        let large = state(gate)
        #expect(large == [1, 10])
    }

    /// Between half and three quarters of its limit a gate that is paused isn't near the limit, and doesn't resume.
    @Test func gateWantsRoomWhileItIsPaused() {
        var gate = gate(share: 1)
        func state(_ gate: borrowing IntakeGate) -> [Int] {
            [gate.wantsRoom ? 1 : 0, gate.jobsToKeep, gate.roomForJobs]
        }
        take(&gate, 0, 0..<100)
        #expect(gate.room(atMost: 64, at: 0) == 0)
        let near = state(gate)
        #expect(near == [1, 37, 100])
        gate.advance(to: Self.second / 2)
        finish(&gate, 0, 0..<40)
        let paused = state(gate)
        #expect(paused == [1, 37, 100])
        finish(&gate, 0, 40..<50)
        let resumes = gate.settle(at: Self.second)
        #expect(resumes)
        let open = state(gate)
        #expect(open == [0, 37, 100])
    }

    @Test func gateWantsRoomWhileAPartitionIsPausedForItsShare() {
        var gate = gate()
        func state(_ gate: borrowing IntakeGate) -> [Int] { [gate.wantsRoom ? 1 : 0, gate.jobsToKeep] }
        take(&gate, 0, 0..<60)
        take(&gate, 1, 0..<1)
        let open = state(gate)
        #expect(open == [0, 37])
        gate.advance(to: 2 * Self.second)
        gate.advance(to: 4 * Self.second)
        #expect(gate.reasons(0) == .share)
        let paused = state(gate)
        #expect(paused == [1, 18])
        finish(&gate, 0, 0..<35)
        #expect(gate.reasons(0) == [])
        let resumed = state(gate)
        #expect(resumed == [0, 37])
    }

    @Test func roomIsTheLimitMinusHeldJobs() {
        var gate = gate()
        #expect(gate.room(atMost: 64, at: 0) == 64)
        take(&gate, 0, 0..<90)
        #expect(gate.room(atMost: 64, at: 0) == 10)
        take(&gate, 1, 0..<10)
        #expect(gate.room(atMost: 64, at: 0) == 0)
        finish(&gate, 1, 3..<4)
        let resumes = gate.settle(at: 0)
        #expect(resumes)
        #expect(gate.room(atMost: 64, at: 0) == 1)
        #expect(drain(&gate).isEmpty)
    }

    /// A share is at least one job.
    @Test func idlePartitionIsNotPausedForItsShare() {
        var gate = gate(jobs: 1)
        take(&gate, 0, 0..<1)
        for (time, reasons) in [
            (1, [IntakeGate.Reason.share, []]), (3, [[.share, .limit], .limit]),
        ] {
            _ = gate.room(atMost: 1, at: UInt64(time - 1) * Self.second)
            gate.advance(to: UInt64(time) * Self.second)
            #expect([gate.reasons(0), gate.reasons(1)] == reasons)
        }
    }

    /// Released jobs are known by number only. If more were counted as old than are left, an empty partition could be
    /// paused for its share. Nothing would resume that partition.
    @Test func releasedJobsAreNotCountedAsOld() {
        var gate = gate(jobs: 10)
        var now: UInt64 = 0
        let turn = { (gate: inout IntakeGate) in
            now += 60 * Self.second
            gate.advance(to: now)
        }
        for round in 0..<20 as Range<Int64> {
            let first = round * 10
            take(&gate, 0, first..<first + 5)
            turn(&gate)
            turn(&gate)
            take(&gate, 0, first + 5..<first + 10)
            turn(&gate)
            // Releases the younger jobs, which the gate takes for the older ones.
            gate.release(0, jobs: 5)
            finish(&gate, 0, first..<first + 5)
            #expect(gate.load(0).jobs == 0)
            take(&gate, 1, round..<round + 1)
            turn(&gate)
            turn(&gate)
            finish(&gate, 1, round..<round + 1)
            #expect(gate.reasons(0).isEmpty)
        }
    }

    @Test func stallAtTheLimitPausesAllUntilHalfIsFree() {
        var gate = gate(share: 1)
        take(&gate, 0, 0..<80)
        take(&gate, 1, 0..<20)
        #expect(gate.room(atMost: 64, at: 7) == 0)
        gate.advance(to: Self.second / 2 + 6)
        #expect(drain(&gate).isEmpty)
        gate.advance(to: Self.second / 2 + 7)
        #expect(drain(&gate) == [.pause(0, .limit), .pause(1, .limit)])
        #expect(gate.room(atMost: 64, at: Self.second) == 1)
        finish(&gate, 0, 0..<49)
        let early = gate.settle(at: Self.second)
        #expect(!early)
        finish(&gate, 1, 0..<1)
        let resumes = gate.settle(at: Self.second)
        #expect(resumes)
        #expect(drain(&gate) == [.resume(0), .resume(1)])
    }

    @Test func byteLimitClosesTheRoom() {
        var gate = gate(bytes: 1000, share: 1)
        take(&gate, 0, 0..<3, bytes: 400)
        #expect(gate.room(atMost: 64, at: 0) == 0)
        finish(&gate, 0, 0..<1, bytes: 400)
        gate.settle(at: 1)
        #expect(gate.room(atMost: 64, at: 1) == 64)
        gate.bytesHeld = 1000
        #expect(gate.room(atMost: 64, at: 2) == 0)
    }

    @Test func slowPartitionIsPausedAloneWhileOthersWork() {
        var gate = gate()
        take(&gate, 0, 0..<60)
        gate.advance(to: 2 * Self.second)
        // Jobs that finish quickly count as work.
        take(&gate, 1, 0..<1)
        finish(&gate, 1, 0..<1)
        finish(&gate, 0, 0..<5)
        #expect(drain(&gate).isEmpty)
        gate.advance(to: 4 * Self.second)
        #expect(drain(&gate) == [.pause(0, .share)])
        #expect(gate.room(atMost: 64, at: 4 * Self.second) == 45)
        finish(&gate, 0, 5..<34)
        #expect(drain(&gate).isEmpty)
        finish(&gate, 0, 34..<35)
        #expect(drain(&gate) == [.resume(0)])
    }

    @Test func fastPartitionMayTakeAllRoom() {
        var gate = gate()
        take(&gate, 1, 0..<1)
        for round in Int64(0)..<20 {
            take(&gate, 0, round * 90..<round * 90 + 90)
            gate.advance(to: UInt64(round) * Self.second)
            finish(&gate, 0, round * 90..<round * 90 + 90)
        }
        #expect(drain(&gate).isEmpty)
    }

    @Test func onlyBusyPartitionMayTakeAllRoom() {
        var gate = gate()
        take(&gate, 0, 0..<90)
        for time in UInt64(1)...20 { gate.advance(to: time * Self.second) }
        #expect(drain(&gate).isEmpty)
    }

    @Test func partitionHoldingAllRoomIsPausedBeforeTheOthers() {
        var gate = gate()
        take(&gate, 0, 0..<100)
        #expect(gate.room(atMost: 64, at: 0) == 0)
        gate.advance(to: Self.second / 2)
        #expect(drain(&gate) == [.pause(0, .share)])
        gate.advance(to: Self.second - 1)
        #expect(drain(&gate).isEmpty)
        gate.advance(to: Self.second)
        #expect(drain(&gate) == [.pause(1, .limit)])
        #expect(gate.reasons(0) == [.share, .limit])
        finish(&gate, 0, 0..<5)
        let early = gate.settle(at: Self.second)
        #expect(!early)
        finish(&gate, 0, 5..<6)
        let resumes = gate.settle(at: Self.second)
        #expect(resumes)
        #expect(drain(&gate) == [.resume(1)])
        #expect(gate.room(atMost: 64, at: Self.second) == 6)
        finish(&gate, 0, 6..<75)
        #expect(drain(&gate) == [.resume(0)])
    }

    @Test func fullWindowPausesItsPartitionAlone() {
        var gate = gate()
        gate.window(1, isFull: true, hasRoom: false)
        gate.window(1, isFull: true, hasRoom: false)
        gate.window(1, isFull: false, hasRoom: false)
        #expect(drain(&gate) == [.pause(1, .window)])
        gate.window(0, isFull: false, hasRoom: true)
        gate.window(1, isFull: false, hasRoom: true)
        #expect(drain(&gate) == [.resume(1)])
    }

    @Test func partitionPausedForTwoReasonsIsPausedOnce() {
        var gate = gate(share: 1)
        gate.window(1, isFull: true, hasRoom: false)
        take(&gate, 0, 0..<100)
        _ = gate.room(atMost: 1, at: 0)
        gate.advance(to: Self.second)
        #expect(drain(&gate) == [.pause(1, .window), .pause(0, .limit)])
        gate.window(1, isFull: false, hasRoom: true)
        #expect(drain(&gate).isEmpty)
        finish(&gate, 0, 0..<100)
        gate.settle(at: Self.second)
        #expect(drain(&gate) == [.resume(0), .resume(1)])
    }

    @Test func orphanedJobsTakeRoomUntilTheyFinish() {
        var gate = gate(share: 1)
        take(&gate, 0, 0..<60)
        take(&gate, 1, 0..<40)
        _ = gate.room(atMost: 1, at: 0)
        gate.advance(to: Self.second)
        _ = drain(&gate)
        gate.revoke(0)
        gate.returnJobs(0, jobs: 15)
        let wasPaused = gate.remove(0)
        #expect(wasPaused)
        #expect(gate.orphans == .init(jobs: 45, bytes: 450))
        gate.add(0)
        #expect(drain(&gate) == [.pause(0, .limit)])
        gate.finishOrphans(35)
        gate.settle(at: Self.second)
        #expect(drain(&gate) == [.resume(0), .resume(1)])
        gate.finishOrphans(10)
        #expect(gate.orphans == .init())
        #expect(gate.total == gate.load(1))
    }

    @Test func lastPartitionIsNotLimitedToItsShare() {
        var gate = gate()
        take(&gate, 0, 0..<60)
        take(&gate, 1, 0..<1)
        gate.advance(to: 2 * Self.second)
        gate.advance(to: 4 * Self.second)
        #expect(drain(&gate) == [.pause(0, .share)])
        gate.revoke(1)
        #expect(drain(&gate) == [.resume(0)])
    }

    @Test func batchMayTakeTheBytesThatAreLeft() {
        var gate = gate(bytes: 10_000)
        #expect(gate.bytesLeft == 10_000)
        take(&gate, 0, 0..<3, bytes: 2_500)
        #expect(gate.bytesLeft == 2_500)
        gate.bytesHeld = 9_000
        #expect(gate.bytesLeft == 1_000)
        gate.bytesHeld = 11_000
        #expect(gate.bytesLeft == 0)
    }

    @Test func tooMuchFetchedAheadPausesAllAtOnce() {
        var gate = gate()
        gate.polled(2, bytes: 1_000_000)
        gate.fetchedAhead(gate.limits.bytesAhead / 500_000)
        #expect(gate.room(atMost: 64, at: 0) > 1)
        gate.fetchedAhead(gate.limits.bytesAhead / 500_000 + 1)
        gate.advance(to: 1)
        #expect(drain(&gate) == [.pause(0, .limit), .pause(1, .limit)])
        #expect(gate.room(atMost: 64, at: 1) == 1)
        let early = gate.settle(at: 2)
        #expect(!early)
        gate.fetchedAhead(0)
        let resumes = gate.settle(at: 3)
        #expect(resumes)
        #expect(drain(&gate) == [.resume(0), .resume(1)])
    }
}

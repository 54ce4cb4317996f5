import SluiceModel
import Testing

@testable import DeliveryCore

/// Commits that the client holds back, because a commit of an earlier generation would cost the worker its partitions.
@Suite struct CommitHoldTests {
    private func finished(_ mode: StoreMode = .none) -> WorkerScript {
        let script = WorkerScript(mode)
        script.assign([0], offset: 3)
        _ = script.take(3)
        script.deliver(3)
        return script
    }

    @Test func heldCommitIsRepeatedUntilItIsSent() throws {
        let script = finished()
        script.pass(WorkerScript.second)
        let first = try #require(script.tick().compactMap(\.commit).first)
        script.apply { $0.commitHeld(first.ticket, at: $1) }
        // A hold is no failure.
        #expect(script.read { $0.counters.commitErrors } == 0)
        let second = try #require(script.passTicks().compactMap(\.commit).first)
        #expect(second.ticket != first.ticket && second.set == first.set.requested(at: second.set))
        script.apply { $0.committed(second.ticket, fault: nil, at: $1) }
        #expect(script.passTicks().allSatisfy { $0.commit == nil })
    }

    /// The partition is given back only when its last offset is committed.
    @Test func revocationWaitsForItsHeldCommit() throws {
        let script = finished()
        script.apply { $0.revoked([0], isLost: false, at: $1) }
        let first = try #require(
            script.reportAll { _ in .abandoned(SlotCount(slot: 0, count: 0)) }.compactMap(\.commit).first)
        #expect(first.set.kind == .revocation)
        let held = script.apply { $0.commitHeld(first.ticket, at: $1) }
        #expect(!held.contains { if case .unassign = $0 { true } else { false } })
        let again = try #require(script.passTicks(2).compactMap(\.commit).first)
        #expect(again.set.kind == .revocation && again.set.parts.map(\.point.offset) == [4])
        let done = script.apply { $0.committed(again.ticket, fault: nil, at: $1) }
        #expect(done.contains { if case .unassign([0]) = $0 { true } else { false } })
    }

    /// The group waits for a revocation, and for no other commit.
    @Test func revocationIsCommittedBeforeTheOtherPartitions() throws {
        let script = WorkerScript()
        script.assign([0, 1], offset: 3)
        _ = script.take(3)
        _ = script.take(3, partition: 1)
        script.deliver(3)
        script.apply { $0.revoked([0], isLost: false, at: $1) }
        let first = try #require(
            script.reportAll { _ in .abandoned(SlotCount(slot: 0, count: 0)) }.compactMap(\.commit).first)
        script.apply { $0.commitHeld(first.ticket, at: $1) }
        script.deliver(3, slot: 1)
        script.pass(WorkerScript.second)
        #expect(script.tick().compactMap(\.commit).first?.set.kind == .revocation)
    }

    /// Half of the window is finished during a commit.
    @Test func acceptedCommitIsFollowedAtOnceByOneThatIsDue() throws {
        let script = WorkerScript()
        script.assign([0], offset: 0)
        for offset in Int64(0)..<48 { _ = script.take(offset) }
        script.pass(WorkerScript.second)
        for offset in Int64(0)..<16 { script.deliver(offset) }
        script.apply { $0.countPushes(ended: 16, records: 0, unreported: 0, at: $1) }
        let first = try #require((script.actions + script.passTicks()).compactMap(\.commit).last)
        for offset in Int64(16)..<48 { script.deliver(offset) }
        script.apply { $0.countPushes(ended: 16, records: 0, unreported: 0, at: $1) }
        let answered = script.apply { $0.committed(first.ticket, fault: nil, at: $1) }
        #expect(answered.compactMap(\.commit).first?.set.parts.map(\.point.offset) == [48])
    }

    /// The log says that jobs are repeated, also when the group never lets the commit pass.
    @Test func revocationThatEndsWithoutItsCommitIsNoted() {
        let script = finished()
        script.apply { $0.revoked([0], isLost: false, at: $1) }
        var emitted = script.reportAll { _ in .abandoned(SlotCount(slot: 0, count: 0)) }
        for _ in 0..<200 where !emitted.contains(.unassign([0])) {
            if let ticket = emitted.compactMap(\.commit).last?.ticket {
                script.apply { $0.commitHeld(ticket, at: $1) }
            }
            emitted = script.passTicks(1)
        }
        #expect(emitted.contains(.unassign([0])) && emitted.contains(.note(.lastCommitFailed)))
    }

    /// Half of the window is finished, so that a commit is due at once.
    @Test(arguments: [false, true], [KafkaFault?.none, KafkaFault("away", .retriable)])
    func commitThatIsNotTakenIsNotRepeatedAtOnce(isDraining: Bool, fault: KafkaFault?) throws {
        let script = WorkerScript(.none)
        script.assign([0], offset: 3)
        _ = script.take(16)
        if isDraining { script.apply { $0.stop(at: $1) } }
        script.pass(WorkerScript.second)
        for offset in 3..<19 { script.deliver(Int64(offset)) }
        script.apply { $0.countPushes(ended: 16, records: 0, unreported: 0, at: $1) }
        var commit = try #require((script.actions + script.passTicks()).compactMap(\.commit).last)
        for _ in 0..<3 {
            let answered = script.apply {
                if let fault {
                    $0.committed(commit.ticket, fault: fault, at: $1)
                } else {
                    $0.commitHeld(commit.ticket, at: $1)
                }
            }
            #expect(answered.allSatisfy { $0.commit == nil })
            commit = try #require(script.passTicks().compactMap(\.commit).last)
        }
    }

    /// A disk that fails gets no syncs one after the other.
    @Test func failedSyncIsNotRepeatedAtOnce() {
        let script = WorkerScript(.local)
        script.assign([0], offset: 0)
        for offset in 0..<16 { _ = script.take(Int64(offset)) }
        script.pass(WorkerScript.second)
        for offset in 0..<16 { script.deliver(Int64(offset)) }
        script.apply { $0.countPushes(ended: 16, records: 0, unreported: 0, at: $1) }
        for _ in 0..<3 {
            script.passTicks()
            #expect(script.flushAll() == [.sync])
            let failed = script.apply { $0.synced(isDone: false, at: $1) }
            #expect(!failed.compactMap(\.request).contains(.flush))
        }
    }

    /// The end of a worker waits for the rebalance, longer than for an answer of Kafka, while the drain has time.
    @Test func lastCommitWaitsForTheRebalance() throws {
        let script = finished()
        script.apply { $0.stop(at: $1) }
        script.reportAll { _ in .drained(0) }
        script.reportAll { _ in .settledAll }
        script.reportAll { shard in
            .finished(
                ShardEnding(
                    flush: ShardFlush(epoch: ChangeEpoch(shard: UInt16(shard), epoch: 0)), produced: 0,
                    changesLeft: 0, isTorn: false))
        }
        var last = try #require(script.polled().compactMap(\.commit).first)
        #expect(last.set.kind == .last)
        for _ in 0..<50 {
            script.apply { $0.commitHeld(last.ticket, at: $1) }
            last = try #require(script.passTicks(1).compactMap(\.commit).first)
        }
        // The rebalance has ended, and Kafka's answer is on its way.
        script.apply { $0.assigned([], at: $1) }
        script.passTicks(5)
        let done = script.apply { $0.committed(last.ticket, fault: nil, at: $1) }
        #expect(done.contains { if case .close = $0 { true } else { false } })
        #expect(!script.actions.contains(.note(.lastCommitFailed)))
    }

    /// Whoever owns the partition now repeats its jobs.
    @Test func outcomeOfRemovedPartitionIsNotProducedAgain() {
        let script = WorkerScript()
        script.assign([0], offset: 3)
        _ = script.take(3)
        let place = OutcomePlace(RecordPlace(partitionSlot: 0, offset: 3), isOffsetDone: false)
        func lost() -> WorkerMachine.LostFate {
            var fate = WorkerMachine.LostFate.done
            script.apply { machine, now in
                fate = machine.lost(
                    place, KafkaFault("away", .retriable), topic: "outcomes",
                    form: ProducedForm(kind: .outcome, cuts: 1, bytes: 300), at: now)
            }
            return fate
        }
        #expect(lost() == .produceAgain)
        script.apply { $0.revoked([0], isLost: true, at: $1) }
        #expect(lost() == .done)
    }

    /// The store has items of a partition of which the group has no offset, and no record was read.
    @Test func transactionWithoutOffsetsStillAsksTheGroup() throws {
        let script = WorkerScript(.transactions)
        script.step(.initialize)
        script.step(.begin)
        script.assign([0])
        script.deliver(7, isStored: true, isOffsetDone: true)
        script.pass(WorkerScript.second)
        script.apply { $0.wake(at: $1) }
        let parts = script.freezeAll(1, produced: 1).last?.offsets
        #expect(parts?.map(\.point.offset) == [0])
    }
}

extension Committer.CommitSet {
    /// The same commit, asked for when the other one was.
    fileprivate func requested(at other: Committer.CommitSet) -> Committer.CommitSet {
        var set = self
        set.requestedAt = other.requestedAt
        return set
    }
}

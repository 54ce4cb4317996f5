import SluiceModel
import Testing

@testable import DeliveryCore

@Suite struct WorkerMachineTests {
    @Test func deliveredOutcomeIsCommitted() throws {
        let script = WorkerScript()
        #expect(script.assign([0], offset: 3).contains(.assign([PartitionBegin(partition: 0, offset: 3)])))
        #expect(script.take(3) == .hand(slot: 0, isReplay: false))
        script.pass(WorkerScript.second)
        #expect(script.tick().allSatisfy { $0.commit == nil }, "nothing has ended")
        script.deliver(3)
        script.pass(WorkerScript.second)
        let commit = try #require(script.tick().compactMap(\.commit).first)
        #expect(commit.set.parts.map(\.point.offset) == [4])
        #expect(script.machine.outstanding == 0)
    }

    @Test func commitWaitsForTheDiskSync() throws {
        let script = WorkerScript(.local)
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        #expect(script.tick().compactMap(\.request).contains(.flush))
        #expect(script.flushAll() == [.sync])
        let failed = script.apply { $0.synced(isDone: false, at: $1) }
        #expect(failed.allSatisfy { $0.commit == nil })
        script.pass(WorkerScript.second)
        #expect(script.tick().compactMap(\.request).contains(.flush), "the flush is repeated")
        #expect(script.flushAll() == [.sync])
        let done = script.apply { $0.synced(isDone: true, at: $1) }
        #expect(done.contains { $0.commit != nil })
    }

    @Test func commitWaitsForTheChangelogDespiteEarlyAcknowledgement() throws {
        let script = WorkerScript(.changelog)
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        // Acknowledged before the shard has counted the change.
        script.apply { $0.changeDelivered(ChangeEpoch(shard: 0, epoch: 0), partition: 0, offset: 8, at: $1) }
        script.pass(WorkerScript.second)
        script.tick()
        #expect(script.flushAll(produced: 2).allSatisfy { $0.commit == nil }, "an acknowledgement is missing")
        let emitted = script.apply {
            $0.changeDelivered(ChangeEpoch(shard: 0, epoch: 0), partition: 0, offset: 9, at: $1)
        }
        #expect(emitted.contains { $0.commit != nil })
        #expect(script.machine.changelogEnds[0] == 10)
    }

    @Test func membershipIsCheckedWhileACommitAwaitsTheChangelog() throws {
        let script = WorkerScript(.changelog)
        script.assign([0], offset: 0)
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        script.tick()
        script.flushAll(produced: 1)
        // The process stands still for long. Pending changes wait for the group's answer.
        script.pass(30 * WorkerScript.second)
        let asked = script.tick().compactMap(\.commit)
        #expect(asked.map(\.set.kind) == [.membership])
        let ticket = try #require(asked.first?.ticket)
        script.apply { $0.committed(ticket, fault: nil, at: $1) }
        script.reportAll { _ in .passed(1) }
        let isInDoubt = script.machine.isMembershipInDoubt
        #expect(!isInDoubt)
        let dropped = script.report(0, .droppedChange(ChangeEpoch(shard: 0, epoch: 0)))
        #expect(dropped.contains { $0.commit?.set.kind == .periodic }, "no change is awaited any more")
    }

    /// The group may have an unanswered commit's offsets. An older point would set them back.
    @Test func membershipCheckRepeatsOffsetsOfUnansweredCommit() throws {
        let script = WorkerScript()
        script.assign([0], offset: 3)
        _ = script.take(3)
        script.deliver(3)
        script.pass(WorkerScript.second)
        let commit = try #require(script.tick().compactMap(\.commit).first)
        #expect(commit.set.parts.map(\.point.offset) == [4])
        script.pass(30 * WorkerScript.second)
        script.apply { $0.committed(commit.ticket, fault: .partitionsLost, at: $1) }
        let asked = script.tick().compactMap(\.commit)
        #expect(asked.map(\.set.kind) == [.membership])
        #expect(asked.first?.set.parts.map(\.point.offset) == [4])
    }

    @Test func partitionWithoutRecordsNeedsNoCommit() {
        var partition = PartitionLifecycle(partition: 0, begin: nil, completed: .none)
        partition.commitAgain()
        #expect(partition.isChanged == false)
        _ = partition.track(4, bytes: 1, milliseconds: 0, at: 1)
        #expect(partition.isChanged == true)
    }

    // MARK: Transactions

    @Test func transactionFreezesAndThawsShardsInOrder() {
        let script = WorkerScript(.transactions)
        #expect(script.actions.contains(.step(.initialize)))
        #expect(script.step(.initialize).contains(.step(.begin)))
        #expect(
            script.step(.begin).compactMap(\.request)
                == [.thaw(number: 1, repeating: nil, refused: [])])
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        let closing = script.apply { $0.wake(at: $1) }
        #expect(closing.compactMap(\.request) == [.freeze(number: 1, atOnce: false)])
        #expect(script.report(0, .frozen(number: 7, produced: 9)) == [], "of another transaction")
        let parts = script.freezeAll(1, produced: 1).last?.offsets
        #expect(parts?.map(\.point.offset) == [1])
        #expect(script.step(.sendOffsets).contains(.step(.commit)))
        #expect(script.step(.commit).contains(.step(.begin)))
        #expect(
            script.step(.begin).compactMap(\.request)
                == [.thaw(number: 2, repeating: nil, refused: [])])
    }

    @Test func offsetsWaitForAllDeliveryReports() {
        let script = open()
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        script.apply { $0.wake(at: $1) }
        #expect(script.freezeAll(1, produced: 2) == [], "a report is missing")
        script.apply { $0.changeDelivered(ChangeEpoch(shard: 0, epoch: 0), partition: 0, offset: 0, at: $1) }
        #expect(script.polled().contains { if case .sendOffsets = $0 { true } else { false } })
    }

    @Test func abortOvertakesAFreezeAndRecordsAreRepeated() {
        let script = open()
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        script.apply { $0.wake(at: $1) }
        script.report(0, .frozen(number: 1, produced: 1))
        // The second shard waits for room in the producer.
        let lost = script.apply { machine, now in
            _ = machine.lost(
                OutcomePlace(RecordPlace(partitionSlot: 0, offset: 9), isOffsetDone: true),
                KafkaFault("timeout", .retriable),
                topic: "outcomes", form: ProducedForm(kind: .outcome, cuts: 1, bytes: 300), at: now)
        }
        #expect(lost.compactMap(\.request) == [.freeze(number: 1, atOnce: true)])
        #expect(script.report(1, .frozen(number: 1, produced: 1)).contains(.step(.abort)))
        #expect(script.step(.abort).contains(.step(.begin)))
        #expect(
            script.step(.begin).compactMap(\.request)
                == [.thaw(number: 2, repeating: [0], refused: [])])
    }

    @Test func transactionThatFailedToBeginRepeatsNothing() {
        let script = open()
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        script.apply { $0.wake(at: $1) }
        script.freezeAll(1, produced: 1)
        script.step(.sendOffsets)
        script.step(.commit)
        script.step(.begin, .abortable(KafkaFault("fault")))
        script.step(.abort)
        script.pass(WorkerScript.second)
        script.apply { $0.wake(at: $1) }
        #expect(
            script.step(.begin).compactMap(\.request)
                == [.thaw(number: 3, repeating: nil, refused: [])])
    }

    @Test func tornTransactionIsAborted() {
        let script = open()
        _ = script.take(0)
        script.deliver(0)
        script.apply { $0.stop(at: $1) }
        script.pass(30 * WorkerScript.second)
        script.tick()
        let emitted = script.reportAll { shard in
            .finished(
                ShardEnding(
                    flush: ShardFlush(epoch: ChangeEpoch(shard: UInt16(shard), epoch: 0)),
                    produced: shard == 0 ? 1 : 0, changesLeft: 0, isTorn: shard == 0))
        }
        #expect(emitted.contains(.step(.abort)))
        let end = script.step(.abort)
        #expect(end.contains { if case .close = $0 { true } else { false } })
        script.apply { machine, _ in machine.closed() }
        #expect(script.actions.last == .ended(WorkerEnd(failure: nil, isClean: false)))
    }

    /// The offsets depend on an aborted transaction's records, which no remaining shard repeats.
    @Test func abortWhileEndingLeavesOffsetsUncommitted() {
        let script = open()
        _ = script.take(0)
        script.deliver(0)
        script.report(0, .refused(number: 1))
        script.freezeAll(1, produced: 1)
        #expect(script.actions.contains(.step(.abort)))
        // The shards end before the next transaction begins, so they repeat nothing in it.
        script.apply { $0.stop(at: $1) }
        script.pass(30 * WorkerScript.second)
        script.tick()
        script.reportAll { shard in
            .finished(
                ShardEnding(
                    flush: ShardFlush(epoch: ChangeEpoch(shard: UInt16(shard), epoch: 0)),
                    produced: shard == 0 ? 1 : 0, changesLeft: 0, isTorn: false))
        }
        script.step(.abort)
        script.step(.begin)
        script.polled()
        script.passTicks(30)
        #expect(!script.actions.contains { if case .sendOffsets = $0 { true } else { false } })
        #expect(!script.actions.contains(.step(.commit)))
    }

    private func open() -> WorkerScript {
        let script = WorkerScript(.transactions)
        script.step(.initialize)
        script.step(.begin)
        script.assign([0])
        return script
    }

    // MARK: Partitions

    @Test func failedOffsetFetchIsRepeatedAndOldAnswersIgnored() {
        let script = WorkerScript()
        let emitted = script.apply { $0.assigned([0], at: $1) }
        guard case .fetchCommitted(_, let ticket, _, _)? = emitted.last else {
            Issue.record("the offsets aren't fetched")
            return
        }
        script.apply { $0.fetched(ticket, .failure(KafkaFault("away", .retriable)), at: $1) }
        script.apply { $0.fetched(ticket, .success([]), at: $1) }
        #expect(script.read { $0.arriving == 1 })
        #expect(script.passTicks(12).contains { $0.isFetch })
    }

    @Test func revocationWaitsForShardsAndItsCommit() throws {
        let script = WorkerScript()
        script.assign([0, 1])
        _ = script.take(0)
        let revoked = script.apply { $0.revoked([0], isLost: false, at: $1) }
        #expect(revoked.compactMap(\.request) == [.abandon(slots: [0], isLost: false)])
        script.reportAll { _ in .abandoned(SlotCount(slot: 0, count: 0)) }
        #expect(!script.actions.contains(.unassign([0])), "a job is in flight")
        script.deliver(0)
        let commit = try #require(script.polled().compactMap(\.commit).first)
        #expect(commit.set.parts.map(\.partition) == [0])
        let done = script.apply { $0.committed(commit.ticket, fault: nil, at: $1) }
        #expect(done.contains(.unassign([0])))
        #expect(script.read { $0.assignedPartitions == 1 })
    }

    @Test func lostPartitionsJobsTakeRoomUntilShardsReleaseThem() {
        let (lostJobs, newJobs) = (10, 1)
        let script = WorkerScript(jobs: lostJobs)
        script.assign([0])
        for offset in 0..<Int64(lostJobs) { _ = script.take(offset) }
        let lost = script.apply { $0.revoked([0], isLost: true, at: $1) }
        #expect(lost.contains(.unassign([0])))
        #expect(lost.compactMap(\.request).contains(.release(slot: 0)))
        // Reports of these jobs never arrive, because an aborted transaction had them.
        script.assign([0])
        _ = script.take(0)
        #expect(script.machine.gate.total.jobs == lostJobs + newJobs)
        script.reportAll { _ in .released(slot: 0) }
        #expect(script.machine.gate.total.jobs == newJobs)
    }

    // MARK: Arrivals

    @Test func assignmentIsAnsweredBeforeTheOffsetIsKnown() throws {
        let script = WorkerScript()
        let emitted = script.apply { $0.assigned([0], at: $1) }
        #expect(emitted.first == .assign([]))
        #expect(script.read { !$0.isAssigned })
        guard case .fetchCommitted(let asked, let ticket, _, _)? = emitted.last else {
            Issue.record("the offsets aren't fetched")
            return
        }
        let read = script.apply { machine, now in
            machine.fetched(
                ticket, .success(asked.map { FetchedOffset(partition: $0, offset: 5, logEnd: 1_000) }),
                at: now)
        }
        #expect(read.first == .assign([PartitionBegin(partition: 0, offset: 5)]))
        // The log line precedes outcomes of the partition.
        let noted = try #require(read.firstIndex(of: .note(.partitionsAssigned([0]))))
        let begun = try #require(read.firstIndex { $0.request != nil })
        #expect(noted < begun)
        #expect(script.read { $0.isAssigned })
        #expect(script.read { $0.arriving == nil })
    }

    /// A changelog partition without a leader doesn't delay others.
    @Test func eachPartitionIsReadAsSoonAsItIsRestored() throws {
        let script = WorkerScript(.changelog)
        let copies = try script.openCopies([0, 1])
        let (stuck, good) = (copies[0], copies[1])
        script.apply { $0.restoreInterrupted(stuck, KafkaFault("no leader", .retriable), at: $1) }
        script.apply { $0.restored(good, position: 7, at: $1) }
        let emitted = script.apply { $0.loadedMarks(good, isLoaded: true, at: $1) }
        let read = try script.answerOffsets(emitted)
        #expect(read.contains(.assign([PartitionBegin(partition: good.partition, offset: 3)])))
        #expect(script.read { $0.assignedPartitions == 1 })
        #expect(script.read { $0.arriving == 1 })
        #expect(script.read { !$0.isAssigned }, "the worker isn't ready before all partitions are read")
        // The other partition is retried after a second. Its copy isn't reopened, because its position is still
        // valid.
        #expect(!script.passTicks(9).contains(.restore(.restore([stuck]))))
        #expect(script.passTicks(2).contains(.restore(.restore([stuck]))))
    }

    @Test func partitionRevokedDuringRestoreDoesNotAffectOthers() throws {
        let script = WorkerScript(.changelog)
        let copies = try script.openCopies([0, 1])
        let revoked = script.apply { $0.revoked([0], isLost: false, at: $1) }
        #expect(revoked.contains(.restore(.cancel([0]))))
        script.passTicks(2)
        #expect(script.actions.contains(.unassign([0])))
        // A late answer for the revoked partition is ignored.
        script.apply { $0.restored(copies[0], position: 7, at: $1) }
        script.apply { $0.restored(copies[1], position: 7, at: $1) }
        let emitted = script.apply { $0.loadedMarks(copies[1], isLoaded: true, at: $1) }
        let read = try script.answerOffsets(emitted)
        #expect(read.contains(.assign([PartitionBegin(partition: 1, offset: 3)])))
        #expect(script.read { $0.arriving == nil })
    }

    @Test func smallerChangelogIsExtendedAtLimitedRate() throws {
        let script = WorkerScript(.changelog)
        let copies = try script.openCopies([4])
        let fault = KafkaFault("no such partition", .unknownPartition)
        let interrupted = script.apply { $0.restoreInterrupted(copies[0], fault, at: $1) }
        #expect(interrupted.contains(.extendChangelog))
        #expect(script.read { $0.failure == nil }, "the worker keeps running")
        var attempts = 0
        for _ in 0..<400 {
            for case .restore(.restore(let copies)) in script.passTicks(1) {
                let emitted = script.apply { $0.restoreInterrupted(copies[0], fault, at: $1) }
                if emitted.contains(.extendChangelog) { attempts += 1 }
            }
        }
        #expect(attempts == 1, "one extension in forty seconds")
    }

    /// An item behind an open circuit is found in the store by scans, not by a timer.
    @Test func storedItemsReturnWhenTheirTopicCircuitCloses() {
        let script = WorkerScript(.local)
        script.assign([0], offset: 500)
        func looks(_ emitted: [WorkerAction]) -> [SuspendedSchedule.Look] {
            emitted.compactMap { if case .scanSuspended(let look, _) = $0 { look } else { nil } }
        }
        let first = looks(script.passTicks(11))
        #expect(first.count == 1 && first[0].topic == nil)
        script.apply { $0.foundSuspended(first[0], [], cursor: nil, isEnd: true, at: $1) }
        script.report(1, .topicSuspended(7))
        #expect(looks(script.passTicks(11)).isEmpty)
        let look = looks(script.report(1, .topicResumed(7)))
        #expect(look.map(\.topic) == [7])
        let item = DueItem(due: 5, device: DeviceKey(high: 1, low: 1 << 32), offset: 400)
        let later = DueItem(due: 6, device: DeviceKey(high: 2, low: 1 << 32), offset: 500)
        let found = script.apply { machine, now in
            machine.foundSuspended(
                look[0], [.init(item: item, topic: 7), .init(item: later, topic: 7)], cursor: later,
                isEnd: true, at: now)
        }
        #expect(
            found == [.request(shard: 1, .suspended(slot: 0, [item], readThrough: 499))],
            "the other item's record is still to be read")
        script.report(1, .suspendedTaken(slot: 0))
        #expect(looks(script.passTicks(11)).isEmpty)
        _ = script.take(500)
        #expect(looks(script.passTicks(11)).map(\.topic) == [nil], "the record is read, and may be complete")
    }

    @Test func scanOfALostPartitionDelaysNoOther() {
        let script = WorkerScript(.local)
        script.assign([0, 1], offset: 500)
        func scanned(_ emitted: [WorkerAction]) -> [Int32] {
            emitted.compactMap { if case .scanSuspended(_, let partition) = $0 { partition } else { nil } }
        }
        #expect(scanned(script.passTicks(11)) == [0])
        script.apply { $0.revoked([0], isLost: true, at: $1) }
        #expect(scanned(script.passTicks(11)) == [1])
    }

    @Test func itemsOfAnEarlierLogAreLoadedFromTheStore() {
        let script = WorkerScript(.local)
        script.assign([0], offset: 500)
        _ = script.take(500)
        // The topic was recreated.
        #expect(script.take(0) == .hand(slot: 1, isReplay: false))
        #expect(
            script.actions.compactMap(\.request).contains(
                .begin(slot: 1, partition: 0, readThrough: -1, earlierFrom: 0, committed: 0)))
        let looks = script.passTicks(11).compactMap { action -> DueSchedule.Look? in
            if case .scanDue(let look, _) = action { look } else { nil }
        }
        let slot = looks.last?.slot
        #expect(slot == 1)
        let item = DueItem(due: 5, device: DeviceKey(high: 1, low: 1), offset: 400)
        let found = script.apply { $0.found(1, [item], isEnd: true, at: $1) }
        #expect(found.contains { if case .request(_, .due(1, [item], _)) = $0 { true } else { false } })
    }

    /// The topic was recreated while no worker ran. The store has items of offsets that the log lacks.
    @Test func itemsBeyondTheLogEndAreLoadedFromTheStore() throws {
        let script = WorkerScript(.local)
        var emitted = script.apply { $0.assigned([0], at: $1) }
        for case .restore(.open(let attempt)) in emitted {
            emitted = script.apply { $0.opened(attempt, isOpen: true, at: $1) }
            script.apply { $0.loadedMarks(attempt, isLoaded: true, at: $1) }
        }
        guard case .fetchCommitted(_, let ticket, _, _)? = script.actions.last(where: \.isFetch) else {
            Issue.record("the offsets aren't fetched")
            return
        }
        let begun = script.apply { machine, now in
            machine.fetched(
                ticket, .success([FetchedOffset(partition: 0, offset: 10, logEnd: 300)]), at: now)
        }
        #expect(
            begun.compactMap(\.request).contains(
                .begin(slot: 0, partition: 0, readThrough: 9, earlierFrom: 300, committed: 10)))
        script.passTicks(11)
        let device = DeviceKey(high: 1, low: 1)
        let items = [5, 200, 300].map { DueItem(due: 5, device: device, offset: $0) }
        let found = script.apply { $0.found(0, items, isEnd: true, at: $1) }
        let due = found.compactMap { action -> [DueItem]? in
            if case .request(_, .due(_, let items, _)) = action { items } else { nil }
        }
        #expect(due == [[items[0], items[2]]], "the record of offset 200 is still to be read")
        // Records up to this offset were handed to the shards earlier.
        #expect(found.contains(.request(shard: 0, .due(slot: 0, [items[0], items[2]], readThrough: 9))))
    }

    /// The topic was recreated, and has fewer records than were committed.
    @Test func newLogIsReadFromItsBeginning() throws {
        let script = WorkerScript(.transactions)
        script.step(.initialize)
        script.step(.begin)
        let begun = try script.assign(log: .init(first: 0, newer: 0))
        #expect(begun.contains(.assign([PartitionBegin(partition: 0, offset: 0)])))
        #expect(
            begun.compactMap(\.request).contains(
                .begin(slot: 0, partition: 0, readThrough: -1, earlierFrom: 0, committed: 0)))
        #expect(begun.contains(.note(.logWentBack(0, from: 1_001, to: 0))))
        let fate = script.take(0)
        #expect(fate == .hand(slot: 0, isReplay: false))
        #expect(script.read { $0.failure == nil && $0.counters.lostTails == 0 })
    }

    /// The log has lost its end. What was finished isn't read again, and the group's offset follows at once.
    @Test(arguments: StoreMode.allCases, [nil, 950])
    func shorterLogIsReadBehindWhatWasRead(mode: StoreMode, newer: Int64?) throws {
        let script = WorkerScript(mode)
        if mode == .transactions {
            script.step(.initialize)
            script.step(.begin)
        }
        let begun = try script.assign(log: .init(first: 0, newer: newer))
        let from = newer ?? 1_000
        #expect(begun.contains(.assign([PartitionBegin(partition: 0, offset: from)])))
        #expect(
            begun.compactMap(\.request).contains(
                .begin(slot: 0, partition: 0, readThrough: from - 1, earlierFrom: 0, committed: from)))
        #expect(begun.contains(.note(.tailLost(0, committed: 1_001, from: from))))
        #expect(script.read { $0.counters.lostTails == 1 && $0.isAssigned })
        guard mode == .none else { return }
        let commits = script.passTicks(5).compactMap { $0.commit?.set.parts.first?.point }
        #expect(commits.first?.offset == from)
        let kept = CommitMetadata.decode(commits.first?.metadata ?? "", committedOffset: from)
        #expect(kept.newestMilliseconds == 5_000, "the evidence stays")
        _ = script.take(from, milliseconds: 6_000)
        script.deliver(from)
        let next = script.passTicks(5).compactMap { $0.commit?.set.parts.first?.point }
        #expect(next.isEmpty || next.first?.offset == from + 1)
    }

    @Test func partitionWithoutEvidenceIsNotRead() throws {
        let script = WorkerScript(.local)
        let begun = try script.assign(log: nil)
        #expect(begun.contains(.note(.offsetUnexplained(0, committed: 1_001, logEnd: 1_000))))
        #expect(script.read { $0.unexplainedPartitions == [0] && !$0.isAssigned && $0.arriving == 1 })
        #expect(script.read { $0.assignedPartitions == 0 })
    }

    /// An empty log has nothing to repeat.
    @Test func emptyLogNeedsNoEvidence() {
        #expect(LogEvidence.log(committed: 9, start: 0, end: 0, nil) == .new(from: 0))
        #expect(LogEvidence.log(committed: 9, start: 5, end: 5, nil) == .shorter(from: 5))
        #expect(LogEvidence.log(committed: 9, start: 5, end: 9, nil) == .same)
        #expect(LogEvidence.log(committed: nil, start: 5, end: 9, nil) == .same)
        #expect(LogEvidence.log(committed: 9, start: 2, end: 5, nil) == .unknown)
        // The leader finds no records by time.
        #expect(LogEvidence.log(committed: 9, start: 2, end: 5, .init(first: nil, newer: nil)) == .unknown)
    }

    /// Nothing is asked about a log that has the group's offset, or without evidence.
    @Test func evidenceIsAskedForBeyondTheLogOnly() {
        let metadata = CommitMetadata.encode(watermark: 9, completed: [], newestMilliseconds: 70)
        func evidence(_ end: Int64, start: Int64 = 0, _ metadata: String) -> Int64? {
            FetchedOffset(partition: 0, offset: 9, metadata: metadata, logStart: start, logEnd: end).evidence
        }
        #expect(evidence(8, metadata) == 70)
        #expect(evidence(9, metadata) == nil)
        #expect(evidence(8, start: 8, metadata) == nil)
        #expect(evidence(8, "") == nil)
    }

    /// The log loses its end while it is read, and the client starts over at its beginning.
    @Test func logThatLosesItsEndIsLeftToTheNextAssignment() throws {
        let script = WorkerScript(.local)
        script.assign([0], offset: 500)
        _ = script.take(500, milliseconds: 2_000)
        #expect(script.take(0, milliseconds: 1_999) == .discard)
        let found = script.read { $0.failure }
        let failure = try #require(found)
        #expect(failure.startsOver && failure.cause == .tailLost(partition: 0))
        #expect(script.read { $0.phase == .draining }, "what is in flight ends and is committed")
    }

    /// Which stored items have outcomes in the open transaction isn't known to the next assignment.
    @Test(arguments: StoreMode.allCases) func logGoingBackRestartsOnlyTransactionalWorkers(
        mode: StoreMode
    ) throws {
        let script = WorkerScript(mode)
        if mode == .transactions {
            script.step(.initialize)
            script.step(.begin)
        }
        script.assign([0], offset: 5)
        _ = script.take(5)
        let fate = script.take(0)
        guard mode == .transactions else {
            #expect(fate == .hand(slot: 1, isReplay: false))
            #expect(script.read { $0.failure == nil })
            return
        }
        #expect(fate == .discard)
        let found = script.read { $0.failure }
        let failure = try #require(found)
        #expect(failure.startsOver && failure.cause == .logWentBack(partition: 0))
    }

    // MARK: Limits

    @Test func slowStorePausesPartitionsButServesEvents() {
        let script = WorkerScript(.local)
        script.assign([0])
        var room = 0
        let behind = script.apply {
            room = $0.room(atMost: 100, bytesHeld: 0, storeQueueBytes: 65 << 20, at: $1)
        }
        #expect(behind.contains(.pause([0])))
        #expect(room == 1, "events must still be served")
        script.apply { room = $0.room(atMost: 100, bytesHeld: 0, storeQueueBytes: 40 << 20, at: $1) }
        #expect(room == 1)
        let after = script.apply {
            room = $0.room(atMost: 100, bytesHeld: 0, storeQueueBytes: 30 << 20, at: $1)
        }
        #expect(after.contains(.resume([0])))
        #expect(room > 1)
    }

    @Test func partitionWithoutRecordOrOffsetIsNotCommitted() {
        let script = open()
        script.assign([3])
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        script.apply { $0.wake(at: $1) }
        let parts = script.freezeAll(1, produced: 1).last?.offsets
        #expect(parts?.map(\.partition) == [0])
    }

    // MARK: The end

    @Test func lastCommitSyncsTheShardsLastWrites() {
        let script = WorkerScript(.local)
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.apply { $0.stop(at: $1) }
        script.reportAll { _ in .drained(0) }
        script.reportAll { _ in .settledAll }
        script.reportAll { shard in
            .finished(
                ShardEnding(
                    flush: ShardFlush(
                        hasWritten: true, epoch: ChangeEpoch(shard: UInt16(shard), epoch: 0)),
                    produced: 0, changesLeft: 0, isTorn: false))
        }
        script.polled()
        let emitted = script.reportAll { shard in
            .flushed(ShardFlush(epoch: ChangeEpoch(shard: UInt16(shard), epoch: 1)))
        }
        #expect(emitted == [.sync])
        #expect(script.apply { $0.synced(isDone: true, at: $1) }.contains { $0.commit?.set.kind == .last })
    }

    @Test func lastCommitWaitsForTheShardsLastChanges() {
        let script = WorkerScript(.changelog)
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.apply { $0.stop(at: $1) }
        script.reportAll { _ in .drained(0) }
        script.reportAll { _ in .settledAll }
        script.reportAll { shard in
            .finished(
                ShardEnding(
                    flush: ShardFlush(
                        hasWritten: true, produced: shard == 0 ? 1 : 0,
                        epoch: ChangeEpoch(shard: UInt16(shard), epoch: 0)),
                    produced: 0, changesLeft: 0, isTorn: false))
        }
        script.polled()
        #expect(script.flushAll(epoch: 1).allSatisfy { $0.commit == nil }, "a change isn't acknowledged")
        let emitted = script.apply {
            $0.changeDelivered(ChangeEpoch(shard: 0, epoch: 0), partition: 0, offset: 0, at: $1)
        }
        #expect(emitted.contains { $0.commit?.set.kind == .last })
    }

    /// The offsets would cover items that the changelog lacks.
    @Test func lastOffsetsAreNotCommittedWithUnwrittenChanges() {
        let script = WorkerScript(.changelog)
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.apply { $0.stop(at: $1) }
        script.reportAll { _ in .drained(0) }
        script.reportAll { _ in .settledAll }
        script.reportAll { shard in
            .finished(
                ShardEnding(
                    flush: ShardFlush(
                        hasWritten: true, produced: 0, epoch: ChangeEpoch(shard: UInt16(shard), epoch: 0)),
                    produced: 0, changesLeft: shard, isTorn: false))
        }
        let emitted = script.polled() + script.flushAll(epoch: 1)
        #expect(emitted.allSatisfy { $0.commit == nil })
        #expect(emitted.contains(.note(.lastOffsetsUnsafe)))
    }

    @Test func copyIsCheckpointedOnlyAfterEndedItemsAreRemoved() throws {
        let script = open()
        script.apply { $0.changeDelivered(ChangeEpoch(shard: 0, epoch: 0), partition: 0, offset: 8, at: $1) }
        script.deliver(0, isStored: true, isOffsetDone: true)
        script.apply { $0.stop(at: $1) }
        script.reportAll { _ in .drained(0) }
        script.reportAll { _ in .settledAll }
        script.pass(WorkerScript.second)
        script.apply { $0.wake(at: $1) }
        script.freezeAll(1, produced: 2)
        script.step(.sendOffsets)
        let committed = script.step(.commit)
        #expect(committed.contains { if case .request(_, .remove) = $0 { true } else { false } })
        script.step(.begin)
        script.reportAll { shard in
            .finished(
                ShardEnding(
                    flush: ShardFlush(epoch: ChangeEpoch(shard: UInt16(shard), epoch: 0)),
                    produced: shard == 0 ? 2 : 0, changesLeft: 0, isTorn: false))
        }
        #expect(!script.actions.contains(.checkpoint(partition: 0, position: 9)))
        let flushed = script.flushAll(epoch: 1)
        let checkpoint = try #require(flushed.firstIndex(of: .checkpoint(partition: 0, position: 9)))
        let close = try #require(flushed.firstIndex { if case .close = $0 { true } else { false } })
        #expect(checkpoint < close)
        script.apply { machine, _ in machine.closed() }
        #expect(script.actions.last == .ended(WorkerEnd(failure: nil, isClean: true)))
    }
}

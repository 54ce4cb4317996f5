import SluiceModel
import Testing

@testable import DeliveryCore

@Suite struct WorkerMachineTests {
    @Test func anOutcomeThatIsInKafkaIsCommitted() throws {
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

    @Test func aCommitWaitsForTheDisk() throws {
        let script = WorkerScript(.local)
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        #expect(script.tick().compactMap(\.request).contains(.flush))
        #expect(script.flushAll() == [.sync])
        let failed = script.tell { $0.synced(isDone: false, at: $1) }
        #expect(failed.allSatisfy { $0.commit == nil })
        script.pass(WorkerScript.second)
        #expect(script.tick().compactMap(\.request).contains(.flush), "once more")
        #expect(script.flushAll() == [.sync])
        let done = script.tell { $0.synced(isDone: true, at: $1) }
        #expect(done.contains { $0.commit != nil })
    }

    @Test func aCommitWaitsForTheChangelogHoweverEarlyItAnswers() throws {
        let script = WorkerScript(.changelog)
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        // Acknowledged before the shard has counted it.
        script.tell { $0.changeDelivered(ChangeEpoch(shard: 0, epoch: 0), partition: 0, offset: 8, at: $1) }
        script.pass(WorkerScript.second)
        script.tick()
        #expect(script.flushAll(produced: 2).allSatisfy { $0.commit == nil }, "one is missing")
        let said = script.tell {
            $0.changeDelivered(ChangeEpoch(shard: 0, epoch: 0), partition: 0, offset: 9, at: $1)
        }
        #expect(said.contains { $0.commit != nil })
        #expect(script.machine.changelogEnds[0] == 10)
    }

    @Test func theGroupIsAskedWhileACommitWaitsForTheChangelog() throws {
        let script = WorkerScript(.changelog)
        script.assign([0], offset: 0)
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        script.tick()
        script.flushAll(produced: 1)
        // The process is stopped for long: what the changelog still has to get waits for the group's answer.
        script.pass(30 * WorkerScript.second)
        let asked = script.tick().compactMap(\.commit)
        #expect(asked.map(\.set.kind) == [.membership])
        let ticket = try #require(asked.first?.ticket)
        script.tell { $0.committed(ticket, fault: nil, at: $1) }
        script.reportAll { _ in .passed(1) }
        let isInDoubt = script.machine.isMembershipInDoubt
        #expect(!isInDoubt)
        let dropped = script.report(0, .droppedChange(ChangeEpoch(shard: 0, epoch: 0)))
        #expect(dropped.contains { $0.commit?.set.kind == .periodic }, "nothing is awaited any more")
    }

    /// The group may have the offsets of a commit whose answer was lost: an older point would set them back.
    @Test func theGroupIsAskedWithTheOffsetsOfACommitWithoutAnAnswer() throws {
        let script = WorkerScript()
        script.assign([0], offset: 3)
        _ = script.take(3)
        script.deliver(3)
        script.pass(WorkerScript.second)
        let commit = try #require(script.tick().compactMap(\.commit).first)
        #expect(commit.set.parts.map(\.point.offset) == [4])
        script.pass(30 * WorkerScript.second)
        script.tell { $0.committed(commit.ticket, fault: .partitionsLost, at: $1) }
        let asked = script.tick().compactMap(\.commit)
        #expect(asked.map(\.set.kind) == [.membership])
        #expect(asked.first?.set.parts.map(\.point.offset) == [4])
    }

    @Test func aPartitionOfWhichNothingIsKnownIsNeverDirty() {
        var partition = PartitionLifecycle(partition: 0, begin: nil, completed: .none)
        partition.commitAgain()
        #expect(!partition.isChanged && !partition.needsCommit)
        _ = partition.track(4, bytes: 1, at: 1)
        #expect(partition.isChanged)
    }

    // MARK: Transactions

    @Test func aTransactionTakesTheShardsInItsOrder() {
        let script = WorkerScript(.transactions)
        #expect(script.actions.contains(.step(.initialize)))
        #expect(script.step(.initialize).contains(.step(.begin)))
        #expect(
            script.step(.begin).compactMap(\.request)
                == [.thaw(number: 1, repeating: nil, omitsValues: nil)])
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        let closing = script.tell { $0.wake(at: $1) }
        #expect(closing.compactMap(\.request) == [.freeze(number: 1, atOnce: false)])
        #expect(script.report(0, .frozen(number: 7, produced: 9)) == [], "another transaction's")
        let frozen = script.freezeAll(1, produced: 1)
        guard case .sendOffsets(let parts)? = frozen.last else {
            Issue.record("no offsets: \(frozen)")
            return
        }
        #expect(parts.map(\.point.offset) == [1])
        #expect(script.step(.sendOffsets).contains(.step(.commit)))
        #expect(script.step(.commit).contains(.step(.begin)))
        #expect(
            script.step(.begin).compactMap(\.request)
                == [.thaw(number: 2, repeating: nil, omitsValues: nil)])
    }

    @Test func offsetsWaitForAllReports() {
        let script = open()
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        script.tell { $0.wake(at: $1) }
        #expect(script.freezeAll(1, produced: 2) == [], "a report is missing")
        script.tell { $0.changeDelivered(ChangeEpoch(shard: 0, epoch: 0), partition: 0, offset: 0, at: $1) }
        #expect(script.polled().contains { if case .sendOffsets = $0 { true } else { false } })
    }

    @Test func anAbortOvertakesAFreezeAndIsRepeated() {
        let script = open()
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        script.tell { $0.wake(at: $1) }
        script.report(0, .frozen(number: 1, produced: 1))
        // The second shard waits for room in the producer.
        let lost = script.tell { machine, now in
            _ = machine.lost(
                RecordPlace(partitionSlot: 0, offset: 9), isOffsetDone: true,
                KafkaFault("timeout", .retriable),
                topic: "outcomes", hasValue: false, at: now)
        }
        #expect(lost.compactMap(\.request) == [.freeze(number: 1, atOnce: true)])
        #expect(script.report(1, .frozen(number: 1, produced: 1)).contains(.step(.abort)))
        #expect(script.step(.abort).contains(.step(.begin)))
        #expect(
            script.step(.begin).compactMap(\.request)
                == [.thaw(number: 2, repeating: [0], omitsValues: nil)])
    }

    @Test func aTransactionThatCouldNotBeginRepeatsNothing() {
        let script = open()
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        script.tell { $0.wake(at: $1) }
        script.freezeAll(1, produced: 1)
        script.step(.sendOffsets)
        script.step(.commit)
        script.step(.begin, .abortable(KafkaFault("fault")))
        script.step(.abort)
        script.pass(WorkerScript.second)
        script.tell { $0.wake(at: $1) }
        #expect(
            script.step(.begin).compactMap(\.request)
                == [.thaw(number: 3, repeating: nil, omitsValues: nil)])
    }

    @Test func aTornTransactionIsAborted() {
        let script = open()
        _ = script.take(0)
        script.deliver(0)
        script.tell { $0.stop(at: $1) }
        script.pass(30 * WorkerScript.second)
        script.tick()
        let said = script.reportAll { shard in
            .finished(
                ShardEnding(
                    flush: ShardFlush(epoch: ChangeEpoch(shard: UInt16(shard), epoch: 0)),
                    produced: shard == 0 ? 1 : 0, changesLeft: 0, isTorn: shard == 0))
        }
        #expect(said.contains(.step(.abort)))
        let end = script.step(.abort)
        #expect(end.contains { if case .close = $0 { true } else { false } })
        script.tell { machine, _ in machine.closed() }
        #expect(script.actions.last == .ended(WorkerEnd(failure: nil, isClean: false)))
    }

    /// Offsets that rest on the records of an aborted transaction aren't committed when no shard is left to repeat them.
    @Test func anAbortWhileTheWorkerEndsLeavesItsOffsetsToTheNextOne() {
        let script = open()
        _ = script.take(0)
        script.deliver(0)
        script.report(0, .refused(number: 1))
        script.freezeAll(1, produced: 1)
        #expect(script.actions.contains(.step(.abort)))
        // The shards end before the next transaction begins, and so repeat nothing in it.
        script.tell { $0.stop(at: $1) }
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

    @Test func anAssignmentIsAskedForAgainAndOldAnswersAreIgnored() {
        let script = WorkerScript()
        let said = script.tell { $0.assigned([0], at: $1) }
        guard case .fetchCommitted(_, let ticket, _, _)? = said.last else {
            Issue.record("not asked for")
            return
        }
        script.tell { $0.fetched(ticket, .failure(KafkaFault("away", .retriable)), at: $1) }
        script.tell { $0.fetched(ticket, .success([]), at: $1) }
        #expect(script.read { $0.arriving == 1 })
        #expect(script.passTicks(12).contains { $0.isFetch })
    }

    @Test func aRevocationWaitsForTheShardsAndForItsCommit() throws {
        let script = WorkerScript()
        script.assign([0, 1])
        _ = script.take(0)
        let revoked = script.tell { $0.revoked([0], isLost: false, at: $1) }
        #expect(revoked.compactMap(\.request) == [.abandon(slots: [0], isLost: false)])
        script.reportAll { _ in .abandoned([SlotCount(slot: 0, count: 0)]) }
        #expect(!script.actions.contains(.unassign([0])), "a job is in flight")
        script.deliver(0)
        let commit = try #require(script.polled().compactMap(\.commit).first)
        #expect(commit.set.parts.map(\.partition) == [0])
        let done = script.tell { $0.committed(commit.ticket, fault: nil, at: $1) }
        #expect(done.contains(.unassign([0])))
        #expect(script.read { $0.assignedPartitions == 1 })
    }

    @Test func aLostPartitionIsGivenUpAtOnceAndTakesRoomUntilTheShardsHoldNothing() {
        let script = WorkerScript(jobs: 10)
        script.assign([0])
        for offset in Int64(0)..<10 { _ = script.take(offset) }
        let lost = script.tell { $0.revoked([0], isLost: true, at: $1) }
        #expect(lost.contains(.unassign([0])))
        #expect(lost.compactMap(\.request).contains(.release(slot: 0)))
        // Reports of these jobs never come: an aborted transaction had them.
        script.assign([0])
        _ = script.take(0)
        #expect(script.machine.gate.total.jobs == 11)
        script.reportAll { _ in .released(slot: 0) }
        #expect(script.machine.gate.total.jobs == 1)
    }

    // MARK: Arrivals

    @Test func anAssignmentIsAnsweredAtOnceAndThePartitionIsReadWhenItsOffsetIsKnown() throws {
        let script = WorkerScript()
        let said = script.tell { $0.assigned([0], at: $1) }
        #expect(said.first == .assign([]))
        #expect(script.read { !$0.isAssigned })
        guard case .fetchCommitted(let asked, let ticket, _, _)? = said.last else {
            Issue.record("not asked for")
            return
        }
        let read = script.tell { machine, now in
            machine.fetched(
                ticket, .success(asked.map { FetchedOffset(partition: $0, offset: 5, logEnd: 1_000) }),
                at: now)
        }
        #expect(read.first == .assign([PartitionBegin(partition: 0, offset: 5)]))
        // Outcomes of the partition follow the log's line.
        let noted = try #require(read.firstIndex(of: .note(.partitionsAssigned([0]))))
        let begun = try #require(read.firstIndex { $0.request != nil })
        #expect(noted < begun)
        #expect(script.read { $0.isAssigned })
        #expect(script.read { $0.arriving == nil })
    }

    /// A partition of the changelog without a leader holds up no other.
    @Test func eachPartitionIsReadAsSoonAsItIsRestored() throws {
        let script = WorkerScript(.changelog)
        let copies = try script.openCopies([0, 1])
        let (stuck, good) = (copies[0], copies[1])
        script.tell { $0.restoreInterrupted(stuck, KafkaFault("no leader", .retriable), at: $1) }
        script.tell { $0.restored(good, position: 7, at: $1) }
        let said = script.tell { $0.loadedMarkers(good, isLoaded: true, at: $1) }
        let read = try script.answerOffsets(said)
        #expect(read.contains(.assign([PartitionBegin(partition: good.partition, offset: 3)])))
        #expect(script.read { $0.assignedPartitions == 1 })
        #expect(script.read { $0.arriving == 1 })
        #expect(script.read { !$0.isAssigned }, "the worker isn't ready before all is here")
        // The other is tried again by itself, after a second, and its copy isn't opened anew: its position counts still.
        #expect(!script.passTicks(9).contains(.restore(.restore([stuck]))))
        #expect(script.passTicks(2).contains(.restore(.restore([stuck]))))
    }

    @Test func aPartitionThatIsTakenAwayOnItsWayIsForgottenAndTheOthersGoOn() throws {
        let script = WorkerScript(.changelog)
        let copies = try script.openCopies([0, 1])
        let revoked = script.tell { $0.revoked([0], isLost: false, at: $1) }
        #expect(revoked.contains(.restore(.cancel([0]))))
        script.passTicks(2)
        #expect(script.actions.contains(.unassign([0])))
        // A late answer for the partition that went is ignored.
        script.tell { $0.restored(copies[0], position: 7, at: $1) }
        script.tell { $0.restored(copies[1], position: 7, at: $1) }
        let said = script.tell { $0.loadedMarkers(copies[1], isLoaded: true, at: $1) }
        let read = try script.answerOffsets(said)
        #expect(read.contains(.assign([PartitionBegin(partition: 1, offset: 3)])))
        #expect(script.read { $0.arriving == nil })
    }

    @Test func aChangelogThatIsSmallerThanTheJobsTopicIsExtendedNowAndThen() throws {
        let script = WorkerScript(.changelog)
        let copies = try script.openCopies([4])
        let fault = KafkaFault("no such partition", .unknownPartition)
        let interrupted = script.tell { $0.restoreInterrupted(copies[0], fault, at: $1) }
        #expect(interrupted.contains(.extendChangelog))
        #expect(script.read { $0.failure == nil }, "the worker goes on")
        var attempts = 0
        for _ in 0..<400 {
            for case .restore(.restore(let copies)) in script.passTicks(1) {
                let said = script.tell { $0.restoreInterrupted(copies[0], fault, at: $1) }
                if said.contains(.extendChangelog) { attempts += 1 }
            }
        }
        #expect(attempts == 1, "in forty seconds")
    }

    /// An item that waits with its topic is found in the store by looks, not by a clock.
    @Test func whatIsParkedComesBackWhenItsTopicGoesOn() {
        let script = WorkerScript(.local)
        script.assign([0], offset: 500)
        func looks(_ said: [WorkerAction]) -> [SuspendedSchedule.Look] {
            said.compactMap { if case .scanSuspended(let look, _) = $0 { look } else { nil } }
        }
        let first = looks(script.passTicks(11))
        #expect(first.count == 1 && first[0].topic == nil)
        script.tell { $0.foundSuspended(first[0], [], cursor: nil, isEnd: true, at: $1) }
        script.report(1, .topicSuspended(7))
        #expect(looks(script.passTicks(11)).isEmpty)
        let look = looks(script.report(1, .topicResumed(7)))
        #expect(look.map(\.topic) == [7])
        let item = DueItem(due: 5, device: DeviceKey(high: 1, low: 1 << 32), offset: 400)
        let later = DueItem(due: 6, device: DeviceKey(high: 2, low: 1 << 32), offset: 500)
        let found = script.tell { machine, now in
            machine.foundSuspended(
                look[0], [.init(item: item, topic: 7), .init(item: later, topic: 7)], cursor: later,
                isEnd: true, at: now)
        }
        #expect(
            found == [.request(shard: 1, .suspended(slot: 0, [item], readThrough: 499))],
            "Kafka brings the other one")
    }

    @Test func itemsOfAnEarlierLogComeBackByThemselves() {
        let script = WorkerScript(.local)
        script.assign([0], offset: 500)
        _ = script.take(500)
        // Its topic was made anew.
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
        let found = script.tell { $0.found(1, [item], isEnd: true, at: $1) }
        #expect(found.contains { if case .request(_, .due(1, [item], _)) = $0 { true } else { false } })
    }

    /// The topic was made anew while no worker ran: the store has items of offsets that the log doesn't have.
    @Test func itemsBeyondTheLogsEndComeBackByThemselves() throws {
        let script = WorkerScript(.local)
        var said = script.tell { $0.assigned([0], at: $1) }
        for case .restore(.open(let attempt)) in said {
            said = script.tell { $0.opened(attempt, isOpen: true, at: $1) }
            script.tell { $0.loadedMarkers(attempt, isLoaded: true, at: $1) }
        }
        guard case .fetchCommitted(_, let ticket, _, _)? = script.actions.last(where: \.isFetch) else {
            Issue.record("not asked for")
            return
        }
        let begun = script.tell { machine, now in
            machine.fetched(
                ticket, .success([FetchedOffset(partition: 0, offset: 10, logEnd: 300)]), at: now)
        }
        #expect(
            begun.compactMap(\.request).contains(
                .begin(slot: 0, partition: 0, readThrough: 9, earlierFrom: 300, committed: 10)))
        script.passTicks(11)
        let device = DeviceKey(high: 1, low: 1)
        let items = [5, 200, 300].map { DueItem(due: 5, device: device, offset: $0) }
        let found = script.tell { $0.found(0, items, isEnd: true, at: $1) }
        let due = found.compactMap { action -> [DueItem]? in
            if case .request(_, .due(_, let items, _)) = action { items } else { nil }
        }
        #expect(due == [[items[0], items[2]]], "Kafka brings the one of offset 200")
        // Records up to this offset were handed to the shards before.
        #expect(found.contains(.request(shard: 0, .due(slot: 0, [items[0], items[2]], readThrough: 9))))
    }

    /// The topic was made anew, and has fewer records than were committed.
    @Test func aLogThatEndsBeforeTheCommittedOffsetIsReadFromItsBeginning() throws {
        let script = WorkerScript(.transactions)
        script.step(.initialize)
        script.step(.begin)
        let begun = script.assign([0], offset: 1_001)
        #expect(
            begun.compactMap(\.request).contains(
                .begin(slot: 0, partition: 0, readThrough: -1, earlierFrom: 0, committed: 0)))
        #expect(begun.contains(.note(.logWentBack(0, from: 1_001, to: 0))))
        let fate = script.take(0)
        #expect(fate == .hand(slot: 0, isReplay: false))
        #expect(script.read { $0.failure == nil })
    }

    /// Which items of the store have their outcomes in the open transaction isn't known for the next assignment.
    @Test(arguments: StoreMode.allCases) func aLogThatGoesBackWhileItIsRead(mode: StoreMode) throws {
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

    @Test func aStoreThatIsBehindPausesPartitionsAndEventsAreServed() {
        let script = WorkerScript(.local)
        script.assign([0])
        var room = 0
        let behind = script.tell {
            room = $0.room(atMost: 100, bytesHeld: 0, storeQueueBytes: 65 << 20, at: $1)
        }
        #expect(behind.contains(.pause([0])))
        #expect(room == 1, "events have to be served")
        script.tell { room = $0.room(atMost: 100, bytesHeld: 0, storeQueueBytes: 40 << 20, at: $1) }
        #expect(room == 1)
        let after = script.tell {
            room = $0.room(atMost: 100, bytesHeld: 0, storeQueueBytes: 30 << 20, at: $1)
        }
        #expect(after.contains(.resume([0])))
        #expect(room > 1)
    }

    @Test func aPartitionWithoutARecordAndWithoutAnOffsetIsNotCommitted() {
        let script = open()
        script.assign([3])
        _ = script.take(0)
        script.deliver(0)
        script.pass(WorkerScript.second)
        script.tell { $0.wake(at: $1) }
        guard case .sendOffsets(let parts)? = script.freezeAll(1, produced: 1).last else {
            Issue.record("no offsets")
            return
        }
        #expect(parts.map(\.partition) == [0])
    }

    // MARK: The end

    @Test func theLastCommitSyncsWhatTheShardsHaveWrittenLast() {
        let script = WorkerScript(.local)
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.tell { $0.stop(at: $1) }
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
        let said = script.reportAll { shard in
            .flushed(ShardFlush(epoch: ChangeEpoch(shard: UInt16(shard), epoch: 1)))
        }
        #expect(said == [.sync])
        #expect(script.tell { $0.synced(isDone: true, at: $1) }.contains { $0.commit?.set.kind == .last })
    }

    @Test func theLastCommitWaitsForTheShardsLastChanges() {
        let script = WorkerScript(.changelog)
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.tell { $0.stop(at: $1) }
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
        let said = script.tell {
            $0.changeDelivered(ChangeEpoch(shard: 0, epoch: 0), partition: 0, offset: 0, at: $1)
        }
        #expect(said.contains { $0.commit?.set.kind == .last })
    }

    /// The offsets would stand for items that the changelog hasn't got.
    @Test func theLastOffsetsStayWhereAShardHasChangesLeft() {
        let script = WorkerScript(.changelog)
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.tell { $0.stop(at: $1) }
        script.reportAll { _ in .drained(0) }
        script.reportAll { _ in .settledAll }
        script.reportAll { shard in
            .finished(
                ShardEnding(
                    flush: ShardFlush(
                        hasWritten: true, produced: 0, epoch: ChangeEpoch(shard: UInt16(shard), epoch: 0)),
                    produced: 0, changesLeft: shard, isTorn: false))
        }
        let said = script.polled() + script.flushAll(epoch: 1)
        #expect(said.allSatisfy { $0.commit == nil })
        #expect(said.contains(.note(.lastOffsetsUnsafe)))
    }

    @Test func aCopyIsCompleteOnlyWhenTheStoreHasForgottenWhatEnded() throws {
        let script = open()
        script.tell { $0.changeDelivered(ChangeEpoch(shard: 0, epoch: 0), partition: 0, offset: 8, at: $1) }
        script.deliver(0, isStored: true, isOffsetDone: true)
        script.tell { $0.stop(at: $1) }
        script.reportAll { _ in .drained(0) }
        script.reportAll { _ in .settledAll }
        script.pass(WorkerScript.second)
        script.tell { $0.wake(at: $1) }
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
        script.tell { machine, _ in machine.closed() }
        #expect(script.actions.last == .ended(WorkerEnd(failure: nil, isClean: true)))
    }
}

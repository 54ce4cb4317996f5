import SluiceModel
import Testing

@testable import DeliveryCore

/// Last commits without an answer, and last transactions.
@Suite struct WorkerEndTests {
    private func isClose(_ action: WorkerAction) -> Bool {
        if case .close = action { true } else { false }
    }

    private func sentOffsets(_ emitted: [WorkerAction]) -> [Int64]? {
        emitted.compactMap(\.offsets).first?.map(\.point.offset)
    }

    private func finish(_ script: WorkerScript, produced: Int) -> [WorkerAction] {
        script.reportAll { shard in
            .finished(
                ShardEnding(
                    flush: ShardFlush(epoch: ChangeEpoch(shard: UInt16(shard), epoch: 0)),
                    produced: shard == 0 ? produced : 0, changesLeft: 0, isTorn: false))
        }
    }

    /// A worker whose jobs are done and whose shards are about to end.
    private func ending() -> WorkerScript {
        let script = WorkerScript()
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.apply { $0.stop(at: $1) }
        script.reportAll { _ in .drained(0) }
        script.reportAll { _ in .settledAll }
        return script
    }

    private func openTransaction() -> WorkerScript {
        let script = WorkerScript(.transactions)
        script.step(.initialize)
        script.step(.begin)
        script.assign([0])
        _ = script.take(0)
        return script
    }

    @Test func unansweredLastCommitTimesOutAndTheGroupIsLeft() {
        let script = ending()
        _ = finish(script, produced: 0)
        #expect(script.polled().contains { $0.commit?.set.kind == .last })
        #expect(!script.passTicks(19).contains(where: isClose))
        let emitted = script.passTicks(1)
        #expect(emitted.contains(.note(.lastCommitFailed)))
        #expect(emitted.contains(where: isClose))
    }

    /// A put whose value couldn't be encrypted is in the machine's requests, so the batch's end calls it durable.
    @Test func nothingIsCommittedAfterALostChange() {
        let script = WorkerScript()
        script.assign([0])
        _ = script.take(0)
        var emitted = script.report(0, .lostChange("a value can't be encrypted"))
        var progress = ShardProgress()
        progress.completed = [.init(place: RecordPlace(partitionSlot: 0, offset: 0), isRepeated: false)]
        progress.freed = [0: 1]
        emitted += script.report(0, .progress(progress))
        emitted += finish(script, produced: 0)
        emitted += script.passTicks(20)
        #expect(emitted.allSatisfy { $0.commit == nil })
        #expect(emitted.contains(where: isClose))
    }

    /// Shards that end have to report before the group is left, also when the worker fails meanwhile.
    @Test func failureWhileShardsEndWaitsForTheShards() {
        let script = ending()
        #expect(!script.report(0, .lostChange("a value can't be encrypted")).contains(where: isClose))
        #expect(finish(script, produced: 0).contains(where: isClose))
    }

    @Test(arguments: [false, true]) func shardsEndOnceEachHasDrainedAndSettled(settlesLast: Bool) {
        let script = WorkerScript()
        script.assign([0])
        script.apply { $0.stop(at: $1) }
        let reports = settlesLast ? [ShardReport.drained(0), .settledAll] : [.settledAll, .drained(0)]
        for (shard, report) in [(0, reports[0]), (1, reports[0]), (0, reports[1])] {
            #expect(!script.report(shard, report).compactMap(\.request).contains(.finish))
        }
        #expect(script.report(1, reports[1]).compactMap(\.request).contains(.finish))
    }

    /// A shard that has ended takes no requests.
    @Test func revocationWhileShardsEndAsksNoShard() {
        let script = ending()
        let revoked = script.apply { $0.revoked([0], isLost: false, at: $1) }
        #expect(revoked.compactMap(\.request).isEmpty)
        #expect(!revoked.contains(.unassign([0])))
        #expect((finish(script, produced: 0) + script.polled()).contains { $0.commit?.set.kind == .last })
    }

    /// The store's progress alone moved the offset.
    @Test func lastTransactionWithoutRecordsCommitsMovedOffsets() {
        let script = openTransaction()
        var progress = ShardProgress()
        progress.completed = [.init(place: RecordPlace(partitionSlot: 0, offset: 0), isRepeated: false)]
        progress.freed = [0: 1]
        script.report(0, .progress(progress))
        script.apply { $0.stop(at: $1) }
        script.pass(30 * WorkerScript.second)
        script.tick()
        #expect(sentOffsets(finish(script, produced: 0)) == [1])
        #expect(script.step(.sendOffsets).contains(.step(.commit)))
    }

    /// The open transaction would delay the next owners of the partitions.
    @Test func lastTransactionAbortsWhenOffsetsCannotBeSent() {
        let script = openTransaction()
        script.deliver(0)
        script.apply { $0.stop(at: $1) }
        script.pass(30 * WorkerScript.second)
        script.tick()
        #expect(sentOffsets(finish(script, produced: 1)) == [1])
        script.step(.sendOffsets, .retriable(KafkaFault("timeout", .retriable)))
        #expect(!script.passTicks(49).contains(.step(.abort)))
        #expect(script.passTicks(1).contains(.step(.abort)))
        #expect(script.step(.abort).contains(where: isClose))
    }

    @Test func drainingWorkerAtItsLimitPollsNothing() {
        let script = WorkerScript(jobs: 1)
        script.assign([0])
        _ = script.take(0)
        var room = 1
        script.apply { room = $0.room(atMost: 100, bytesHeld: 0, storeQueueBytes: 0, at: $1) }
        #expect(room == 0)
        script.apply { $0.stop(at: $1) }
        #expect(!(script.deliver(0) + script.polled()).contains(.poll))
    }
}

import SluiceModel
import Testing

@testable import DeliveryCore

/// Last commits that aren't answered, and last transactions.
@Suite struct WorkerEndTests {
    private func isClose(_ action: WorkerAction) -> Bool {
        if case .close = action { true } else { false }
    }

    private func sentOffsets(_ said: [WorkerAction]) -> [Int64]? {
        for case .sendOffsets(let parts) in said { return parts.map(\.point.offset) }
        return nil
    }

    private func finish(_ script: WorkerScript, produced: Int) -> [WorkerAction] {
        script.reportAll { shard in
            .finished(
                ShardEnding(
                    flush: ShardFlush(epoch: ChangeEpoch(shard: UInt16(shard), epoch: 0)),
                    produced: shard == 0 ? produced : 0, changesLeft: 0, isTorn: false))
        }
    }

    private func openTransaction() -> WorkerScript {
        let script = WorkerScript(.transactions)
        script.step(.initialize)
        script.step(.begin)
        script.assign([0])
        _ = script.take(0)
        return script
    }

    @Test func theLastCommitHasNoAnswerAndItsTimePassesAndTheGroupIsLeft() {
        let script = WorkerScript()
        script.assign([0])
        _ = script.take(0)
        script.deliver(0)
        script.tell { $0.stop(at: $1) }
        script.reportAll { _ in .drained(0) }
        script.reportAll { _ in .settledAll }
        _ = finish(script, produced: 0)
        #expect(script.polled().contains { $0.commit?.set.kind == .last })
        #expect(!script.passTicks(19).contains(where: isClose))
        let said = script.passTicks(1)
        #expect(said.contains(.note(.lastCommitFailed)))
        #expect(said.contains(where: isClose))
    }

    /// The store's progress alone has moved the offset.
    @Test func theLastTransactionHasNoRecordAndOffsetsHaveMovedAndTheyAreCommitted() {
        let script = openTransaction()
        var progress = ShardProgress()
        progress.completed = [.init(place: RecordPlace(partitionSlot: 0, offset: 0), isRepeated: false)]
        progress.freed = [0: 1]
        script.report(0, .progress(progress))
        script.tell { $0.stop(at: $1) }
        script.pass(30 * WorkerScript.second)
        script.tick()
        #expect(sentOffsets(finish(script, produced: 0)) == [1])
        #expect(script.step(.sendOffsets).contains(.step(.commit)))
    }

    /// The open transaction would hold up the workers that take the partitions over.
    @Test func theLastOffsetsCannotBeSentAndTheTimePassesAndTheTransactionIsAborted() {
        let script = openTransaction()
        script.deliver(0)
        script.tell { $0.stop(at: $1) }
        script.pass(30 * WorkerScript.second)
        script.tick()
        #expect(sentOffsets(finish(script, produced: 1)) == [1])
        script.step(.sendOffsets, .retriable(KafkaFault("timeout", .retriable)))
        #expect(!script.passTicks(49).contains(.step(.abort)))
        #expect(script.passTicks(1).contains(.step(.abort)))
        #expect(script.step(.abort).contains(where: isClose))
    }

    @Test func aWorkerAtItsLimitDrainsAndAJobEndsAndNothingIsPolled() {
        let script = WorkerScript(jobs: 1)
        script.assign([0])
        _ = script.take(0)
        var room = 1
        script.tell { room = $0.room(atMost: 100, bytesHeld: 0, storeQueueBytes: 0, at: $1) }
        #expect(room == 0)
        script.tell { $0.stop(at: $1) }
        #expect(!(script.deliver(0) + script.polled()).contains(.poll))
    }
}

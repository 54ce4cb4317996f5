import DeliveryCore
import EventLoop
import Kafka
import SluiceModel

/// Carries out the worker's requests, and the ends that follow from them.
extension Shard {
    /// Carries out a request of the worker. Shard's thread only.
    func perform(_ request: ShardRequest) {
        if request.followsRecords { readAllRecords() }
        switch request {
        case .begin(let slot, _, _, _, _): outcomes.begin(partitionSlot: slot)
        case .end(let slots): for slot in slots { outcomes.end(partitionSlot: slot) }
        default: break
        }
        wallMilliseconds = wallClockMilliseconds()
        machine.take(request, at: now)
        // Records and answers that come from here on are ignored.
        if case .finish = request { close() }
        act()
        follow()
        switch request {
        case .end(let slots): for slot in slots { storage?.endPartition(slot) }
        case .flush: report(.flushed(flushToStore()))
        case .freeze(let number, let atOnce):
            submitToStore()
            outcomes.freeze(number, atOnce: atOnce)
        case .thaw(let number, let repeating, let refused):
            outcomes.thaw(number, repeating: repeating, refused: refused)
        case .pass(let number): report(.passed(number))
        case .leaveResponses: report(.leftResponses(leaveResponses()))
        case .finish: finished()
        default: break
        }
        askForTurnEnd()
    }

    func report(_ report: ShardReport) { port.report(plan.index, report) }

    /// Reports settled partitions. A partition's report waits until another worker's later records are sure to follow
    /// all records written here. `settledAll` is reported at once.
    func reportSettled() {
        for settled in machine.takeSettled() {
            guard settled != .settledAll else { return report(settled) }
            outcomes.afterThis { [self] in report(settled) }
        }
    }

    /// Closes all connections at once, and drops the records that nobody has taken.
    private func close() {
        for pool in pools { pool.close() }
        while let record = ring.pop() { ConsumedRecord(rawPointer: record.pointer).destroy() }
    }

    /// Ends the producer, because nothing is in memory any more.
    private func finished() {
        outcomes.flushPending()
        let flush = flushToStore()
        let last = outcomes.stop()
        report(
            .finished(
                ShardEnding(
                    flush: flush, produced: last.produced, changesLeft: last.changesLeft, isTorn: last.isTorn)
            ))
    }

    /// Submits all requests gathered so far to the store.
    private func flushToStore() -> ShardFlush {
        if storage != nil { submitToStore() }
        return machine.flushed()
    }
}

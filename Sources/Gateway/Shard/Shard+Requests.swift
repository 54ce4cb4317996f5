import DeliveryCore
import EventLoop
import Kafka
import SluiceModel

/// Carries out the worker's requests, and the ends that follow from them.
extension Shard {
    /// Carries out a request of the worker. Shard's thread only.
    func perform(_ request: ShardRequest) {
        switch request {
        case .begin(let slot, let partition, _, _, _): beginPartition(slot, partition)
        case .catchUp(let slot): machine.beginCatchUp(slot)
        case .caughtUp(let slot):
            // Newer records may be in the ring.
            readAllRecords()
            machine.endCatchUp(slot, at: now)
            act()
        case .abandon(let slots, let isLost):
            report(.abandoned(slots.map { SlotCount(slot: $0, count: abandon($0, isLost: isLost)) }))
        case .settle(let slot): machine.settle(slot)
        case .end(let slots): for slot in slots { endPartition(slot) }
        case .release(let slot): machine.awaitRelease(slot)
        case .relieve(let slot, let offset): relieve(slot, below: offset)
        case .due(let slot, let items, let readThrough):
            // Older records first, because an item could be newer than they are.
            readAllRecords()
            machine.due(slot, items, readThrough: readThrough, report: .dueTaken(slot: slot))
        case .suspended(let slot, let items, let readThrough):
            readAllRecords()
            machine.due(slot, items, readThrough: readThrough, report: .suspendedTaken(slot: slot))
        case .expired(let slot, let devices):
            machine.expired(slot, devices, report: .expiredTaken(slot: slot))
        case .remove(let items): remove(items)
        case .forgetMarks(let slot):
            machine.forgetMarks(slot)
            follow()
        case .flush: report(.flushed(flushToStore()))
        case .freeze(let number, let atOnce):
            submitToStore()
            outcomes.freeze(number, atOnce: atOnce)
        case .thaw(let number, let repeating, let refused):
            outcomes.thaw(number, repeating: repeating, refused: refused)
        case .storeFails(let isFailing): machine.storeFails(isFailing)
        case .wake: break
        case .pass(let number): report(.passed(number))
        case .leaveResponses: report(.leftResponses(leaveResponses()))
        case .drain:
            machine.drain()
            report(.drained(abandon(nil, isLost: false)))
        case .finish: finish()
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

    /// Begins a partition under a slot that an earlier partition may have had.
    func beginPartition(_ slot: UInt16, _ partition: Int32) {
        outcomes.begin(partitionSlot: slot)
        machine.beginPartition(slot, partition: partition)
    }

    /// Ends a partition: nothing more of it is written to the store or loaded from there.
    private func endPartition(_ slot: UInt16) {
        outcomes.end(partitionSlot: slot)
        machine.endPartition(slot)
        follow()
        storage?.endPartition(slot)
    }

    /// Writes waiting items of a partition's records below `offset` to the store, so that their offsets are complete.
    private func relieve(_ slot: UInt16, below offset: Int64) {
        guard machine.mayRelieve(slot) else { return }
        // The ring may still hold such records.
        readAllRecords()
        machine.relieve(slot, below: offset, at: now)
        act()
    }

    /// Gives back a partition's jobs that are not in flight, because Kafka still has them. Returns the number of jobs.
    /// - Parameters:
    ///   - slot: nil for all partitions.
    ///   - isLost: another worker may own the partition already.
    private func abandon(_ slot: UInt16?, isLost: Bool) -> Int {
        readAllRecords()
        machine.abandon(slot, at: now)
        act()
        machine.abandonWaiting(slot)
        follow()
        let count = machine.abandonmentEnded()
        guard isLost, let slot else { return count }
        return count + outcomes.abandon(partitionSlot: slot)
    }

    /// Closes all connections at once, and abandons the pushes still on them without an outcome.
    private func finish() {
        machine.finish()
        for pool in pools { pool.connections.close() }
        while let record = ring.pop() { ConsumedRecord(rawPointer: record.pointer).destroy() }
        wallMilliseconds = wallClockMilliseconds()
        follow()
        machine.giveUpUnanswered(at: now)
        act()
        // Last, because the end of one job can concern another.
        machine.leaveAll()
        for slot in 0..<UInt32(jobs.capacity) where jobs.contains(slot) {
            counters.abandoned += 1
            freedBytes += jobs.free(slot)
        }
        // A record that isn't destroyed keeps its Kafka client from closing.
        machine.abandonWaiting(nil)
        follow()
        for handle in machine.takeAllHandles() { discard(handle) }
        act()
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

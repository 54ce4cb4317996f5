import DeliveryCore
import EventLoop
import RetryStore

/// Orders of the machine to the shards.
extension Intake {
    func askAll(_ request: ShardRequest) {
        if case .begin(let slot, let partition, let readThrough, let earlierFrom, let committed) = request {
            return begin(
                slot, partition, readThrough: readThrough, earlierFrom: earlierFrom, committed: committed)
        }
        for index in shards.indices { ask(index, request) }
    }

    /// Each shard hears of a partition with its part of the store.
    private func begin(
        _ slot: UInt16, _ partition: Int32, readThrough: Int64, earlierFrom: Int64, committed: Int64
    ) {
        guard store != nil, let handle = handle(of: partition) else {
            for shard in shards { shard.loop.execute { shard.begin(partitionSlot: slot) } }
            return
        }
        let offset = CommittedOffset(committed)
        watch(slot, offset)
        let marks = takeMarkers(of: partition)
        for shard in shards {
            shard.loop.execute {
                shard.begin(
                    partitionSlot: slot, handle, readThrough: readThrough, earlierFrom: earlierFrom,
                    offset, marks)
            }
        }
    }

    func ask(_ index: Int, _ request: ShardRequest) {
        let shard = shards[index]
        shard.loop.execute { shard.perform(request) }
    }
}

extension Shard {
    /// Carries out an order of the worker. On the shard's thread.
    func perform(_ request: ShardRequest) {
        switch request {
        case .begin(let slot, _, _, _, _): begin(partitionSlot: slot)
        case .abandon(let slots, let isLost):
            report(
                .abandoned(
                    slots.map { SlotCount(slot: $0, count: abandon(partitionSlot: $0, isLost: isLost)) }))
        case .settle(let slot):
            whenSettled(partitionSlot: slot) { [self] in reportAfterWritten(.settled(slot: slot)) }
        case .end(let slots): for slot in slots { end(partitionSlot: slot) }
        case .release(let slot):
            whenSettled(partitionSlot: slot) { [self] in reportAfterWritten(.released(slot: slot)) }
        case .relieve(let slot, let offset): relieve(partitionSlot: slot, below: offset)
        case .due(let slot, let items, let readThrough):
            let keys = items.map { ItemKey(device: $0.device, offset: $0.offset) }
            due(slot, keys, readThrough: readThrough) { [self] in report(.dueTaken(slot: slot)) }
        case .parked(let slot, let items, let readThrough):
            let keys = items.map { ItemKey(device: $0.device, offset: $0.offset) }
            due(slot, keys, readThrough: readThrough) { [self] in report(.parkedTaken(slot: slot)) }
        case .expired(let slot, let devices):
            expired(slot, devices) { [self] in report(.expiredTaken(slot: slot)) }
        case .remove(let items): remove(items)
        case .forgetMarkers(let slot): forgetMarks(partitionSlot: slot)
        case .flush: report(.flushed(ShardFlush(flushToStore())))
        case .freeze(let number, let atOnce):
            submitToStore()
            outcomes.freeze(number, atOnce: atOnce) { [self] in report(.frozen(number: $0, produced: $1)) }
        case .thaw(let number, let repeating, let omitsValues):
            outcomes.thaw(number, repeating: repeating, omitsValues: omitsValues)
        case .storeFails(let isFailing): storeFails(isFailing)
        case .wake: askForTurnEnd()
        case .pass(let number): report(.passed(number))
        case .drain:
            report(.drained(drain()))
            whenSettled(partitionSlot: nil) { [self] in report(.settledAll) }
        case .finish:
            end()
            let flush = flushToStore()
            let last = outcomes.end()
            report(
                .finished(
                    ShardEnding(
                        flush: ShardFlush(flush), produced: last.produced, changesLeft: last.changesLeft,
                        isTorn: last.isTorn)))
        }
    }
}

extension ShardFlush {
    init(_ flush: StoreFlush) {
        self.init(
            hasWritten: flush.hasWritten, produced: flush.produced,
            epoch: ChangeEpoch(shard: flush.source.shard, epoch: flush.source.epoch))
    }
}

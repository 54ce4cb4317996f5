import DeliveryCore
import SluiceModel

/// Items whose devices get new tokens.
extension World {
    /// Notes the new token of an item in flight. A stored item stays in the store under the old token until the attempt
    /// ends, and the token change isn't done before.
    func noteMove(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        counts[.noteMove] += 1
        shard.copies[Int(slot)].noted = cause.newToken
        let isStored = shard.store.residency.isStored(slot)
        shard.store.residency.noted(slot, by: place(cause.record, worker))
        guard isStored else { return }
        counts[.moveDeferred] += 1
        jobs[shard.copies[Int(slot)].job].movedBy = cause.record
    }

    /// Queues the outcomes of token changes that no item delays any more.
    func finishChanges(_ worker: WorkerModel, _ shard: ShardModel) {
        for handle in shard.store.residency.takeChangesDone() {
            guard case .record(let number, let isReplay, let epoch)? = shard.store.take(handle) else {
                broken(.sound, "a token change is done that isn't held up")
                continue
            }
            controlled(number, isReplay: isReplay, epoch: epoch, worker)
        }
    }

    func readdress(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        let copy = shard.copies[Int(slot)]
        let new = copy.noted >= 0 ? copy.noted : cause.newToken
        note(worker, shard, "push # goes to token # instead", copy.job, new)
        if copy.noted < 0 { jobs[copy.job].movedBy = cause.record }
        shard.store.residency.moved(slot, place(copy, worker), to: tokens[new].key)
        checkMeets(copy, new, worker, shard)
        shard.pending[copy.address] -= 1
        shard.pending[new] += 1
        shard.copies[Int(slot)].address = new
        shard.copies[Int(slot)].noted = -1
        shard.copies[Int(slot)].hasMoved = true
        shard.copies[Int(slot)].hasNews = true
        moved(shard.copies[Int(slot)], shard)
    }
}

import DeliveryCore
import SluiceModel

/// Items whose devices get new tokens.
extension World {
    /// An item in flight has a new token to go to next. When the store has it, it does so under the old token until then:
    /// the token change is not done before.
    func noteMove(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        counts[.noteMove] += 1
        hasMovedOn(shard.copies[Int(slot)], worker)
        shard.copies[Int(slot)].noted = cause.newToken
        shard.copies[Int(slot)].notedBy = -1
        guard shard.copies[Int(slot)].key != nil else { return }
        counts[.moveDeferred] += 1
        shard.copies[Int(slot)].notedBy = cause.record
        jobs[shard.copies[Int(slot)].job].movedBy = cause.record
        let epoch = worker.partitions[log.records[cause.record].partition].epoch
        worker.deferred[cause.record, default: .init(epoch: epoch)].items += 1
    }

    /// A token change isn't held up by this item any more.
    func hasMovedOn(_ copy: Copy, _ worker: WorkerModel) {
        guard copy.notedBy >= 0, let deferred = worker.deferred[copy.notedBy] else { return }
        guard deferred.items == 1 else {
            worker.deferred[copy.notedBy]!.items -= 1
            return
        }
        worker.deferred[copy.notedBy] = nil
        // Unless it is being taken in.
        guard cause.record != copy.notedBy else { return }
        controlled(copy.notedBy, isReplay: deferred.isReplay, epoch: deferred.epoch, worker)
    }

    func readdress(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        let copy = shard.copies[Int(slot)]
        let new = copy.noted >= 0 ? copy.noted : cause.newToken
        note(worker, shard, "push # goes to token # instead", copy.job, new)
        if copy.noted < 0 { jobs[copy.job].movedBy = cause.record }
        hasMovedOn(copy, worker)
        if copy.key != nil { shard.store.moving.insert(copy.job) }
        checkMeets(copy, new, worker, shard)
        shard.pending[copy.address] -= 1
        shard.pending[new] += 1
        shard.copies[Int(slot)].address = new
        shard.copies[Int(slot)].noted = -1
        shard.copies[Int(slot)].notedBy = -1
        shard.copies[Int(slot)].hasMoved = true
        shard.copies[Int(slot)].hasNews = true
        moved(shard.copies[Int(slot)], shard)
    }
}

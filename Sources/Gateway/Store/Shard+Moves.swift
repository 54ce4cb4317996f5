import DeliveryCore
import EventLoop
import Kafka
import RetryStore
import SluiceModel

/// Items whose devices get new tokens while the store has them.
extension Shard {
    // MARK: Marks

    /// Marks that were found when the partition was taken over. All shards know them, and one has them forgotten.
    func begin(partitionSlot: UInt16, _ marks: [StoreMark], _ storage: ShardStore) {
        for mark in marks {
            let place = ShardStore.Place(partitionSlot: partitionSlot, offset: mark.offset)
            storage.marked[place] = mark.apnsID
            if plan.index == 0 { storage.marks.append(place) }
        }
    }

    /// The record's item was moved before the worker crashed: it needn't be looked for here.
    func isMarked(_ incoming: IncomingRecord, _ push: PushJob) -> Bool {
        guard let storage, !storage.marked.isEmpty else { return false }
        let place = ShardStore.Place(
            partitionSlot: incoming.partitionSlot, offset: incoming.record.offset)
        return storage.marked.removeValue(forKey: place) == push.apnsID
    }

    /// The store has an item under another token than its record names: whoever reads that again has to know. With
    /// transactions as well, as the item's own offset may be committed later than the move.
    func mark(_ job: UnsafeMutablePointer<Job>, in partition: ShardStore.Partition, _ storage: ShardStore) {
        guard job.pointee.hasMoved, !job.pointee.isMarked,
            job.pointee.offset >= partition.committed.offset
        else { return }
        job.pointee.isMarked = true
        let mark = StoreMark(offset: job.pointee.offset, apnsID: job.pointee.push.apnsID)
        storage.batch.put(partition.handle, mark)
        storage.marks.append(
            ShardStore.Place(partitionSlot: job.pointee.partitionSlot, offset: job.pointee.offset))
        guard outcomes.hasChangelog else { return }
        storage.valueWriter.removeAll()
        ChangelogKey.encode(mark, into: &storage.valueWriter)
        changeMark(mark.offset, job.pointee.partitionSlot, partition, isThere: true, storage)
    }

    /// Marks of records that are committed by now are of no more use.
    func forgetMarks(_ storage: ShardStore) {
        guard !storage.marks.isEmpty, loop.now >= storage.nextForgetting else { return }
        storage.nextForgetting = loop.now + .milliseconds(200)
        storage.marks.removeAll { place in
            guard let partition = storage[place.partitionSlot] else { return true }
            guard place.offset < partition.committed.offset else { return false }
            forgetMark(place, partition, storage)
            return true
        }
    }

    /// The partition's log began anew: its marks are of other records.
    func forgetMarks(partitionSlot: UInt16) {
        guard let storage, let partition = storage[partitionSlot] else { return }
        storage.marked = storage.marked.filter { $0.key.partitionSlot != partitionSlot }
        for place in storage.marks where place.partitionSlot == partitionSlot {
            forgetMark(place, partition, storage)
        }
        storage.marks.removeAll { $0.partitionSlot == partitionSlot }
        askForTurnEnd()
    }

    private func forgetMark(
        _ place: ShardStore.Place, _ partition: ShardStore.Partition, _ storage: ShardStore
    ) {
        storage.marked[place] = nil
        storage.batch.removeMark(partition.handle, offset: place.offset)
        if outcomes.hasChangelog {
            changeMark(place.offset, place.partitionSlot, partition, isThere: false, storage)
        }
    }

    private func changeMark(
        _ offset: Int64, _ partitionSlot: UInt16, _ partition: ShardStore.Partition, isThere: Bool,
        _ storage: ShardStore
    ) {
        storage.keyWriter.removeAll()
        ChangelogKey.mark(offset: offset).encode(into: &storage.keyWriter)
        change(
            partition.handle, partitionSlot, value: isThere ? storage.valueWriter.bytes : nil, storage)
    }

    // MARK: Loads meanwhile

    /// What a load has found is no item to restore: it has ended, it has left this key since, or it is on its way here.
    func isStale(_ place: ShardStore.Place, of device: DeviceKey, _ storage: ShardStore) -> Bool {
        if storage.ended[place] != nil { return true }
        if !storage.left.isEmpty, storage.left[ShardStore.Left(place: place, device: device)] != nil {
            return true
        }
        return storage.arrivals[device]?.waiting.contains { event in
            guard case .departure(let departure) = event else { return false }
            return departure.job.partitionSlot == place.partitionSlot && departure.job.offset == place.offset
        } ?? false
    }

    // MARK: Token changes in a row

    /// What has come to a device by a token change goes on where the device's own token has been changed to after that:
    /// the two events come through two partitions, the later one perhaps first.
    func moveOn(_ device: DeviceKey, after occurredMilliseconds: Int64) {
        guard let change = storage?.pastChanges[device], change.occurredMilliseconds > occurredMilliseconds
        else { return }
        change.token.withUnsafeBytes { token in
            var context = ActionContext(newToken: token)
            context.movedAtMilliseconds = change.occurredMilliseconds
            // Also where it is this shard: as a departure it waits until all of that device is in memory.
            _ = machine.tokenChanged(
                device, to: plan.hasher.device(token), isElsewhere: true, origin: change.origin, at: now)
            act(context)
        }
    }

    // MARK: Token changes that wait

    /// An item in flight takes a new token over when it is tried again. When the store has it, it does so under the old
    /// token until then: the token change isn't done before, and is read again after a crash.
    func noteMove(_ slot: UInt32, _ context: ActionContext) {
        guard let token = context.newToken else { return }
        let job = jobs[slot]
        job.pointee.note(token)
        movesOn(&job.pointee.notedBy)
        guard let storage, job.pointee.isStored, let place = context.change else { return }
        job.pointee.notedBy = place
        storage.changes[place, default: .init()].items += 1
    }

    /// Whether the outcome of a token change has to wait for items; then `incoming` is kept.
    func mustWait(_ incoming: IncomingRecord, count: UInt32?) -> Bool {
        guard let storage, !storage.changes.isEmpty else { return false }
        let place = ShardStore.Place(partitionSlot: incoming.partitionSlot, offset: incoming.record.offset)
        guard storage.changes[place] != nil else { return false }
        storage.changes[place]!.incoming = incoming
        storage.changes[place]!.count = count
        return true
    }

    /// An item has moved or ended: the token change that it held up, if there was one, isn't held up by it any more.
    func movesOn(_ change: inout ShardStore.Place?) {
        guard let place = change else { return }
        change = nil
        guard let storage, storage.changes[place] != nil else { return }
        storage.changes[place]!.items -= 1
        guard storage.changes[place]!.items == 0 else { return }
        let done = storage.changes.removeValue(forKey: place)!
        // Nil: it is being taken in.
        if done.incoming != nil { storage.changesDone.append(done) }
        askForTurnEnd()
    }

    /// Gives the outcomes of token changes that nothing holds up any more. When all of the turn is done: decoding doesn't
    /// come in the way of what is being decoded.
    func finishChanges(_ storage: ShardStore) {
        guard !storage.changesDone.isEmpty else { return }
        for done in exchange(&storage.changesDone, with: []) {
            guard let incoming = done.incoming else { continue }
            if incoming.isReplay {
                replayed(incoming)
                continue
            }
            guard
                case .control(let control)? = try? decoder.decode(
                    jobRecord(of: incoming.record), nowMilliseconds: wallMilliseconds)
            else { preconditionFailure("a token change is no job any more") }
            end(
                control, incoming, .applied, done.count,
                OutcomeSource(record: incoming.record, partitionSlot: incoming.partitionSlot))
        }
    }

    /// An item is given back to Kafka, and so is the token change that it holds up.
    func giveBackChange(of job: UnsafeMutablePointer<Job>) {
        guard let place = job.pointee.notedBy else { return }
        // Of another partition: that one stays, and the change with it.
        guard place.partitionSlot == job.pointee.partitionSlot else { return movesOn(&job.pointee.notedBy) }
        job.pointee.notedBy = nil
        if let change = storage?.changes.removeValue(forKey: place) { giveBack(change) }
    }

    /// Gives the waiting token changes of a partition, or all of them, back to Kafka.
    func giveBackChanges(partitionSlot: UInt16?) {
        guard let storage, !storage.changes.isEmpty else { return }
        for (place, change) in storage.changes
        where partitionSlot == nil || place.partitionSlot == partitionSlot {
            storage.changes[place] = nil
            giveBack(change)
        }
    }

    private func giveBack(_ change: ShardStore.TokenChange) {
        guard let incoming = change.incoming else { return }
        counters.abandoned += 1
        if isAbandoning { abandoned += 1 } else { gaveBack(incoming.partitionSlot) }
        free(incoming.record)
    }
}

import DeliveryCore
import EventLoop
import Kafka
import RetryStore
import SluiceModel

/// Items whose devices get new tokens while the store has them.
extension Shard {
    // MARK: Marks

    /// The record's item was moved before the worker crashed, or the store had it and it has ended meanwhile: the record is
    /// complete.
    func isDone(_ push: PushJob, _ incoming: IncomingRecord) -> Bool {
        guard
            residency.hasEnded(incoming.place, of: incoming.device)
                || residency.isMarked(incoming.place, push.apnsID)
        else {
            return false
        }
        push.release()
        complete(incoming.partitionSlot, incoming.record.offset, isRepeated: true)
        free(incoming.record)
        return true
    }

    /// The store has an item under another token than its record names: whoever reads that again has to know. With
    /// transactions as well, as the item's own offset may be committed later than the move.
    func mark(_ job: UnsafeMutablePointer<Job>, in handle: StorePartition, _ storage: ShardStore) {
        let mark = StoreMark(offset: job.pointee.offset, apnsID: job.pointee.push.apnsID)
        storage.write { $0.put(handle, mark) }
        guard outcomes.hasChangelog else { return }
        storage.valueWriter.removeAll()
        ChangelogKey.encode(mark, into: &storage.valueWriter)
        changeMark(mark.offset, job.pointee.partitionSlot, handle, isThere: true, storage)
    }

    /// Marks of records that are committed by now are of no more use.
    func forgetMarks(_ storage: ShardStore) {
        guard residency.mustForgetMarks(at: loop.now.nanoseconds) else { return }
        storage.forEachCommitted { residency.committed($0, $1) }
        residency.forgetMarks()
    }

    /// The partition's log began anew: its marks are of other records.
    func forgetMarks(partitionSlot: UInt16) {
        residency.forgetMarks(partitionSlot)
        follow()
        askForTurnEnd()
    }

    func removeMark(_ place: RecordPlace) {
        guard let storage, let handle = storage.handle(place.partitionSlot) else { return }
        storage.write { $0.removeMark(handle, offset: place.offset) }
        if outcomes.hasChangelog {
            changeMark(place.offset, place.partitionSlot, handle, isThere: false, storage)
        }
    }

    private func changeMark(
        _ offset: Int64, _ partitionSlot: UInt16, _ handle: StorePartition, isThere: Bool,
        _ storage: ShardStore
    ) {
        storage.keyWriter.removeAll()
        ChangelogKey.mark(offset: offset).encode(into: &storage.keyWriter)
        change(handle, partitionSlot, value: isThere ? storage.valueWriter.bytes : nil, storage)
    }

    // MARK: Token changes in a row

    /// Remembers what a device's token was changed to.
    func remember(
        _ token: UnsafeRawBufferPointer, of device: DeviceKey, occurredMilliseconds: Int64,
        _ origin: RecordOrigin
    ) {
        guard let storage,
            let number = residency.remember(
                device, occurredMilliseconds: occurredMilliseconds, origin: origin)
        else { return }
        storage.keepToken(token, number: number)
    }

    /// What has come to a device by a token change goes on where the device's own token has been changed to after that:
    /// the two events come through two partitions, the later one perhaps first.
    func moveOn(_ device: DeviceKey, after occurredMilliseconds: Int64) {
        guard let storage, let change = residency.change(of: device, after: occurredMilliseconds) else {
            return
        }
        storage.pastToken(change.number).withUnsafeBytes { token in
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
        jobs[slot].pointee.note(token)
        residency.noted(slot, by: storage == nil ? nil : context.change)
    }

    /// Whether the outcome of a token change has to wait for items; then `incoming` is kept.
    func mustWait(_ incoming: IncomingRecord, count: UInt32?) -> Bool {
        guard residency.mustWait(incoming.place) else { return false }
        residency.keepChange(incoming.place, waiting.keep(.change(incoming, count: count)))
        return true
    }

    /// Gives the outcomes of token changes that nothing holds up any more. When all of the turn is done: decoding doesn't
    /// come in the way of what is being decoded.
    func finishChanges() {
        for handle in residency.takeChangesDone() {
            guard case .change(let incoming, let count)? = waiting.take(handle) else { continue }
            if incoming.isReplay {
                replayed(incoming)
                continue
            }
            guard
                case .control(let control)? = try? decoder.decode(
                    jobRecord(of: incoming.record), nowMilliseconds: wallMilliseconds)
            else { preconditionFailure("a token change is no job any more") }
            end(
                control, incoming, .applied, count,
                OutcomeSource(record: incoming.record, partitionSlot: incoming.partitionSlot))
        }
    }

    /// A token change is given back to Kafka.
    func giveBackChange(_ handle: UInt32) {
        guard case .change(let incoming, _)? = waiting.take(handle) else { return }
        counters.abandoned += 1
        giveBack(incoming.partitionSlot)
        free(incoming.record)
    }
}

import DeliveryCore
import SluiceModel

/// The shell around the machines: hands them jobs and carries out their actions.
extension World {
    /// A record goes to its shard; `isReplay` when it was complete before.
    func hand(_ number: Int, to worker: WorkerModel, _ partition: Int, isReplay: Bool = false) {
        let record = log.records[number]
        let shard = worker.shards[shard(of: record.token)]
        let state = worker.partitions[partition]
        shard.store.read[partition] = max(shard.store.read[partition], record.offset)
        shard.store.residency.hasRead(state.slot, through: record.offset)
        if record.kind == .push, isReplay { return replayed(number, worker) }
        if !mustWait(number, isReplay: isReplay, epoch: state.epoch, worker, shard) {
            take(number, isReplay: isReplay, epoch: state.epoch, worker, shard)
        }
        follow(worker, shard)
    }

    /// Takes a record whose device is in memory.
    func take(
        _ number: Int, isReplay: Bool, epoch: Int, _ worker: WorkerModel, _ shard: ShardModel
    ) {
        let record = log.records[number]
        let partition = record.partition
        guard worker.partitions[partition].epoch == epoch, worker.partitions[partition].isOwned else {
            return broken(.sound, "record \(number) is taken though its partition has gone")
        }
        checkLoaded(record, worker, shard)
        guard record.kind == .push else {
            control(number, record, worker, shard)
            let change = place(number, worker)
            guard shard.store.residency.mustWait(change) else {
                return controlled(number, isReplay: isReplay, epoch: epoch, worker)
            }
            shard.store.residency.keepChange(
                change,
                shard.store.keep(.record(number, isReplay: isReplay, epoch: epoch)))
            return
        }
        let place = place(number, worker)
        if shard.store.residency.hasEnded(place, of: tokens[record.token].key) {
            return complete(number, worker, partition)
        }
        if shard.store.residency.isMarked(place, markID(record.subject)) {
            counts[.completedByMark] += 1
            return complete(number, worker, partition)
        }
        let job = record.subject
        var facts = jobs[job].facts
        facts.partition = worker.partitions[partition].slot
        let copy = newCopy(
            job, partition, worker.partitions[partition].epoch, address: record.token, worker)
        // A token change that comes after it has its effect on this stay as well.
        jobs[job].movedBy = -1
        jobs[job].hasEnded = false
        cause.pendingOfDevice = shard.pending[record.token]
        let admission = shard.machine.admit(facts, at: now(worker))
        if admission == .full {
            waitForSlot(number, isReplay: isReplay, epoch: epoch, worker, shard)
            return drain(worker, shard)
        }
        shard.received += 1
        if case .repeated(let slot, let isDurable) = admission {
            shard.repeated += 1
            repeated(number, slot, isDurable, worker, shard)
            return drain(worker, shard)
        }
        admitted(admission, copy, ResidentFacts(), worker, shard, ItemProgress())
        drain(worker, shard)
    }

    /// Ends a push whose device has more items than there is room for.
    func refuse(_ number: Int, epoch: Int, _ worker: WorkerModel, _ shard: ShardModel) {
        let record = log.records[number]
        let place = place(number, worker)
        if shard.store.residency.hasEnded(place, of: tokens[record.token].key)
            || shard.store.residency.isMarked(place, markID(record.subject))
        {
            return complete(number, worker, record.partition)
        }
        counts[.endDeviceLimit] += 1
        jobs[record.subject].movedBy = -1
        let copy = newCopy(record.subject, record.partition, epoch, address: record.token, worker)
        finish(
            copy, .undeliverable, .deviceLimit, worker, isOffsetDone: false, isStored: false, ItemProgress())
    }

    /// A cancel or device event has had all of its effect.
    func controlled(_ number: Int, isReplay: Bool, epoch: Int, _ worker: WorkerModel) {
        let record = log.records[number]
        guard !isReplay else { return replayed(number, worker) }
        giveOutcome(
            of: number, by: worker, partition: record.partition, epoch: epoch, completes: true,
            token: record.token)
    }

    /// The record of an item that the store has brought back.
    private func repeated(
        _ number: Int, _ slot: UInt32, _ isDurable: Bool, _ worker: WorkerModel, _ shard: ShardModel
    ) {
        happened(.repeated)
        note(worker, shard, "push # is in slot # already", log.records[number].subject, Int(slot))
        let copy = shard.copies[Int(slot)]
        guard copy.isLive, jobs[copy.job].record == number, copy.isRestored, isDurable else {
            return broken(.noDuplicate, "record \(number) comes again while slot \(slot) has it")
        }
        complete(number, worker, log.records[number].partition)
    }

    /// Does what an admission asks for. `progress` is what the push came with.
    func admitted(
        _ admission: Admission, _ copy: Copy, _ resident: ResidentFacts, _ worker: WorkerModel,
        _ shard: ShardModel, _ progress: ItemProgress
    ) {
        let record = jobs[copy.job].record
        log.records[record].takenEpoch = copy.epoch
        checkAgainstFinal(copy, admission, shard)
        switch admission {
        case .placed(let slot):
            counts[.placed] += 1
            note(
                worker, shard, "push # gets slot #, window #", copy.job, Int(slot),
                Int(jobs[copy.job].facts.coalesceWindowMilliseconds))
            // A push from its record has no facts in the store.
            if resident != ResidentFacts() {
                shard.store.residency.addItem(
                    slot, place(copy, worker), resident, tokens[copy.address].key)
            }
            var copy = copy
            shard.lastArrival += 1
            copy.arrival = shard.lastArrival
            take(copy, into: slot, worker, shard)
            if isOver(copy, worker) {
                counts[.expiredBehind] += 1
                checkOver(copy, slot, shard)
            } else if copy.address == jobs[copy.job].token, progress.attempts == 0, !progress.isStored {
                checkRoom(shard, copy)
            }
        case .replaced(let slot, let replaced):
            counts[.replaced] += 1
            note(worker, shard, "push # takes the place of #", copy.job, shard.copies[Int(slot)].job)
            let old = shard.copies[Int(slot)]
            if isOver(copy, worker) {
                counts[.expiredReplaces] += 1
                checkOver(copy, slot, shard)
                if old.isRestored, jobs[copy.job].timesSeen > 0 { counts[.expiredAfterCrash] += 1 }
            }
            checkReplaced(old, copy, replaced, worker)
            shard.finished += 1
            finish(
                old, .superseded, nil, worker, isOffsetDone: replaced.progress.isOffsetDone,
                isStored: ends(slot, worker, shard), replaced.progress)
            leave(slot, worker, shard)
            shard.store.residency.replaced(
                slot, place(copy, worker), resident, tokens[copy.address].key)
            var copy = copy
            inherit(from: old, &copy)
            take(copy, into: slot, worker, shard)
        case .obsolete(let slot):
            counts[.obsolete] += 1
            note(worker, shard, "push # is older than #", copy.job, shard.copies[Int(slot)].job)
            checkSuperseded(copy, by: shard.copies[Int(slot)])
            refuse(copy, .superseded, nil, resident, worker, shard, progress)
        case .expired:
            counts[.expiredOnArrival] += 1
            checkExpired(copy, worker, shard)
            refuse(copy, .expired, nil, resident, worker, shard, progress)
        case .deviceFull:
            counts[.deviceFull] += 1
            counts[.endDeviceLimit] += 1
            if isOver(copy, worker) {
                broken(.rightOutcome, "push \(copy.job) expired before it came, and finds its device full")
            }
            if cause.pendingOfDevice < scenario.limits.pendingPerDevice || progress.isStored {
                broken(.rightOutcome, "push \(copy.job) finds its device full at \(cause.pendingOfDevice)")
            }
            refuse(copy, .undeliverable, .deviceLimit, resident, worker, shard, progress)
        case .repeated(let slot, _):
            broken(.noDuplicate, "push \(copy.job) is in slot \(slot) already")
        case .full:
            broken(.bounded, "there is no slot for push \(copy.job), with \(worker.used) in use")
        }
    }

    /// A push that ends as it comes.
    private func refuse(
        _ copy: Copy, _ kind: OutcomeKind, _ cause: OutcomeCause?, _ resident: ResidentFacts,
        _ worker: WorkerModel, _ shard: ShardModel, _ progress: ItemProgress
    ) {
        shard.finished += 1
        finish(
            copy, kind, cause, worker, isOffsetDone: progress.isOffsetDone,
            isStored: ends(copy, resident, worker, shard), progress)
        if resident.isRestored { shard.store.residency.removeItem(place(copy, worker)) }
    }

    private func take(_ copy: Copy, into slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        if shard.copies[Int(slot)].isLive {
            broken(.sound, "slot \(slot) is given to push \(copy.job), and in use")
        }
        shard.copies[Int(slot)] = copy
        if copy.isRestored { shard.restoredInSlots += 1 }
        jobs[copy.job].liveEpoch = copy.epoch
        // Its receipt is awaited from when what is before it has gone.
        if copy.acceptedAt > 0, shard.machine.state(slot) == .blocked {
            shard.copies[Int(slot)].isReceiptPutOff = true
            shard.copies[Int(slot)].awaitedSince = 0
        }
        shard.used += 1
        shard.pending[copy.address] += 1
        if worker.partitions[copy.partition].epoch == copy.epoch {
            worker.partitions[copy.partition].live += 1
        }
        if jobs[copy.job].facts.delivery == .confirm { presumable(copy, shard) }
        if copy.hasMoved { moved(copy, shard) }
    }

    /// The slot is empty as far as the shell is concerned.
    func leave(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel) {
        let copy = shard.copies[Int(slot)]
        shard.copies[Int(slot)].isLive = false
        if copy.isRestored { shard.restoredInSlots -= 1 }
        if jobs[copy.job].liveEpoch == copy.epoch { jobs[copy.job].liveEpoch = -1 }
        shard.used -= 1
        shard.pending[copy.address] -= 1
        if worker.partitions[copy.partition].epoch == copy.epoch {
            worker.partitions[copy.partition].live -= 1
        }
    }

    // MARK: Outcomes

    /// Writes the outcome of a push.
    func finish(
        _ copy: Copy, _ kind: OutcomeKind, _ cause: OutcomeCause?, _ worker: WorkerModel, isOffsetDone: Bool,
        isStored: Bool, _ progress: ItemProgress
    ) {
        count(kind, cause)
        log.records[jobs[copy.job].record].lastKind = kind
        jobs[copy.job].movedBy = -1
        jobs[copy.job].hasEnded = true
        note("push # ends: outcome #", copy.job, Int(kind.rawValue))
        if kind == .expired { hasExpired(copy) }
        giveOutcome(
            of: jobs[copy.job].record, by: worker, partition: copy.partition, epoch: copy.epoch,
            completes: !isOffsetDone, isStored: isStored, token: copy.address, job: copy.job)
    }

    private func count(_ kind: OutcomeKind, _ cause: OutcomeCause?) {
        switch kind {
        case .accepted: happened(.endAccepted)
        case .confirmed: happened(.endConfirmed)
        case .rejected: happened(.endRejected)
        case .expired: happened(.endExpired)
        case .superseded: happened(.endSuperseded)
        case .cancelled: happened(.endCancelled)
        default: happened(.endUndeliverable)
        }
        switch cause {
        case .answerLost: counts[.endAnswerLost] += 1
        case .attemptsExhausted: counts[.endAttemptsExhausted] += 1
        case .deviceUnregistered: counts[.endDeviceUnregistered] += 1
        default: break
        }
    }

    // MARK: Actions

    /// Does all that a machine asks for.
    func drain(_ worker: WorkerModel, _ shard: ShardModel) {
        while let action = shard.machine.nextAction() {
            if violation == nil { perform(action, worker, shard) }
        }
    }

    private func perform(_ action: DeliveryAction, _ worker: WorkerModel, _ shard: ShardModel) {
        switch action {
        case .enqueue(let slot, let atFront): enqueue(slot, atFront: atFront, shard)
        case .dequeue(let slot):
            let pool = shard.pools[shard.copies[Int(slot)].queuedIn]
            if !pool.scheduler.remove(slot: slot) {
                broken(.sound, "slot \(slot) is dequeued and doesn't wait")
            }
        case .requeue(let slot):
            counts[.requeue] += 1
            let job = jobs[shard.copies[Int(slot)].job]
            let pool = shard.pools[shard.copies[Int(slot)].queuedIn]
            let isQueued = pool.scheduler.replaced(
                slot: slot, priority: job.facts.priority, bytes: job.bytes, now: monotonic)
            if !isQueued { broken(.sound, "slot \(slot) is replaced and doesn't wait") }
        case .finish(let slot, let kind, let outcomeCause, let successor):
            let copy = shard.copies[Int(slot)]
            let progress = shard.machine.info(slot).progress
            checkFinish(copy, slot, kind, outcomeCause, successor, worker, shard)
            shard.finished += 1
            finish(
                copy, kind, outcomeCause, worker, isOffsetDone: progress.isOffsetDone,
                isStored: ends(slot, worker, shard), progress)
            leave(slot, worker, shard)
            if kind == .expired || kind == .cancelled { outlive(copy, .ended, shard) }
            shard.store.residency.removeItem(slot)
            shard.machine.release(slot)
        case .drop(let slot):
            counts[.drop] += 1
            let copy = shard.copies[Int(slot)]
            note(worker, shard, "push # is given back", copy.job)
            let state = worker.partitions[copy.partition]
            if !worker.isDraining, state.isOwned, state.epoch == copy.epoch, !state.isEnding {
                broken(.nothingLost, "push \(copy.job) is given back though its partition stays")
            }
            shard.dropped += 1
            shard.store.residency.givenBack(slot)
            shard.store.residency.removeItem(slot)
            leave(slot, worker, shard)
            outlive(copy, .dropped, shard)
            shard.machine.release(slot)
        case .store(let slot, let version): requestStore(slot, version, worker, shard)
        case .offsetDone(let slot, let offset): offsetDone(slot, offset, worker)
        case .evict(let slot): evict(slot, worker, shard)
        case .awaitsTurn(let slot):
            let copy = shard.copies[Int(slot)]
            counts[.awaitedTurn] += 1
            shard.store.residency.awaited(
                tokens[copy.address].key, UInt16(worker.partitions[copy.partition].slot))
        case .keepPresence(let number):
            remember(shard.machine.presence(number, at: now(worker)), shard)
            keepPresence(number, worker, shard)
        case .noteMove(let slot): noteMove(slot, worker, shard)
        case .noteErasure: break
        case .readdress(let slot, _):
            counts[.readdress] += 1
            readdress(slot, worker, shard)
        case .depart(let slot): depart(slot, worker, shard)
        case .moveWanted(let slot): broken(.sound, "slot \(slot) asks before it moves")
        case .alert(let topic, _, let fault):
            counts[fault == .tokens ? .alertOfTokens : .alert] += 1
            note(worker, shard, "topic # is stopped", Int(topic))
        case .recovered(let topic):
            counts[.recovered] += 1
            note(worker, shard, "topic # goes on", Int(topic))
        case .suspended: break
        case .resumed(let topic): worker.suspendedLooks.append((shard.number, Int(topic), isProbe: false))
        case .probeWanted(let topic): worker.suspendedLooks.append((shard.number, Int(topic), isProbe: true))
        }
    }

    private func enqueue(_ slot: UInt32, atFront: Bool, _ shard: ShardModel) {
        let copy = shard.copies[Int(slot)]
        let job = jobs[copy.job]
        shard.copies[Int(slot)].retrySteps = -1
        shard.copies[Int(slot)].queuedIn = copy.pool
        let isQueued = shard.pools[copy.pool].scheduler.enqueue(
            slot: slot, app: UInt32(job.topic), priority: job.facts.priority, bytes: job.bytes,
            now: monotonic,
            atFront: atFront)
        if !isQueued || !copy.isLive { broken(.sound, "slot \(slot) can't be queued") }
    }

    private func remember(_ known: KnownPresence, _ shard: ShardModel) {
        shard.lastPresence[tokenByKey[known.device.low]!] = known
    }

    /// An offset is complete before its outcome, as the store has the item.
    private func offsetDone(_ slot: UInt16, _ offset: Int64, _ worker: WorkerModel) {
        counts[.offsetDone] += 1
        let partition = worker.partitionBySlot[Int(slot)]
        let state = worker.partitions[partition]
        guard state.isOwned, state.slot == slot else { return }
        guard let number = record(partition, offset) else {
            return broken(
                .watermark, "offset \(offset) of partition \(partition) is done and was never there")
        }
        if store.token(of: log.records[number].subject) < 0 {
            broken(
                .watermark, "offset \(offset) of partition \(partition) is done, and the store hasn't got it")
        }
        complete(number, worker, partition)
    }

    /// The record at an offset.
    func record(_ partition: Int, _ offset: Int64) -> Int? {
        let records = log.partitions[partition]
        var (low, high) = (0, records.count)
        while low < high {
            let middle = (low + high) / 2
            if log.records[records[middle]].offset < offset { low = middle + 1 } else { high = middle }
        }
        return low < records.count && log.records[records[low]].offset == offset ? records[low] : nil
    }

    func moved(_ copy: Copy, _ shard: ShardModel) {
        begun[identity(copy)].isMixed = true
        shown[identity(copy)].isMixed = true
        if jobs[copy.job].facts.delivery == .confirm { presumable(copy, shard) }
    }

    private func presumable(_ copy: Copy, _ shard: ShardModel) {
        shard.isPresumable[copy.address] = true
        confirms[copy.address] = true
    }
}

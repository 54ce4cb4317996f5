import DeliveryCore
import SluiceModel

/// The workers' Kafka side: polling, offsets, outcomes and commits.
extension World {
    // MARK: Records

    func pollSome(_ count: Int) {
        guard let (worker, partition) = anyPartition() else { return }
        for _ in 0..<count where violation == nil { if !poll(worker, partition) { return } }
    }

    /// Reads the next record of a partition. Returns false when there is no record, or no room for it.
    func poll(_ worker: WorkerModel, _ partition: Int) -> Bool {
        let state = worker.partitions[partition]
        guard !worker.isDraining, !state.isEnding, state.position < log.partitions[partition].count else {
            return false
        }
        guard !state.isPaused else { return refusesRecords(.pausedForSpan) }
        guard worker.taken < scenario.intakeLimit else { return refusesRecords(.pausedForCapacity) }
        let number = log.partitions[partition][state.position]
        let offset = log.records[number].offset
        switch worker.partitions[partition].tracker.track(offset) {
        case .tracked:
            if log.records[number].isCommitted {
                broken(
                    .noDuplicate,
                    "offset \(offset) of partition \(partition) was committed as complete, and comes again")
            }
        case .alreadyCompleted:
            worker.partitions[partition].position += 1
            worker.partitions[partition].isDirty = true
            log.records[number].completeEpoch = state.epoch
            happened(.skippedAsComplete)
            if !isDone(number) {
                broken(.nothingLost, "offset \(offset) of partition \(partition) is skipped and isn't done")
            }
            // A repeated cancel or device event takes effect once more on earlier records that aren't complete. It has
            // no second outcome. Its offset is held until then, so that a crash repeats the record.
            worker.partitions[partition].tracker.retain(offset)
            hand(number, to: worker, partition, isReplay: true)
            return true
        case .full:
            worker.partitions[partition].isPaused = true
            return refusesRecords(.pausedForSpan)
        case .outOfOrder:
            broken(.sound, "offset \(offset) of partition \(partition) is out of order")
            return false
        }
        worker.partitions[partition].position += 1
        if worker.partitions[partition].tracker.isFull { worker.partitions[partition].isPaused = true }
        log.records[number].takenEpoch = state.epoch
        happened(.polled)
        hand(number, to: worker, partition)
        relieve(partition, worker)
        return true
    }

    /// Puts the pushes that hold the watermark back into the store, when the commit's metadata runs out of room.
    func relieve(_ partition: Int, _ worker: WorkerModel, again: Bool = false) {
        guard let offset = worker.partitions[partition].tracker.askRelief(again: again) else { return }
        counts[.relieved] += 1
        for shard in worker.shards {
            shard.machine.relieve(
                partition: worker.partitions[partition].slot, below: offset, at: now(worker))
            drain(worker, shard)
        }
    }

    private func refusesRecords(_ what: Happening) -> Bool {
        counts[what] += 1
        metLimit = true
        return false
    }

    // MARK: Outcomes

    /// Queues an outcome for the producer.
    func giveOutcome(
        of record: Int, by worker: WorkerModel, partition: Int, epoch: Int, completes: Bool,
        isStored: Bool = false, token: Int, job: Int = -1
    ) {
        if log.records[record].outcomes(in: epoch) {
            broken(.oneOutcome, "record \(record) has two outcomes in one assignment")
        }
        if log.records[record].outcomeEpoch >= 0 { counts[.secondOutcome] += 1 }
        log.records[record].outcomeEpoch = epoch
        let state = worker.partitions[partition]
        guard state.isOwned, state.epoch == epoch else {
            // The partition was revoked: the producer sends the outcome, and nobody awaits the acknowledgement.
            log.records[record].isWritten = true
            return
        }
        worker.partitions[partition].outcomes.append(
            PendingOutcome(
                record: record, completes: completes, isStored: isStored, device: tokens[token].key.low,
                job: job))
    }

    func acknowledgeSome(_ count: Int) {
        guard !weather.isKafkaSlow, let (worker, partition) = anyPartition() else { return }
        for _ in 0..<count where violation == nil { if !acknowledge(worker, partition) { return } }
    }

    /// Acknowledges the partition's oldest outcome. Returns false when there is none.
    func acknowledge(_ worker: WorkerModel, _ partition: Int) -> Bool {
        guard let outcome = worker.partitions[partition].outcomes.popFirst() else { return false }
        log.records[outcome.record].isWritten = true
        happened(.acknowledged)
        note("Kafka has the outcome of record #, push #", outcome.record, outcome.job)
        let isComplete = worker.partitions[partition].removals.order.acknowledged(
            EndedItem(
                device: outcome.device,
                place: RecordPlace(partitionSlot: 0, offset: log.records[outcome.record].offset)),
            isStored: outcome.isStored, completes: outcome.completes)
        if isComplete {
            complete(outcome.record, worker, partition)
        } else if outcome.completes {
            counts[.completionWaits] += 1
        }
        return true
    }

    /// Notes that a push is removed from the store.
    func removed(_ place: RecordPlace, _ device: DeviceKey, _ worker: WorkerModel) {
        let partition = worker.partitionBySlot[Int(place.partitionSlot)]
        guard worker.partitions[partition].isOwned, worker.partitions[partition].slot == place.partitionSlot
        else { return }
        let isAwaited = worker.partitions[partition].removals.order.removed(
            EndedItem(device: device.low, place: RecordPlace(partitionSlot: 0, offset: place.recordOffset)))
        if !isAwaited { broken(.sound, "the removal of the push at \(place) isn't awaited") }
        followRemovals(worker, partition)
    }

    private func followRemovals(_ worker: WorkerModel, _ partition: Int) {
        while violation == nil, let action = worker.partitions[partition].removals.order.nextAction() {
            switch action {
            case .complete(let place):
                counts[.completedAfterRemoval] += 1
                complete(record(partition, place.offset)!, worker, partition)
            case .remove(let item):
                removeFromStore(log.records[record(partition, item.place.offset)!].subject, worker)
            }
        }
    }

    /// Completes a record's offset for its worker.
    func complete(_ record: Int, _ worker: WorkerModel, _ partition: Int) {
        let offset = log.records[record].offset
        let completion = worker.partitions[partition].tracker.complete(offset)
        guard completion == .completed || completion == .advanced else {
            return broken(.sound, "completing offset \(offset) of partition \(partition): \(completion)")
        }
        note("record #, offset # of partition #, is complete", record, Int(offset), partition)
        log.records[record].completeEpoch = worker.partitions[partition].epoch
        worker.partitions[partition].isDirty = true
        if worker.partitions[partition].isPaused, worker.partitions[partition].tracker.hasRoom {
            worker.partitions[partition].isPaused = false
        }
    }

    /// Releases a complete record that has taken effect once more.
    func replayed(_ record: Int, _ worker: WorkerModel) {
        let partition = log.records[record].partition
        if !worker.partitions[partition].tracker.release(log.records[record].offset) {
            broken(.sound, "record \(record) has had its effect once more, and that wasn't awaited")
        }
        if worker.partitions[partition].isPaused, worker.partitions[partition].tracker.hasRoom {
            worker.partitions[partition].isPaused = false
        }
        worker.partitions[partition].isDirty = true
    }

    // MARK: Commits

    func commitSome() {
        guard let (worker, partition) = anyPartition() else { return }
        _ = issueCommit(worker, partition)
    }

    func issueCommit(_ worker: WorkerModel, _ partition: Int) -> Bool {
        let state = worker.partitions[partition]
        guard state.commit == nil, state.isDirty || state.removals.order.needsCommit else { return false }
        guard !isHealthy || worker.storeWaitsUntil <= monotonic else { return false }
        let point = worker.partitions[partition].tracker.commitPoint()
        checkWatermark(partition, point.offset)
        nextCommit += 1
        for index in log.committed[partition].index..<state.position {
            let record = log.partitions[partition][index]
            if log.records[record].completeEpoch == state.epoch {
                log.records[record].commitSerial = nextCommit
            }
        }
        worker.partitions[partition].commit = IssuedCommit(
            offset: point.offset, metadata: point.metadata, serial: nextCommit,
            removals: worker.partitions[partition].removals.order.commitIssued())
        worker.partitions[partition].isDirty = false
        happened(.commit)
        note("commits offset # of partition #: #", Int(point.offset), partition, nextCommit)
        return true
    }

    func settleSome() {
        guard let (worker, partition) = anyPartition() else { return }
        _ = settle(worker, partition, isAccepted: !weather.isKafkaSlow && !draw.chance(150))
    }

    /// Continues a commit: first with the sync to disk, then with Kafka's answer. Returns false when there is no
    /// commit.
    func settle(_ worker: WorkerModel, _ partition: Int, isAccepted: Bool) -> Bool {
        guard let commit = worker.partitions[partition].commit else { return false }
        if !commit.isSent, bringToDisk(worker, fails: weather.isStoreBroken) {
            worker.partitions[partition].commit?.isSent = true
            return true
        }
        worker.partitions[partition].commit = nil
        guard commit.isSent, isAccepted else {
            worker.partitions[partition].isDirty = true
            worker.partitions[partition].removals.order.commitFailed(commit.removals)
            happened(.commitLost)
            note("commit # of partition # is lost", commit.serial, partition)
            return true
        }
        take(commit, partition)
        worker.partitions[partition].removals.order.commitTaken(commit.removals)
        followRemovals(worker, partition)
        counts.events += 1
        return true
    }

    /// Commits in Kafka's place.
    private func take(_ commit: IssuedCommit, _ partition: Int) {
        note("commit # of partition # is taken", commit.serial, partition)
        checkWatermark(partition, commit.offset, isAccepted: true)
        let before = log.committed[partition]
        guard commit.offset >= before.offset else {
            return broken(.watermark, "the watermark of partition \(partition) goes back to \(commit.offset)")
        }
        var index = before.index
        while index < log.partitions[partition].count,
            log.records[log.partitions[partition][index]].offset < commit.offset
        {
            isCommitted(log.partitions[partition][index])
            index += 1
        }
        log.committed[partition] = .init(offset: commit.offset, metadata: commit.metadata, index: index)
        for above in index..<log.partitions[partition].count {
            let record = log.partitions[partition][above]
            guard log.records[record].takenEpoch >= 0 || log.records[record].commitSerial >= 0 else { break }
            if log.records[record].commitSerial == commit.serial { isCommitted(record) }
        }
    }

    /// Marks a record as committed. Its device's presence outlives the worker from here on.
    private func isCommitted(_ number: Int) {
        let record = log.records[number]
        log.records[number].isCommitted = true
        guard [.online, .offline, .receipt].contains(record.kind),
            record.isAsNew(as: told[record.token].occurred)
        else { return }
        told[record.token] = (record.reportTime, record.kind == .offline)
    }

    // MARK: Assignments

    /// Assigns the partitions without an owner to workers.
    func assignPartitions() {
        for partition in owner.indices where owner[partition] < 0 && violation == nil {
            let worker = anyWorker()
            if !worker.isDraining { assign(partition, to: worker) }
        }
    }

    private func assign(_ partition: Int, to worker: WorkerModel) {
        let committed = log.committed[partition]
        let decoded = CommitMetadata.decode(committed.metadata, committedOffset: committed.offset)
        var state = PartitionState()
        state.isOwned = true
        state.slot = worker.newSlot(for: partition)
        state.epoch = nextEpoch
        state.position = committed.index
        nextEpoch += 1
        state.tracker = OffsetTracker(
            nextOffset: committed.offset, completedAbove: decoded.completed,
            spanLimit: scenario.spanLimit, initialCapacity: 1, metadataBytes: scenario.metadataBytes)
        worker.partitions[partition] = state
        owner[partition] = worker.number
        for shard in worker.shards { shard.machine.begin(partition: state.slot) }
        note("worker # takes partition # from offset #", worker.number, partition, Int(committed.offset))
        beginStore(partition, worker)
    }

    /// Removes a partition from its worker.
    func release(_ partition: Int, _ worker: WorkerModel) {
        worker.partitions[partition].isOwned = false
        worker.partitions[partition].tracker = OffsetTracker(nextOffset: 0, initialCapacity: 1)
        worker.partitions[partition].isScanning = false
        worker.partitions[partition].scan = nil
        worker.partitions[partition].ahead = []
        // Kafka gets some of the outcomes that were on their way, in order.
        let arriving = draw.below(worker.partitions[partition].outcomes.count + 1)
        for _ in 0..<arriving {
            if let outcome = worker.partitions[partition].outcomes.popFirst() {
                log.records[outcome.record].isWritten = true
            }
        }
        worker.partitions[partition].outcomes.removeAll()
        worker.partitions[partition].commit = nil
        worker.partitions[partition].removals.order = DeferredDeletes()
        endStore(partition, worker)
        owner[partition] = -1
        note("worker # has given partition # up", worker.number, partition)
    }
}

extension Record {
    func outcomes(in epoch: Int) -> Bool { outcomeEpoch == epoch }
}

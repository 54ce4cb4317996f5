import DeliveryCore
import SluiceModel

/// The workers' Kafka side: polling, offsets, outcomes and commits.
extension World {
    // MARK: Records

    func pollSome(_ count: Int) {
        guard let (worker, partition) = anyPartition() else { return }
        for _ in 0..<count where violation == nil { if !poll(worker, partition) { return } }
    }

    /// Takes the next record of a partition. False when there is none, or no room for it.
    func poll(_ worker: WorkerModel, _ partition: Int) -> Bool {
        let state = worker.partitions[partition]
        guard !worker.isDraining, !state.isEnding, state.position < log.partitions[partition].count else {
            return false
        }
        // Items of the store come before the records of their partition.
        guard state.toRestore.isEmpty else {
            restoreSome(worker, partition)
            return false
        }
        guard !state.isPaused else { return refusesRecords(.pausedForSpan) }
        guard worker.used < scenario.limits.capacity else { return refusesRecords(.pausedForCapacity) }
        let number = log.partitions[partition][state.position]
        let offset = log.records[number].offset
        switch worker.partitions[partition].tracker.begin(offset) {
        case .begun:
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
            takeAgain(number, worker, partition)
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
        return true
    }

    /// A record that is complete. What the store has of it comes back now, as if it had just been read: were it sent
    /// before, older records that are still to be read would follow it. Cancels and device events have their effect
    /// once more, on what came before them and isn't complete, without another outcome.
    private func takeAgain(_ number: Int, _ worker: WorkerModel, _ partition: Int) {
        let record = log.records[number]
        if record.kind != .push {
            control(number, record, worker, worker.shards[shard(of: record.token)])
        } else if record.restoreEpoch == worker.partitions[partition].epoch,
            jobs[record.subject].storeKey >= 0
        {
            restore(jobs[record.subject].storeKey, worker, partition)
        }
    }

    private func refusesRecords(_ what: Happening) -> Bool {
        counts[what] += 1
        metLimit = true
        return false
    }

    // MARK: Outcomes

    /// Hands an outcome to the producer. `storeVersion` is that of the item in the store, nil when it isn't there.
    func giveOutcome(
        of record: Int, by worker: WorkerModel, partition: Int, epoch: Int, completes: Bool,
        storeKey: Int = -1, job: Int = -1
    ) {
        if log.records[record].outcomes(in: epoch) {
            broken(.oneOutcome, "record \(record) has two outcomes in one assignment")
        }
        if log.records[record].outcomeEpoch >= 0 { counts[.secondOutcome] += 1 }
        log.records[record].outcomeEpoch = epoch
        let state = worker.partitions[partition]
        guard state.isOwned, state.epoch == epoch else {
            // Of a partition that has gone: the producer sends it, and nobody waits for it.
            log.records[record].isWritten = true
            return
        }
        worker.partitions[partition].outcomes.append(
            PendingOutcome(
                record: record, completes: completes, storeKey: storeKey, job: job))
    }

    func acknowledgeSome(_ count: Int) {
        guard !weather.isKafkaSlow, let (worker, partition) = anyPartition() else { return }
        for _ in 0..<count where violation == nil { if !acknowledge(worker, partition) { return } }
    }

    /// Kafka has the partition's oldest outcome.
    func acknowledge(_ worker: WorkerModel, _ partition: Int) -> Bool {
        guard let outcome = worker.partitions[partition].outcomes.popFirst() else { return false }
        log.records[outcome.record].isWritten = true
        happened(.acknowledged)
        note("Kafka has the outcome of record #, push #", outcome.record, outcome.job)
        let state = worker.partitions[partition]
        let record = outcome.completes ? outcome.record : -1
        if outcome.storeKey >= 0 || (record >= 0 && !state.removals.isEmpty) {
            worker.partitions[partition].removals.append(
                Removal(job: outcome.storeKey >= 0 ? outcome.job : -1, record: record))
        } else if record >= 0 {
            complete(record, worker, partition)
        }
        return true
    }

    /// A record is done as far as its worker is concerned.
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

    // MARK: Commits

    func commitSome() {
        guard let (worker, partition) = anyPartition() else { return }
        _ = issueCommit(worker, partition)
    }

    func issueCommit(_ worker: WorkerModel, _ partition: Int) -> Bool {
        let state = worker.partitions[partition]
        guard state.isDirty, state.commit == nil else { return false }
        let point = worker.partitions[partition].tracker.commitPoint()
        checkWatermark(partition, point.offset)
        nextCommit += 1
        for index in log.committed[partition].index..<state.position {
            let record = log.partitions[partition][index]
            if log.records[record].completeEpoch == state.epoch {
                log.records[record].commitSerial = nextCommit
            }
        }
        worker.partitions[partition].commit = (point.offset, point.metadata, nextCommit)
        worker.partitions[partition].isDirty = false
        happened(.commit)
        note("commits offset # of partition #: #", Int(point.offset), partition, nextCommit)
        return true
    }

    func settleSome() {
        guard let (worker, partition) = anyPartition() else { return }
        _ = settle(worker, partition, isTaken: !weather.isKafkaSlow && !draw.chance(150))
    }

    func settle(_ worker: WorkerModel, _ partition: Int, isTaken: Bool) -> Bool {
        guard let commit = worker.partitions[partition].commit else { return false }
        worker.partitions[partition].commit = nil
        guard isTaken else {
            worker.partitions[partition].isDirty = true
            happened(.commitLost)
            note("commit # of partition # is lost", commit.serial, partition)
            return true
        }
        take(commit, partition)
        worker.partitions[partition].committed = commit.serial
        counts.events += 1
        return true
    }

    /// Kafka takes a commit.
    private func take(_ commit: (offset: Int64, metadata: String, serial: Int), _ partition: Int) {
        note("commit # of partition # is taken", commit.serial, partition)
        checkWatermark(partition, commit.offset)
        let before = log.committed[partition]
        guard commit.offset >= before.offset else {
            return broken(.watermark, "the watermark of partition \(partition) goes back to \(commit.offset)")
        }
        var index = before.index
        while index < log.partitions[partition].count,
            log.records[log.partitions[partition][index]].offset < commit.offset
        {
            log.records[log.partitions[partition][index]].isCommitted = true
            index += 1
        }
        log.committed[partition] = .init(offset: commit.offset, metadata: commit.metadata, index: index)
        for above in index..<log.partitions[partition].count {
            let record = log.partitions[partition][above]
            guard log.records[record].takenEpoch >= 0 || log.records[record].commitSerial >= 0 else { break }
            if log.records[record].commitSerial == commit.serial { log.records[record].isCommitted = true }
        }
    }

    // MARK: Assignments

    /// Gives the partitions that nobody has to a worker.
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
        // What the store has is complete, also where no commit says so yet: it mustn't be taken from the log as well.
        var restored: [Range<Int64>] = []
        for key in store.keys(of: partition, log.records, jobs) {
            let record = jobs[store.entry(key)!.job].record
            let offset = log.records[record].offset
            log.records[record].restoreEpoch = state.epoch
            if offset < committed.offset {
                state.toRestore.append(key)
            } else {
                restored.append(offset..<offset + 1)
            }
        }
        state.tracker = OffsetTracker(
            nextOffset: committed.offset,
            completedAbove: CompletedOffsets(decoded.completed.ranges + restored),
            spanLimit: scenario.spanLimit, initialCapacity: 1)
        worker.partitions[partition] = state
        owner[partition] = worker.number
        for shard in worker.shards { shard.machine.begin(partition: state.slot) }
        note("worker # takes partition # from offset #", worker.number, partition, Int(committed.offset))
        restoreSome(worker, partition)
    }

    /// Hands items of the store to the machines while they have room.
    func restoreSome(_ worker: WorkerModel, _ partition: Int) {
        while let key = worker.partitions[partition].toRestore.last, violation == nil {
            guard worker.used < scenario.limits.capacity else { return }
            worker.partitions[partition].toRestore.removeLast()
            restore(key, worker, partition)
        }
    }

    /// The partition is gone from its worker.
    func release(_ partition: Int, _ worker: WorkerModel) {
        worker.partitions[partition].isOwned = false
        worker.partitions[partition].tracker = OffsetTracker(nextOffset: 0, initialCapacity: 1)
        worker.partitions[partition].toRestore = []
        // What outcomes were on their way reaches Kafka in part, and in order.
        let arriving = draw.below(worker.partitions[partition].outcomes.count + 1)
        for _ in 0..<arriving {
            if let outcome = worker.partitions[partition].outcomes.popFirst() {
                log.records[outcome.record].isWritten = true
            }
        }
        worker.partitions[partition].outcomes.removeAll { _ in true }
        worker.partitions[partition].commit = nil
        worker.partitions[partition].removals = Queue()
        worker.writes.removeAll { $0.partition == partition }
        owner[partition] = -1
        note("worker # has given partition # up", worker.number, partition)
    }
}

extension Record {
    func outcomes(in epoch: Int) -> Bool { outcomeEpoch == epoch }
}

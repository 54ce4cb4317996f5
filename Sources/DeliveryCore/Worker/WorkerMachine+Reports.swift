/// Delivery reports of Kafka's producer: on outcomes, dead letters, and changes of the store.
extension WorkerMachine {
    /// Takes the report that an outcome or dead letter is in Kafka.
    /// - Parameter device: lower half of the key of the record's device; evaluated only where the store needs it.
    public mutating func delivered(
        _ outcome: OutcomePlace, isStored: Bool, device: @autoclosure () -> UInt64, at now: UInt64
    ) {
        let (record, isOffsetDone) = (outcome.place, outcome.isOffsetDone)
        self.now = max(self.now, now)
        if transactions != nil {
            transactions!.reportCame()
            transactions!.recordProduced(at: now)
        } else {
            refusals.delivered(outcome)
        }
        // Nobody owns an outcome of a partition that was removed meanwhile.
        guard let index = partitions.index(ofSlot: record.partitionSlot) else {
            if !isOffsetDone { finishOrphans(of: record.partitionSlot, 1) }
            return
        }
        if transactions == nil { partitions[index].outcomeReported() }
        if transactions != nil {
            if isStored { transactions!.delete(.init(device: device(), place: record)) }
            if isOffsetDone { return }
        } else if settings.mode.hasStore, isStored || !deletes.isEmpty {
            guard
                deletes.acknowledged(
                    EndedItem(device: device(), place: record), isStored: isStored, completes: !isOffsetDone)
            else { return }
        } else if isOffsetDone {
            return
        }
        complete(index, record.offset)
    }

    /// Takes the report that an outcome or dead letter did not reach Kafka. `form`: as it was produced.
    public mutating func lost(
        _ outcome: OutcomePlace, _ fault: KafkaFault, topic: String, form: ProducedForm, at now: UInt64
    ) -> LostFate {
        let (slot, isOffsetDone) = (outcome.place.partitionSlot, outcome.isOffsetDone)
        let refusal = Refusals.Refusal(outcome: outcome, topic: topic, form: form, fault: fault)
        self.now = max(self.now, now)
        counters.undelivered += 1
        if transactions != nil {
            transactions!.reportCame()
            // Lost records are produced again with all other records, except for records of removed partitions.
            let isOwned = partitions.index(ofSlot: slot) != nil
            if !isOffsetDone, !isOwned { finishOrphans(of: slot, 1) }
            if isOwned, fault.traits.contains(.ofRecord) { refusals.add(refusal) }
            lostInTransaction(fault, topic: topic, mayFit: fault.traits.contains(.ofRecord))
            return .done
        }
        if fault.traits.contains(.fatal) {
            fail(.producer, fault)
            return .done
        }
        // Whoever owns a removed partition now repeats its jobs. A late outcome of this worker would be a second one.
        guard partitions.index(ofSlot: slot) != nil else {
            if !isOffsetDone { finishOrphans(of: slot, 1) }
            return .done
        }
        if fault.traits.contains(.retriable) { return .produceAgain }
        if fault.traits.contains(.ofRecord) {
            refusals.add(refusal)
            return .keep
        }
        fail(.refusedRecord(topic: topic), fault)
        return .done
    }

    /// - Parameter mayFit: the next transaction may have the record in a smaller form.
    private mutating func lostInTransaction(_ fault: KafkaFault, topic: String, mayFit: Bool) {
        guard failure?.startsOver != true || drain.phase == .running else { return }
        if fault.traits.contains(.fatal) { return failAtOnce(.producer, fault) }
        guard !fault.traits.contains(.lasting) || mayFit else {
            return failAtOnce(.refusedRecord(topic: topic), fault)
        }
        transactions!.recordLost(fault)
        followTransactions()
    }

    /// Takes the report that a change of the store is in the changelog.
    public mutating func changeDelivered(
        _ epoch: ChangeEpoch, partition: Int32, offset: Int64, at now: UInt64
    ) {
        self.now = max(self.now, now)
        changelogEnds[partition] = max(changelogEnds[partition] ?? 0, offset + 1)
        if transactions != nil {
            transactions!.reportCame()
            transactions!.recordProduced(at: now)
        } else {
            committer.acknowledged(epoch, at: now)
            followCommitter()
        }
    }

    /// Takes the report that a change of the store did not reach the changelog.
    public mutating func changeLost(_ epoch: ChangeEpoch, _ fault: KafkaFault, topic: String, at now: UInt64)
    {
        self.now = max(self.now, now)
        guard transactions != nil else {
            // Changes can't be repeated in another order than the order in which they were made.
            return fail(.changelog, fault)
        }
        counters.undelivered += 1
        transactions!.reportCame()
        lostInTransaction(fault, topic: topic, mayFit: false)
    }

    /// Continues what waits for delivery reports, after reports were polled.
    /// - Parameter unreported: records whose delivery reports are outstanding, and records that ``LostFate/keep`` kept.
    public mutating func reportsPolled(unreported: Int, bytesHeld: Int, at now: UInt64) {
        self.now = max(self.now, now)
        gate.bytesHeld = bytesHeld
        drain.unreported = unreported
        if transactions == nil {
            for record in judgeRefusals() { act(.produceAgain(record)) }
        } else {
            transactions!.reportsPolled(
                hasOffsets: partitions.indices.contains { partitions[$0].isChanged },
                isUrgent: hastensCommits || window.wantsCommit, at: now)
            followTransactions()
        }
        afterProgress()
    }
}

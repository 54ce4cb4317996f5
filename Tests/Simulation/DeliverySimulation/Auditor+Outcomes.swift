import DeliveryCore
import SluiceModel

/// The auditor's checks of ends: outcomes, offsets, and leftovers.
extension World {
    /// Checks the end of a push by a machine.
    func checkFinish(
        _ copy: Copy, _ slot: UInt32, _ kind: OutcomeKind, _ why: OutcomeCause?, _ successor: UInt32,
        _ worker: WorkerModel, _ shard: ShardModel
    ) {
        guard copy.isLive else { return broken(.oneOutcome, "slot \(slot) ends twice") }
        if copy.connection >= 0 { broken(.rightOutcome, "push \(copy.job) ends while it is in flight") }
        let facts = jobs[copy.job].facts
        switch kind {
        case .accepted:
            if copy.last != .accepted || (facts.delivery == .confirm && !copy.isWithdrawn) {
                broken(.rightOutcome, "push \(copy.job) ends as accepted")
            }
        case .confirmed:
            if !copy.isConfirmed {
                broken(.rightOutcome, "push \(copy.job) ends as confirmed without a receipt")
            }
        case .rejected: checkRejected(copy, why, facts)
        case .expired where facts.isOnce && copy.last != .none && copy.last != .unprocessed:
            checkExpiredOnce(copy, facts, worker)
        case .expired:
            let wall = now(worker).wallMilliseconds
            // With a millisecond left there is no time for another attempt.
            if wall < lastMoment(copy) - (copy.last == .none ? 0 : 1), !copy.mayExpireEarly,
                !isOver(copy, worker)
            {
                broken(.rightOutcome, "push \(copy.job) ends as expired \(lastMoment(copy) - wall) ms early")
            }
        case .superseded:
            guard successor != DeliveryMachine.noSlot else {
                return broken(.rightOutcome, "push \(copy.job) is superseded by nothing")
            }
            checkSuperseded(copy, by: shard.copies[Int(successor)])
            // Pushes that a move has brought together keep their own waits.
            if !copy.hasMoved, !shard.copies[Int(successor)].hasMoved {
                let asked = max(shard.copies[Int(successor)].notBefore, copy.notBefore)
                shard.copies[Int(successor)].notBefore = asked
            }
            shard.copies[Int(successor)].waitsUntil = .max
        case .cancelled:
            if !copy.isWithdrawn, !isCancelled(copy, worker) {
                broken(.rightOutcome, "push \(copy.job) ends as cancelled by nothing")
            }
        default: checkUndeliverable(copy, why, facts)
        }
    }

    private func checkRejected(_ copy: Copy, _ why: OutcomeCause?, _ facts: PushFacts) {
        guard why == .deviceUnregistered else {
            if copy.last != .final { broken(.rightOutcome, "push \(copy.job) ends as rejected by nothing") }
            return
        }
        guard cause.endedToken == copy.address else {
            return broken(
                .rightOutcome, "push \(copy.job) ends with token \(cause.endedToken), which isn't its own")
        }
        if let since = cause.endedSince, facts.registeredAtMilliseconds > since {
            broken(.rightOutcome, "push \(copy.job) ends though its token was registered again")
        }
    }

    /// Checks a push with expiration 0 that expires after its attempt. It may wait only for its receipt, until the
    /// longest life of all.
    private func checkExpiredOnce(_ copy: Copy, _ facts: PushFacts, _ worker: WorkerModel) {
        if copy.isRestored || copy.hasMoved || copy.noted >= 0 { return }
        if copy.last == .accepted, now(worker).wallMilliseconds >= copy.expiry { return }
        let timeout = UInt64(facts.receiptTimeoutSeconds) * 1_000_000_000
        if copy.last != .accepted || facts.delivery != .confirm || monotonic < copy.acceptedAt + timeout {
            broken(.rightOutcome, "push \(copy.job) has expiration 0, and expires with its attempt")
        }
    }

    private func checkUndeliverable(_ copy: Copy, _ why: OutcomeCause?, _ facts: PushFacts) {
        switch why {
        case .answerLost:
            if copy.last != .unknown || facts.duplicates != .avoid && !facts.isOnce {
                broken(.rightOutcome, "push \(copy.job) ends as if its answer had been lost")
            }
        case .attemptsExhausted:
            let wasOnce = facts.isOnce && (copy.last == .retriable || copy.last == .configuration)
            if !wasOnce, !hasNoAttemptLeft(copy) {
                broken(.rightOutcome, "push \(copy.job) ends after \(copy.failures) failures")
            }
        default: broken(.rightOutcome, "push \(copy.job) ends as undeliverable")
        }
    }

    func checkSuperseded(_ old: Copy, by new: Copy) {
        guard new.isLive, identity(old) == identity(new) else {
            return broken(.rightOutcome, "push \(old.job) is superseded by \(new.job), of another identity")
        }
        if old.job != new.job { jobs[new.job].superseded.append((old.job, old.epoch)) }
        // A record after a record that has moved counts as the newer one.
        if outranks(old.job, new.job) {
            broken(.newestWins, "push \(old.job), which ends its state, is superseded by update \(new.job)")
        }
        if old.job >= new.job, !old.hasMoved || new.hasMoved, !outranks(new.job, old.job) {
            broken(.newestWins, "push \(old.job) is superseded by \(new.job), which is older")
        }
    }

    func checkReplaced(_ old: Copy, _ new: Copy, _ replaced: ReplacedPush, _ worker: WorkerModel) {
        guard old.isLive else { return broken(.sound, "push \(new.job) takes the place of nothing") }
        checkSuperseded(old, by: new)
        if old.connection >= 0 { broken(.rightOutcome, "push \(old.job) is replaced while it is in flight") }
        if replaced.offset != log.records[jobs[old.job].record].offset {
            broken(.oneOutcome, "push \(old.job) is replaced as if it had offset \(replaced.offset)")
        }
    }

    /// Notes the end of a push that expired before its arrival. No older push of its identity is sent after that.
    func hasExpired(_ copy: Copy) {
        let number = identity(copy)
        if begun[number].expiredEpoch != copy.epoch || begun[number].expiredJob < copy.job {
            (begun[number].expiredJob, begun[number].expiredEpoch) = (copy.job, copy.epoch)
        }
    }

    /// Checks that a push that expired before its arrival leaves no older push behind that waits.
    func checkExpired(_ copy: Copy, _ worker: WorkerModel, _ shard: ShardModel) {
        if !isOver(copy, worker) {
            broken(.rightOutcome, "push \(copy.job) is refused as expired before its expiration")
        }
        let number = identity(copy)
        for other in shard.copies
        where other.isLive && other.epoch == copy.epoch && other.job < copy.job && other.connection < 0
            && identity(other) == number && !begun[number].isMixed
        {
            broken(.newestWins, "push \(copy.job) expired before it came, and \(other.job) goes on")
        }
    }

    /// Checks that a push that expired before its arrival waits only for the attempt before it.
    func checkOver(_ copy: Copy, _ slot: UInt32, _ shard: ShardModel) {
        let state = shard.machine.state(slot)
        if state != .finished, state != .blocked {
            broken(.progress, "push \(copy.job) expired before it came, and is \(state)")
        }
    }

    /// Checks that the number of a device's pushes is bounded.
    func checkRoom(_ shard: ShardModel, _ copy: Copy) {
        if cause.pendingOfDevice >= scenario.limits.pendingPerDevice {
            broken(
                .bounded, "token \(copy.address) has more than \(scenario.limits.pendingPerDevice) pending")
        }
    }

    // MARK: Offsets

    /// Returns whether a record may count as complete because Kafka has its outcome, or the store has its item.
    func isDone(_ record: Int) -> Bool {
        if log.records[record].isWritten { return true }
        guard log.records[record].kind == .push else { return false }
        return store.token(of: log.records[record].subject) >= 0
    }

    /// Returns whether a record counts as complete even after a power loss.
    private func isSafe(_ record: Int) -> Bool {
        log.records[record].isWritten
            || store.isDurable(log.records[record].subject, log.records[record].partition)
    }

    func checkWatermark(_ partition: Int, _ offset: Int64, isAccepted: Bool = false) {
        if offset > log.nextOffset[partition] {
            broken(.watermark, "offset \(offset) of partition \(partition) is committed, and isn't there yet")
        }
        for index in log.committed[partition].index..<log.partitions[partition].count {
            let record = log.partitions[partition][index]
            guard log.records[record].offset < offset else { return }
            if !(isAccepted ? isSafe(record) : isDone(record)) {
                return broken(
                    .watermark,
                    "offset \(offset) of partition \(partition) is committed, and \(log.records[record].offset) isn't done"
                )
            }
        }
    }

    // MARK: Now and then

    /// Checks that a retry precedes its push's expiration, if no server asked for a longer pause.
    func checkEdge(_ shard: ShardModel, _ slot: Int, _ worker: WorkerModel) {
        let copy = shard.copies[slot]
        guard copy.isLive, copy.retrySteps == worker.clockSteps, !copy.mayExpireEarly,
            shard.machine.state(UInt32(slot)) == .retrying,
            now(worker).wallMilliseconds == lastMoment(copy) - 1, !shard.wasBusy[copy.address]
        else { return }
        // The push may be one of many returns, which have moments of their own.
        if scenario.limits.storeIsDurable, jobs[copy.job].facts.delivery != .accept { return }
        broken(.progress, "push \(copy.job) is to be sent again when it has expired")
    }

    /// Checks everything.
    func checkAll() {
        for worker in workers {
            for shard in worker.shards { check(worker, shard) }
        }
    }

    private func check(_ worker: WorkerModel, _ shard: ShardModel) {
        if let problem = shard.machine.checkInvariants() { broken(.sound, problem) }
        let milestones = shard.machine.milestones
        if !milestones.isBalanced || milestones.received != shard.received
            || milestones.finished != shard.finished
            || milestones.dropped != shard.dropped || milestones.departed != shard.departed
            || milestones.restored != shard.restored || milestones.imported != shard.imported
            || milestones.sent != shard.sent || milestones.evicted != shard.evicted
            || milestones.repeated != shard.repeated
        {
            broken(.milestones, "they say otherwise than what was seen")
        }
        if shard.machine.count != shard.used || shard.machine.count > scenario.limits.capacity
            || worker.taken > scenario.intakeLimit
        {
            broken(.bounded, "\(shard.machine.count) slots are in use, and \(shard.used) items are there")
        }
        for slot in shard.copies.indices where shard.copies[slot].isLive {
            see(shard.machine.state(UInt32(slot)))
            check(slot, worker, shard)
        }
    }

    /// Checks that no push that ought to end or proceed stays where it is.
    private func check(_ slot: Int, _ worker: WorkerModel, _ shard: ShardModel) {
        let copy = shard.copies[slot]
        let state = shard.machine.state(UInt32(slot))
        if (state == .inFlight) != (copy.connection >= 0) {
            broken(.sound, "push \(copy.job) is \(state), and \(copy.connection >= 0 ? "" : "not ")in flight")
        }
        guard state != .inFlight else { return }
        // A blocked push ends with the attempt before it.
        if lastMoment(copy) > now(worker).wallMilliseconds || state == .blocked {
            shard.copies[slot].overdueSince = 0
        } else if copy.overdueSince == 0 {
            shard.copies[slot].overdueSince = monotonic
        } else if shard.lastAdvance >= copy.overdueSince + 2_200_000_000 {
            broken(.progress, "push \(copy.job) has expired, and its outcome doesn't come")
        }
        switch state {
        case .coalescing, .retrying:
            if copy.waitsUntil < shard.lastAdvance, !shard.wasBusy[copy.address] {
                broken(
                    .progress,
                    "push \(copy.job) is \(state) for \((shard.lastAdvance - copy.waitsUntil) / 1000) µs too long"
                )
            }
        case .confirming:
            // The moment since which the receipt is awaited is only known when the auditor sees it.
            if copy.isReceiptPutOff, copy.awaitedSince == 0 {
                shard.copies[slot].awaitedSince = monotonic
                return
            }
            let since = max(copy.acceptedAt, copy.awaitedSince)
            let timeout = UInt64(jobs[copy.job].facts.receiptTimeoutSeconds) * 1_000_000_000
            if since + timeout < shard.lastAdvance {
                broken(.progress, "push \(copy.job) waits for its receipt for too long")
            }
        case .held:
            guard !shard.isOffline[copy.address], !shard.isPresumable[copy.address] else {
                shard.copies[slot].heldOnlineSince = 0
                return
            }
            // Others return first; then the sweep finds the push within a second.
            if scenario.limits.storeIsDurable, shard.machine.milestones[.returning] > 0 {
                shard.copies[slot].heldOnlineSince = 0
            } else if copy.heldOnlineSince == 0, scenario.limits.storeIsDurable {
                shard.copies[slot].heldOnlineSince = monotonic
            } else if shard.lastAdvance >= copy.heldOnlineSince + 2_200_000_000 {
                broken(
                    .progress,
                    "push \(copy.job) is held, and nobody said that token \(copy.address) is offline")
            }
        case .deviceLimited: checkIsHeldUp(slot, shard)
        default: break
        }
    }

    private func see(_ state: ItemState) {
        switch state {
        case .blocked: counts[.wasBlocked] += 1
        case .deviceLimited: counts[.wasDeviceLimited] += 1
        case .coalescing: counts[.wasCoalescing] += 1
        case .retrying: counts[.wasRetrying] += 1
        case .scheduled: counts[.wasScheduled] += 1
        case .held: counts[.wasHeld] += 1
        case .returning: counts[.wasReturning] += 1
        case .confirming: counts[.wasConfirming] += 1
        case .topicCircuitOpen: counts[.wasSuspended] += 1
        default: break
        }
    }

    /// Checks the end of a run: everything is done and committed, and nothing is left anywhere.
    func checkEnd() {
        checkAll()
        for (number, record) in log.records.enumerated() where !record.isWritten {
            return broken(
                .nothingLost,
                "record \(number), offset \(record.offset) of partition \(record.partition), has no outcome")
        }
        for partition in owner.indices {
            let committed = log.committed[partition].offset
            let last = log.partitions[partition].last.map { log.records[$0].offset + 1 } ?? 0
            if committed < last {
                broken(.progress, "partition \(partition) is committed to \(committed) of \(last)")
            }
        }
        for worker in workers {
            for shard in worker.shards where shard.used > 0 {
                broken(.bounded, "\(shard.used) items are left in worker \(worker.number)")
            }
        }
        if store.count > 0 || store.dues.contains(where: { !$0.isEmpty })
            || store.marks.contains(where: { !$0.isEmpty })
        {
            broken(
                .bounded,
                "\(store.count) items and other things are left in the store")
        }
        for seen in shown
        where seen.lastJob >= 0 && seen.lastJob < seen.job && !seen.isMixed
            && !outranks(seen.lastJob, seen.job)
        {
            // After a crash Kafka repeats older pushes, and then the newer one as well.
            let newest = log.records[jobs[seen.job].record]
            // The newer one may have expired by then, or been withdrawn.
            if newest.takenEpoch < seen.lastEpoch,
                newest.lastKind == .accepted || newest.lastKind == .confirmed
            {
                broken(.newestWins, "a device saw push \(seen.lastJob) last, after \(seen.job)")
            }
        }
    }
}

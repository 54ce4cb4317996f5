import DeliveryCore
import SluiceModel

/// Cause of the machines' present actions.
struct Cause {
    /// The record of the control job that is being processed, -1 for none.
    var record = -1
    /// New token of the token change that is being processed, -1 for none.
    var newToken = -1
    /// The token that an event or a 410 has ended, -1 for none, and the time of its end (nil: always).
    var endedToken = -1
    var endedSince: Int64?
    /// Number of pending pushes of the device whose push is being admitted.
    var pendingOfDevice = 0
}

/// Cancels and device events, with the effects that they must have.
extension World {
    func control(_ number: Int, _ record: Record, _ worker: WorkerModel, _ shard: ShardModel) {
        let now = now(worker)
        let key = tokens[record.token].key
        let slot = worker.partitions[record.partition].slot
        let origin = RecordOrigin(partition: slot, offset: record.offset)
        cause = Cause(record: number)
        switch record.kind {
        case .push: return
        case .cancel: cancel(record, key, origin, worker, shard)
        case .online:
            note(worker, shard, "hears that token # is online", record.token)
            learn(record, isOffline: false, shard)
            _ = shard.machine.online(key, occurred: record.reportTime, partition: slot, at: now)
            drain(worker, shard)
        case .offline:
            note(worker, shard, "hears that token # is offline", record.token)
            let isNews = record.isAsNew(as: shard.presenceAt[record.token])
            learn(record, isOffline: true, shard)
            _ = shard.machine.offline(key, occurred: record.reportTime, partition: slot, at: now)
            drain(worker, shard)
            if isNews { checkReported(record, shard) }
        case .receipt: receipt(record, key, worker, shard)
        case .tokenChanged: changeToken(record, key, origin, worker, shard)
        case .unregistered:
            note(worker, shard, "hears that token # is unregistered", record.token)
            cause.endedToken = record.token
            cause.endedSince = record.occurred
            _ = shard.machine.unregistered(
                key, occurredMilliseconds: record.occurred, origin: origin, at: now)
            drain(worker, shard)
            checkTokenEnded(worker, shard, by: record)
        }
        cause = Cause()
    }

    /// Updates the device's presence as the auditor knows it.
    private func learn(_ record: Record, isOffline: Bool, _ shard: ShardModel) {
        let isNews = record.isAsNew(as: shard.presenceAt[record.token])
        if isNews {
            shard.presenceAt[record.token] = record.reportTime
            shard.isOffline[record.token] = isOffline
        } else if scenario.limits.knownDevices >= scenario.tokens {
            return
        }
        // If the device was forgotten, the presence in another partition's part of the store isn't looked up.
        for slot in shard.copies.indices
        where shard.copies[slot].isLive && shard.copies[slot].address == record.token {
            shard.copies[slot].hasNews = true
        }
    }

    /// Returns whether the worker still owns the push's partition, in the same assignment.
    func isOurs(_ copy: Copy, _ worker: WorkerModel) -> Bool {
        worker.partitions[copy.partition].isOwned && worker.partitions[copy.partition].epoch == copy.epoch
    }

    private func matches(_ copy: Copy, _ record: Record, _ worker: WorkerModel) -> Bool {
        guard copy.isLive, copy.address == record.token, isOurs(copy, worker),
            !worker.isEnding(copy.partition)
        else { return false }
        let facts = jobs[copy.job].facts
        switch record.target {
        case .notificationKey(let key): return facts.notificationKey == key
        case .collapseKey(let key, let topic):
            return facts.collapseKey == key && (topic == nil || topic == facts.topic)
        }
    }

    /// Returns whether the push precedes the record.
    ///
    /// A cancel concerns only earlier pushes of its own partition. A cancel that Kafka repeats after a crash must not
    /// withdraw later pushes that the store has restored.
    func precedes(_ copy: Copy, _ record: Record) -> Bool {
        let push = log.records[jobs[copy.job].record]
        return push.partition != record.partition || push.offset < record.offset
    }

    /// Returns whether the cancel that is being processed concerns this push.
    func isCancelled(_ copy: Copy, _ worker: WorkerModel) -> Bool {
        guard cause.record >= 0, log.records[cause.record].kind == .cancel else { return false }
        return matches(copy, log.records[cause.record], worker) && precedes(copy, log.records[cause.record])
    }

    private func cancel(
        _ record: Record, _ key: DeviceKey, _ origin: RecordOrigin, _ worker: WorkerModel, _ shard: ShardModel
    ) {
        note(worker, shard, "cancels at token #, offset #", record.token, Int(record.offset))
        var expected = CancelResult()
        var newer = false
        for slot in shard.copies.indices where matches(shard.copies[slot], record, worker) {
            guard precedes(shard.copies[slot], record) else {
                newer = true
                continue
            }
            if shard.copies[slot].connection >= 0 {
                shard.copies[slot].isWithdrawn = true
                expected.tooLate += 1
            } else {
                expected.cancelled += 1
            }
        }
        let result = shard.machine.cancel(key, record.target, origin: origin, at: now(worker))
        drain(worker, shard)
        counts[.tooLate] += result.tooLate
        if result != expected, violation == nil {
            broken(
                .rightOutcome,
                "a cancel withdraws \(result.cancelled), too late for \(result.tooLate); should be \(expected.cancelled), \(expected.tooLate)"
                    + (newer ? " (some came after it)" : ""))
        }
    }

    private func receipt(_ record: Record, _ key: DeviceKey, _ worker: WorkerModel, _ shard: ShardModel) {
        note(worker, shard, "hears of push # from token #", record.subject, record.token)
        let apns = jobs[record.subject].apns
        var found: [(slot: Int, job: Int)] = []
        for slot in shard.copies.indices {
            let copy = shard.copies[slot]
            guard copy.isLive, copy.address == record.token, jobs[copy.job].apns == apns, copy.firstSent > 0,
                jobs[copy.job].facts.delivery == .confirm
            else { continue }
            shard.copies[slot].isConfirmed = true
            // A push that waits for an older one in flight ends after the older one.
            let isBlocked = shard.machine.state(UInt32(slot)) == .blocked
            if copy.connection < 0, !isBlocked { found.append((slot, copy.job)) }
        }
        learn(record, isOffline: false, shard)
        _ = shard.machine.receipt(
            key, notificationKey: UInt64(apns + 1), occurred: record.reportTime,
            partition: worker.partitions[record.partition].slot, at: now(worker))
        drain(worker, shard)
        for (slot, job) in found where shard.copies[slot].isLive && shard.copies[slot].job == job {
            broken(.rightOutcome, "push \(job) has its receipt, and goes on")
        }
    }

    private func changeToken(
        _ record: Record, _ key: DeviceKey, _ origin: RecordOrigin, _ worker: WorkerModel, _ shard: ShardModel
    ) {
        note(worker, shard, "hears that token # becomes #", record.token, record.subject)
        cause.newToken = record.subject
        let isElsewhere = self.shard(of: record.subject) != shard.number
        _ = shard.machine.tokenChanged(
            key, to: tokens[record.subject].key, isElsewhere: isElsewhere, origin: origin, at: now(worker))
        drain(worker, shard)
        for slot in shard.copies.indices {
            let copy = shard.copies[slot]
            guard copy.isLive, copy.address == record.token, copy.noted != record.subject,
                precedes(copy, record)
            else {
                continue
            }
            broken(.rightOutcome, "push \(copy.job) stays with token \(record.token)")
        }
    }

    /// Checks that pending pushes of an ended token have ended, except later registrations and pushes that move.
    func checkTokenEnded(_ worker: WorkerModel, _ shard: ShardModel, by record: Record? = nil) {
        for slot in shard.copies.indices {
            let copy = shard.copies[slot]
            guard copy.isLive, copy.connection < 0, copy.address == cause.endedToken, copy.noted < 0 else {
                continue
            }
            if let record, !precedes(copy, record) { continue }
            if let since = cause.endedSince, jobs[copy.job].facts.registeredAtMilliseconds > since {
                continue
            }
            broken(.rightOutcome, "push \(copy.job) goes on though its token \(copy.address) has ended")
        }
    }
}

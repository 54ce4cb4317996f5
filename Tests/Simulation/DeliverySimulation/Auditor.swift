import DeliveryCore
import SluiceModel

/// The auditor's view of an identity.
struct Seen {
    /// The newest push and its assignment.
    var job = -1
    var epoch = -1
    /// The newest push that ended as expired, and its assignment: nothing older is sent after that.
    var expiredJob = -1
    var expiredEpoch = -1
    /// The last push that the device has seen, and the push's assignment.
    var lastJob = -1
    var lastEpoch = -1
    /// The machine in which a push is in flight, 0 for none.
    var flyingIn = 0
    var flyingEpoch = -1
    var flyingTo = -1
    /// Whether pushes from different partitions met here after a token change. No order is promised among them.
    var isMixed = false
}

/// The auditor. It knows the log, the requests, the answers and the promises, but none of the machine's workings.
extension World {
    /// Number of a push's identity: device token, topic and collapse identifier, or the `apns-id` without one.
    func identity(_ copy: Copy) -> Int {
        let job = jobs[copy.job]
        guard job.collapse != 0 else { return identities + job.apns }
        return (copy.address * scenario.topics + job.topic) * scenario.collapses + job.collapse - 1
    }

    var identities: Int { scenario.tokens * scenario.topics * scenario.collapses }

    /// Returns the moment, in milliseconds of the wall clock, from which on nothing is sent.
    func lastMoment(_ copy: Copy) -> Int64 {
        guard jobs[copy.job].facts.isOnce, copy.firstSent > 0, copy.last != .accepted else {
            return copy.expiry
        }
        return min(copy.expiry, copy.firstSent + scenario.limits.retry.onceMilliseconds)
    }

    func newCopy(_ job: Int, _ partition: Int, _ epoch: Int, address: Int, _ worker: WorkerModel) -> Copy {
        let facts = jobs[job].facts
        let now = now(worker).wallMilliseconds
        var copy = Copy(isLive: true, job: job, partition: partition, epoch: epoch, address: address)
        copy.pool = Int(facts.pool)
        let longest = now + scenario.limits.maximumExpirationMilliseconds
        copy.expiry = min(facts.expirationMilliseconds, longest)
        if facts.expirationMilliseconds == .max, facts.delivery == .accept, !facts.isOnce {
            let begin = min(max(now, facts.deliverAtMilliseconds), longest)
            copy.expiry = min(begin + scenario.limits.defaultLifeMilliseconds, longest)
        }
        let window = Int64(facts.coalesceWindowMilliseconds)
        if facts.collapseKey != 0, window > 0, copy.expiry - now > window {
            copy.notBefore = monotonic + UInt64(window) * 1_000_000
            copy.waitsUntil = copy.notBefore
        }
        return copy
    }

    /// Passes the waits of a replaced push on to the push that takes its place.
    func inherit(from old: Copy, _ copy: inout Copy) {
        copy.notBefore = old.notBefore
        copy.waitsUntil = max(copy.waitsUntil, old.waitsUntil)
        // The replaced push may have been one of many returns with a moment of its own.
        if scenario.limits.storeIsDurable, jobs[old.job].facts.delivery != .accept { copy.waitsUntil = .max }
        copy.noted = old.noted
        copy.arrival = old.arrival
        copy.queuedIn = old.queuedIn
        copy.hasMoved = copy.hasMoved || old.hasMoved
        copy.connection = -1
    }

    /// Returns whether the push can't be sent at all, from the moment of its arrival.
    func isOver(_ copy: Copy, _ worker: WorkerModel) -> Bool {
        copy.expiry <= now(worker).wallMilliseconds
            || jobs[copy.job].facts.deliverAtMilliseconds >= copy.expiry
    }

    // MARK: Requests

    /// Checks a push that a machine sends.
    func checkBegin(
        _ copy: Copy, _ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel, _ pool: PoolModel,
        _ connection: Int
    ) {
        let now = now(worker)
        let facts = jobs[copy.job].facts
        if now.wallMilliseconds >= lastMoment(copy) {
            broken(.neverLate, "push \(copy.job) is sent \(now.wallMilliseconds - lastMoment(copy)) ms late")
        }
        checkRepetition(copy, worker, shard)
        let seen = begun[identity(copy)]
        if seen.flyingIn == shard.incarnation, seen.flyingTo == copy.address,
            !seen.isMixed || seen.flyingEpoch == copy.epoch
        {
            broken(.newestWins, "push \(copy.job) is sent while another of its identity is in flight")
        }
        if seen.epoch == copy.epoch, copy.job < seen.job, !seen.isMixed, !outranks(copy.job, seen.job) {
            broken(.newestWins, "push \(copy.job) is sent after \(seen.job)")
        }
        if seen.expiredEpoch == copy.epoch, copy.job < seen.expiredJob, !seen.isMixed,
            !outranks(copy.job, seen.expiredJob)
        {
            broken(.newestWins, "push \(copy.job) is sent after \(seen.expiredJob) has come and expired")
        }
        if monotonic < copy.notBefore {
            broken(.waits, "push \(copy.job) is sent \((copy.notBefore - monotonic) / 1000) µs too early")
        }
        checkTurn(copy, slot, worker, shard)
        checkNoFinal(copy, shard)
        checkPoolPause(copy, shard)
        if monotonic < shard.holdUntil[copy.address], scenario.tokens <= scenario.limits.capacity {
            broken(.waits, "push \(copy.job) is sent while token \(copy.address) is held")
        }
        if facts.deliverAtMilliseconds > now.wallMilliseconds, worker.clockSteps == 0 {
            broken(.waits, "push \(copy.job) is sent before its time")
        }
        if facts.delivery != .accept, shard.isOffline[copy.address], !shard.isPresumable[copy.address],
            scenario.limits.knownDevices >= scenario.tokens
        {
            broken(.waits, "push \(copy.job) is sent while its device is offline")
        }
        if facts.delivery != .accept, !copy.hasMoved { checkPresence(copy, worker, shard) }
        if shard.isStopped[Int(facts.topic)], shard.probes[Int(facts.topic)] > 0 {
            broken(.waits, "push \(copy.job) is sent while its topic is stopped")
        }
        if shard.inFlight[copy.address] >= scenario.limits.inFlightPerDevice {
            broken(.bounded, "token \(copy.address) has too many in flight")
        }
        let model = pool.connections[connection]
        if model.isDraining || model.streams.count >= model.limit {
            broken(.bounded, "connection \(connection) has no stream for push \(copy.job)")
        }
        let state = worker.partitions[copy.partition]
        if worker.isDraining || !state.isOwned || state.epoch != copy.epoch || state.isEnding {
            broken(.noDuplicate, "push \(copy.job) is sent though its partition has gone")
        }
    }

    /// Returns whether the push's pool is held, so that only a probe may leave.
    private func isHeld(_ copy: Copy, _ shard: ShardModel) -> Bool {
        let hold = shard.poolPauses[copy.pool]
        return monotonic < hold.until && (hold.isTotal || jobs[copy.job].facts.priority != .immediate)
    }

    /// Checks that a held pool sends at most a probe a second, apart from urgent pushes while the hold isn't total.
    private func checkPoolPause(_ copy: Copy, _ shard: ShardModel) {
        if monotonic < shard.restUntil[copy.pool] {
            return broken(.waits, "push \(copy.job) is sent while its pool rests")
        }
        guard isHeld(copy, shard), monotonic < shard.poolPauses[copy.pool].lastProbe + 1_000_000_000 else {
            return
        }
        broken(.waits, "push \(copy.job) is sent while its pool is held")
    }

    private func noteProbe(_ copy: Copy, _ shard: ShardModel) {
        guard isHeld(copy, shard) else { return }
        counts[.poolProbe] += 1
        shard.poolPauses[copy.pool].lastProbe = monotonic
    }

    /// Returns whether a report is newer than another, judged without the core's own comparison.
    static func isNewer(_ report: ReportTime, than other: ReportTime) -> Bool {
        (report.milliseconds, report.offset) > (other.milliseconds, other.offset)
    }

    /// Checks that a device's report outlives the worker that has read it.
    private func checkPresence(_ copy: Copy, _ worker: WorkerModel, _ shard: ShardModel) {
        let (occurred, isOffline) = told[copy.address]
        guard isOffline, scenario.limits.storeIsDurable,
            Self.isNewer(occurred, than: shard.presenceAt[copy.address]),
            !confirms[copy.address], scenario.limits.knownDevices >= scenario.tokens,
            trueMilliseconds - occurred.milliseconds < scenario.limits.maximumExpirationMilliseconds - 300_000
        else { return }
        broken(.waits, "push \(copy.job) is sent while its device is offline, as an earlier worker has heard")
    }

    /// Checks that a presumed presence doesn't outweigh a report of the device.
    func checkReported(_ record: Record, _ shard: ShardModel) {
        guard scenario.limits.storeIsDurable, scenario.limits.knownDevices >= scenario.tokens else { return }
        let known = shard.lastPresence[record.token]
        if known?.presence == .offline, known?.learned == record.reportTime { return }
        broken(.waits, "token \(record.token) has reported that it is offline, and isn't taken for it")
    }

    /// Restarts a topic that was stopped, with new counts.
    private func recovered(_ topic: Int, _ shard: ShardModel) {
        guard shard.isStopped[topic] else { return }
        shard.isStopped[topic] = false
        shard.isStoppedByTokens[topic] = false
        shard.tokensSeen[topic] = ShardModel.TokensSeen()
    }

    /// Returns whether the push has failed as often as it may.
    func hasNoAttemptLeft(_ copy: Copy) -> Bool {
        let most = Int(scenario.limits.retry.maximumAttempts)
        return most > 0 && copy.failures >= most
    }

    /// Checks that a push is sent again only for a reason.
    private func checkRepetition(_ copy: Copy, _ worker: WorkerModel, _ shard: ShardModel) {
        let facts = jobs[copy.job].facts
        if copy.connection >= 0 { broken(.noDuplicate, "push \(copy.job) is in flight already") }
        if copy.isWithdrawn {
            broken(.rightOutcome, "push \(copy.job) is sent again though it was cancelled")
        }
        if copy.isConfirmed { broken(.noDuplicate, "push \(copy.job) is sent again though it was confirmed") }
        if hasNoAttemptLeft(copy) {
            broken(.noDuplicate, "push \(copy.job) is sent after \(copy.failures) failures")
        }
        if facts.isOnce, copy.last != .none, copy.last != .unprocessed {
            broken(.noDuplicate, "push \(copy.job) has expiration 0, and is sent again after its attempt")
        }
        switch copy.last {
        case .none, .unprocessed, .retriable, .configuration: break
        case .final: broken(.noDuplicate, "push \(copy.job) is sent again after a final answer")
        case .unknown:
            if facts.duplicates == .avoid {
                broken(.noDuplicate, "push \(copy.job) is sent again, and may have been delivered")
            }
        case .accepted:
            if facts.delivery != .confirm {
                broken(.noDuplicate, "push \(copy.job) is sent again after it was accepted")
            } else if !copy.hasNews,
                monotonic < copy.acceptedAt + UInt64(facts.receiptTimeoutSeconds) * 1_000_000_000
            {
                broken(.noDuplicate, "push \(copy.job) is sent again before its receipt was due")
            }
        }
        if copy.last != .none { counts[.repeatedSend] += 1 }
        if now(worker).wallMilliseconds < 0 {
            broken(.sound, "the clock of worker \(worker.number) is broken")
        }
    }

    func began(
        _ slot: UInt32, _ connection: Int, _ worker: WorkerModel, _ shard: ShardModel, _ pool: PoolModel
    ) {
        let index = Int(slot)
        shard.copies[index].connection = connection
        shard.copies[index].streamIndex = pool.connections[connection].streams.count
        pool.connections[connection].streams.append(slot)
        if shard.copies[index].firstSent == 0 { shard.copies[index].firstSent = now(worker).wallMilliseconds }
        shard.copies[index].hasNews = false
        shard.copies[index].mayExpireEarly = false
        let copy = shard.copies[index]
        noteProbe(copy, shard)
        shard.sent += 1
        shard.inFlight[copy.address] += 1
        let topic = jobs[copy.job].topic
        shard.copies[index].probe = shard.isStopped[topic] ? shard.stops[topic] : -1
        if shard.isStopped[topic] { shard.probes[topic] += 1 }
        let number = identity(copy)
        begun[number].flyingIn = shard.incarnation
        begun[number].flyingEpoch = copy.epoch
        begun[number].flyingTo = copy.address
        if copy.job > begun[number].job || begun[number].epoch != copy.epoch {
            begun[number].job = copy.job
            begun[number].epoch = copy.epoch
        }
    }

    // MARK: Answers

    /// Removes a push from its stream.
    func land(_ slot: UInt32, _ worker: WorkerModel, _ shard: ShardModel, _ pool: PoolModel) {
        let copy = shard.copies[Int(slot)]
        let connection = copy.connection
        if let last = pool.connections[connection].streams.popLast(), last != slot {
            pool.connections[connection].streams[copy.streamIndex] = last
            shard.copies[Int(last)].streamIndex = copy.streamIndex
        }
        shard.copies[Int(slot)].connection = -1
        shard.inFlight[copy.address] -= 1
        let topic = jobs[copy.job].topic
        if copy.probe == shard.stops[topic] { shard.probes[topic] -= 1 }
        let number = identity(copy)
        if begun[number].flyingIn == shard.incarnation { begun[number].flyingIn = 0 }
        pool.scheduler.ended(slot: slot, now: monotonic)
        reopen(connection, pool)
        pool.report(connection)
    }

    /// Notes the result of an attempt that has no answer with a reason.
    func heard(_ slot: UInt32, _ result: LastResult, _ worker: WorkerModel, _ shard: ShardModel) {
        let index = Int(slot)
        shard.copies[index].last = result
        switch result {
        case .accepted:
            let copy = shard.copies[index]
            shard.holdUntil[copy.address] = 0
            let topic = jobs[copy.job].topic
            shard.tokensSeen[topic].note()
            if !shard.isStoppedByTokens[topic] || copy.probe == shard.stops[topic] { recovered(topic, shard) }
            shard.poolPauses[copy.pool] = ShardModel.PoolPause()
            shard.copies[index].failures = 0
            shard.copies[index].acceptedAt = monotonic
            shard.copies[index].isReceiptPutOff = false
            shard.copies[index].awaitedSince = 0
            shard.copies[index].waitsUntil = .max
        case .unknown: shard.copies[index].failures += 1
        default: break
        }
        shard.copies[index].notBefore = 0
    }

    func heard(_ slot: UInt32, _ answer: AttemptAnswer, _ worker: WorkerModel, _ shard: ShardModel) {
        let index = Int(slot)
        let copy = shard.copies[index]
        let topic = jobs[copy.job].topic
        shard.copies[index].notBefore = 0
        if answer.class == .configuration, jobs[copy.job].facts.isOrdered {
            // A broadcast doesn't stop its topic, and doesn't wait with it.
            shard.copies[index].last = .final
            shard.copies[index].failures += 1
            if shard.isStopped[topic], copy.probe == shard.stops[topic] {
                shard.isStoppedByTokens[topic] = false
            }
            return
        }
        let isBurst = shard.tokensSeen[topic].isBurst(after: answer, shard.isStoppedByTokens[topic])
        if answer.class == .configuration || isBurst {
            shard.copies[index].last = answer.reason == .forbidden ? .final : .configuration
            if !shard.isStopped[topic] || copy.probe == shard.stops[topic] {
                shard.isStoppedByTokens[topic] = isBurst
            }
            if !shard.isStopped[topic] {
                shard.stops[topic] += 1
                shard.probes[topic] = 0
            }
            shard.isStopped[topic] = true
            return
        }
        // The end of the old token doesn't concern a push that has a new one.
        let movesOn = movesOn(copy, answer)
        let isFinal = !movesOn && (answer.class == .token || answer.class == .job)
        shard.copies[index].last = isFinal ? .final : .retriable
        if !movesOn { shard.copies[index].failures += 1 }
        let endsToken = answer.reason == .unregistered || answer.reason == .expiredToken
        if endsToken { shard.tokensSeen[topic].note() }
        if endsToken && (!shard.isStoppedByTokens[topic] || copy.probe == shard.stops[topic])
            || isFinal && !shard.isStoppedByTokens[topic]
            || answer.reason == .tooManyRequests && !shard.isStoppedByTokens[topic]
        {
            recovered(topic, shard)
        }
        let asked = min(answer.retryAfterMilliseconds, scenario.limits.retry.retryAfterLimitMilliseconds)
        let until = monotonic + UInt64(asked) * 1_000_000
        shard.copies[index].notBefore = until
        if answer.reason == .serviceUnavailable, asked > 0 {
            // However long a pause the server asks for, there is time for an attempt.
            let left = max(1, (lastMoment(copy) - now(worker).wallMilliseconds) / 2)
            shard.copies[index].notBefore = monotonic + UInt64(min(asked, left)) * 1_000_000
        }
        shard.copies[index].mayExpireEarly = asked > 0 || answer.reason == .tooManyRequests
        if answer.reason == .tooManyRequests {
            shard.wasBusy[copy.address] = true
            shard.holdUntil[copy.address] = max(shard.holdUntil[copy.address], until, 1)
        } else if answer.reason == .serviceUnavailable, asked > 0 {
            counts[.poolPaused] += 1
            var hold = shard.poolPauses[copy.pool]
            if monotonic < hold.until {
                let isLater = monotonic >= hold.begin + 500_000_000
                hold.isTotal = hold.isTotal || jobs[copy.job].facts.priority == .immediate && isLater
            } else {
                hold = ShardModel.PoolPause()
                hold.begin = monotonic
                hold.lastProbe = monotonic
            }
            hold.until = max(hold.until, until)
            shard.poolPauses[copy.pool] = hold
        }
        if answer.reason == .unregistered || answer.reason == .expiredToken {
            cause = Cause()
            cause.endedToken = copy.address
            cause.endedSince = answer.invalidSinceMilliseconds
        }
    }

    /// Returns whether the push's token has ended, while the push has a new token and isn't a push to be sent once
    /// only.
    private func movesOn(_ copy: Copy, _ answer: AttemptAnswer) -> Bool {
        copy.noted >= 0 && !jobs[copy.job].facts.isOnce
            && (answer.reason == .unregistered || answer.reason == .expiredToken)
    }

    func afterRefusal(
        _ slot: UInt32, _ copy: Copy, _ answer: AttemptAnswer, _ worker: WorkerModel, _ shard: ShardModel
    ) {
        if cause.endedToken >= 0, violation == nil { checkTokenEnded(worker, shard) }
        cause = Cause()
        switch answer.class {
        case .token where movesOn(copy, answer): break
        case .token
        where shard.copies[Int(slot)].last == .configuration
            && shard.copies[Int(slot)].job == copy.job:
            if jobs[copy.job].facts.isOnce {
                checkEnded(slot, copy, shard, "has expiration 0 and was answered")
            }
        case .configuration where answer.reason == .forbidden || jobs[copy.job].facts.isOrdered:
            checkEnded(slot, copy, shard, "was refused for good")
        case .token, .job: checkEnded(slot, copy, shard, "was refused for good")
        case _ where jobs[copy.job].facts.isOnce:
            checkEnded(slot, copy, shard, "has expiration 0 and was answered")
        case .configuration: break
        default:
            waits(
                slot, copy,
                min(answer.retryAfterMilliseconds, scenario.limits.retry.retryAfterLimitMilliseconds),
                worker, shard)
        }
    }

    /// Notes that the push waits for a bounded time after a failed attempt, unless its successor has taken its place.
    func waits(_ slot: UInt32, _ copy: Copy, _ asked: Int64, _ worker: WorkerModel, _ shard: ShardModel) {
        let index = Int(slot)
        guard shard.copies[index].isLive, shard.copies[index].job == copy.job else { return }
        let cap = scenario.limits.retry.later.capMilliseconds
        let isHeld = shard.wasBusy[copy.address]
        shard.copies[index].waitsUntil = isHeld ? .max : monotonic + UInt64(asked + cap) * 1_000_000
        let isRetrying = shard.machine.state(slot) == .retrying
        shard.copies[index].retrySteps = isRetrying && !isHeld ? worker.clockSteps : -1
    }

    /// Checks that the push has ended with its answer.
    func checkEnded(_ slot: UInt32, _ copy: Copy, _ shard: ShardModel, _ why: StaticString) {
        let after = shard.copies[Int(slot)]
        if after.isLive, after.job == copy.job {
            broken(.rightOutcome, "push \(copy.job) \(why), and goes on")
        }
    }

    // MARK: Devices

    /// Notes that a device has received a push.
    func seen(_ copy: Copy) {
        happened(.seenByDevice)
        jobs[copy.job].timesSeen += 1
        let number = identity(copy)
        let before = shown[number]
        shown[number].lastJob = copy.job
        shown[number].lastEpoch = copy.epoch
        if copy.hasMoved { shown[number].isMixed = true }
        if copy.job < before.job {
            if before.epoch == copy.epoch, !shown[number].isMixed, !outranks(copy.job, before.job) {
                broken(.newestWins, "a device sees push \(copy.job) after \(before.job)")
            }
        } else {
            shown[number].job = copy.job
            shown[number].epoch = copy.epoch
        }
        deliver(copy.job, token: copy.address)
    }
}

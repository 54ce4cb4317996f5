import DeliveryCore
import EventLoop
import HTTP2
import Kafka
import SluiceModel

/// Records on their way in: decoded, checked, and handed to the delivery machine.
extension Shard {
    /// Takes records from the ring.
    func takeRecords() {
        wallMilliseconds = wallClockMilliseconds()
        var budget = Self.recordsPerTurn
        while budget > 0 {
            let count = announce()
            for index in 0..<count { take(announced[index]) }
            budget -= count
            if count < announced.count { break }
        }
        follow()
        if budget <= 0 { wakeup.signal() }
        askForTurnEnd()
    }

    /// Takes a few records from the ring and names their devices to the machine, whose memory is fetched while the
    /// records are decoded. Returns how many.
    private func announce() -> Int {
        var count = 0
        while count < announced.count, let incoming = ring.pop() {
            machine.expect(incoming.device)
            residency.expect(incoming.device)
            announced.initializeElement(at: count, to: incoming)
            count += 1
        }
        return count
    }

    /// Takes a record; `isLoaded` when all of its device is in memory.
    func take(_ incoming: IncomingRecord, isLoaded: Bool = false) {
        let record = incoming.record
        if !isLoaded {
            if storage != nil {
                guard residency.isBegun(incoming.partitionSlot) else {
                    return residency.keepUntilBegun(waiting.keep(.record(incoming)), incoming.partitionSlot)
                }
                residency.hasRead(incoming.partitionSlot, through: record.offset)
            }
            counters.records += 1
        }
        let source = OutcomeSource(record: record, partitionSlot: incoming.partitionSlot)
        let jobRecord = jobRecord(of: record)
        let job: DecodedJob
        do throws(JobError) {
            job = try decoder.decode(jobRecord, nowMilliseconds: wallMilliseconds)
        } catch {
            if incoming.isReplay { return replayed(incoming) }
            counters.deadLetters += 1
            outcomes.deadLetter(jobRecord, error: error, source: source)
            free(record)
            return
        }
        switch job {
        case .push(let push):
            if incoming.isReplay {
                push.release()
                return replayed(incoming)
            }
            if !isLoaded, mustWait(push, incoming) { return push.release() }
            take(push, incoming, source)
        case .control(let control):
            if !isLoaded, mustWait(control, incoming) { return control.release() }
            take(control, incoming, source)
        }
    }

    /// A record that was complete before takes no room any more.
    func replayed(_ incoming: IncomingRecord) {
        news.freed[incoming.partitionSlot, default: 0] += 1
        news.replayed.append(
            RecordPlace(partitionSlot: incoming.partitionSlot, offset: incoming.record.offset))
        free(incoming.record)
        askForTurnEnd()
    }

    // MARK: Pushes

    private func take(_ decoded: PushJob, _ incoming: IncomingRecord, _ source: OutcomeSource) {
        let record = incoming.record
        guard !isDone(decoded, incoming) else { return }
        var push = decoded
        push.expiration = push.expiration.capped(
            atMilliseconds: wallMilliseconds + plan.limits.maximumExpirationMilliseconds)
        guard
            let route = routes.route(
                of: push, makeTopic: { [lanes] lane, topic in lanes[Int(lane)].encoder.topic(topic) })
        else { return refuse(push, record, source, .undeliverable, cause: .noCredential) }
        let job = Job(
            push: push, record: record, topic: route.topic, polledMilliseconds: wallMilliseconds,
            partition: record.partition, offset: record.offset, heldBytes: InFlightBytes.size(of: record),
            lane: route.lane, app: route.app, partitionSlot: source.partitionSlot, device: incoming.device)
        let admission = machine.admit(facts(of: job, route), at: now)
        guard admission != .full else {
            waitForSlot(push, incoming)
            return push.release()
        }
        settle(job, admission)
    }

    func facts(of job: Job, _ route: RouteTable.Route) -> PushFacts {
        let push = job.push
        var expiration = Int64.max
        if case .at(let seconds) = push.expiration { expiration = Int64(seconds) * 1000 }
        return PushFacts(
            device: job.device,
            collapseKey: push.collapseIdentifier.map { plan.hasher.collapseIdentifier($0) } ?? 0,
            notificationKey: plan.hasher.notification(push.apnsID), topic: route.number, lane: job.lane,
            partition: job.partitionSlot, offset: job.place.offset, expirationMilliseconds: expiration,
            isOnce: push.expiration == .once, deliverAtMilliseconds: push.deliverAtMilliseconds ?? 0,
            createdMilliseconds: push.createdMilliseconds,
            registeredAtMilliseconds: push.registeredAtMilliseconds ?? .min,
            receiptTimeoutSeconds: push.receiptTimeoutSeconds,
            coalesceWindowMilliseconds: plan.coalesceWindows[Int(job.app)], priority: push.priority,
            delivery: push.delivery, duplicates: push.duplicates)
    }

    /// Keeps a job where the machine says, or ends it. `progress` is of one that comes from the store or another shard, and
    /// so is what the store has of it.
    func settle(
        _ job: consuming Job, _ admission: Admission, _ progress: ItemProgress = ItemProgress(),
        _ resident: ResidentFacts? = nil
    ) {
        switch admission {
        case .placed(let slot):
            if let resident { residency.placed(slot, job.place, resident) }
            jobs.insert(job, at: slot)
        case .replaced(let slot, let replaced): replace(slot, replaced, with: job, resident)
        case .obsolete(let slot):
            refuse(job, .superseded, progress, supersededBy: jobs[slot].pointee.push.apnsID, resident)
        case .deviceFull: refuse(job, .undeliverable, progress, cause: .deviceLimit, resident)
        case .expired: refuse(job, .expired, progress, resident)
        case .repeated(let slot, let isDurable):
            // The slot's job completes the offset, unless it is complete because the store has it.
            if let resident { residency.repeated(slot, job.place, resident) }
            if isDurable, !job.isRestored { complete(job.partitionSlot, job.offset, isRepeated: true) }
            free(job)
        case .full: leaveOut(job)
        }
        act()
    }

    /// Ends the job of a slot as superseded by another, which gets its place.
    private func replace(
        _ slot: UInt32, _ replaced: ReplacedPush, with successor: consuming Job, _ resident: ResidentFacts?
    ) {
        let old = jobs[slot]
        var outcome = outcome(of: old, .superseded, replaced.progress)
        outcome.supersededBy = successor.push.apnsID
        write(outcome, source: source(of: slot))
        // The actions that follow find the successor. Without a collapse identifier its topic can be of another lane,
        // where the slot does not wait.
        if old.pointee.lane != successor.lane {
            lanes[Int(old.pointee.lane)].pool.scheduler.remove(slot: slot)
        }
        // Of a token change that the machine still has to make for this slot.
        successor.notedToken = old.pointee.notedToken
        old.pointee.notedToken = nil
        residency.replaced(slot, successor.place, resident ?? ResidentFacts())
        free(jobs.remove(slot))
        jobs.insert(successor, at: slot)
    }

    /// Ends a job that has no slot.
    func refuse(
        _ job: consuming Job, _ kind: OutcomeKind, _ progress: ItemProgress, cause: OutcomeCause? = nil,
        supersededBy: APNSID? = nil, _ resident: ResidentFacts? = nil
    ) {
        withUnsafeMutablePointer(to: &job) { job in
            var outcome = outcome(of: job, kind, progress)
            outcome.cause = cause
            outcome.supersededBy = supersededBy
            write(outcome, source: source(of: job, resident))
        }
        if job.isRestored { residency.left(job.place) }
        free(job)
    }

    /// Ends a push that has no route.
    func refuse(
        _ push: PushJob, _ record: ConsumedRecord, _ source: OutcomeSource, _ kind: OutcomeKind,
        cause: OutcomeCause
    ) {
        var outcome = Outcome(
            kind, of: push, sourceTopic: sourceTopic, partition: record.partition, offset: record.offset,
            polledMilliseconds: wallMilliseconds, finishedMilliseconds: wallMilliseconds)
        outcome.cause = cause
        write(outcome, source: source)
        push.release()
        free(record)
    }

    // MARK: Other jobs

    private func take(_ control: ControlJob, _ incoming: IncomingRecord, _ source: OutcomeSource) {
        let record = incoming.record
        let (kind, count) = apply(
            control, incoming.device,
            origin: RecordOrigin(partition: incoming.partitionSlot, offset: record.offset))
        guard !mustWait(incoming, count: count) else { return control.release() }
        if incoming.isReplay {
            control.release()
            return replayed(incoming)
        }
        end(control, incoming, kind, count, source)
    }

    /// Gives the outcome of a cancel or device event.
    func end(
        _ control: ControlJob, _ incoming: IncomingRecord, _ kind: OutcomeKind, _ count: UInt32?,
        _ source: OutcomeSource
    ) {
        let record = incoming.record
        let outcome = Outcome(
            kind, of: control, count: count, sourceTopic: sourceTopic, partition: record.partition,
            offset: record.offset, polledMilliseconds: wallMilliseconds,
            finishedMilliseconds: wallMilliseconds)
        write(outcome, source: source)
        control.release()
        free(record)
    }

    /// Does what a cancel or device event says. Returns the kind of its outcome, and how many items it concerned.
    private func apply(
        _ control: ControlJob, _ device: DeviceKey, origin: RecordOrigin
    ) -> (OutcomeKind, UInt32?) {
        let partition = origin.partition
        let occurred = control.occurredMilliseconds
        let time = ReportTime(milliseconds: occurred, offset: origin.offset)
        var context = ActionContext(deviceToken: control.address)
        let count: Int?
        switch control.detail {
        case .cancelCollapseIdentifier(let identifier):
            // A topic that no push has named has nothing pending.
            guard let topic = routes.number(of: control.topic) else { return (.notFound, nil) }
            return cancel(
                device, .collapseKey(plan.hasher.collapseIdentifier(identifier), topic: topic), origin)
        case .cancelNotification(let id):
            return cancel(device, .notificationKey(plan.hasher.notification(id)), origin)
        case .online:
            let released = machine.online(device, occurred: time, partition: partition, at: now)
            // The store may have more of them.
            count = residency.isPutOff(device) ? nil : released
        case .offline:
            count = machine.offline(device, occurred: time, partition: partition, at: now)
        case .unregistered:
            count = machine.unregistered(device, occurredMilliseconds: occurred, origin: origin, at: now)
        case .receipt(let id):
            count = machine.receipt(
                device, notificationKey: plan.hasher.notification(id), occurred: time, partition: partition,
                at: now)
        case .tokenChanged(let token):
            context.newToken = token
            context.change = RecordPlace(partitionSlot: partition, offset: origin.offset)
            context.movedAtMilliseconds = occurred
            let new = plan.hasher.device(token)
            count = machine.tokenChanged(
                device, to: new, isElsewhere: shardIndex(of: new, shards: plan.shards) != plan.index,
                origin: origin, at: now)
        case .broadcast: return (.undeliverable, nil)
        }
        act(context)
        if case .tokenChanged(let token) = control.detail, storage != nil {
            remember(token, of: device, occurredMilliseconds: occurred, origin)
            moveOn(plan.hasher.device(token), after: occurred)
        }
        return (.applied, count.map { UInt32(clamping: $0) })
    }

    private func cancel(
        _ device: DeviceKey, _ target: CancelTarget, _ origin: RecordOrigin
    ) -> (OutcomeKind, UInt32?) {
        let result = machine.cancel(device, target, origin: origin, at: now)
        act()
        if result.cancelled > 0 { return (.cancelled, UInt32(clamping: result.cancelled)) }
        return (result.tooLate > 0 ? .tooLate : .notFound, nil)
    }

    func jobRecord(of record: ConsumedRecord) -> JobRecord {
        let count = record.headerCount
        if count > headers.count {
            headers.deallocate()
            headers = .allocate(capacity: 2 * count)
        }
        var filled = 0
        record.forEachHeader { name, value in
            headers.initializeElement(at: filled, to: RecordHeader(name: name, value: value))
            filled += 1
        }
        return JobRecord(
            key: record.key, value: record.value,
            headers: UnsafeBufferPointer(start: headers.baseAddress, count: filled), topic: record.topicName,
            partition: record.partition, offset: record.offset,
            timestampMilliseconds: record.timestampMilliseconds)
    }
}

import DeliveryCore
import EventLoop
import HTTP2
import Kafka
import SluiceModel

/// Decodes and checks incoming records, and hands them to the machine.
extension Shard {
    /// Takes records from the ring.
    func readRecords() {
        wallMilliseconds = wallClockMilliseconds()
        var budget = plan.recordsPerTurn
        while budget > 0 {
            let most = min(budget, announced.count)
            let count = announce(most)
            for index in 0..<count { accept(announced[index]) }
            budget -= count
            if count < most { break }
        }
        follow()
        if budget <= 0 { wakeup.signal() }
        askForTurnEnd()
    }

    /// Takes all records that are in the ring.
    func readAllRecords() {
        guard !machine.hasEnded else { return }
        repeat { readRecords() } while ring.count > 0
    }

    /// Takes a few records from the ring and names their devices to the machine. The machine's memory is fetched while
    /// the records are decoded. Returns the number of records, `most` at most.
    private func announce(_ most: Int) -> Int {
        var count = 0
        while count < most, let incoming = ring.pop() {
            machine.prefetch(incoming.device)
            if let value = incoming.record.value { Prefetch.lines(of: value) }
            announced.initializeElement(at: count, to: incoming)
            count += 1
        }
        return count
    }

    /// Takes a record. `isLoaded` is true when all items of the record's device are in memory.
    func accept(_ incoming: IncomingRecord, isLoaded: Bool = false) {
        var incoming = incoming
        let record = incoming.record
        if !isLoaded {
            if let handle = machine.arrives(incoming.place) {
                return waiting.keep(.record(incoming), under: handle)
            }
            counters.records += 1
        }
        let source = OutcomeSource(record: record, partitionSlot: incoming.partitionSlot)
        let fields = jobRecord(of: record)
        if fields.headers.count > 0 { countHeaders(of: &incoming, fields.headers.count) }
        let job: DecodedJob
        do throws(JobError) {
            job = try decoder.decode(fields, nowMilliseconds: wallMilliseconds)
        } catch {
            if incoming.isReplay { return replayed(incoming) }
            counters.deadLetters += 1
            counters.brokenRules[error.rule.rawValue, default: 0] += 1
            // A dead letter has all headers of its record, also those that nobody has read yet.
            outcomes.deadLetter(jobRecord(of: record, withHeaders: true), error: error, source: source)
            free(incoming)
            return
        }
        switch job {
        case .push(let push):
            if !isLoaded,
                let handle = incoming.isReplay
                    ? machine.mustWait(replay: incoming.device, incoming.place)
                    : machine.mustWait(push: incoming.device, incoming.place, push.delivery)
            {
                waiting.keep(.record(incoming), under: handle)
                askForTurnEnd()
                return push.release()
            }
            if incoming.isReplay { return outdate(by: push, incoming) }
            accept(push, incoming, source)
        case .control(let control):
            if !isLoaded, let handle = mustWait(control, incoming) {
                waiting.keep(.record(incoming), under: handle)
                askForTurnEnd()
                return control.release()
            }
            accept(control, incoming, source)
        }
    }

    private func mustWait(_ control: ControlJob, _ incoming: IncomingRecord) -> UInt32? {
        var isReturn = false
        var new: DeviceKey?
        switch control.detail {
        case .online: isReturn = true
        case .tokenChanged(let token): new = plan.hasher.device(token)
        default: break
        }
        return machine.mustWait(
            control: incoming.device, incoming.place, concernsPresence: control.detail.concernsPresence,
            isReturn: isReturn, new: new)
    }

    /// Frees a record that was complete before.
    func replayed(_ incoming: IncomingRecord) {
        machine.replayed(incoming.place)
        free(incoming)
        askForTurnEnd()
    }

    // MARK: Pushes

    /// Ends an older push that waits, because this push was complete before and may have been sent. Frees the record.
    private func outdate(by push: PushJob, _ incoming: IncomingRecord) {
        if let route = route(of: push) {
            let record = incoming.record
            let job = Job(
                push: push, record: record, target: route.target, polledMilliseconds: wallMilliseconds,
                partition: record.partition, offset: record.offset, heldBytes: Int(incoming.bytes),
                pool: route.pool, app: route.app, responseRound: responseRound)
            machine.replayed(
                incoming.place, outdatedBy: facts(of: job, route, incoming.device, incoming.place), at: now)
            free(job)
        } else {
            push.release()
            machine.replayed(incoming.place, outdatedBy: nil, at: now)
            free(incoming)
        }
        act()
        askForTurnEnd()
    }

    /// Returns true and frees the record when the record is complete. Its item was moved before the worker crashed, or
    /// was in the store and has ended meanwhile.
    func isDone(_ push: PushJob, _ incoming: IncomingRecord) -> Bool {
        guard machine.isDone(incoming.place, incoming.device, push.apnsID) else { return false }
        push.release()
        free(incoming)
        return true
    }

    private func accept(_ decoded: PushJob, _ incoming: IncomingRecord, _ source: OutcomeSource) {
        let record = incoming.record
        guard !isDone(decoded, incoming) else { return }
        var push = decoded
        push.expiration = push.expiration.capped(
            atMilliseconds: wallMilliseconds + plan.limits.maximumExpirationMilliseconds)
        guard
            let route = route(of: push)
        else {
            return refuse(push, incoming, source, .undeliverable, cause: .noCredential, app: nil)
        }
        let job = Job(
            push: push, record: record, target: route.target, polledMilliseconds: wallMilliseconds,
            partition: record.partition, offset: record.offset, heldBytes: Int(incoming.bytes),
            pool: route.pool, app: route.app, responseRound: responseRound)
        let settlement = machine.admit(facts(of: job, route, incoming.device, incoming.place), at: now)
        if case .deferred(let handle) = settlement {
            waiting.keep(.record(incoming), under: handle)
            askForTurnEnd()
            return push.release()
        }
        metrics.count(push.isBroadcast ? .broadcast : .push, app: route.app)
        // The usual case by itself, because another copy of the job takes its time.
        guard case .placed(let slot) = settlement else { return settle(job, settlement) }
        jobs.insert(job, at: slot)
        act()
    }

    func facts(
        of job: borrowing Job, _ route: RouteTable.Route, _ device: DeviceKey, _ place: RecordPlace
    ) -> PushFacts {
        let push = job.push
        var expiration = Int64.max
        if case .at(let seconds) = push.expiration { expiration = Int64(seconds) * 1000 }
        var collapseKey = push.collapseIdentifier.map { plan.hasher.collapseIdentifier($0) } ?? 0
        var isFinal = false
        let states = plan.supersededStates[Int(job.app)]
        if states != 0, collapseKey == 0, states & 1 << UInt16(push.pushType.rawValue) != 0,
            let state = push.stateUpdate
        {
            collapseKey = stateKey
            isFinal = state == .end
        }
        return PushFacts(
            device: device, collapseKey: collapseKey,
            notificationKey: plan.hasher.notification(push.apnsID), topic: route.number, pool: job.pool,
            partition: place.partitionSlot, offset: place.offset, expirationMilliseconds: expiration,
            isOnce: push.expiration == .once, deliverAtMilliseconds: push.deliverAtMilliseconds ?? 0,
            createdMilliseconds: push.createdMilliseconds,
            registeredAtMilliseconds: push.registeredAtMilliseconds ?? .min,
            receiptTimeoutSeconds: push.receiptTimeoutSeconds,
            coalesceWindowMilliseconds: plan.coalesceWindows[Int(job.app)], isOrdered: push.isBroadcast,
            isFinal: isFinal, priority: push.priority,
            delivery: push.delivery, duplicates: push.duplicates)
    }

    /// Keeps a job where the machine placed it, or ends it.
    func settle(_ job: consuming Job, _ settlement: Settlement) {
        switch settlement {
        case .placed(let slot): jobs.insert(job, at: slot)
        case .replaced(let slot, let facts): replace(slot, facts, with: job)
        case .refused(let kind, let cause, let newer, let facts):
            withUnsafeMutablePointer(to: &job) { job in
                var outcome = outcome(of: job, kind, facts)
                outcome.cause = cause
                if newer != DeliveryMachine.noSlot {
                    outcome.supersededBy = jobs[newer].pointee.push.apnsID
                }
                write(outcome, of: job, facts)
            }
            free(job)
        case .repeated, .leftOut, .deferred: free(job)
        }
        act()
    }

    /// Ends a slot's job as superseded by another job, which gets the slot.
    private func replace(_ slot: UInt32, _ facts: OutcomeFacts, with successor: consuming Job) {
        let old = jobs[slot]
        var outcome = outcome(of: old, .superseded, facts)
        outcome.supersededBy = successor.push.apnsID
        write(outcome, of: old, facts)
        // The actions that follow find the successor. Without a collapse identifier, the successor's topic can be of
        // another pool, where the slot does not wait.
        if old.pointee.pool != successor.pool {
            pools[Int(old.pointee.pool)].dequeue(slot)
        }
        // Token of a change that the machine still has to make for this slot.
        successor.notedToken = old.pointee.notedToken
        old.pointee.notedToken = nil
        freedBytes += jobs.free(slot)
        jobs.insert(successor, at: slot)
    }

    /// Ends a push that has no route, or no room. `app` is nil without a route.
    func refuse(
        _ push: PushJob, _ incoming: IncomingRecord, _ source: OutcomeSource, _ kind: OutcomeKind,
        cause: OutcomeCause, app: UInt16?
    ) {
        let record = incoming.record
        metrics.count(push.isBroadcast ? .broadcast : .push, app: app)
        var outcome = Outcome(
            kind, of: push, sourceTopic: sourceTopic, partition: record.partition, offset: record.offset,
            polledMilliseconds: wallMilliseconds, finishedMilliseconds: wallMilliseconds)
        outcome.cause = cause
        write(outcome, source: source, app: app)
        push.release()
        free(incoming)
    }

    // MARK: Other jobs

    private func accept(_ control: ControlJob, _ incoming: IncomingRecord, _ source: OutcomeSource) {
        if !incoming.isReplay { metrics.count(control.detail.kind, app: nil) }
        let (effect, context) = effect(of: control, incoming)
        let result = machine.apply(
            effect, incoming.device, incoming.place, occurredMilliseconds: control.occurredMilliseconds,
            at: now)
        act(context)
        let count = result.count.map { UInt32(clamping: $0) }
        switch machine.applied(incoming.place, isReplay: incoming.isReplay) {
        case .outcome: finish(control, incoming, result.kind, count, source)
        case .replayed:
            control.release()
            free(incoming)
            askForTurnEnd()
        case .waits(let handle):
            waiting.keep(.change(incoming, count: count), under: handle)
            control.release()
        }
    }

    /// Writes the outcome of a cancel or device event.
    func finish(
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
        free(incoming)
    }

    /// Returns what a cancel or device event does, and what its actions need.
    private func effect(
        of control: ControlJob, _ incoming: IncomingRecord
    ) -> (ControlEffect, ActionContext) {
        var context = ActionContext(deviceToken: control.address)
        switch control.detail {
        case .cancelCollapseIdentifier(let identifier):
            // In every environment that pushes have named. A topic that no push has named has nothing pending.
            let key = plan.hasher.collapseIdentifier(identifier)
            return (
                .cancel(routes.numbers(of: control.topic).sorted().map { .collapseKey(key, topic: $0) }),
                context
            )
        case .cancelNotification(let id):
            return (.cancel([.notificationKey(plan.hasher.notification(id))]), context)
        case .online: return (.online, context)
        case .offline: return (.offline, context)
        case .unregistered: return (.unregistered, context)
        case .erase:
            context.eventSlot = incoming.partitionSlot
            storage?.noteErasure(of: incoming.device, at: wallMilliseconds)
            return (.erase, context)
        case .receipt(let id): return (.receipt(notificationKey: plan.hasher.notification(id)), context)
        case .tokenChanged(let token):
            context.newToken = token
            return (.tokenChanged(to: plan.hasher.device(token)), context)
        }
    }

    /// Returns the record as the decoder takes it, borrowed until the next call. Headers cost a tenth of a job. Those of
    /// a record in packed mode are therefore read on request only.
    func jobRecord(of record: ConsumedRecord, withHeaders: Bool = false) -> JobRecord {
        let value = record.value
        let count = withHeaders || !PackedFields.begin(value) ? readHeaders(of: record) : 0
        return JobRecord(
            key: record.key, value: value,
            headers: UnsafeBufferPointer(start: headers.baseAddress, count: count), topic: sourceTopic,
            partition: record.partition, offset: record.offset,
            timestampMilliseconds: record.timestampMilliseconds)
    }

    /// Puts the record's headers into `headers`, and returns their number.
    private func readHeaders(of record: ConsumedRecord) -> Int {
        let count = record.headerCount
        // The room that a record with very many headers took is given back.
        if count > headers.count || headers.count > 64 * Self.usualHeaders {
            headers.deallocate()
            headers = .allocate(capacity: max(Self.usualHeaders, 2 * count))
        }
        var filled = 0
        headerBytes = 0
        record.forEachHeader { name, value in
            headers.initializeElement(at: filled, to: RecordHeader(name: name, value: value))
            headerBytes &+= name.count &+ (value?.count ?? 0)
            filled += 1
        }
        return filled
    }

    /// Counts the headers that were read last, because the record keeps them from now on in parsed form.
    private func countHeaders(of incoming: inout IncomingRecord, _ count: Int) {
        let bytes = incoming.record.countedBytes(headers: count, bytes: headerBytes)
        guard bytes > Int(incoming.bytes) else { return }
        freedBytes -= bytes - Int(incoming.bytes)
        incoming.bytes = Int32(clamping: bytes)
    }
}

extension ControlJob.Detail {
    /// Kind of the job.
    var kind: JobKind {
        switch self {
        case .cancelCollapseIdentifier, .cancelNotification: .cancel
        case .online, .offline, .unregistered, .erase, .receipt, .tokenChanged: .device
        }
    }

    /// Whether the event's report of the device is compared with the known presence.
    var concernsPresence: Bool {
        switch self {
        case .online, .offline, .receipt: true
        default: false
        }
    }
}

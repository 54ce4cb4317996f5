import EventLoop
import HTTP2
import Kafka
import SluiceModel

/// Records on their way in: decoded, checked, and put in their queues.
extension Shard {
    /// Takes records from the ring, decodes them and puts them in their queues.
    func takeRecords() {
        wallMilliseconds = wallClockMilliseconds()
        var budget = Self.recordsPerTurn
        while budget > 0, let incoming = ring.pop() {
            take(ConsumedRecord(rawPointer: incoming.pointer), partitionSlot: incoming.partitionSlot)
            budget -= 1
        }
        if budget == 0 { wakeup.signal() }
        askForTurnEnd()
    }

    private func take(_ record: ConsumedRecord, partitionSlot: UInt16) {
        counters.records += 1
        let source = OutcomeSource(record: record, partitionSlot: partitionSlot)
        let jobRecord = jobRecord(of: record)
        let job: DecodedJob
        do throws(JobError) {
            job = try decoder.decode(jobRecord, nowMilliseconds: wallMilliseconds)
        } catch {
            counters.deadLetters += 1
            outcomes.deadLetter(jobRecord, error: error, source: source)
            free(record)
            return
        }
        switch job {
        case .unsupported(let control):
            let outcome = Outcome(
                notSupported: control, sourceTopic: record.topicName, partition: record.partition,
                offset: record.offset, polledMilliseconds: wallMilliseconds,
                finishedMilliseconds: wallMilliseconds)
            write(outcome, source: source)
            control.release()
            free(record)
        case .push(let push):
            place(push, record, source)
        }
    }

    private func place(_ decoded: PushJob, _ record: ConsumedRecord, _ source: OutcomeSource) {
        var push = decoded
        push.expiration = push.expiration.capped(
            atMilliseconds: wallMilliseconds + plan.maximumExpirationMilliseconds)
        if push.expiration.isPast(atMilliseconds: wallMilliseconds) {
            return refuse(push, record, source, .expired)
        }
        if let feature = push.unsupportedFeature(nowMilliseconds: wallMilliseconds) {
            return refuse(push, record, source, .undeliverable, cause: .notSupported, unsupported: feature)
        }
        guard
            let route = routes.route(
                of: push, makeTopic: { [lanes] lane, topic in lanes[Int(lane)].encoder.topic(topic) })
        else { return refuse(push, record, source, .undeliverable, cause: .noCredential) }
        let item = Item(
            push: push, record: record, topic: route.topic, polledMilliseconds: wallMilliseconds,
            lane: route.lane, app: route.app, partitionSlot: source.partitionSlot)
        guard let slot = items.insert(item) else {
            // The intake never hands out more than there are slots.
            preconditionFailure("shard \(plan.index): more than \(plan.capacity) jobs at once")
        }
        enqueueUnlessHeld(slot)
    }

    /// Ends a push that never gets into the table.
    private func refuse(
        _ push: PushJob, _ record: ConsumedRecord, _ source: OutcomeSource, _ kind: OutcomeKind,
        cause: OutcomeCause? = nil, unsupported: UnsupportedFeature? = nil
    ) {
        var outcome = Outcome(
            kind, of: push, sourceTopic: record.topicName, partition: record.partition, offset: record.offset,
            polledMilliseconds: wallMilliseconds, finishedMilliseconds: wallMilliseconds)
        outcome.cause = cause
        outcome.unsupported = unsupported
        write(outcome, source: source)
        push.release()
        free(record)
    }

    private func jobRecord(of record: ConsumedRecord) -> JobRecord {
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

import DeliveryCore
import EventLoop
import SluiceModel

/// Finds pushes in a shard's memory for people. Nothing of this changes a push.
extension Shard {
    /// Slots looked at in one turn of the loop, so that a search holds up no push for long.
    static let slotsTraced = 4096
    /// Waiting records looked at.
    private static let mostWaiting = 4096
    /// Waiting records decoded in one turn of the loop: up to 4 KB of JSON each.
    private static let waitingTraced = 256

    /// Searches the pushes in memory, a part in each turn. Shard's thread only.
    /// - Parameter answer: called once, on this thread or, when the loop ends meanwhile, on any.
    func trace(_ query: TraceQuery, _ answer: @escaping @Sendable (TraceAnswer) -> Void) {
        wallMilliseconds = wallClockMilliseconds()
        var trace = ShardTrace()
        addStops(to: &trace)
        let device = query.deviceToken.map { token in token.withUnsafeBytes { plan.hasher.device($0) } }
        let (handles, isAll) = waiting.handles(atMost: Self.mostWaiting)
        if !isAll { trace.isComplete = false }
        guard let device else { return traceWaiting(query, handles[...], trace, answer) }
        // Only the device's own records are decoded.
        for handle in handles { addWaiting(handle, query, device, to: &trace) }
        for slot in machine.delivery.pendingSlots(of: device) { add(slot, query, to: &trace) }
        trace.slots = machine.delivery.usedSlots
        answer(.shard(plan.index, trace))
    }

    /// Looks at the next waiting records, and continues in the next turn. A record that waits no more has a slot by then,
    /// or has ended.
    private func traceWaiting(
        _ query: TraceQuery, _ handles: ArraySlice<UInt32>, _ before: ShardTrace,
        _ answer: @escaping @Sendable (TraceAnswer) -> Void
    ) {
        var trace = before
        wallMilliseconds = wallClockMilliseconds()
        for handle in handles.prefix(Self.waitingTraced) { addWaiting(handle, query, nil, to: &trace) }
        let rest = handles.dropFirst(Self.waitingTraced)
        guard !rest.isEmpty else { return traceSlots(query, trace, answer) }
        let accepted = loop.execute { [self, trace] in traceWaiting(query, rest, trace, answer) }
        if !accepted { answer(.ended(loop.name)) }
    }

    /// Looks at the next slots, and continues in the next turn.
    private func traceSlots(
        _ query: TraceQuery, _ before: ShardTrace, _ answer: @escaping @Sendable (TraceAnswer) -> Void
    ) {
        var trace = before
        wallMilliseconds = wallClockMilliseconds()
        let end = min(trace.slots + Self.slotsTraced, machine.delivery.usedSlots)
        while trace.slots < end {
            add(UInt32(trace.slots), query, to: &trace)
            trace.slots += 1
        }
        guard trace.slots < machine.delivery.usedSlots else { return answer(.shard(plan.index, trace)) }
        let accepted = loop.execute { [self, trace] in traceSlots(query, trace, answer) }
        if !accepted { answer(.ended(loop.name)) }
    }

    private var routeNames: TraceRoutes { TraceRoutes(plan) }

    /// Adds the push of a slot if the query finds it.
    private func add(_ slot: UInt32, _ query: TraceQuery, to trace: inout ShardTrace) {
        guard jobs.contains(slot) else { return }
        let job = jobs[slot]
        guard
            query.matches(
                job.pointee.push.apnsID, partition: job.pointee.partition, offset: job.pointee.offset),
            let pending = machine.pending(slot, at: now)
        else { return }
        var push = TracedPush(
            job.pointee.push, .shard(plan.index), .pending(pending.cause),
            place: (job.pointee.partition, job.pointee.offset),
            polledMilliseconds: job.pointee.polledMilliseconds,
            route: routeNames.route(app: job.pointee.app, pool: job.pointee.pool))
        let progress = pending.progress
        push.untilMilliseconds = pending.untilMilliseconds
        if case .blocked(let other) = pending.cause, jobs.contains(other) {
            push.blockedBehind = jobs[other].pointee.push.apnsID
        }
        push.expiryMilliseconds = progress.expiryMilliseconds == .max ? nil : progress.expiryMilliseconds
        push.attempts = Int(progress.attempts)
        push.failures = Int(progress.failures)
        if progress.firstSentMilliseconds > 0 { push.firstSentMilliseconds = progress.firstSentMilliseconds }
        if job.pointee.sentAt > 0 {
            let age = loop.now.nanoseconds(since: MonotonicTime(nanoseconds: job.pointee.sentAt))
            push.lastSentMilliseconds = wallMilliseconds - Int64(age / 1_000_000)
        }
        if progress.isAccepted {
            push.lastStatus = 200
        } else if job.pointee.lastStatus > 0 {
            push.lastStatus = Int(job.pointee.lastStatus)
            if job.pointee.lastReason != .absent, job.pointee.lastReason != .unknown {
                push.lastReason = job.pointee.lastReason
            }
        }
        push.isStored = progress.isStored && !pending.isStoreAsked
        push.isStoreAsked = pending.isStoreAsked
        push.storedUntilMilliseconds = pending.storedDueMilliseconds
        trace.add(push)
    }

    /// Adds the push of a record that waits until its device's items are in memory, if the query finds it.
    private func addWaiting(
        _ handle: UInt32, _ query: TraceQuery, _ device: DeviceKey?, to trace: inout ShardTrace
    ) {
        guard let incoming = waiting.record(handle), device == nil || incoming.device == device else {
            return
        }
        let record = incoming.record
        guard query.isPlace(record.partition, record.offset),
            case .push(let push)? = try? decoder.decode(
                jobRecord(of: record), nowMilliseconds: wallMilliseconds)
        else { return }
        defer { push.release() }
        guard query.matches(push.apnsID, partition: record.partition, offset: record.offset) else { return }
        trace.add(
            TracedPush(
                push, .shard(plan.index), .awaitingDevice, place: (record.partition, record.offset),
                polledMilliseconds: nil, route: routeNames.route(of: push)))
    }

    private func addStops(to trace: inout ShardTrace) {
        let figures = machine.figures
        if figures.stoppedTopics > 0 || figures.pausedTopics > 0 {
            for number in 0..<UInt16(clamping: routes.count) {
                guard let stop = machine.delivery.stop(ofTopic: number, at: now) else { continue }
                trace.stops.append(
                    TopicStop(
                        topic: routes.name(of: number), cause: stop.cause, probeMilliseconds: stop.probe))
            }
        }
        trace.unavailable = pools.filter { machine.delivery.isUnavailable($0.index) }.map(\.name)
    }
}

extension Intake {
    /// Returns the progress of a record of the jobs topic. Kafka thread only.
    func stage(ofPartition partition: Int32, offset: Int64) -> RecordStage {
        machine.stage(ofPartition: partition, offset: offset)
    }
}

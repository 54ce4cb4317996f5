import SluiceModel

extension ShardRequest {
    /// True when records that were handed over before the request count for it. The shard takes them first.
    public var followsRecords: Bool {
        switch self {
        case .caughtUp, .abandon, .relieve, .due, .suspended, .leaveResponses, .drain: true
        default: false
        }
    }
}

/// Requests of the worker, and the ends that follow from them.
extension ShardMachine {
    /// Part of a request or event that runs when all that came before is done.
    enum Step: Equatable {
        /// Gives waiting events of partitions, or of all (nil), back to Kafka.
        case abandonWaiting([UInt16]?)
        /// Ends the abandonment.
        case abandoned
        /// Ends items in flight that must not be sent twice.
        case giveUpUnanswered
        /// Frees the pushes in memory, without an outcome. Follows ``giveUpUnanswered``, because the end of one push can
        /// concern another.
        case leaveAll
        /// Frees all that waits.
        case discardAll
        /// Remembers a token change.
        case remember(DeviceKey, to: DeviceKey, Int64, RecordPlace)
        /// Moves items on that reached a device by a change of this time.
        case moveOn(DeviceKey, after: Int64)

        /// True when the step also follows the events of ``nextEvent(at:)``, and not the actions alone.
        var followsEvents: Bool {
            switch self {
            case .abandonWaiting, .leaveAll, .remember, .moveOn: false
            case .abandoned, .giveUpUnanswered, .discardAll: true
            }
        }
    }

    /// Jobs that are being given back to Kafka.
    struct Abandonment {
        /// Number of given back jobs by slot; nil when all partitions are abandoned.
        var slots: [SlotCount]?
        /// True when another worker may own the partitions already.
        var isLost = false
        /// Given back jobs of all partitions.
        var count = 0
    }

    /// Takes a request of the worker. What belongs to the store's batches or to the producer is left to the shard.
    public mutating func take(_ request: ShardRequest, at now: DeliveryTime) {
        switch request {
        case .begin(let slot, let partition, let readThrough, let earlierFrom, let committed):
            beginPartition(
                slot, partition: partition, readThrough: readThrough, earlierFrom: earlierFrom,
                committed: committed)
        case .catchUp(let slot): delivery.beginCatchUp(partition: slot)
        case .caughtUp(let slot): endCatchUp(slot, at: now)
        case .abandon(let slots, let isLost):
            begin(Abandonment(slots: slots.map { SlotCount(slot: $0, count: 0) }, isLost: isLost))
            // A shard that has ended has freed all of its jobs.
            if !hasEnded { for slot in slots { delivery.abandon(partition: slot, at: now) } }
        case .drain: drain(at: now)
        case .settle(let slot): settling.append(slot)
        case .release(let slot): releasing.append(slot)
        case .end(let slots): for slot in slots { endPartition(slot) }
        case .relieve(let slot, let offset):
            if !hasEnded, hasStore, isBegun(slot) {
                delivery.relieve(partition: slot, below: offset, at: now)
            }
        case .makeRoom(let pushes, let kept, let tenants):
            if !hasEnded { delivery.makeRoom(pushes: pushes, keeping: kept, tenants: tenants, at: now) }
        case .due(let slot, let items, let readThrough):
            due(slot, items, readThrough: readThrough, report: .dueTaken(slot: slot))
        case .suspended(let slot, let items, let readThrough):
            due(slot, items, readThrough: readThrough, report: .suspendedTaken(slot: slot))
        case .expired(let slot, let devices): expired(slot, devices)
        case .remove(let items):
            for item in items {
                if let (found, key) = residency.remove(item) { followers.append(.remove(found, key)) }
            }
        case .forgetMarks(let slot): residency.forgetMarks(slot)
        case .storeFails(let isFailing): residency.storeFails(isFailing)
        case .finish: finish()
        case .flush, .freeze, .thaw, .wake, .pass, .leaveResponses: break
        }
    }

    // MARK: Partitions

    /// Begins a partition under a slot that an earlier partition may have had. All records up to `readThrough` are
    /// read.
    /// - Parameters:
    ///   - earlierFrom: offset from which stored items above `readThrough` belong to an earlier log of the topic.
    ///   - marks: records whose items the store has under other tokens.
    public mutating func beginPartition(
        _ slot: UInt16, partition: Int32, readThrough: Int64 = -1, earlierFrom: Int64 = .max,
        committed: Int64 = 0, marks: [(offset: Int64, id: APNSID)] = []
    ) {
        if hasStore {
            while partitions.count <= Int(slot) { partitions.append(Self.notBegun) }
            partitions[Int(slot)] = partition
            residency.beginPartition(slot, readThrough: readThrough, earlierFrom: earlierFrom)
            residency.committed(slot, committed)
            for mark in marks {
                // All shards know the marks, and one shard has them removed.
                residency.foundMark(
                    RecordPlace(partitionSlot: slot, offset: mark.offset), mark.id,
                    forgets: settings.index == 0)
            }
        }
        delivery.begin(partition: slot)
    }

    /// Sends the pushes of a partition, because its uncommitted records were handed in. Records that still wait for loads
    /// are taken in before, because each of them may outdate a push.
    private mutating func endCatchUp(_ slot: UInt16, at now: DeliveryTime) {
        guard let last = residency.recordsForLoads()[slot]?.upperBound else {
            return delivery.endCatchUp(partition: slot, at: now)
        }
        catchUpEnds[slot] = CatchUpEnd(
            last: last, deadline: now.monotonicNanoseconds + CatchUp.patience)
    }

    /// Ends the catch-ups whose records were taken in, or whose time is up.
    mutating func endCatchUps(at now: DeliveryTime) {
        let waiting = residency.recordsForLoads()
        for (slot, end) in catchUpEnds.sorted(by: { $0.key < $1.key }) {
            if let first = waiting[slot]?.lowerBound, first <= end.last {
                guard now.monotonicNanoseconds >= end.deadline else { continue }
                reports.append(.catchUpCut(slot: slot, readTo: first, end: end.last + 1))
            }
            catchUpEnds[slot] = nil
            delivery.endCatchUp(partition: slot, at: now)
        }
    }

    /// Ends a partition: no more of its items are put in the store or loaded.
    private mutating func endPartition(_ slot: UInt16) {
        delivery.end(partition: slot)
        catchUpEnds[slot] = nil
        settling.removeAll { $0 == slot }
        releasing.removeAll { $0 == slot }
        guard hasStore else { return }
        if Int(slot) < partitions.count { partitions[Int(slot)] = Self.notBegun }
        residency.endPartition(slot)
    }

    // MARK: The store

    /// Queues the devices of due items. All of the partition's records up to `readThrough` were taken before.
    /// - Parameter report: report that is made when more due items may come.
    private mutating func due(_ slot: UInt16, _ items: [DueItem], readThrough: Int64, report: ShardReport) {
        reportsWhenLineIsShort.append(report)
        guard hasStore, !hasEnded else { return }
        residency.hasRead(slot, through: readThrough)
        for item in items { residency.due(item.device, slot) }
    }

    /// Queues devices whose presences have expired.
    private mutating func expired(_ slot: UInt16, _ devices: [DeviceKey]) {
        reportsWhenLineIsShort.append(.expiredTaken(slot: slot))
        guard hasStore, !hasEnded else { return }
        for device in devices { residency.expired(device, slot) }
    }

    // MARK: Jobs that Kafka gets back

    private mutating func begin(_ new: Abandonment) {
        assert(abandonment == nil, "two abandonments at a time")
        abandonment = new
        steps.append(.abandonWaiting(new.slots?.map(\.slot)))
        steps.append(.abandoned)
    }

    /// Stops sending new pushes, and gives all that isn't in flight back to Kafka. A report follows when everything is
    /// settled.
    private mutating func drain(at now: DeliveryTime) {
        settlesAll = true
        guard phase == .running else { return followers.append(.drained(0)) }
        phase = .draining
        begin(Abandonment())
        delivery.abandon(partition: nil, at: now)
    }

    /// Counts a job that the intake has to count off.
    mutating func countReturned(_ partitionSlot: UInt16) {
        if abandonment != nil, abandonment!.slots == nil {
            abandonment!.count += 1
        } else if let index = abandonment?.slots?.firstIndex(where: { $0.slot == partitionSlot }) {
            abandonment!.slots![index].count += 1
        } else {
            // Also a token change that goes back with an item of an abandoned partition, and has another one.
            followers.append(.gaveBack(partitionSlot))
        }
    }

    private mutating func endAbandonment() {
        guard let ended = exchange(&abandonment, with: nil) else { return }
        guard let slots = ended.slots else { return followers.append(.drained(ended.count)) }
        for slot in slots { followers.append(.abandoned(slot, isLost: ended.isLost)) }
    }

    // MARK: The end

    /// Ends the machine because the worker ends. Token changes that wait for items in flight are given back to Kafka,
    /// because the items don't move here any more.
    private mutating func finish() {
        phase = .ended
        residency.giveBackChanges(nil)
        steps.append(contentsOf: [.giveUpUnanswered, .leaveAll, .abandonWaiting(nil), .discardAll])
    }

    /// True while a part of a request is left, which follows the events.
    public var hasSteps: Bool { !steps.isEmpty }

    /// Runs the next step, because all actions, or all events, of what came before are done.
    /// - Returns: true when a step has run.
    mutating func runStep(followsEvents: Bool, at now: DeliveryTime) -> Bool {
        guard let step = steps.first, step.followsEvents == followsEvents else { return false }
        steps.removeFirst()
        switch step {
        case .abandonWaiting(let slots):
            guard let slots else {
                residency.abandon(nil)
                break
            }
            for slot in slots { residency.abandon(slot) }
        case .abandoned: endAbandonment()
        case .giveUpUnanswered: delivery.giveUpUnanswered(at: now)
        case .leaveAll:
            for slot in 0..<UInt32(delivery.usedSlots) where delivery.state(slot).isLive {
                countFreed(slot)
                followers.append(.giveBack(slot))
            }
        case .discardAll: residency.discardAll()
        case .remember(let device, let new, let occurred, let place):
            remember(device, to: new, occurred, place)
        case .moveOn(let device, let occurred): moveOn(device, after: occurred, at: now)
        }
        return true
    }

    // MARK: Settled partitions

    /// Returns the reports of settled partitions. All but ``ShardReport/settledAll`` wait until the records written
    /// so far are produced.
    public mutating func takeSettled() -> [ShardReport] {
        guard !settling.isEmpty || !releasing.isEmpty || settlesAll else { return [] }
        let settled = settling.filter { isSettled($0) }
        let released = releasing.filter { isSettled($0) }
        var reports: [ShardReport] =
            settled.map { .settled(slot: $0) } + released.map { .released(slot: $0) }
        settling.removeAll { settled.contains($0) }
        releasing.removeAll { released.contains($0) }
        if settlesAll, delivery.count == 0, residency.isSettled(nil) {
            settlesAll = false
            reports.append(.settledAll)
        }
        return reports
    }

    private func isSettled(_ slot: UInt16) -> Bool {
        !delivery.hasItems(partition: slot) && residency.isSettled(slot)
    }
}

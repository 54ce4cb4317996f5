import SluiceModel

/// Store: puts, answers, evictions and presences.
extension DeliveryMachine {
    /// Hands an item to the store, unless the store has the item's present state.
    mutating func store(_ slot: UInt32, at now: DeliveryTime) {
        let item = items + Int(slot)
        // The store's order of a device's items is no order of sending, so Kafka keeps broadcasts.
        if item.pointee.isOrdered { return }
        if item.pointee.flags.contains(.stored), !limits.storeIsDurable || isStoredAsItIs(slot, at: now) {
            return
        }
        askStore(slot)
    }

    private mutating func askStore(_ slot: UInt32) {
        let item = items + Int(slot)
        item.pointee.flags.insert([.stored, .changed, .asked])
        item.pointee.storeVersion = nextStoreVersion
        nextStoreVersion &+= 1
        milestones.stored += 1
        actions.append(.store(slot, version: UInt64(item.pointee.storeVersion)))
    }

    /// Requests another put, because the store's copy of the item names the old device token.
    mutating func storeMoved(_ slot: UInt32) {
        if items[Int(slot)].flags.contains(.stored) { askStore(slot) }
    }

    /// Requests a put that failed a while ago.
    mutating func storeAgain(_ slot: UInt32) {
        items[Int(slot)].flags.remove(.storeAgain)
        askStore(slot)
    }

    /// Hands waiting items of a partition's records below `offset` to the store now, however soon their waits end.
    /// These items hold the watermark, and the commit's metadata has little room left for offsets finished above it.
    /// Items in flight or soon due end by themselves. Broadcasts go on holding the watermark. O(slots).
    public mutating func relieve(partition: UInt16, below offset: Int64, at now: DeliveryTime) {
        guard limits.storeIsDurable, !isEnding(partition) else { return }
        for index in 0..<highWater {
            let item = items + index
            guard item.pointee.offset < offset, item.pointee.partition == partition else { continue }
            relieve(UInt32(index))
        }
    }

    /// Hands a waiting item to the store now, unless the store was asked before.
    private mutating func relieve(_ slot: UInt32) {
        let item = items + Int(slot)
        guard !item.pointee.isOrdered,
            item.pointee.flags.isDisjoint(with: [.offsetDone, .stored, .moves])
        else { return }
        switch item.pointee.state {
        case .scheduled, .retrying, .coalescing, .confirming, .held, .topicCircuitOpen, .poolUnavailable:
            askStore(slot)
        default: break
        }
    }

    /// Hands an item to the store now if its wait is long enough for the item to leave memory.
    mutating func relieveLongWait(_ slot: UInt32, at now: DeliveryTime) {
        guard let due = timers.due(of: slot), due > now.monotonic(inMilliseconds: limits.residentMilliseconds)
        else { return }
        relieve(slot)
    }

    /// Returns the progress that the store has to keep, for a ``DeliveryAction/store(_:version:)`` that is carried
    /// out now.
    public mutating func progressToStore(_ slot: UInt32, at now: DeliveryTime) -> ItemProgress {
        var progress = items[Int(slot)].progress
        (progress.wait, progress.wakeMilliseconds) = wait(slot, at: now)
        let look = progress.wakeMilliseconds == 0 ? Int64.max : progress.wakeMilliseconds
        progress.dueMilliseconds = min(look, lastMoment(slot))
        items[Int(slot)].storedDue = Self.seconds(progress.dueMilliseconds)
        items[Int(slot)].isStoredSuspended = progress.wait == .suspended
        items[Int(slot)].flags.remove(.changed)
        return progress
    }

    /// Returns the kind of an item's wait, and its end in milliseconds since the epoch; 0 without an end.
    private func wait(_ slot: UInt32, at now: DeliveryTime) -> (ItemProgress.Wait, Int64) {
        let item = items + Int(slot)
        switch item.pointee.state {
        case .scheduled: return (.none, item.pointee.deliverAt)
        case .retrying, .coalescing: return (.retrying, timerMilliseconds(slot, at: now))
        case .confirming: return (.confirming, timerMilliseconds(slot, at: now))
        case .held: return (.held, timerMilliseconds(slot, at: now))
        case .topicCircuitOpen, .poolUnavailable:
            // No clock ends the wait: the owner loads these items when the topic's pushes continue.
            return (.suspended, 0)
        default: return (.none, now.wallMilliseconds)
        }
    }

    private func timerMilliseconds(_ slot: UInt32, at now: DeliveryTime) -> Int64 {
        timers.due(of: slot).map { now.wallMilliseconds(of: $0) } ?? 0
    }

    /// Returns seconds since the epoch, rounded down; `.max` for never.
    static func seconds(_ milliseconds: Int64) -> UInt32 { UInt32(clamping: milliseconds / 1000) }

    /// Returns true when the store has or will have the item's present state, due in time but not right away.
    private func isStoredAsItIs(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        let item = items + Int(slot)
        guard item.pointee.flags.contains(.stored), !item.pointee.flags.contains(.changed) else {
            return false
        }
        let (kind, wake) = wait(slot, at: now)
        guard (kind == .suspended) == item.pointee.isStoredSuspended else { return false }
        let due = Self.seconds(min(wake == 0 ? .max : wake, lastMoment(slot)))
        return item.pointee.storedDue <= due
            && item.pointee.storedDue > Self.seconds(now.wallMilliseconds + limits.residentMilliseconds)
    }

    // MARK: Answers of the store

    /// Records that the store has made an item durable. No effect when the item has ended or was replaced meanwhile.
    public mutating func stored(_ slot: UInt32, version: UInt64, at now: DeliveryTime) {
        let item = items + Int(slot)
        guard Int(slot) < highWater, item.pointee.state.isLive,
            UInt64(item.pointee.storeVersion) == version, limits.storeIsDurable
        else { return }
        item.pointee.flags.remove(.asked)
        if !item.pointee.flags.contains(.offsetDone) {
            item.pointee.flags.insert(.offsetDone)
            actions.append(.offsetDone(partition: item.pointee.partition, offset: item.pointee.offset))
        }
        // Items that have just arrived are the likeliest to get news. While there is room, only the sweep evicts
        // them.
        if count > limits.capacity / 2 || circuits[Int(item.pointee.topic)].isParked
            || budgets.isShort(at: now.monotonicNanoseconds)
        {
            evict(item.pointee.device, at: now)
        }
    }

    /// Records that the store could not keep an item, which is retried within a second. Meanwhile the item continues.
    public mutating func storeFailed(_ slot: UInt32, version: UInt64) {
        let item = items + Int(slot)
        guard Int(slot) < highWater, item.pointee.state.isLive,
            UInt64(item.pointee.storeVersion) == version
        else { return }
        item.pointee.flags.remove(.asked)
        item.pointee.flags.insert([.storeAgain, .changed])
    }

    // MARK: Eviction

    /// Returns true when the item alone doesn't prevent eviction.
    func isEvictable(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        let flags = items[Int(slot)].flags
        guard flags.contains([.stored, .offsetDone]), flags.isDisjoint(with: [.asked, .storeAgain, .moves])
        else {
            return false
        }
        switch items[Int(slot)].state {
        case .held, .scheduled:
            // The store keeps only one of two waits.
            return items[Int(slot)].notBefore <= now.monotonicNanoseconds && isStoredAsItIs(slot, at: now)
        case .retrying, .coalescing, .confirming, .topicCircuitOpen, .poolUnavailable:
            return isStoredAsItIs(slot, at: now)
        default: return false
        }
    }

    /// Evicts all items of a device, if each of them may be evicted.
    mutating func evict(_ device: UInt32, at now: DeliveryTime) {
        let entry = devices.entries + Int(device)
        guard entry.pointee.pending > 0 else { return }
        var slot = entry.pointee.first
        while slot != Self.noSlot {
            guard isEvictable(slot, at: now) else { return }
            slot = items[Int(slot)].next
        }
        let key = entry.pointee.key
        // An item that moves to this device later has to meet the device's items.
        guard moves.isEmpty || !moves.values.contains(where: { $0.device == key }) else { return }
        let isOnline = isOnline(device)
        slot = entry.pointee.first
        while slot != Self.noSlot {
            let next = items[Int(slot)].next
            if isOnline, items[Int(slot)].state == .held { actions.append(.awaitsTurn(slot)) }
            withdraw(slot)
            if openCircuits > 0 { probeLeft(slot) }
            if items[Int(slot)].isStoredSuspended {
                let topic = items[Int(slot)].topic
                budgets.keeps(
                    1, partition: items[Int(slot)].partition, topic: topic, of: circuits[Int(topic)].tenant)
            }
            unlink(slot)
            setState(slot, .finished)
            milestones.evicted += 1
            actions.append(.evict(slot))
            slot = next
        }
    }

    // MARK: Presence

    /// Returns true when the device's presence is known. If not, the store's presence is loaded first where it
    /// matters.
    public func knowsPresence(of device: DeviceKey) -> Bool {
        guard let entry = devices.find(device) else { return false }
        return devices.entries[Int(entry)].presence != Self.noSlot
    }

    /// Returns true when the device has reported that it is online, and nothing newer.
    public func isOnline(_ device: DeviceKey) -> Bool {
        devices.find(device).map { isOnline($0) } ?? false
    }

    func isOnline(_ device: UInt32) -> Bool {
        let presence = devices.entries[Int(device)].presence
        return presence != Self.noSlot && presences[presence].presence == .online
    }

    /// Returns true when the item of a record is in memory for this device.
    func contains(_ place: RecordPlace, of device: DeviceKey) -> Bool {
        guard let entry = devices.find(device) else { return false }
        var slot = devices.entries[Int(entry)].first
        while slot != Self.noSlot {
            if items[Int(slot)].offset == place.offset, items[Int(slot)].partition == place.partitionSlot {
                return true
            }
            slot = items[Int(slot)].next
        }
        return false
    }

    /// Returns a device's presence, by the number of ``DeliveryAction/keepPresence(_:)``.
    public func presence(_ number: UInt32, at now: DeliveryTime) -> KnownPresence {
        let entry = presences[number]
        // A presumed presence wasn't reported just now, or never was. Clocks of services may be ahead.
        let noted =
            entry.presence == .presumedOffline
            ? now.wallMilliseconds : min(entry.learned.milliseconds, now.wallMilliseconds)
        return KnownPresence(
            device: devices.entries[Int(entry.device)].key, presence: entry.presence,
            learned: entry.learned, partition: entry.partition,
            expiryMilliseconds: noted + limits.maximumExpirationMilliseconds,
            isAwaited: entry.presence == .online && hasItemsOnTheirWayOut(entry.device))
    }

    /// Returns true when the store has items of the device in a state before their turn, and would load them late.
    private func hasItemsOnTheirWayOut(_ device: UInt32) -> Bool {
        var slot = devices.entries[Int(device)].first
        while slot != Self.noSlot {
            if items[Int(slot)].flags.contains(.stored) {
                switch items[Int(slot)].state {
                case .waiting, .returning, .deviceLimited, .retrying, .coalescing, .blocked, .inFlight, .held:
                    return true
                default: break
                }
            }
            slot = items[Int(slot)].next
        }
        return false
    }

    /// Returns the slot of an item of this device, ``noSlot`` when none is in memory.
    public func item(ofPresence number: UInt32) -> UInt32 {
        devices.entries[Int(presences[number].device)].first
    }

    /// Calls `body` with the partition of each item of this device.
    public func forEachPartition(ofPresence number: UInt32, _ body: (UInt16) -> Void) {
        var slot = devices.entries[Int(presences[number].device)].first
        while slot != Self.noSlot {
            body(items[Int(slot)].partition)
            slot = items[Int(slot)].next
        }
    }

    /// Requests that a device's presence be kept, because an item has moved to the device. A worker that looks for
    /// the item in its own partition has to find the presence.
    mutating func keepPresence(with slot: UInt32) {
        let presence = devices.entries[Int(items[Int(slot)].device)].presence
        guard limits.storeIsDurable, presence != Self.noSlot,
            presences[presence].partition != items[Int(slot)].partition
        else { return }
        actions.append(.keepPresence(presence))
    }

    /// Restores a device's presence from the store before its items, unless the known presence is as new. After a
    /// token change several partitions may have a presence of one device, in any order.
    /// - Returns: false when the presence has expired: it has no effect, and the store may remove it.
    public mutating func restore(_ known: KnownPresence, at now: DeliveryTime) -> Bool {
        guard known.expiryMilliseconds > now.wallMilliseconds else { return false }
        restorePresence(known, at: now)
        return true
    }

    private mutating func restorePresence(_ known: KnownPresence, at now: DeliveryTime) {
        guard let device = devices.find(known.device), devices.entries[Int(device)].presence != Self.noSlot
        else {
            let entry = remember(
                known.device, known.presence, known.learned, known.partition, at: now)
            if known.presence == .offline { clearIgnoresPresence(entry) }
            return
        }
        let number = devices.entries[Int(device)].presence
        guard known.learned > presences[number].learned else { return }
        presences.update(
            number, known.presence, learned: known.learned, partition: known.partition)
        if known.presence == .online, queueReturns(device, at: now) > 0, limits.storeIsDurable {
            actions.append(.keepPresence(number))
        }
        if known.presence == .offline { clearIgnoresPresence(device) }
    }

    /// Clears the flag to ignore presence. Items from another partition had set it before this presence was known.
    private mutating func clearIgnoresPresence(_ device: UInt32) {
        var slot = devices.entries[Int(device)].first
        while slot != Self.noSlot {
            if items[Int(slot)].state != .inFlight { items[Int(slot)].flags.remove(.ignoresPresence) }
            slot = items[Int(slot)].next
        }
    }
}

/// A device's presence, with its time and its expiration.
public struct KnownPresence: Equatable, BitwiseCopyable, Sendable {
    public var device: DeviceKey
    public var presence: Presence
    /// Time of the device's last report; ``ReportTime/none`` when there was none and its presence is presumed.
    public var learned: ReportTime
    /// Owner's number of the Kafka partition that brought the report.
    public var partition: UInt16
    /// Time from which on the presence counts no more, in milliseconds since the epoch.
    public var expiryMilliseconds: Int64
    /// True when the device is online, and items that the store has as held are on their way out. The next worker
    /// assigned the partition has to load them, because no further report brings them.
    public var isAwaited: Bool

    public init(
        device: DeviceKey, presence: Presence, learned: ReportTime, partition: UInt16,
        expiryMilliseconds: Int64 = .max, isAwaited: Bool = false
    ) {
        self.expiryMilliseconds = expiryMilliseconds
        self.isAwaited = isAwaited
        self.device = device
        self.presence = presence
        self.learned = learned
        self.partition = partition
    }
}

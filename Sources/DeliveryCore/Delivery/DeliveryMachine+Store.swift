import SluiceModel

/// What goes to the store, what leaves memory for it, and what comes back.
extension DeliveryMachine {
    /// Hands an item to the store, unless it is there as it is.
    mutating func store(_ slot: UInt32, at now: DeliveryTime) {
        let item = items + Int(slot)
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

    /// What the store has of an item names its old device token: it has to take it once more.
    mutating func storeMoved(_ slot: UInt32) {
        if items[Int(slot)].flags.contains(.stored) { askStore(slot) }
    }

    /// The store could not take an item a while ago.
    mutating func storeAgain(_ slot: UInt32) {
        items[Int(slot)].flags.remove(.storeAgain)
        askStore(slot)
    }

    /// Hands the items that wait to the store now, however soon their waits end: those of a partition's records below
    /// `offset`. They hold the watermark, and the commit's metadata has little room left for what is finished above it. What
    /// is in flight or has its turn soon ends by itself. O(slots).
    public mutating func relieve(partition: UInt16, below offset: Int64, at now: DeliveryTime) {
        guard limits.storeIsDurable, !isEnding(partition) else { return }
        for index in 0..<highWater {
            let item = items + index
            guard item.pointee.offset < offset, item.pointee.partition == partition,
                item.pointee.flags.isDisjoint(with: [.offsetDone, .stored])
            else { continue }
            switch item.pointee.state {
            case .scheduled, .retrying, .coalescing, .confirming, .held, .parked, .stalled:
                askStore(UInt32(index))
            default: break
            }
        }
    }

    /// What the store has to keep of an item, for a ``DeliveryAction/store(_:version:)`` that is carried out now.
    public mutating func progressToStore(_ slot: UInt32, at now: DeliveryTime) -> ItemProgress {
        var progress = items[Int(slot)].progress
        (progress.wait, progress.wakeMilliseconds) = wait(slot, at: now)
        let look = progress.wakeMilliseconds == 0 ? Int64.max : progress.wakeMilliseconds
        progress.dueMilliseconds = min(look, lastMoment(slot))
        items[Int(slot)].storedDue = Self.seconds(progress.dueMilliseconds)
        items[Int(slot)].isStoredParked = progress.wait == .parked
        items[Int(slot)].flags.remove(.changed)
        return progress
    }

    /// How an item waits, and until when by the wall clock; 0 without such a moment.
    private func wait(_ slot: UInt32, at now: DeliveryTime) -> (ItemProgress.Wait, Int64) {
        let item = items + Int(slot)
        switch item.pointee.state {
        case .scheduled: return (.none, item.pointee.deliverAt)
        case .retrying, .coalescing: return (.retrying, timerMilliseconds(slot, at: now))
        case .confirming: return (.confirming, timerMilliseconds(slot, at: now))
        case .held: return (.held, timerMilliseconds(slot, at: now))
        case .parked, .stalled:
            // No clock ends that: the owner looks for such items when the topic's pushes go on.
            return (.parked, 0)
        default: return (.none, now.wallMilliseconds)
        }
    }

    private func timerMilliseconds(_ slot: UInt32, at now: DeliveryTime) -> Int64 {
        guard let due = timers.due(of: slot) else { return 0 }
        guard due > now.monotonicNanoseconds else { return now.wallMilliseconds }
        let wait = (due - now.monotonicNanoseconds) / 1_000_000
        return now.wallMilliseconds &+ Int64(min(wait, 1 << 50)) + 1
    }

    /// Seconds since the epoch, down; `.max` for never.
    static func seconds(_ milliseconds: Int64) -> UInt32 { UInt32(clamping: milliseconds / 1000) }

    /// The store has the item's present state, or will, and brings it back no later than it must, nor right away.
    private func isStoredAsItIs(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        let item = items + Int(slot)
        guard item.pointee.flags.contains(.stored), !item.pointee.flags.contains(.changed) else {
            return false
        }
        let (kind, wake) = wait(slot, at: now)
        guard (kind == .parked) == item.pointee.isStoredParked else { return false }
        let due = Self.seconds(min(wake == 0 ? .max : wake, lastMoment(slot)))
        return item.pointee.storedDue <= due
            && item.pointee.storedDue > Self.seconds(now.wallMilliseconds + limits.residentMilliseconds)
    }

    // MARK: Answers of the store

    /// The store has made an item durable. Of no effect when it has ended or was replaced meanwhile.
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
        // Those that have just come are the likeliest to be heard of again: while there is room, the sweep takes them.
        if count > limits.capacity / 2 { evict(item.pointee.device, at: now) }
    }

    /// The store could not take an item: it is asked again within a second. The item goes on meanwhile.
    public mutating func storeFailed(_ slot: UInt32, version: UInt64) {
        let item = items + Int(slot)
        guard Int(slot) < highWater, item.pointee.state.isLive,
            UInt64(item.pointee.storeVersion) == version
        else { return }
        item.pointee.flags.remove(.asked)
        item.pointee.flags.insert([.storeAgain, .changed])
    }

    // MARK: Eviction

    /// The item may leave memory as far as it is concerned.
    func isEvictable(_ slot: UInt32, at now: DeliveryTime) -> Bool {
        let flags = items[Int(slot)].flags
        guard flags.contains([.stored, .offsetDone]), flags.isDisjoint(with: [.asked, .storeAgain, .moves])
        else {
            return false
        }
        switch items[Int(slot)].state {
        case .held, .scheduled:
            // Of two waits the store keeps one.
            return items[Int(slot)].notBefore <= now.monotonicNanoseconds && isStoredAsItIs(slot, at: now)
        case .retrying, .coalescing, .confirming, .parked, .stalled: return isStoredAsItIs(slot, at: now)
        default: return false
        }
    }

    /// Has all items of a device leave memory, if each of them may.
    mutating func evict(_ device: UInt32, at now: DeliveryTime) {
        let entry = devices.entries + Int(device)
        guard entry.pointee.pending > 0 else { return }
        var slot = entry.pointee.first
        while slot != Self.noSlot {
            guard isEvictable(slot, at: now) else { return }
            slot = items[Int(slot)].next
        }
        let key = entry.pointee.key
        // What moves there later has to meet them.
        guard moves.isEmpty || !moves.values.contains(where: { $0.device == key }) else { return }
        let isOnline = isOnline(device)
        slot = entry.pointee.first
        while slot != Self.noSlot {
            let next = items[Int(slot)].next
            if isOnline, items[Int(slot)].state == .held { actions.append(.awaitsTurn(slot)) }
            withdraw(slot)
            if openCircuits > 0 { probeLeft(slot) }
            unlink(slot)
            setState(slot, .finished)
            milestones.evicted += 1
            actions.append(.evict(slot))
            slot = next
        }
    }

    // MARK: Presence

    /// Something is known of the device. Without it, what the store knows has to come first where that matters.
    public func knowsPresence(of device: DeviceKey) -> Bool {
        guard let entry = devices.find(device) else { return false }
        return devices.entries[Int(entry)].presence != Self.noSlot
    }

    /// The device has reported that it is online, and nothing newer.
    public func isOnline(_ device: DeviceKey) -> Bool {
        devices.find(device).map { isOnline($0) } ?? false
    }

    func isOnline(_ device: UInt32) -> Bool {
        let presence = devices.entries[Int(device)].presence
        return presence != Self.noSlot && presences[presence].presence == .online
    }

    /// The item of a record is in memory, and for this device.
    func holds(_ place: RecordPlace, of device: DeviceKey) -> Bool {
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

    /// What is known of a device, by the number of ``DeliveryAction/keepPresence(_:)``.
    public func presence(_ number: UInt32, at now: DeliveryTime) -> KnownPresence {
        let entry = presences[number]
        // Presence that is presumed was not reported just now, or never was. Clocks of services may be ahead.
        let noted =
            entry.presence == .presumedOffline
            ? now.wallMilliseconds : min(entry.learned.milliseconds, now.wallMilliseconds)
        return KnownPresence(
            device: devices.entries[Int(entry.device)].key, presence: entry.presence,
            learned: entry.learned, partition: entry.partition,
            expiryMilliseconds: noted + limits.maximumExpirationMilliseconds,
            isAwaited: entry.presence == .online && hasItemsOnTheirWayOut(entry.device))
    }

    /// The store has items of the device as they were before their turn came, and would bring them back late.
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

    /// The slot of an item of this device, ``noSlot`` when it has none here.
    public func item(ofPresence number: UInt32) -> UInt32 {
        devices.entries[Int(presences[number].device)].first
    }

    /// Calls with the partition of each item of this device.
    public func forEachPartition(ofPresence number: UInt32, _ body: (UInt16) -> Void) {
        var slot = devices.entries[Int(presences[number].device)].first
        while slot != Self.noSlot {
            body(items[Int(slot)].partition)
            slot = items[Int(slot)].next
        }
    }

    /// An item has come to another device: who looks for it in its own partition is to find what is known of that device.
    mutating func keepPresence(with slot: UInt32) {
        let presence = devices.entries[Int(items[Int(slot)].device)].presence
        guard limits.storeIsDurable, presence != Self.noSlot,
            presences[presence].partition != items[Int(slot)].partition
        else { return }
        actions.append(.keepPresence(presence))
    }

    /// Takes what the store knows of a device, before its items, unless something as new is known by now. Several
    /// partitions may have something of one device, after a token change, and in any order.
    /// - Returns: false when it has expired: it has no effect, and the store may forget it.
    public mutating func restore(_ known: KnownPresence, at now: DeliveryTime) -> Bool {
        guard known.expiryMilliseconds > now.wallMilliseconds else { return false }
        take(known, at: now)
        return true
    }

    private mutating func take(_ known: KnownPresence, at now: DeliveryTime) {
        guard let device = devices.find(known.device), devices.entries[Int(device)].presence != Self.noSlot
        else {
            let entry = remember(
                known.device, known.presence, known.learned, known.partition, at: now)
            if known.presence == .offline { heedPresence(entry) }
            return
        }
        let number = devices.entries[Int(device)].presence
        guard known.learned > presences[number].learned else { return }
        presences.update(
            number, known.presence, learned: known.learned, partition: known.partition)
        if known.presence == .online, letReturn(device, at: now) > 0, limits.storeIsDurable {
            actions.append(.keepPresence(number))
        }
        if known.presence == .offline { heedPresence(device) }
    }

    /// Items that came from another partition before this was known were to be tried without news of their device.
    private mutating func heedPresence(_ device: UInt32) {
        var slot = devices.entries[Int(device)].first
        while slot != Self.noSlot {
            if items[Int(slot)].state != .inFlight { items[Int(slot)].flags.remove(.ignoresPresence) }
            slot = items[Int(slot)].next
        }
    }
}

/// Where a device is, as far as it is known.
public struct KnownPresence: Equatable, BitwiseCopyable, Sendable {
    public var device: DeviceKey
    public var presence: Presence
    /// The time of the device's last report; ``ReportTime/none`` when there was none and its presence is presumed.
    public var learned: ReportTime
    /// The owner's number of the Kafka partition that brought it.
    public var partition: UInt16
    /// Milliseconds since the epoch from which on it counts no more.
    public var expiryMilliseconds: Int64
    /// The device is online, and items that the store has as held are on their way out. Whoever takes the partition over
    /// has to load them, because no further report brings them.
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

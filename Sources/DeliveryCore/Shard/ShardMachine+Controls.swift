import SluiceModel

/// Effect of a cancel or device event on a device's pushes.
public enum ControlEffect: Sendable {
    /// Withdraws the pending pushes of each target.
    case cancel([CancelTarget])
    /// The device is online.
    case online
    case offline
    /// The device has shown a push.
    case receipt(notificationKey: UInt64)
    /// The token is no longer registered.
    case unregistered
    /// All of the device's data is erased.
    case erase
    /// The device has another token now.
    case tokenChanged(to: DeviceKey)
}

/// Result of a cancel or device event for its outcome.
public struct ControlResult: Equatable, Sendable {
    /// ``OutcomeKind/applied`` of device events; of cancels, whether they have withdrawn anything.
    public var kind: OutcomeKind
    /// Number of pushes concerned; nil when it isn't known, or nothing was withdrawn.
    public var count: Int?
}

/// End of a cancel or device event that has had its effect.
public enum ControlEnd: Equatable, Sendable {
    /// Write the event's outcome, and free the event.
    case outcome
    /// Free the event: its outcome was written before.
    case replayed
    /// Keep the event under this handle: items in flight hold up its outcome.
    case waits(UInt32)
}

/// Cancels and device events.
extension ShardMachine {
    /// Applies a cancel or device event to the earlier pushes of its device. ``applied(_:isReplay:)`` follows, after the
    /// actions.
    public mutating func apply(
        _ effect: ControlEffect, _ device: DeviceKey, _ place: RecordPlace, occurredMilliseconds: Int64,
        at now: DeliveryTime
    ) -> ControlResult {
        assert(!hasActions, "a cancel or device event comes before the actions of another event")
        let occurred = ReportTime(occurredMilliseconds, place)
        let partition = place.partitionSlot
        let count: Int?
        switch effect {
        case .cancel(let targets): return cancel(device, targets, place, at: now)
        case .online:
            let released = delivery.online(device, occurred: occurred, partition: partition, at: now)
            // The store may have more of the device's items.
            count = residency.isPutOff(device) ? nil : released
        case .offline: count = delivery.offline(device, occurred: occurred, partition: partition, at: now)
        case .receipt(let key):
            count = delivery.receipt(
                device, notificationKey: key, occurred: occurred, partition: partition, at: now)
        case .unregistered:
            count = delivery.unregistered(
                device, occurredMilliseconds: occurredMilliseconds, origin: RecordOrigin(place), at: now)
        case .erase: count = erase(device, place, at: now)
        case .tokenChanged(let new):
            count = tokenChanged(device, to: new, occurredMilliseconds, place, at: now)
        }
        return ControlResult(kind: .applied, count: count)
    }

    /// Ends a cancel or device event whose actions are done.
    public mutating func applied(_ place: RecordPlace, isReplay: Bool) -> ControlEnd {
        assert(!hasActions, "a cancel or device event ends before its actions are done")
        if residency.mustWait(place) {
            let handle = newHandle()
            residency.keepChange(place, handle)
            return .waits(handle)
        }
        guard isReplay else { return .outcome }
        replayed(place)
        return .replayed
    }

    /// Returns the handles of token changes and erasures that no item holds up any more. Call when all other work of a
    /// turn is done.
    public mutating func takeChangesDone() -> [UInt32] { residency.takeChangesDone() }

    private mutating func cancel(
        _ device: DeviceKey, _ targets: [CancelTarget], _ place: RecordPlace, at now: DeliveryTime
    ) -> ControlResult {
        var sum = CancelResult()
        for target in targets {
            let result = delivery.cancel(device, target, origin: RecordOrigin(place), at: now)
            sum.cancelled += result.cancelled
            sum.tooLate += result.tooLate
        }
        guard sum.cancelled == 0 else { return ControlResult(kind: .cancelled, count: sum.cancelled) }
        return ControlResult(kind: sum.tooLate > 0 ? .tooLate : .notFound, count: nil)
    }

    /// Ends all pending items of a device whose data is to be erased, and removes its presence from memory and store. An
    /// item in flight ends with its attempt; if the store has the item, the event isn't done before.
    private mutating func erase(_ device: DeviceKey, _ place: RecordPlace, at now: DeliveryTime) -> Int {
        change = place
        let count = delivery.erase(device, origin: RecordOrigin(place), at: now)
        guard hasStore else { return count }
        // Any partition can have a copy of the presence, which went with an item.
        for slot in partitions.indices where isBegun(UInt16(slot)) {
            followers.append(.forgetPresence(device, in: UInt16(slot)))
        }
        for number in residency.forgetChanges(of: device) { followers.append(.forgetToken(number)) }
        return count
    }

    // MARK: Token changes

    /// Moves a device's items to its new token. Then remembers the change, and moves items on that were there before.
    private mutating func tokenChanged(
        _ device: DeviceKey, to new: DeviceKey, _ occurredMilliseconds: Int64, _ place: RecordPlace,
        at now: DeliveryTime
    ) -> Int {
        change = place
        let count = delivery.tokenChanged(
            device, to: new, isElsewhere: shard(of: new) != settings.index,
            mayWait: hasStore, waits: mustAwaitRemovals(of: device),
            occurredMilliseconds: occurredMilliseconds, origin: RecordOrigin(place), at: now)
        if hasStore {
            steps.prepend(.moveOn(new, after: occurredMilliseconds))
            steps.prepend(.remember(device, to: new, occurredMilliseconds, place))
        }
        return count
    }

    /// Returns true when items that move from a device have to wait. With transactions an outcome and its item's removal
    /// are one unit.
    func mustAwaitRemovals(of device: DeviceKey) -> Bool {
        mode != .transactions && residency.mustAwaitRemovals(of: device)
    }

    /// Remembers a token change, and has the shard keep the new token for items that come later.
    mutating func remember(
        _ device: DeviceKey, to new: DeviceKey, _ occurredMilliseconds: Int64, _ place: RecordPlace
    ) {
        let number = residency.remember(
            device, to: new, occurredMilliseconds: occurredMilliseconds, origin: RecordOrigin(place))
        if let number { followers.append(.keepToken(number)) }
    }

    /// Moves items that reached a device by a token change on to that device's own later token. The two events come
    /// through two partitions, and the later event may come first.
    mutating func moveOn(_ device: DeviceKey, after occurredMilliseconds: Int64, at now: DeliveryTime) {
        guard let past = residency.change(of: device, after: occurredMilliseconds) else { return }
        followers.append(.moveOn(past.number))
        // Applies also when the token is this shard's: as a departure, the item waits until all of that device is in
        // memory.
        _ = delivery.tokenChanged(
            device, to: past.to, isElsewhere: true, mayWait: true, waits: mustAwaitRemovals(of: device),
            occurredMilliseconds: past.occurredMilliseconds, origin: past.origin, at: now)
    }
}

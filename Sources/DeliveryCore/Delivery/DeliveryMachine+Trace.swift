import SluiceModel

/// Cause of a pending push's wait, for people who look for the push.
public enum PendingCause: Equatable, Sendable {
    /// Waits for its turn, and for a stream to APNs.
    case stream
    /// On a stream: APNs has not answered.
    case inFlight
    /// Waits behind the push of its identity that has this slot and is in flight.
    case blocked(behind: UInt32)
    /// Waits because its device has as many pushes in flight as it may, or earlier broadcasts of its channel go first.
    case deviceLimited
    /// Waits for a successor, during the app's coalesce window.
    case coalescing
    /// Waits until the partition's uncommitted records are read, because a newer push may be among them.
    case catchingUp
    /// Waits before its next attempt.
    case retrying
    /// Waits for its `deliver-at`.
    case scheduled
    /// Waits for its device, which is offline.
    case held(Presence)
    /// Waits for its turn because its device is back.
    case returning
    /// Waits for its device's receipt, after APNs has accepted it.
    case confirming
    /// Waits because its topic is stopped.
    case topicStopped(TopicFault)
    /// Waits because its tenant has used its share of the worker's room.
    case parked
    /// Waits because the worker is nearly full, and reads ahead to find pushes of priority 10.
    case readAhead
    /// Waits because an operator has paused its app, its topic or its credential.
    case topicPaused
    /// Waits for its turn, and nothing is sent because an operator has paused all sending.
    case sendingPaused
    /// Waits because its credential has no connection.
    case credentialUnavailable
}

/// State of a pending push, for people who look for the push.
public struct PendingPush: Equatable, Sendable {
    public var cause: PendingCause
    /// End of the wait in milliseconds since the epoch, nil when no clock ends it. For a stopped topic, the time of the
    /// topic's next probe.
    public var untilMilliseconds: Int64?
    /// Attempts, failures and expiration.
    public var progress: ItemProgress
    /// Time at which the store last promised to bring the push back, in milliseconds since the epoch; nil when the store
    /// hasn't it, or no clock brings it back.
    public var storedDueMilliseconds: Int64?
    /// True when the store was asked to keep the push and hasn't answered.
    public var isStoreAsked: Bool
}

/// Descriptions of pending pushes. None of these functions changes anything.
extension DeliveryMachine {
    /// Returns the state of the push in a slot; nil when the slot has no pending push.
    public func pending(_ slot: UInt32, at now: DeliveryTime) -> PendingPush? {
        guard Int(slot) < usedSlots, let (cause, until) = wait(of: slot, at: now) else { return nil }
        let item = items + Int(slot)
        let isStored = item.pointee.flags.contains(.stored)
        let due = item.pointee.storedDue
        return PendingPush(
            cause: cause, untilMilliseconds: until, progress: item.pointee.progress,
            storedDueMilliseconds: isStored && due > 0 && due < .max ? Int64(due) * 1000 : nil,
            isStoreAsked: item.pointee.flags.contains(.asked))
    }

    /// Returns the slots of a device's pending pushes, the newest first.
    public func pendingSlots(of device: DeviceKey) -> [UInt32] {
        guard let entry = devices.find(device) else { return [] }
        var slots: [UInt32] = []
        var slot = devices.entries[Int(entry)].first
        while slot != Self.noSlot {
            slots.append(slot)
            slot = items[Int(slot)].next
        }
        return slots
    }

    /// Returns the cause for which a topic's pushes wait, and the time of the topic's next probe in milliseconds since
    /// the epoch; nil when the topic's pushes go.
    public func stop(ofTopic topic: UInt16, at now: DeliveryTime) -> (cause: PendingCause, probe: Int64?)? {
        guard Int(topic) < circuits.count, circuits[Int(topic)].isWatched else { return nil }
        let circuit = circuits[Int(topic)]
        if circuit.isPaused { return (.topicPaused, nil) }
        if !circuit.holdsBack {
            return (budgets.parking(Int(circuit.tenant)) == .ahead ? .readAhead : .parked, nil)
        }
        return (
            .topicStopped(circuit.fault),
            circuit.state == .open ? now.wallMilliseconds(of: circuit.until) : nil
        )
    }

    private func wait(of slot: UInt32, at now: DeliveryTime) -> (PendingCause, Int64?)? {
        let item = items + Int(slot)
        switch item.pointee.state {
        case .free, .finished, .undispatched: return nil
        case .waiting: return (.stream, nil)
        case .inFlight: return (.inFlight, nil)
        case .blocked: return (.blocked(behind: item.pointee.peer), nil)
        case .deviceLimited: return (.deviceLimited, nil)
        case .coalescing where awaitsCatchUp(slot): return (.catchingUp, nil)
        case .coalescing: return (.coalescing, timerEnd(slot, at: now))
        case .retrying: return (.retrying, timerEnd(slot, at: now))
        case .scheduled: return (.scheduled, item.pointee.deliverAt)
        case .held:
            let presence = devices.entries[Int(item.pointee.device)].presence
            return (
                .held(presence == Self.noSlot ? .offline : presences[presence].presence),
                timerEnd(slot, at: now)
            )
        case .returning: return (.returning, nil)
        case .confirming: return (.confirming, timerEnd(slot, at: now))
        case .topicCircuitOpen:
            return stop(ofTopic: item.pointee.topic, at: now) ?? (.topicStopped(.refusal), nil)
        case .poolUnavailable: return (.credentialUnavailable, nil)
        }
    }

    private func timerEnd(_ slot: UInt32, at now: DeliveryTime) -> Int64? {
        timers.due(of: slot).map { now.wallMilliseconds(of: $0) }
    }
}

extension DeliveryTime {
    /// Returns the time of the wall clock at which the monotonic clock shows `nanoseconds`, in milliseconds since the
    /// epoch, rounded up; never in the past.
    func wallMilliseconds(of nanoseconds: UInt64) -> Int64 {
        guard nanoseconds > monotonicNanoseconds else { return wallMilliseconds }
        let wait = (nanoseconds - monotonicNanoseconds) / 1_000_000
        return wallMilliseconds &+ Int64(min(wait, 1 << 50)) + 1
    }
}

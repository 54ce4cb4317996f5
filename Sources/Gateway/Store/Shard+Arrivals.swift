import DeliveryCore
import EventLoop
import Kafka
import RetryStore
import SluiceModel

/// What has waited for a device to come from the store goes on, in its order.
extension Shard {
    /// All of a device is in memory: what has waited for it goes on.
    func arrived(_ device: DeviceKey, _ storage: ShardStore) {
        storage.arrivals[device]?.state = .loaded
        resume(device, storage)
    }

    /// Departures of this device may be taken over.
    func goOn(_ device: DeviceKey) {
        guard let storage, storage.arrivals[device]?.state == .loaded else { return }
        wallMilliseconds = wallClockMilliseconds()
        resume(device, storage)
        askForTurnEnd()
    }

    func lookAgain(_ device: DeviceKey, _ storage: ShardStore) {
        storage.arrivals[device]?.state = .queued
        storage.loadQueue.append(device)
        askForTurnEnd()
    }

    /// Two devices can each have an event that needs the other, so this may come to be called for a device whose call hasn't
    /// returned: what is done is taken out first.
    private func resume(_ device: DeviceKey, _ storage: ShardStore) {
        while let arrival = storage.arrivals[device], arrival.state == .loaded {
            if arrival.looksAgain { return lookAgain(device, storage) }
            guard let event = arrival.waiting.first else {
                guard arrival.skipped.isEmpty else { return lookAgain(device, storage) }
                resumeDependents(of: device, storage)
                guard let left = storage.arrivals[device], left.state == .loaded, !left.looksAgain,
                    left.waiting.isEmpty
                else { continue }
                storage.arrivals[device] = nil
                return
            }
            switch event {
            case .record(let incoming):
                if let other = otherDevice(of: incoming), waits(for: other, incoming, storage) { return }
                if let skipped = arrival.skipped[incoming.partitionSlot], skipped <= incoming.record.offset {
                    return lookAgain(device, storage)
                }
                storage.arrivals[device]!.waiting.removeFirst()
                take(incoming, isLoaded: true)
            case .departure(let departure):
                guard departure.isReleased else { return resumeDependents(of: device, storage) }
                storage.arrivals[device]!.waiting.removeFirst()
                takeOver(departure)
            }
        }
    }

    /// While a device is here, it counts as loaded for those that need it as well.
    private func resumeDependents(of device: DeviceKey, _ storage: ShardStore) {
        let dependents = storage.arrivals[device]!.dependents
        storage.arrivals[device]!.dependents = []
        for dependent in dependents where storage.arrivals[dependent]?.state == .loaded {
            resume(dependent, storage)
        }
    }

    /// The device of the new token of a token change, where it is another and this shard's.
    private func otherDevice(of incoming: IncomingRecord) -> DeviceKey? {
        guard
            case .control(let control)? = try? decoder.decode(
                jobRecord(of: incoming.record), nowMilliseconds: wallMilliseconds)
        else { return nil }
        defer { control.release() }
        return otherDevice(of: control, incoming)
    }

    private func otherDevice(of control: ControlJob, _ incoming: IncomingRecord) -> DeviceKey? {
        guard case .tokenChanged(let token) = control.detail else { return nil }
        let other = plan.hasher.device(token)
        return other != incoming.device && shardIndex(of: other, shards: plan.shards) == plan.index
            ? other : nil
    }

    /// Puts a cancel or device event aside whose device isn't in memory, or the one that its token changes to.
    func putAside(_ control: ControlJob, _ incoming: IncomingRecord) -> Bool {
        guard let storage else { return false }
        let look: ShardStore.PresenceLook =
            control.detail.concernsPresence ? .partition(incoming.partitionSlot) : .nowhere
        if putAside(.record(incoming), for: incoming.device, look) { return true }
        guard let other = otherDevice(of: control, incoming), waits(for: other, incoming, storage) else {
            return false
        }
        var arrival = ShardStore.Arrival(look: look)
        arrival.state = .loaded
        arrival.waiting.append(.record(incoming))
        storage.arrivals[incoming.device] = arrival
        return true
    }

    /// True when an event has to wait for another device as well.
    private func waits(for other: DeviceKey, _ incoming: IncomingRecord, _ storage: ShardStore) -> Bool {
        if let arrival = storage.arrivals[other] {
            if arrival.state == .loaded, arrival.look == .everywhere { return false }
            storage.arrivals[other]!.look = .everywhere
            switch arrival.state {
            case .queued: break
            case .loading: if arrival.look != .everywhere { storage.arrivals[other]!.looksAgain = true }
            case .loaded: lookAgain(other, storage)
            }
        } else {
            guard mustLoad(other, .everywhere, storage) else { return false }
            storage.arrivals[other] = ShardStore.Arrival(look: .everywhere)
            storage.loadQueue.append(other)
        }
        storage.arrivals[other]!.dependents.append(incoming.device)
        return true
    }
}

extension ControlJob.Detail {
    /// What it says about its device is compared with what is known.
    var concernsPresence: Bool {
        switch self {
        case .online, .offline, .receipt: true
        default: false
        }
    }
}

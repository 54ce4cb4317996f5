import DeliveryCore
import EventLoop
import Kafka
import SluiceModel
import Synchronization

/// An item on its way to the shard of its device's new token.
// Sendable: its job has memory of its own, and is handed over with it; the sender keeps nothing.
struct Departure: @unchecked Sendable {
    var job: Job
    var item: ItemDeparture
    /// Nil: it may be taken over at once.
    var release: DepartureRelease?

    var isReleased: Bool { release?.isReleased ?? true }
}

/// Says when a departure may be taken over: the changelog must not get what its new shard says of it before what the old
/// one has said.
final class DepartureRelease: Sendable {
    private let value = Atomic<Bool>(false)

    var isReleased: Bool { value.load(ordering: .acquiring) }
    func release() { value.store(true, ordering: .releasing) }
}

/// Items whose devices get new tokens.
extension Shard {
    /// - Parameter isStored: the store has the push, under its old token.
    func readdress(_ slot: UInt32, isStored: Bool, _ context: ActionContext) {
        let job = jobs[slot]
        let noted = job.pointee.notedToken
        job.pointee.notedToken = nil
        guard let token = noted.map({ UnsafeRawBufferPointer($0) }) ?? context.newToken else {
            preconditionFailure("slot \(slot) moves to no token")
        }
        if isStored, outcomes.hasChangelog, job.pointee.storedToken == nil {
            job.pointee.storedToken = Array(job.pointee.push.deviceToken)
        }
        freedBytes += job.pointee.moveToOwnMemory(deviceToken: token)
        noted?.deallocate()
    }

    func depart(_ slot: UInt32, _ item: ItemDeparture, _ context: ActionContext) {
        readdress(slot, isStored: item.resident.storedDue != nil, context)
        if let writing = item.writing { write(slot, writing) }
        var departure = Departure(job: jobs.remove(slot), item: item)
        let shard = machine.shard(of: item.facts.device)
        guard item.writing != nil else { return peers.handOver(departure, to: shard) }
        if outcomes.hasChangelog {
            let release = DepartureRelease()
            departure.release = release
            outcomes.afterThis { [self, device = item.facts.device] in
                release.release()
                peers.released(device, at: shard)
            }
        }
        storage?.depart(departure)
        askForTurnEnd()
    }

    /// An item comes whose device has a token of this shard now.
    func adopt(_ departure: Departure) {
        wallMilliseconds = wallClockMilliseconds()
        // Older records first, of which the push could be the newer.
        takeAllRecords()
        switch machine.arrives(departure.item, isReleased: departure.isReleased) {
        case .deferred(let handle): waiting.keep(.departure(departure), under: handle)
        case .takeOver:
            takeOver(departure)
            follow()
        case .leftOut: leaveOut(departure.job)
        }
        askForTurnEnd()
    }

    /// Departures of this device may be taken over.
    func goOn(_ device: DeviceKey) {
        wallMilliseconds = wallClockMilliseconds()
        for handle in machine.unreleased(of: device)
        where waiting.departure(handle)?.isReleased == true { machine.release(handle, of: device) }
        follow()
        askForTurnEnd()
    }

    /// Takes an item over when all of its device is in memory.
    func takeOver(_ departure: Departure) {
        var departure = departure
        guard
            let route = routes.route(
                of: departure.job.push,
                makeTopic: { [lanes] lane, topic in lanes[Int(lane)].encoder.topic(topic) })
        else {
            _ = machine.cannotTakeOver(departure.item)
            return leaveOut(departure.job)
        }
        departure.item.facts.topic = route.number
        departure.job.topic = route.topic
        let settlement = machine.takeOver(departure.item, at: now)
        switch settlement {
        case .deferred(let handle):
            waiting.keep(.departure(departure), under: handle)
            return act()
        case .leftOut: return leaveOut(departure.job)
        default: break
        }
        settle(departure.job, settlement)
        if let movedAt = departure.item.movedAtMilliseconds {
            moveOn(departure.item.facts.device, after: movedAt)
        }
        askForTurnEnd()
    }

    /// Frees an item that can't be taken over. The store has it under its new token and brings it when it is due, or Kafka
    /// has it after a restart.
    func leaveOut(_ job: consuming Job) {
        counters.abandoned += 1
        free(job)
        act()
    }

    /// Items that came to a device by a token change go on to the device's own later token.
    func moveOn(_ device: DeviceKey, after occurredMilliseconds: Int64) {
        guard let storage,
            let number = machine.moveOn(device, after: occurredMilliseconds, at: now)
        else { return }
        storage.pastToken(number).withUnsafeBytes { act(ActionContext(newToken: $0)) }
    }
}

import DeliveryCore
import EventLoop
import Kafka
import SluiceModel
import Synchronization

/// An item on its way to the shard of its device's new token.
// Sendable: its job has memory of its own, and is handed over with it; the sender keeps nothing.
struct Migration: @unchecked Sendable {
    var job: Job
    var item: ItemMigration
    /// Nil: it may be taken over at once.
    var release: MigrationRelease?

    var isReleased: Bool { release?.isReleased ?? true }
}

/// Says when a departure may be taken over: the changelog must not get what its new shard says of it before what the old
/// one has said.
final class MigrationRelease: Sendable {
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

    func depart(_ slot: UInt32, _ item: ItemMigration, _ context: ActionContext) {
        readdress(slot, isStored: item.resident.storedDue != nil, context)
        if let writing = item.writing { write(slot, writing) }
        var migration = Migration(job: jobs.remove(slot), item: item)
        let shard = machine.shard(of: item.facts.device)
        guard item.writing != nil else { return peers.handOver(migration, to: shard) }
        if outcomes.hasChangelog {
            let release = MigrationRelease()
            migration.release = release
            outcomes.afterThis { [self, device = item.facts.device] in
                release.release()
                peers.released(device, at: shard)
            }
        }
        storage?.depart(migration)
        askForTurnEnd()
    }

    /// An item comes whose device has a token of this shard now.
    func importItem(_ migration: Migration) {
        wallMilliseconds = wallClockMilliseconds()
        // Older records first, of which the push could be the newer.
        takeAllRecords()
        switch machine.arrives(migration.item, isReleased: migration.isReleased) {
        case .deferred(let handle): waiting.keep(.migration(migration), under: handle)
        case .takeOver:
            takeOver(migration)
            follow()
        case .leftOut: leaveOut(migration.job)
        }
        askForTurnEnd()
    }

    /// Departures of this device may be taken over.
    func goOn(_ device: DeviceKey) {
        wallMilliseconds = wallClockMilliseconds()
        for handle in machine.unreleased(of: device)
        where waiting.migration(handle)?.isReleased == true { machine.release(handle, of: device) }
        follow()
        askForTurnEnd()
    }

    /// Takes an item over when all of its device is in memory.
    func takeOver(_ migration: Migration) {
        var migration = migration
        guard
            let route = routes.route(
                of: migration.job.push,
                makeTopic: { [lanes] lane, topic in lanes[Int(lane)].encoder.topic(topic) })
        else {
            _ = machine.cannotTakeOver(migration.item)
            return leaveOut(migration.job)
        }
        migration.item.facts.topic = route.number
        migration.job.topic = route.topic
        let settlement = machine.takeOver(migration.item, at: now)
        switch settlement {
        case .deferred(let handle):
            waiting.keep(.migration(migration), under: handle)
            return act()
        case .leftOut: return leaveOut(migration.job)
        default: break
        }
        settle(migration.job, settlement)
        if let movedAt = migration.item.movedAtMilliseconds {
            moveOn(migration.item.facts.device, after: movedAt)
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

import DeliveryCore
import EventLoop
import Kafka
import SluiceModel
import Synchronization

/// An item on its way to the shard of its device's new token.
// Sendable: the job has memory of its own, which moves with the job. The sender keeps nothing.
struct Migration: @unchecked Sendable {
    var job: Job
    var item: ItemMigration
    /// Nil when the item may be taken over at once.
    var release: MigrationRelease?

    var isReleased: Bool { release?.isReleased ?? true }
}

/// Permits the takeover of a departure. The changelog must not get the new shard's records of an item before the old
/// shard's.
final class MigrationRelease: Sendable {
    private let value = Atomic<Bool>(false)

    var isReleased: Bool { value.load(ordering: .acquiring) }
    func release() { value.store(true, ordering: .releasing) }
}

/// Items whose devices get new tokens.
extension Shard {
    /// - Parameter isStored: the store has the push under its old token.
    func readdress(_ slot: UInt32, isStored: Bool, _ context: ActionContext) {
        let job = jobs[slot]
        let noted = job.pointee.notedToken
        job.pointee.notedToken = nil
        guard let token = noted.map({ UnsafeRawBufferPointer($0) }) ?? context.newToken else {
            preconditionFailure("slot \(slot) moves to no token")
        }
        if isStored, outcomes.hasChangelog {
            job.pointee.keepStoredToken()
        }
        keepInOwnMemory(slot, deviceToken: token)
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

    /// Imports an item whose device's new token belongs to this shard.
    func importItem(_ migration: Migration) {
        wallMilliseconds = wallClockMilliseconds()
        // Older records first, because the push could be newer than they are.
        readAllRecords()
        switch machine.arrives(migration.item, isReleased: migration.isReleased) {
        case .deferred(let handle): waiting.keep(.migration(migration), under: handle)
        case .takeOver:
            takeOver(migration)
            follow()
        case .leftOut: leaveOut(migration.job)
        }
        askForTurnEnd()
    }

    /// Takes over departures of this device that were released.
    func resume(_ device: DeviceKey) {
        wallMilliseconds = wallClockMilliseconds()
        machine.release(device) { waiting.migration($0)?.isReleased == true }
        follow()
        askForTurnEnd()
    }

    /// Takes an item over. All items of its device are in memory.
    func takeOver(_ migration: Migration) {
        var migration = migration
        guard
            let route = route(of: migration.job.push)
        else {
            _ = machine.cannotTakeOver(migration.item)
            return leaveOut(migration.job)
        }
        migration.item.facts.topic = route.number
        migration.job.target = route.target
        let settlement = machine.takeOver(migration.item, at: now)
        switch settlement {
        case .deferred(let handle):
            waiting.keep(.migration(migration), under: handle)
            return act()
        case .leftOut: return leaveOut(migration.job)
        default: break
        }
        settle(migration.job, settlement)
        askForTurnEnd()
    }

    /// Frees an item that can't be taken over. The store has the item under its new token and returns it when it is
    /// due, or Kafka has it after a restart.
    func leaveOut(_ job: consuming Job) {
        counters.abandoned += 1
        free(job)
        act()
    }
}

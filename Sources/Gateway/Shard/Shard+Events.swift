import DeliveryCore
import EventLoop
import Kafka
import SluiceModel

/// Records and items that wait, under the handles by which ``ShardMachine`` knows them.
struct WaitingEvents {
    enum Event {
        case record(IncomingRecord)
        case migration(Migration)
        /// A token change whose outcome waits for items in flight, and the number of items concerned.
        case change(IncomingRecord, count: UInt32?)
    }

    private var events: [UInt32: Event] = [:]

    mutating func keep(_ event: Event, under handle: UInt32) { events[handle] = event }

    /// Moves all records that wait into memory of their own. Calls `shrunk` with each record and the bytes that become
    /// free.
    mutating func leaveResponses(_ shrunk: (RecordPlace, Int) -> Void) {
        var index = events.startIndex
        while index != events.endIndex {
            switch events.values[index] {
            case .record(var incoming) where incoming.record.keepsResponse:
                shrunk(incoming.place, incoming.leaveResponse())
                events.values[index] = .record(incoming)
            case .change(var incoming, let count) where incoming.record.keepsResponse:
                shrunk(incoming.place, incoming.leaveResponse())
                events.values[index] = .change(incoming, count: count)
            case .record, .change, .migration: break
            }
            events.formIndex(after: &index)
        }
    }

    mutating func take(_ handle: UInt32) -> Event? { events.removeValue(forKey: handle) }

    mutating func takeRecord(_ handle: UInt32) -> IncomingRecord? {
        if case .record(let incoming)? = take(handle) { incoming } else { nil }
    }

    mutating func takeMigration(_ handle: UInt32) -> Migration? {
        if case .migration(let migration)? = take(handle) { migration } else { nil }
    }

    /// Returns at most so many handles, and whether these are all.
    func handles(atMost most: Int) -> (handles: [UInt32], isAll: Bool) {
        (Array(events.keys.prefix(most)), events.count <= most)
    }

    /// Returns the record that waits under a handle; nil when none waits there.
    func record(_ handle: UInt32) -> IncomingRecord? {
        if case .record(let incoming)? = events[handle] { incoming } else { nil }
    }

    /// Returns the departure that waits under a handle; nil when no departure waits there.
    func migration(_ handle: UInt32) -> Migration? {
        if case .migration(let migration)? = events[handle] { migration } else { nil }
    }
}

/// Resumes events that have waited.
extension Shard {
    /// Handles all events that may proceed.
    func follow() {
        guard !isFollowing else { return }
        isFollowing = true
        repeat {
            while let action = machine.nextEvent(at: now) { perform(action) }
            act()
        } while machine.hasSteps
        isFollowing = false
    }

    private func perform(_ action: ResidencyAction) {
        switch action {
        case .takeIn(let handle): if let incoming = waiting.takeRecord(handle) { accept(incoming) }
        case .proceed(let handle):
            if let incoming = waiting.takeRecord(handle) { accept(incoming, isLoaded: true) }
        case .refuse(let handle): if let incoming = waiting.takeRecord(handle) { refuse(incoming) }
        case .takeOver(let handle): if let migration = waiting.takeMigration(handle) { takeOver(migration) }
        case .leaveInStore(let handle):
            guard let migration = waiting.takeMigration(handle) else { return }
            machine.skip(migration.item)
            leaveOut(migration.job)
        case .discard(let handle): discard(handle)
        case .load(let device, let slot, let withItems): storage?.load(slot, device, withItems: withItems)
        case .removeMark(let place): removeMark(place)
        case .removed(let place, let device):
            _ = storage?.takeChangelogKey(of: EndedItem(device: device.low, place: place))
        }
    }

    /// Drops a waiting event, because its partition ends or Kafka delivers the event again.
    func discard(_ handle: UInt32) {
        counters.abandoned += 1
        switch waiting.take(handle) {
        case .record(let incoming)?, .change(let incoming, _)?:
            // Replayed records are reported as well, because the intake counts them.
            machine.discard(record: incoming.place)
            free(incoming)
        case .migration(let migration)?:
            machine.discard(migration.item)
            free(migration.job)
        case nil: break
        }
    }

    /// Writes the outcomes of token changes that nothing holds up any more. Runs at the end of a turn, so that decoding
    /// doesn't disturb a record being decoded.
    func finishChanges() {
        for handle in machine.takeChangesDone() {
            guard case .change(let incoming, let count)? = waiting.take(handle) else { continue }
            if incoming.isReplay {
                replayed(incoming)
                continue
            }
            guard
                case .control(let control)? = try? decoder.decode(
                    jobRecord(of: incoming.record), nowMilliseconds: wallMilliseconds)
            else { preconditionFailure("the record of a token change can't be decoded again") }
            finish(
                control, incoming, .applied, count,
                OutcomeSource(record: incoming.record, partitionSlot: incoming.partitionSlot))
        }
    }

    /// Ends a push whose device has no room for more items.
    private func refuse(_ incoming: IncomingRecord) {
        guard
            case .push(let push)? = try? decoder.decode(
                jobRecord(of: incoming.record), nowMilliseconds: wallMilliseconds)
        else { return accept(incoming, isLoaded: true) }
        guard !isDone(push, incoming) else { return }
        refuse(
            push, incoming,
            OutcomeSource(record: incoming.record, partitionSlot: incoming.partitionSlot), .undeliverable,
            cause: .deviceLimit, app: route(of: push)?.app)
    }
}

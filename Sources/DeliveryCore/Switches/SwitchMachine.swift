import DequeModule
import SluiceModel

/// Decides which pauses are in force on a worker, and which changes are still to be kept. Facts in, actions out.
///
/// A change takes effect on the worker that an operator asks at once, before it is kept. Other workers read the change
/// from the control topic. The topic's order decides between changes of several workers. Until the worker reads its own
/// change there, older records of the same scope have no effect here.
///
///     operator ─ change ─▶ in force here ─ keep ─▶ kept ─ read ─▶ in force on every worker
///                                           ▲  │
///                                           └──┴─ after a pause, when it failed
public struct SwitchMachine: Sendable {
    /// Place that keeps switches across restarts.
    public enum Home: Sendable, Equatable {
        /// None: switches last until the process ends.
        case memory
        /// A file of this worker alone.
        case file
        /// The control topic, which all workers read.
        case topic
    }

    /// Order to the owner.
    public enum Action: Sendable, Equatable {
        /// Report the present ``SwitchMachine/switches`` to all loops.
        case report
        /// Write this change to the control topic; ``SwitchMachine/kept(_:)`` or ``SwitchMachine/keepFailed(_:at:)``
        /// follows.
        case produce(SwitchRecord)
        /// Write ``SwitchMachine/records`` to the file; ``SwitchMachine/kept(_:)`` or
        /// ``SwitchMachine/keepFailed(_:at:)`` of this change follows.
        case write(SwitchRecord)
        /// Log the change, which is in force on this worker from now on. `isOwn`: an operator asked this worker.
        case log(SwitchRecord, isOwn: Bool)
    }

    /// A change that is in force here and not yet read from the control topic, or not yet written to the file.
    private struct Pending {
        var record: SwitchRecord
        /// Time of the next attempt to keep the change, in nanoseconds of the monotonic clock; nil while an attempt is
        /// under way or has succeeded.
        var retryAt: UInt64?
        var isKept = false
        /// Offset of the change in the control topic; nil before Kafka has acknowledged the change.
        var offset: Int64?
    }

    public let home: Home
    /// Identifiers of the changes that another place keeps: the control topic, which can't be read at present.
    private let inherited: Set<String>
    private var current: [PauseScope: SwitchRecord] = [:]
    private var pending: [PauseScope: Pending] = [:]
    private var areKnown: Bool
    /// Records that could not be read, or for which there was no room.
    public private(set) var unreadable = 0
    /// Changes that took effect, pauses and resumes.
    public private(set) var changes = 0
    /// Actions that the owner hasn't taken yet.
    private var actions = Deque<Action>()

    /// Nanoseconds after which a change that couldn't be kept is written again.
    static let retryInterval: UInt64 = 1_000_000_000
    /// Most scopes that may be paused at the same time.
    public static let mostScopes = 1000

    /// - Parameters:
    ///   - records: changes of the worker before in this process, or of the file.
    ///   - inherited: last known changes of the control topic, which are in force until a record or a change replaces
    ///     them.
    public init(_ home: Home, records: [SwitchRecord] = [], inherited: [SwitchRecord] = []) {
        self.home = home
        self.inherited = Set(inherited.map(\.id))
        areKnown = home != .topic
        for record in inherited + records { current[record.scope] = record }
    }

    // MARK: State

    /// Pauses in force.
    public var switches: Switches {
        Switches(areKnown: areKnown, paused: Set(current.values.filter(\.isPaused).map(\.scope)))
    }

    /// Scopes that are paused, with their changes, in order.
    public var pauses: [SwitchRecord] { current.values.filter(\.isPaused).sorted { $0.scope < $1.scope } }

    /// Last changes of all scopes, in order, without those that another place keeps.
    public var records: [SwitchRecord] {
        current.values.filter { !inherited.contains($0.id) }.sorted { $0.scope < $1.scope }
    }

    /// Changes that the next worker of this process has to take over, because nothing else keeps them yet.
    public var unkept: [SwitchRecord] {
        switch home {
        case .memory: records
        case .file, .topic:
            pending.values.filter { !$0.isKept }.map(\.record).sorted { $0.scope < $1.scope }
        }
    }

    /// True until the scope's last change is kept, in the file or by Kafka. A change that was replaced before is as safe
    /// as its successor.
    public func isUnkept(_ scope: PauseScope) -> Bool { pending[scope].map { !$0.isKept } ?? false }

    /// True when the change can be made: all sending can always be paused, and everything can be resumed.
    public func hasRoom(for scope: PauseScope, isPaused: Bool) -> Bool {
        !isPaused || scope == .all || current[scope]?.isPaused == true
            || current.values.count { $0.isPaused } < Self.mostScopes
    }

    /// Returns the next action, which the owner carries out; nil when there is none.
    public mutating func nextAction() -> Action? { actions.popFirst() }

    // MARK: Facts

    /// An operator asks this worker for a change, for which ``hasRoom(for:isPaused:)`` is true.
    public mutating func change(_ record: SwitchRecord) {
        apply(record, isOwn: true)
        switch home {
        case .memory: break
        case .file:
            pending[record.scope] = Pending(record: record)
            actions.append(.write(record))
        case .topic:
            pending[record.scope] = Pending(record: record)
            actions.append(.produce(record))
        }
    }

    /// The change is kept: the file has it, or Kafka has acknowledged it.
    /// - Parameter offset: offset of the change in the control topic; nil for a file.
    public mutating func kept(_ record: SwitchRecord, offset: Int64? = nil) {
        guard pending[record.scope]?.record.id == record.id else { return }
        if home == .file {
            pending[record.scope] = nil
        } else {
            pending[record.scope]!.isKept = true
            pending[record.scope]!.retryAt = nil
            pending[record.scope]!.offset = offset
        }
    }

    /// The change could not be kept. The attempt is repeated, unless a later change replaces it.
    public mutating func keepFailed(_ record: SwitchRecord, at now: UInt64) {
        guard pending[record.scope]?.record.id == record.id else { return }
        pending[record.scope]!.retryAt = now + Self.retryInterval
    }

    /// Repeats the attempts that are due.
    public mutating func advance(to now: UInt64) {
        for (scope, change) in pending.sorted(by: { $0.key < $1.key }) {
            guard let time = change.retryAt, time <= now else { continue }
            pending[scope]!.retryAt = nil
            actions.append(home == .file ? .write(change.record) : .produce(change.record))
        }
    }

    /// A record of the control topic was read, in the topic's order. A record without a value resumes its scope.
    public mutating func read(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, offset: Int64
    ) {
        guard let value else {
            guard let scope = key.flatMap({ SwitchRecord.scope(ofKey: $0) }) else {
                unreadable += 1
                return
            }
            forgetPassed(scope, before: offset)
            guard pending[scope] == nil, var record = current[scope] else { return }
            let wasPaused = record.isPaused
            current[scope] = nil
            guard wasPaused else { return }
            changes += 1
            record.isPaused = false
            return report(record, isOwn: false)
        }
        guard let record = SwitchRecord(value) else {
            unreadable += 1
            return
        }
        forgetPassed(record.scope, before: offset)
        if let change = pending[record.scope] {
            if change.record.id == record.id { pending[record.scope] = nil }
            return
        }
        guard current[record.scope]?.id != record.id else { return }
        guard hasRoom(for: record.scope, isPaused: record.isPaused) else {
            unreadable += 1
            return
        }
        apply(record, isOwn: false)
    }

    /// The control topic was read to its end.
    public mutating func readToEnd() {
        guard !areKnown else { return }
        areKnown = true
        actions.append(.report)
        for record in pauses { actions.append(.log(record, isOwn: false)) }
    }

    /// Forgets a change that the topic had before `offset`, and that was not read: the topic was compacted meanwhile.
    private mutating func forgetPassed(_ scope: PauseScope, before offset: Int64) {
        if let own = pending[scope]?.offset, own < offset { pending[scope] = nil }
    }

    private mutating func apply(_ record: SwitchRecord, isOwn: Bool) {
        let wasPaused = current[record.scope]?.isPaused ?? false
        current[record.scope] = record
        // Resumed scopes are kept for their notes alone.
        if current.count > 2 * Self.mostScopes {
            current = current.filter { $0.value.isPaused || $0.key == record.scope }
        }
        guard wasPaused != record.isPaused else { return }
        changes += 1
        report(record, isOwn: isOwn)
    }

    /// Reports a change that took effect. Until the topic's end is known, only an operator's own change is reported.
    private mutating func report(_ record: SwitchRecord, isOwn: Bool) {
        guard areKnown || isOwn else { return }
        actions.append(.log(record, isOwn: isOwn))
        actions.append(.report)
    }
}

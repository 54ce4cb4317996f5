import SluiceModel
import Testing

@testable import DeliveryCore

/// A machine with a manual clock, and a list in place of the stream scheduler.
struct DeliveryHarness: ~Copyable {
    var machine: DeliveryMachine
    var now = DeliveryTime(wallMilliseconds: 1_700_000_000_000, monotonicNanoseconds: 1_000_000_000)
    /// Slots that wait for a connection, in order.
    var queue: [UInt32] = []
    /// Name of the push in each slot.
    var names: [UInt32: String] = [:]
    /// Ends: name, kind, cause, and name of the successor.
    var ended: [String] = []
    var others: [DeliveryAction] = []
    /// The progress that the store was last asked to keep, by the push's name.
    var stored: [String: ItemProgress] = [:]
    private var nextOffset: Int64 = 0

    init(_ adjust: (inout DeliveryLimits) -> Void = { _ in }) {
        var limits = DeliveryLimits(capacity: 64, knownDevices: 8)
        adjust(&limits)
        machine = DeliveryMachine(limits: limits, seed: 1)
    }

    static func key(_ text: String) -> UInt64 {
        text.utf8.reduce(14_695_981_039_346_656_037) { ($0 ^ UInt64($1)) &* 1_099_511_628_211 } | 1
    }

    static func device(_ name: String) -> DeviceKey { DeviceKey(high: key(name), low: key("low" + name)) }

    func facts(
        _ name: String, device: String = "d", collapse: String? = nil,
        _ adjust: (inout PushFacts) -> Void = { _ in }
    ) -> PushFacts {
        var facts = PushFacts(
            device: Self.device(device), collapseKey: collapse.map { Self.key($0) } ?? 0,
            notificationKey: Self.key(name), topic: 0, partition: 0, offset: nextOffset,
            createdMilliseconds: now.wallMilliseconds)
        adjust(&facts)
        return facts
    }

    @discardableResult
    mutating func push(
        _ name: String, device: String = "d", collapse: String? = nil,
        _ adjust: (inout PushFacts) -> Void = { _ in }
    ) -> Admission {
        let facts = facts(name, device: device, collapse: collapse, adjust)
        nextOffset = max(nextOffset, facts.offset + 1)
        let admission = machine.admit(facts, at: now)
        note(admission, name)
        return admission
    }

    mutating func note(_ admission: Admission, _ name: String) {
        switch admission {
        case .placed(let slot): names[slot] = name
        case .replaced(let slot, _):
            ended.append("\(names[slot]!) superseded by \(name)")
            names[slot] = name
        case .obsolete(let slot): ended.append("\(name) superseded by \(names[slot]!)")
        case .expired: ended.append("\(name) expired")
        case .deviceFull: ended.append("\(name) undeliverable deviceLimit")
        case .repeated, .full: break
        }
        drain()
    }

    mutating func drain() {
        while let action = machine.nextAction() {
            switch action {
            case .enqueue(let slot, let atFront): queue.insert(slot, at: atFront ? 0 : queue.count)
            case .dequeue(let slot):
                #expect(queue.contains(slot))
                queue.removeAll { $0 == slot }
            case .finish(let slot, let kind, let cause, let successor):
                var line = "\(names.removeValue(forKey: slot)!) \(kind)"
                if let cause { line += " \(cause)" }
                if successor != DeliveryMachine.noSlot { line += " by \(names[successor]!)" }
                ended.append(line)
                machine.release(slot)
            case .drop(let slot):
                ended.append("\(names.removeValue(forKey: slot)!) dropped")
                machine.release(slot)
            case .evict(let slot):
                ended.append("\(names.removeValue(forKey: slot)!) evicted")
                machine.release(slot)
            case .store(let slot, _):
                stored[names[slot]!] = machine.progressToStore(slot, at: now)
                others.append(action)
            default: others.append(action)
            }
        }
        #expect(machine.checkInvariants() == nil)
    }

    /// Begins the first push in the queue. Returns its slot, or nil when it must not be sent.
    @discardableResult
    mutating func begin() -> UInt32? {
        let slot = queue.removeFirst()
        let begins = machine.beginAttempt(slot, at: now)
        drain()
        return begins ? slot : nil
    }

    /// Begins a push in the queue, out of its turn.
    mutating func begin(named name: String) -> UInt32? {
        guard let index = queue.firstIndex(where: { names[$0] == name }) else { return nil }
        queue.swapAt(0, index)
        return begin()
    }

    mutating func accept(_ slot: UInt32) {
        machine.accepted(slot, at: now)
        drain()
    }

    mutating func answer(
        _ slot: UInt32, _ reason: Reason, retryAfter: Int64 = 0, invalidSince: Int64? = nil
    ) {
        machine.answered(
            slot,
            AttemptAnswer(
                class: reason.class, reason: reason, invalidSinceMilliseconds: invalidSince,
                retryAfterMilliseconds: retryAfter), at: now)
        drain()
    }

    mutating func fail(_ slot: UInt32, processed: Bool, isLoss: Bool = false) {
        machine.failed(slot, processed: processed, isLoss: isLoss, at: now)
        drain()
    }

    @discardableResult
    mutating func cancel(_ name: String, device: String = "d", origin: RecordOrigin? = nil) -> CancelResult {
        let result = machine.cancel(
            Self.device(device), .notificationKey(Self.key(name)), origin: origin, at: now)
        drain()
        return result
    }

    mutating func offline(_ device: String = "d") {
        _ = machine.offline(
            Self.device(device), occurred: .at(now.wallMilliseconds), partition: 0, at: now)
        drain()
    }

    mutating func online(_ device: String = "d") {
        _ = machine.online(
            Self.device(device), occurred: .at(now.wallMilliseconds), partition: 0, at: now)
        drain()
    }

    /// Requests to the store, in order: slot and version.
    var stores: [(slot: UInt32, version: UInt64)] {
        others.compactMap { if case .store(let slot, let version) = $0 { (slot, version) } else { nil } }
    }

    /// The store confirms every request.
    mutating func allStored() {
        for (slot, version) in stores { machine.stored(slot, version: version, at: now) }
        drain()
    }

    /// Lets time pass, and carries out the actions that follow.
    mutating func pass(milliseconds: Int64) {
        now.wallMilliseconds += milliseconds
        now.monotonicNanoseconds += UInt64(milliseconds) * 1_000_000
        machine.advance(to: now)
        drain()
    }

    func state(_ name: String) -> ItemState? {
        names.first { $0.value == name }.map { machine.state($0.key) }
    }

    var waiting: [String] { queue.map { names[$0]! } }
}

extension ReportTime {
    /// A report of a moment, by its record's offset.
    static func at(_ milliseconds: Int64, offset: Int64 = 0) -> ReportTime {
        ReportTime(milliseconds: milliseconds, offset: offset)
    }
}

import DequeModule
import SluiceModel

/// Step in the fate of a push.
struct PushStep: Sendable {
    /// Milliseconds since the push's arrival.
    var after: UInt32
    var rule: DeviceRule
}

/// A push as the journal keeps it.
struct PushRecord: Sendable {
    var number: UInt64
    /// Arrival in milliseconds since 1970.
    var at: Int64
    var apnsID: APNSID
    /// Index of the token; `TokenTable.none` for an unknown token and a broadcast.
    var token: UInt32
    /// Serial of the token, whose place may have another token meanwhile.
    var tokenSerial: UInt32 = 0
    /// Device; nil for an unknown token.
    var device: UInt32?
    /// Index of the app; nil for an app that is unknown.
    var app: UInt16?
    var purpose: TokenPurpose
    var type: PushType
    var priority: Priority
    var environment: PushEnvironment
    var reason: Reason = .absent
    var fate: Fate
    /// `apns-expiration` in seconds since 1970; nil without the header.
    var expiration: Int64?
    var collapseID: String?
    var payload: [UInt8]
    var steps: [PushStep] = []
    /// Title and body that the service extension has made, at most ``PushJournal/longestLine`` bytes; nil: unchanged.
    var line: String?

    /// Bytes that the push takes of the journal's room.
    var bytes: Int { 256 + payload.count + (collapseID?.utf8.count ?? 0) }
}

extension PushRecord {
    fileprivate mutating func add(_ rule: DeviceRule, most: Int, now: Int64) {
        guard steps.count < most else { return }
        // A broadcast has each rule once, because its record stands for all devices.
        if device == nil, steps.contains(where: { $0.rule == rule }) { return }
        // An ordinary push has four to six steps.
        if steps.isEmpty { steps.reserveCapacity(6) }
        steps.append(PushStep(after: UInt32(clamping: now - at), rule: rule))
    }

    /// Sets the state and returns the former one.
    fileprivate mutating func exchange(_ fate: Fate) -> Fate {
        defer { self.fate = fate }
        return self.fate
    }
}

/// The latest pushes, in the order of their numbers. Bounded: the oldest push leaves first.
struct PushJournal: Sendable {
    private var records: Deque<PushRecord> = []
    private let limit: Int
    /// Most bytes of the records.
    private let room: Int
    /// Bytes of the records.
    private(set) var bytes = 0
    /// Number of the next push.
    private(set) var next: UInt64 = 1
    /// Pushes by their latest state, also those that have left.
    private(set) var fates = [UInt64](repeating: 0, count: Fate.allCases.count)

    init(limit: Int, room: Int = .max) {
        self.limit = max(1, limit)
        self.room = room
    }

    /// Oldest number that is kept.
    var oldest: UInt64 { next - UInt64(records.count) }

    private func index(_ number: UInt64) -> Int? {
        guard number < next, number >= oldest else { return nil }
        return Int(number - oldest)
    }

    /// Adds a record, whose number is set here.
    /// - Returns: the number.
    mutating func append(_ record: PushRecord) -> UInt64 {
        var record = record
        record.number = next
        fates[Int(record.fate.rawValue)] += 1
        records.append(record)
        bytes += record.bytes
        next += 1
        // The newest push stays, however large it is.
        while records.count > limit || (bytes > room && records.count > 1) {
            bytes -= records.removeFirst().bytes
        }
        return record.number
    }

    subscript(number: UInt64) -> PushRecord? { index(number).map { records[$0] } }

    /// Most steps of a push; further ones are not kept.
    static let mostSteps = 64

    mutating func add(_ rule: DeviceRule, to number: UInt64, now: Int64) {
        guard let index = index(number) else { return }
        // In place, because a copy of a record costs more than the step.
        records[index].add(rule, most: Self.mostSteps, now: now)
    }

    /// Longest line that is kept, in bytes.
    static let longestLine = 512

    /// Keeps the texts that a service extension has made, as far as there is room.
    mutating func set(line: String, of number: UInt64) {
        guard let index = index(number) else { return }
        var kept = line[...]
        while kept.utf8.count > Self.longestLine {
            kept = kept.dropLast(max(1, (kept.utf8.count - Self.longestLine) / 64))
        }
        records[index].line = String(kept)
    }

    /// Sets the latest state. Returns whether it differs from the former one.
    mutating func set(_ fate: Fate, of number: UInt64) -> Bool {
        guard let index = index(number) else { return false }
        let former = records[index].exchange(fate)
        guard former != fate else { return false }
        fates[Int(former.rawValue)] -= 1
        fates[Int(fate.rawValue)] += 1
        return true
    }

    /// Visits the pushes from the newest, before a number, until `body` returns false.
    func visit(before: UInt64?, _ body: (borrowing PushRecord) -> Bool) {
        var number = min(before ?? next, next)
        while number > oldest {
            number -= 1
            guard let index = index(number), body(records[index]) else { return }
        }
    }

    mutating func removeAll() {
        records = []
        bytes = 0
        next = 1
        fates = [UInt64](repeating: 0, count: Fate.allCases.count)
    }
}

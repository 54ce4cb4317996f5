/// An event as the log keeps it.
struct EventRecord: Sendable {
    var at: Int64
    var kind: DeviceEvent.Kind
    var device: UInt32?
    var app: UInt16?
    var push: UInt64?
    var identifier: String?
    var fate: Fate?
    var detail: String?
    /// A token; nil for other events.
    var token: TokenMark?
    var formerToken: TokenMark?
}

/// The latest events. Bounded: the oldest event leaves first, and readers that are too slow are told.
struct EventLog: Sendable {
    private var records: [EventRecord] = []
    private let limit: Int
    /// Number of the first event since the last reset.
    private var first: UInt64 = 1
    /// Number of the next event.
    private(set) var next: UInt64 = 1

    init(limit: Int) { self.limit = max(1, limit) }

    /// Oldest number that is kept.
    var oldest: UInt64 { next - UInt64(records.count) }

    private func position(_ number: UInt64) -> Int { Int((number - first) % UInt64(limit)) }

    mutating func append(_ record: EventRecord) {
        if records.count < limit {
            records.append(record)
        } else {
            records[position(next)] = record
        }
        next += 1
    }

    subscript(number: UInt64) -> EventRecord? {
        guard number >= oldest, number < next else { return nil }
        return records[position(number)]
    }

    /// Forgets the events. Numbers go on, so that readers notice.
    mutating func removeAll() {
        records = []
        first = next
    }
}

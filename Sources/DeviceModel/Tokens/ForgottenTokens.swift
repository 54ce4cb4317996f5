import SluiceModel

/// Tokens of which only the end is remembered, by a keyed hash of their text. Bounded: the oldest one leaves.
struct ForgottenTokens: Sendable {
    /// Seconds since 1970 of the end, and the reason in the lowest byte, by half of the hash.
    private var ends: [UInt64: UInt64] = [:]
    /// Hashes in a ring, from the oldest one once it is full.
    private var order: [UInt64] = []
    private var oldest = 0
    private let limit: Int

    init(limit: Int) { self.limit = max(1, limit) }

    var count: Int { ends.count }

    /// - Parameter since: end in milliseconds since 1970.
    mutating func insert(_ key: DeviceKey, since: Int64, _ reason: Reason) {
        let hash = key.high
        let end = UInt64(max(0, since / 1_000)) << 8 | UInt64(reason.rawValue)
        guard ends.updateValue(end, forKey: hash) == nil else { return }
        if order.count < limit { return order.append(hash) }
        ends[order[oldest]] = nil
        order[oldest] = hash
        oldest = (oldest + 1) % limit
    }

    subscript(key: DeviceKey) -> (reason: Reason, since: Int64)? {
        ends[key.high].flatMap { end in
            Reason(rawValue: Reason.RawValue(truncatingIfNeeded: end & 0xFF)).map {
                ($0, Int64(end >> 8) * 1_000)
            }
        }
    }

    mutating func removeAll() {
        ends = [:]
        order = []
        oldest = 0
    }
}

/// Next generation of the tokens of a device's app. Devices whose tokens never ended need no entry.
struct TokenGenerations: Sendable {
    private struct Entry: Sendable {
        var app: UInt16
        var purpose: TokenPurpose
        var environment: PushEnvironment
        var next: UInt32
    }

    private var entries: [UInt32: [Entry]] = [:]

    func next(_ record: TokenRecord) -> UInt32 {
        entries[record.device]?.first { Self.isOf($0, record) }?.next ?? 0
    }

    mutating func set(_ next: UInt32, _ record: TokenRecord) {
        if let index = entries[record.device]?.firstIndex(where: { Self.isOf($0, record) }) {
            entries[record.device]![index].next = next
        } else {
            entries[record.device, default: []].append(
                Entry(
                    app: record.app, purpose: record.purpose, environment: record.environment, next: next))
        }
    }

    mutating func forget(_ device: UInt32) { entries[device] = nil }

    private static func isOf(_ entry: Entry, _ record: TokenRecord) -> Bool {
        entry.app == record.app && entry.purpose == record.purpose && entry.environment == record.environment
    }
}

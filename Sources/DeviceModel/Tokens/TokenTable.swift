import DequeModule
import SluiceModel

/// A device token.
struct TokenRecord: Sendable {
    var bytes: [UInt8]
    var device: UInt32
    /// Index of the app.
    var app: UInt16
    var purpose: TokenPurpose
    var environment: PushEnvironment
    /// Next token of the same installation; `TokenTable.none` at the end.
    var next: UInt32 = TokenTable.none
    /// Number that tells the tokens of a place apart, one after another.
    var serial: UInt32 = 0
    /// Time since which the token is invalid, in milliseconds since 1970; nil while it is valid.
    var invalidSince: Int64?
    /// Time from which pushes are answered with 410; nil while the token is valid.
    var goneAt: Int64?
    /// Whether a push was lost since the token ended. 410 starts after the first such push.
    var hasLostPush = false
    /// Reason of the 410.
    var reason: Reason = .unregistered
    /// Live Activity of an update token; nil for other tokens.
    var activity: UInt64?
    /// Whether the device was made for this token, because no device had it.
    var isAdopted = false
}

/// A token that may be forgotten meanwhile.
struct TokenMark: Sendable {
    var index: UInt32
    var serial: UInt32
}

/// Tokens that were given out. Tokens are found by a keyed hash of their text.
struct TokenTable: Sendable {
    /// Index that stands for no token.
    static let none = UInt32.max
    /// Invalid tokens that are remembered with all they had. The places of older ones are used again.
    private let mostInvalid: Int

    private var records: [TokenRecord] = []
    private var indices: [DeviceKey: UInt32] = [:]
    /// Invalid tokens, oldest first.
    private var invalid: Deque<UInt32> = []
    /// Places without token.
    private var free: [UInt32] = []
    /// Tokens that were added.
    private var added: UInt32 = 0
    private var forgotten: ForgottenTokens
    private var generations = TokenGenerations()
    private let hasher: IdentityHasher
    private let seed: UInt64

    init(seed: UInt64, mostInvalid: Int = 100_000, mostForgotten: Int = 500_000) {
        self.mostInvalid = mostInvalid
        forgotten = ForgottenTokens(limit: mostForgotten)
        self.seed = seed
        var random = SeededGenerator(seed: seed ^ 0x7071_6E65_6B6F_7473)
        hasher = IdentityHasher(key0: random.next(), key1: random.next())
    }

    /// Tokens that are remembered.
    var count: Int { records.count - free.count }

    /// Places, some of which may have no token.
    var places: Int { records.count }

    /// Finds a token by its hexadecimal text, in either case.
    func find(_ text: UnsafeRawBufferPointer) -> UInt32? { indices[hasher.device(text)] }

    subscript(index: UInt32) -> TokenRecord {
        _read { yield records[Int(index)] }
        _modify { yield &records[Int(index)] }
    }

    /// Adds a token and returns its index.
    mutating func add(_ record: TokenRecord, text: UnsafeRawBufferPointer) -> UInt32 {
        var record = record
        added &+= 1
        record.serial = added
        let index = free.popLast() ?? UInt32(records.count)
        if Int(index) < records.count { records[Int(index)] = record } else { records.append(record) }
        indices[hasher.device(text)] = index
        return index
    }

    /// Adds a new token, derived from the seed and the record. A text that was given out before is not given out again.
    mutating func make(_ record: TokenRecord, bundle: String) -> UInt32 {
        var record = record
        var generation = generations.next(record)
        while true {
            record.bytes =
                TokenName(
                    seed: seed, device: record.device, bundle: bundle, purpose: record.purpose,
                    environment: record.environment, generation: generation
                ).bytes
            let text = Array(Hexadecimal.encode(record.bytes).utf8)
            let index = text.withUnsafeBytes { text in
                find(text) == nil && forgotten(text) == nil ? add(record, text: text) : nil
            }
            if let index {
                // The first token of a device's app needs no memory before its end.
                if generation > 0 || record.purpose == .activity {
                    generations.set(generation &+ 1, record)
                }
                return index
            }
            generation &+= 1
        }
    }

    func text(_ index: UInt32) -> String { Hexadecimal.encode(records[Int(index)].bytes) }

    /// Remembers that a token is invalid. The oldest invalid token is forgotten when there are too many.
    mutating func retire(_ index: UInt32) {
        invalid.append(index)
        let record = records[Int(index)]
        if !record.isAdopted, generations.next(record) == 0 { generations.set(1, record) }
        guard invalid.count > mostInvalid, let oldest = invalid.popFirst() else { return }
        let text = Array(text(oldest).utf8)
        text.withUnsafeBytes { text in
            let key = hasher.device(text)
            indices.removeValue(forKey: key)
            let record = records[Int(oldest)]
            forgotten.insert(key, since: record.invalidSince ?? 0, record.reason)
        }
        // A place without token has no bytes.
        records[Int(oldest)].bytes = []
        records[Int(oldest)].serial = 0
        free.append(oldest)
    }

    /// Reason and time of the end of a token that is remembered by its text alone; nil for other tokens.
    func forgotten(_ text: UnsafeRawBufferPointer) -> (reason: Reason, since: Int64)? {
        forgotten[hasher.device(text)]
    }

    /// Forgets what the tokens of a device that will not come back were made from.
    mutating func forgetGenerations(of device: UInt32) { generations.forget(device) }

    func mark(_ index: UInt32) -> TokenMark {
        TokenMark(index: index, serial: index == Self.none ? 0 : records[Int(index)].serial)
    }

    /// Record of a token; nil when it is forgotten, or there was none.
    func record(_ mark: TokenMark) -> TokenRecord? {
        guard mark.index != Self.none, Int(mark.index) < records.count,
            records[Int(mark.index)].serial == mark.serial, mark.serial > 0
        else { return nil }
        return records[Int(mark.index)]
    }

    /// Hexadecimal text of a token; nil when it is forgotten.
    func text(_ mark: TokenMark) -> String? { record(mark).map { Hexadecimal.encode($0.bytes) } }

    mutating func removeAll() {
        records = []
        indices = [:]
        invalid = []
        free = []
        forgotten.removeAll()
        generations = TokenGenerations()
    }
}

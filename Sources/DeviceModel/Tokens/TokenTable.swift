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
}

/// All tokens that were ever given out. Tokens are found by a keyed hash of their text.
struct TokenTable: Sendable {
    /// Index that stands for no token.
    static let none = UInt32.max

    private var records: [TokenRecord] = []
    private var indices: [DeviceKey: UInt32] = [:]
    private let hasher: IdentityHasher
    private var random: SeededGenerator

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed ^ 0x7071_6E65_6B6F_7473)
        hasher = IdentityHasher(key0: random.next(), key1: random.next())
    }

    var count: Int { records.count }

    /// Finds a token by its hexadecimal text, in either case.
    func find(_ text: UnsafeRawBufferPointer) -> UInt32? { indices[hasher.device(text)] }

    subscript(index: UInt32) -> TokenRecord {
        _read { yield records[Int(index)] }
        _modify { yield &records[Int(index)] }
    }

    /// Adds a token and returns its index.
    mutating func add(_ record: TokenRecord, text: UnsafeRawBufferPointer) -> UInt32 {
        let index = UInt32(records.count)
        records.append(record)
        indices[hasher.device(text)] = index
        return index
    }

    /// Adds a new random token of 32 bytes, or 80 bytes for a Live Activity as seen with APNs.
    mutating func make(_ record: TokenRecord) -> UInt32 {
        var record = record
        let length = record.purpose == .activity || record.purpose == .activityStart ? 80 : 32
        record.bytes = []
        record.bytes.reserveCapacity(length)
        while record.bytes.count < length {
            withUnsafeBytes(of: random.next()) { record.bytes += $0 }
        }
        let text = Hexadecimal.encode(record.bytes)
        return Array(text.utf8).withUnsafeBytes { add(record, text: $0) }
    }

    func text(_ index: UInt32) -> String { Hexadecimal.encode(records[Int(index)].bytes) }

    /// Forgets a token, whose text is then unknown. Its index stays used.
    mutating func forget(_ index: UInt32) {
        let text = Hexadecimal.encode(records[Int(index)].bytes)
        Array(text.utf8).withUnsafeBytes { _ = indices.removeValue(forKey: hasher.device($0)) }
    }

    mutating func removeAll() {
        records = []
        indices = [:]
    }
}

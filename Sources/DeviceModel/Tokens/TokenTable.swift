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

/// Tokens that were given out. Tokens are found by a keyed hash of their text.
struct TokenTable: Sendable {
    /// Index that stands for no token.
    static let none = UInt32.max
    /// Invalid tokens that are remembered. Older ones are unknown tokens again, so that memory stays bounded.
    static let mostInvalid = 100_000

    private var records: [TokenRecord] = []
    private var indices: [DeviceKey: UInt32] = [:]
    /// Invalid tokens, oldest first.
    private var invalid: Deque<UInt32> = []
    private let hasher: IdentityHasher
    private let seed: UInt64

    init(seed: UInt64) {
        self.seed = seed
        var random = SeededGenerator(seed: seed ^ 0x7071_6E65_6B6F_7473)
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

    /// Adds a new token, derived from the seed and the record. A text that was given out before is not given out again.
    /// - Parameter first: generation to begin with, which saves the search beyond tokens that were given out.
    mutating func make(_ record: TokenRecord, bundle: String, from first: UInt32 = 0) -> UInt32 {
        var record = record
        var generation = first
        while true {
            record.bytes =
                TokenName(
                    seed: seed, device: record.device, bundle: bundle, purpose: record.purpose,
                    environment: record.environment, generation: generation
                ).bytes
            let text = Array(Hexadecimal.encode(record.bytes).utf8)
            if let index = text.withUnsafeBytes({ find($0) == nil ? add(record, text: $0) : nil }) {
                return index
            }
            generation &+= 1
        }
    }

    func text(_ index: UInt32) -> String { Hexadecimal.encode(records[Int(index)].bytes) }

    /// Remembers that a token is invalid. The oldest invalid token is forgotten when there are too many.
    mutating func retire(_ index: UInt32) {
        invalid.append(index)
        guard invalid.count > Self.mostInvalid, let oldest = invalid.popFirst() else { return }
        let text = Array(Hexadecimal.encode(records[Int(oldest)].bytes).utf8)
        text.withUnsafeBytes { _ = indices.removeValue(forKey: hasher.device($0)) }
        records[Int(oldest)].bytes = []
    }

    mutating func removeAll() {
        records = []
        indices = [:]
        invalid = []
    }
}

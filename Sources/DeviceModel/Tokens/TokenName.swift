import SluiceModel

/// Facts that a token of the model is derived from. A load generator that knows them needs not ask for the tokens.
public struct TokenName: Sendable {
    public var seed: UInt64
    /// Number of the device.
    public var device: UInt32
    public var bundle: String
    public var purpose: TokenPurpose
    public var environment: PushEnvironment
    /// Tokens with the same other facts that were given out before: 0 for the first.
    public var generation: UInt32

    public init(
        seed: UInt64, device: UInt32, bundle: String, purpose: TokenPurpose,
        environment: PushEnvironment = .production, generation: UInt32 = 0
    ) {
        self.seed = seed
        self.device = device
        self.bundle = bundle
        self.purpose = purpose
        self.environment = environment
        self.generation = generation
    }

    /// Token of 32 bytes; 80 bytes for a Live Activity, as seen with APNs.
    public var bytes: [UInt8] {
        let length = purpose == .activity || purpose == .activityStart ? 80 : 32
        var bytes: [UInt8] = []
        bytes.reserveCapacity(length)
        let name = Array("\(bundle)|\(purpose.rawValue)|\(environment.rawValue)".utf8)
        var word: UInt64 = 0
        while bytes.count < length {
            let hasher = IdentityHasher(
                key0: seed, key1: UInt64(device) << 32 | UInt64(generation) << 8 | word)
            word += 1
            let key = name.withUnsafeBytes { hasher.bytes($0) }
            withUnsafeBytes(of: key.bigEndian) { bytes += $0 }
        }
        return bytes
    }

    /// Token in hexadecimal text.
    public var text: String { Hexadecimal.encode(bytes) }
}

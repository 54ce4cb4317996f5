import DeliveryCore
import SluiceModel
import StreamScheduling

/// The jobs of a round as the decoder returns them: text of a device token and an `apns-id`. They are made
/// before the round is timed. They are read in sequence, as Kafka's records are.
struct CoreJobs: ~Copyable {
    static let apps = 10
    private static let tokenBytes = 64

    let count: Int
    private let tokens: UnsafeMutableRawPointer
    private let identifiers: UnsafeMutablePointer<APNSID>
    private var generator = SeededGenerator(seed: 7)
    private let hasher = IdentityHasher(key0: 1, key1: 2)

    init(count: Int) {
        self.count = count
        tokens = .allocate(byteCount: count * Self.tokenBytes, alignment: 64)
        identifiers = .allocate(capacity: count)
        identifiers.initialize(repeating: APNSID(high: 0, low: 0), count: count)
    }

    deinit {
        tokens.deallocate()
        identifiers.deallocate()
    }

    /// Replaces tokens and identifiers, so that each job is for a new device.
    mutating func renew() {
        let digits: StaticString = "0123456789abcdef"
        for job in 0..<count {
            let token = tokens + job * Self.tokenBytes
            for part in 0..<4 {
                var bits = generator.next()
                for digit in 0..<16 {
                    token.storeBytes(
                        of: digits.utf8Start[Int(bits & 15)], toByteOffset: part * 16 + digit, as: UInt8.self)
                    bits >>= 4
                }
            }
            identifiers[job] = APNSID(high: generator.next(), low: generator.next())
        }
    }

    /// The machine's facts of a job. Hashing the device token's text and the identifier is a part of a push's
    /// cost.
    @inline(__always)
    func facts(_ job: Int, offset: Int64, createdMilliseconds: Int64) -> PushFacts {
        let token = UnsafeRawBufferPointer(start: tokens + job * Self.tokenBytes, count: Self.tokenBytes)
        return PushFacts(
            device: hasher.device(token), notificationKey: hasher.notification(identifiers[job]),
            topic: UInt16(job % Self.apps), partition: UInt16(job & 15), offset: offset,
            createdMilliseconds: createdMilliseconds)
    }
}

/// Decides when records that wait leave the consumer's memory.
///
/// A polled record keeps the whole fetch response in which it came, which has other records too. Responses would fill the
/// memory if a single record of each waited. In each *round*, every shard copies the records that it has held since
/// before the last round, and lets go of their responses. Most records end before, and are never copied.
///
/// A round begins when ``bytesPerRound`` were polled since the last one, or after ``interval``. While a round is under
/// way and as many bytes were polled again, no more records are polled. So the responses in memory have at most three
/// times ``bytesPerRound`` of polled records, and one response more at each end.
///
/// Pure: time is an argument, in nanoseconds of a monotonic clock. Each record costs an addition.
public struct ResponseRounds: Sendable {
    /// Bytes of polled records after which a round begins.
    public static let bytesPerRound = 16 << 20
    /// Nanoseconds after which a round begins.
    public static let interval: UInt64 = 1_000_000_000

    private let shards: Int
    /// Bytes polled since the last round began.
    private var polledBytes = 0
    /// Rounds that are still needed until each polled record has ended or was copied, 0…2.
    private var neededRounds = 0
    /// Shards that haven't ended the round.
    private var awaitedShards = 0
    /// Earliest time of the next round, unless enough was polled before.
    private var nextRound: UInt64 = 0

    public init(shards: Int) { self.shards = shards }

    /// Nothing more may be polled before the round under way has ended.
    public var isBehind: Bool { awaitedShards > 0 && polledBytes >= Self.bytesPerRound }

    /// Notes a polled record of so many bytes.
    public mutating func polled(_ bytes: Int) { polledBytes &+= bytes }

    /// Returns whether a round begins now. The owner then asks all shards.
    public mutating func begins(at now: UInt64) -> Bool {
        if polledBytes > 0, neededRounds < 2 {
            if neededRounds == 0 { nextRound = now &+ Self.interval }
            neededRounds = 2
        }
        guard awaitedShards == 0, neededRounds > 0, polledBytes >= Self.bytesPerRound || now >= nextRound
        else {
            return false
        }
        // Records polled since the last round are copied in the next one.
        neededRounds = polledBytes > 0 ? 1 : neededRounds - 1
        polledBytes = 0
        awaitedShards = shards
        nextRound = now &+ Self.interval
        return true
    }

    /// Notes that a shard has ended the round.
    public mutating func shardEnded() { awaitedShards = max(0, awaitedShards - 1) }
}

/// Decides which pools are suspended, from which of them have connections.
///
/// A pool that has had no connection for a while is suspended as long as another pool has one. Its items must not fill the
/// worker. When all pools are down, none is suspended, because Kafka keeps the backlog.
public struct PoolWatch: Sendable {
    /// Treatment of a pool.
    public enum Change: Equatable, Sendable {
        case suspend
        /// `isConnected` is false when no other pool has a connection either.
        case resume(isConnected: Bool)
    }

    /// Nanoseconds without a connection after which a pool is suspended.
    static let patience: UInt64 = 10_000_000_000
    /// Nanoseconds between two looks.
    static let interval: UInt64 = 500_000_000

    /// Nanoseconds since which a pool has had no connection, by pool; nil while it has one.
    private var downSince: [UInt64?]
    private var nextLook: UInt64 = 0

    public init(pools: Int) { downSince = Array(repeating: nil, count: pools) }

    /// Whether it is time for a look. A single pool is never suspended.
    public func isDue(at now: UInt64) -> Bool { downSince.count > 1 && now >= nextLook }

    /// Looks at all pools, and returns those that change.
    public mutating func look(
        at now: UInt64, hasConnection: (Int) -> Bool, isSuspended: (Int) -> Bool
    ) -> [(pool: Int, change: Change)] {
        nextLook = now &+ Self.interval
        for pool in downSince.indices { downSince[pool] = hasConnection(pool) ? nil : downSince[pool] ?? now }
        let anyIsConnected = downSince.contains { $0 == nil }
        return downSince.indices.compactMap { pool in
            let isDown = downSince[pool].map { now >= $0 &+ Self.patience } ?? false
            guard (anyIsConnected && isDown) != isSuspended(pool) else { return nil }
            return (pool, isSuspended(pool) ? .resume(isConnected: !isDown) : .suspend)
        }
    }
}

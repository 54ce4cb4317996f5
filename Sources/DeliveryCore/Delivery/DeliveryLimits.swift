import StreamScheduling

/// Limits and policies of a ``DeliveryMachine``, fixed for its life.
public struct DeliveryLimits: Sendable {
    /// Most items at once, in any state; slots are numbered `0..<capacity`.
    public var capacity: Int
    /// Most items of one device at once, 1 to 1,024: a device with thousands of pushes must not use the memory of
    /// others. Expired items that wait for the end of an attempt of their identity don't count. They are at most as
    /// many as are in flight.
    public var pendingPerDevice: Int
    /// Most items of one device in flight at once, at least 1.
    public var inFlightPerDevice: Int
    /// Most devices whose presence is remembered; the device heard of longest ago is forgotten first.
    public var knownDevices: Int
    /// Longest life of an item, in milliseconds. APNs itself keeps no push for more than 30 days.
    public var maximumExpirationMilliseconds: Int64
    /// Life of a push without an expiration, from the time that it may be sent, in milliseconds. A push that waits
    /// for its device (hold, confirm) lives for ``maximumExpirationMilliseconds`` instead.
    public var defaultLifeMilliseconds: Int64
    /// Back-off between failed attempts.
    public var retry: RetryBackoff
    /// Backoff that determines how long an unconfirmed item waits for news of its device before it is sent again.
    public var confirm: ExponentialBackoff
    /// Items sent per second to devices that are back. When an outage ends, these items must not flood the connections.
    public var returnsPerSecond: Int
    /// Items sent at once to devices that are back, 1 to 1,000,000.
    public var returnBurst: Int
    /// Most items that wait in memory for their return. A durable store keeps the others until their turn.
    public var returning: Int
    /// Wait above which an item is handed to the store, in milliseconds.
    public var storeAfterMilliseconds: Int64
    /// Most pushes of a tenant that the store has with their topic. Beyond it nothing of the tenant is parked.
    public var parkedPushes = 1_000_000
    /// Connections that may end with an isolated push alone before the push is undeliverable, 1 to 5.
    public var isolatedAttempts = 3
    /// True when pushes of priority 5 and 1 are parked so that records behind them are read. Only with a durable store.
    public var readsAhead = false
    /// Pushes in memory that the tenants share.
    public var room = 1 << 30
    /// Pushes in flight without an answer that must not take more of ``room``, because nothing can be done about them until
    /// their requests time out. `Int.max`: a tenant has no neighbours, and may have any number in flight.
    public var unanswered = Int.max
    /// True when the worker has several tenants, here or on other shards.
    var hasNeighbours: Bool { unanswered < .max }
    /// Most pushes in memory that have returned from the store.
    public var restoredPushes = 1 << 30
    /// True when the store answers once an item is durable; the item's offset counts as complete then. Otherwise the
    /// store only holds items to hand out again, and the offset waits for the outcome.
    public var storeIsDurable: Bool
    /// Time in milliseconds, for a durable store: a device's items are evicted when none of them is due within it.
    /// The store must bring items back within that time.
    public var residentMilliseconds: Int64
    /// Milliseconds of ``residentMilliseconds`` unless something else is asked for.
    public static let usualResidence: Int64 = 10_000

    public init(
        capacity: Int, pendingPerDevice: Int = 128, inFlightPerDevice: Int = 16, knownDevices: Int = 65_536,
        maximumExpirationMilliseconds: Int64 = 30 * 24 * 3_600_000,
        defaultLifeMilliseconds: Int64 = 24 * 3_600_000, retry: RetryBackoff = RetryBackoff(),
        confirm: ExponentialBackoff = .confirm, returnsPerSecond: Int = 1000, returnBurst: Int = 100,
        storeAfterMilliseconds: Int64 = 30_000, storeIsDurable: Bool = false,
        residentMilliseconds: Int64 = usualResidence, returning: Int = 2048
    ) {
        self.capacity = max(1, min(capacity, 1 << 30))
        self.pendingPerDevice = max(1, min(pendingPerDevice, 1024))
        self.inFlightPerDevice = max(1, min(inFlightPerDevice, Int(UInt16.max)))
        self.knownDevices = max(1, min(knownDevices, 1 << 30))
        self.maximumExpirationMilliseconds = max(1, maximumExpirationMilliseconds)
        self.defaultLifeMilliseconds = max(1, defaultLifeMilliseconds)
        self.retry = retry
        self.confirm = confirm
        self.returnsPerSecond = max(1, min(returnsPerSecond, 1_000_000_000))
        self.returnBurst = max(1, min(returnBurst, 1_000_000))
        self.storeAfterMilliseconds = max(0, storeAfterMilliseconds)
        self.storeIsDurable = storeIsDurable
        self.residentMilliseconds = max(0, residentMilliseconds)
        self.returning = max(1, returning)
    }
}

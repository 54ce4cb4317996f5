import StreamScheduling

/// Limits and policies of a ``DeliveryMachine``, fixed for its life.
public struct DeliveryLimits: Sendable {
    /// Items at once, in whatever state; slots are numbered `0..<capacity`.
    public var capacity: Int
    /// Items of one device at once, 1 to 1,024: a device with thousands of pushes must not take the memory of others.
    /// Expired ones that wait for the end of an attempt of their identity come on top, no more than are in flight.
    public var pendingPerDevice: Int
    /// Items of one device in flight at once, at least 1.
    public var inFlightPerDevice: Int
    /// Devices whose presence is remembered; the one heard of longest ago is forgotten first.
    public var knownDevices: Int
    /// No item lives longer, in milliseconds: APNs itself keeps none for more than 30 days.
    public var maximumExpirationMilliseconds: Int64
    /// How long a push without an expiration lives from the moment that it may be sent, in milliseconds. A push that waits
    /// for its device (hold, confirm) lives for ``maximumExpirationMilliseconds`` instead.
    public var defaultLifeMilliseconds: Int64
    public var retry: RetryBackoff
    /// How long an unconfirmed item waits for news of its device before it is sent again without.
    public var confirm: ExponentialBackoff
    /// Items that go out to devices that are back, per second, and how many at once: when an outage ends, they must not
    /// flood the connections.
    public var returnsPerSecond: Int
    public var returnBurst: Int
    /// Items that wait in memory for that, where the store is durable and brings the others when it is their turn.
    public var returning: Int
    /// What has to wait longer goes to the store, in milliseconds.
    public var storeAfterMilliseconds: Int64
    /// The store answers when an item is durable, and its offset counts as complete then. Otherwise the store only
    /// holds what is to be handed out again, and the offset waits for the outcome.
    public var storeIsDurable: Bool
    /// An item of a durable store leaves memory when nothing of its device is due for so long, in milliseconds. The store
    /// must bring items back within that time.
    public var residentMilliseconds: Int64

    public init(
        capacity: Int, pendingPerDevice: Int = 128, inFlightPerDevice: Int = 16, knownDevices: Int = 65_536,
        maximumExpirationMilliseconds: Int64 = 30 * 24 * 3_600_000,
        defaultLifeMilliseconds: Int64 = 24 * 3_600_000, retry: RetryBackoff = RetryBackoff(),
        confirm: ExponentialBackoff = .confirm, returnsPerSecond: Int = 1000, returnBurst: Int = 100,
        storeAfterMilliseconds: Int64 = 30_000, storeIsDurable: Bool = false,
        residentMilliseconds: Int64 = 10_000, returning: Int = 2048
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

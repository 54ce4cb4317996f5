import SluiceModel

/// A channel of an app in an environment.
struct ChannelKey: Hashable, Sendable {
    /// Index of the app.
    var app: UInt16
    var environment: PushEnvironment
    /// Identifier in base64.
    var channel: String
}

/// A deleted channel. The app's text is the key, because indices of apps change at a reset.
struct ClosedChannel: Hashable, Sendable {
    /// Bundle identifier of the app.
    var app: String
    var environment: PushEnvironment
    /// Identifier in base64.
    var channel: String
}

/// Live Activities by the channel that they listen to, and what APNs stores for channels.
struct ChannelIndex: Sendable {
    struct Subscriber: Sendable, Equatable {
        var device: UInt32
        var activity: UInt64
    }

    /// Newest broadcast of a channel, for devices that return and activities that start.
    struct StoredBroadcast: Sendable {
        /// Number of the broadcast in the journal.
        var number: UInt64
        var priority: Priority
        /// First millisecond at which the broadcast is gone.
        var expires: Int64
        var message: ActivityMessage
        /// Time at which the channel is looked at for an expired broadcast, in milliseconds since 1970.
        var expiryAt: Int64 = 0
    }

    private struct Subscribers: Sendable {
        var list: [Subscriber] = []
        /// Positions in the list by activity.
        var positions: [UInt64: Int] = [:]
    }

    private var subscribers: [ChannelKey: Subscribers] = [:]
    private var stored: [ChannelKey: StoredBroadcast] = [:]
    private var closed: Set<ClosedChannel> = []
    /// Deleted channels that are remembered. Identifiers are never given out again.
    private var closedOrder: [ClosedChannel] = []
    /// Place of the oldest closed channel once the memory is full.
    private var oldestClosed = 0

    /// Longest storage of a broadcast: eight hours, in milliseconds.
    static let longest: Int64 = 8 * 3_600_000
    /// Channels with a stored broadcast, and deleted channels, that are remembered.
    static let mostRemembered = 10_000
    /// Longest identifier in bytes. No length is documented.
    static let longestIdentifier = 128

    /// Subscriptions of all channels.
    var count: Int { subscribers.values.reduce(0) { $0 + $1.list.count } }

    // MARK: - Subscribers

    func listeners(_ key: ChannelKey) -> [Subscriber] { subscribers[key]?.list ?? [] }

    mutating func subscribe(_ subscriber: Subscriber, to key: ChannelKey) {
        var found = subscribers.removeValue(forKey: key) ?? Subscribers()
        if found.positions[subscriber.activity] == nil {
            found.positions[subscriber.activity] = found.list.count
            found.list.append(subscriber)
        }
        subscribers[key] = found
    }

    mutating func unsubscribe(_ activity: UInt64, from key: ChannelKey) {
        guard var found = subscribers.removeValue(forKey: key) else { return }
        if let index = found.positions.removeValue(forKey: activity) {
            let last = found.list.removeLast()
            if last.activity != activity {
                found.list[index] = last
                found.positions[last.activity] = index
            }
        }
        if !found.list.isEmpty { subscribers[key] = found }
    }

    // MARK: - Storage

    func stored(_ key: ChannelKey, now: Int64) -> StoredBroadcast? {
        stored[key].flatMap { $0.expires > now ? $0 : nil }
    }

    /// Stores a broadcast in place of the former one; nil stores nothing.
    /// - Returns: the former broadcast, the one that leaves because there are too many, and the time at which the channel
    ///   must be looked at; nil when that is scheduled.
    mutating func store(
        _ broadcast: StoredBroadcast?, for key: ChannelKey
    ) -> (former: StoredBroadcast?, surplus: StoredBroadcast?, expiryAt: Int64?) {
        let former = stored.removeValue(forKey: key)
        guard var broadcast else { return (former, nil, nil) }
        let isScheduled = former.map { $0.expiryAt <= broadcast.expires } ?? false
        broadcast.expiryAt = isScheduled ? former!.expiryAt : broadcast.expires
        stored[key] = broadcast
        var surplus: StoredBroadcast?
        if stored.count > Self.mostRemembered,
            let oldest = stored.min(by: { $0.value.number < $1.value.number })
        {
            surplus = stored.removeValue(forKey: oldest.key)
        }
        return (former, surplus, isScheduled ? nil : broadcast.expires)
    }

    /// Time at which a channel is looked at; nil: the channel stores nothing.
    func expiryAt(_ key: ChannelKey) -> Int64? { stored[key]?.expiryAt }

    /// Takes a broadcast whose time is over, or returns the time of the next look at the channel.
    mutating func expire(_ key: ChannelKey, now: Int64) -> (expired: StoredBroadcast?, next: Int64?) {
        guard let found = stored[key], found.expiryAt == now else { return (nil, nil) }
        if found.expires <= now { return (stored.removeValue(forKey: key), nil) }
        stored[key]!.expiryAt = found.expires
        return (nil, found.expires)
    }

    // MARK: - Existence

    /// Whether a channel may exist: the identifier is well formed, and the channel was not deleted.
    func isOpen(_ channel: ClosedChannel) -> Bool {
        let text = channel.channel.utf8
        guard (1...Self.longestIdentifier).contains(text.count), text.count % 4 == 0,
            Base64.decode(text) != nil
        else {
            return false
        }
        return !closed.contains(channel)
    }

    /// Remembers that a channel was deleted. Its stored broadcast may still be delivered.
    mutating func close(_ key: ClosedChannel) {
        guard closed.insert(key).inserted else { return }
        if closedOrder.count < Self.mostRemembered { return closedOrder.append(key) }
        closed.remove(closedOrder[oldestClosed])
        closedOrder[oldestClosed] = key
        oldestClosed = (oldestClosed + 1) % closedOrder.count
    }

    /// Forgets all subscriptions and broadcasts. Deleted channels stay deleted.
    mutating func removeAll() {
        subscribers = [:]
        stored = [:]
    }
}

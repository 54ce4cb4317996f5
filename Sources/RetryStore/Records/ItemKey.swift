import SluiceModel

/// What a stored push is known by, within its partition: nothing ever has the key of another record's push.
public struct ItemKey: Hashable, BitwiseCopyable, Sendable {
    /// Of the push's current device token, by the store's ``RetryStore/hasher``.
    public var device: DeviceKey
    /// Of the push's Kafka record.
    public var offset: Int64

    public init(device: DeviceKey, offset: Int64) {
        self.device = device
        self.offset = offset
    }
}

/// What is known of a device: whether it is online, since when that is known, and until when it is to be believed.
public struct DeviceState: Equatable, BitwiseCopyable, Sendable {
    /// 0 online, 1 offline, 2 presumed offline.
    public var presence: UInt8
    /// The device is online, and items that were held for it are on their way out. Whoever takes the partition over loads
    /// them, because no further report brings them.
    public var isAwaited: Bool
    /// Of what moment the device's last report told, in milliseconds since the epoch; 0: there was none, it is presumed.
    public var learnedMilliseconds: Int64
    /// The offset of that report's record, which orders reports of one moment; -1 when there was none or it isn't known.
    public var learnedOffset: Int64
    /// From when on it counts no more, in milliseconds since the epoch. The store keeps the state until it is removed: a
    /// load can bring one that has expired.
    public var expiryMilliseconds: Int64

    public init(
        presence: UInt8, isAwaited: Bool = false, learnedMilliseconds: Int64, learnedOffset: Int64 = -1,
        expiryMilliseconds: Int64
    ) {
        self.presence = presence
        self.isAwaited = isAwaited
        self.learnedMilliseconds = learnedMilliseconds
        self.learnedOffset = learnedOffset
        self.expiryMilliseconds = expiryMilliseconds
    }
}

/// When a stored push has to be looked at next.
public struct DueEntry: Hashable, BitwiseCopyable, Sendable {
    /// In milliseconds since the epoch; a time before the epoch counts as the epoch.
    public var due: Int64
    public var key: ItemKey

    public init(due: Int64, key: ItemKey) {
        self.due = due
        self.key = key
    }
}

/// A stored push that waits with its topic.
public struct ParkedEntry: Hashable, BitwiseCopyable, Sendable {
    public var entry: DueEntry
    /// ``StoredPush/topicHash(_:)`` of its topic.
    public var topic: UInt32

    public init(entry: DueEntry, topic: UInt32) {
        self.entry = entry
        self.topic = topic
    }
}

/// A part of what waits with its topic, in the order of `due`, device and offset.
public struct ParkedScan: Sendable {
    public var entries: [ParkedEntry]
    /// Where to go on; what the scan began with if there was nothing at all.
    public var cursor: DueCursor?
    /// There is no more in the partition.
    public var isEnd: Bool
}

/// The last entry that a scan has seen: the next one goes on behind it and doesn't see what was removed before.
public struct DueCursor: Hashable, BitwiseCopyable, Sendable {
    public var entry: DueEntry

    public init(_ entry: DueEntry) { self.entry = entry }
}

/// A part of the devices whose state has expired.
public struct ExpiredScan: Sendable {
    public var devices: [DeviceKey]
    /// The last device that was seen, where to go on; what the scan began with if there was none.
    public var last: DeviceKey?
    /// There is no more in the partition.
    public var isEnd: Bool
}

/// A part of what is due, in the order of `due`, device and offset.
public struct DueScan: Sendable {
    public var entries: [DueEntry]
    /// Where to go on; what the scan began with if there was nothing.
    public var cursor: DueCursor?
    /// There is no more until the end of the scan's window.
    public var isEnd: Bool
}

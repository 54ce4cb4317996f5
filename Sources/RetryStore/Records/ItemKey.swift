import SluiceModel

/// Identifies a stored push within its partition: no other record's push ever has the same key.
public struct ItemKey: Hashable, BitwiseCopyable, Sendable {
    /// Hash of the push's current device token, by the store's ``RetryStore/hasher``.
    public var device: DeviceKey
    /// Offset of the push's Kafka record.
    public var offset: Int64

    public init(device: DeviceKey, offset: Int64) {
        self.device = device
        self.offset = offset
    }
}

/// State of a device: its presence, the time of the last report, and when the state expires.
public struct DeviceState: Equatable, BitwiseCopyable, Sendable {
    /// Presence: 0 online, 1 offline, 2 presumed offline.
    public var presence: UInt8
    /// True when the device is online and its held items are on their way out. The partition's next owner loads the
    /// items, because no further report triggers them.
    public var isAwaited: Bool
    /// Moment that the device's last report describes, in milliseconds since the epoch; 0: without a report, presumed.
    public var learnedMilliseconds: Int64
    /// Offset of that report's record, which orders reports of the same moment; -1: without a report, or unknown.
    public var learnedOffset: Int64
    /// Moment from which on the state doesn't count, in milliseconds since the epoch. The store keeps the state until
    /// it is removed: a load can return an expired state.
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

/// Time at which a stored push has to be looked at next.
public struct DueEntry: Hashable, BitwiseCopyable, Sendable {
    /// Due time in milliseconds since the epoch; a time before the epoch counts as the epoch.
    public var due: Int64
    public var key: ItemKey

    public init(due: Int64, key: ItemKey) {
        self.due = due
        self.key = key
    }
}

/// A stored push that waits with its topic.
public struct SuspendedEntry: Hashable, BitwiseCopyable, Sendable {
    /// Due time and key of the push.
    public var entry: DueEntry
    /// ``StoredPush/topicHash(_:)`` of the push's topic.
    public var topic: UInt32

    public init(entry: DueEntry, topic: UInt32) {
        self.entry = entry
        self.topic = topic
    }
}

/// A part of the suspended pushes, in the order of `due`, device and offset.
public struct SuspendedScan: Sendable {
    /// Entries in order; empty when none was found.
    public var entries: [SuspendedEntry]
    /// Cursor for the next scan; the scan's own cursor when it read no entry.
    public var cursor: DueCursor?
    /// True when the partition has no further entry.
    public var isEnd: Bool
}

/// The last entry that a scan has seen. The next scan begins behind it, so it doesn't step over earlier removed
/// entries.
public struct DueCursor: Hashable, BitwiseCopyable, Sendable {
    /// Entry that was seen last.
    public var entry: DueEntry

    public init(_ entry: DueEntry) { self.entry = entry }
}

/// A part of the devices whose state has expired.
public struct ExpiredScan: Sendable {
    /// Devices whose state has expired, in the order of their keys.
    public var devices: [DeviceKey]
    /// The last device that the scan read, for the next scan; the scan's own `after` when it read none.
    public var last: DeviceKey?
    /// True when the partition has no further device.
    public var isEnd: Bool
    /// States that can't be read. They are being removed.
    public var unreadable = 0
}

/// A part of the due entries, in the order of `due`, device and offset.
public struct DueScan: Sendable {
    /// Entries in order; empty when none was found.
    public var entries: [DueEntry]
    /// Cursor for the next scan; the scan's own cursor when it found no entry.
    public var cursor: DueCursor?
    /// True when the scan's window has no further entry.
    public var isEnd: Bool
}

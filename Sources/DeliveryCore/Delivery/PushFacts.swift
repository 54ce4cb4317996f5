import SluiceModel

/// Facts of a push that the delivery machine needs. The owner keeps the rest of the job, by slot.
public struct PushFacts: Equatable, Sendable {
    public var device: DeviceKey
    /// Hash of the collapse identifier; 0 when the push has none, and its `apns-id` is its identity.
    public var collapseKey: UInt64
    /// Hash of the `apns-id`.
    public var notificationKey: UInt64
    /// Owner's number of the `apns-topic`; a topic belongs to one pool.
    public var topic: UInt16
    /// Owner's number of the credential's pool.
    public var pool: UInt16
    /// Owner's number of the Kafka partition.
    public var partition: UInt16
    /// Offset of the job's record, as in ``RecordPlace/offset``.
    public var offset: Int64
    /// Time from which on nothing is sent, in milliseconds since the epoch; `.max` when the job has none.
    public var expirationMilliseconds: Int64
    /// True for `apns-expiration: 0`: APNs makes one attempt and never stores the push.
    public var isOnce: Bool
    /// Earliest time of sending, in milliseconds since the epoch; 0 for at once.
    public var deliverAtMilliseconds: Int64
    /// Time of the job's creation, in milliseconds since the epoch.
    public var createdMilliseconds: Int64
    /// Time at which the app registered the device token, in milliseconds since the epoch; `.min` when unknown.
    public var registeredAtMilliseconds: Int64
    /// Time that a receipt may take under ``DeliveryMode/confirm``, in seconds.
    public var receiptTimeoutSeconds: UInt32
    /// Time that the push waits for a successor, in milliseconds. It has no effect without a collapse identifier.
    public var coalesceWindowMilliseconds: UInt32
    /// True for a broadcast: it is sent when all earlier broadcasts of its channel have ended. The store never has it.
    public var isOrdered: Bool
    /// True when no later push of its identity has a meaning, such as the end of a Live Activity. It isn't superseded by
    /// a push for which this is false.
    public var isFinal: Bool
    public var priority: Priority
    public var delivery: DeliveryMode
    public var duplicates: DuplicatePolicy

    public init(
        device: DeviceKey, collapseKey: UInt64 = 0, notificationKey: UInt64, topic: UInt16, pool: UInt16 = 0,
        partition: UInt16, offset: Int64, expirationMilliseconds: Int64 = .max, isOnce: Bool = false,
        deliverAtMilliseconds: Int64 = 0, createdMilliseconds: Int64, registeredAtMilliseconds: Int64 = .min,
        receiptTimeoutSeconds: UInt32 = JobLimits.defaultReceiptTimeout,
        coalesceWindowMilliseconds: UInt32 = 0, isOrdered: Bool = false, isFinal: Bool = false,
        priority: Priority = .immediate, delivery: DeliveryMode = .accept,
        duplicates: DuplicatePolicy = .allow
    ) {
        self.device = device
        self.collapseKey = collapseKey
        self.notificationKey = notificationKey
        self.topic = topic
        self.pool = pool
        self.partition = partition
        self.offset = offset
        self.expirationMilliseconds = expirationMilliseconds
        self.isOnce = isOnce
        self.deliverAtMilliseconds = deliverAtMilliseconds
        self.createdMilliseconds = createdMilliseconds
        self.registeredAtMilliseconds = registeredAtMilliseconds
        self.receiptTimeoutSeconds = receiptTimeoutSeconds
        self.coalesceWindowMilliseconds = coalesceWindowMilliseconds
        self.isOrdered = isOrdered
        self.isFinal = isFinal
        self.priority = priority
        self.delivery = delivery
        self.duplicates = duplicates
    }
}

/// Progress of an item so far. A store keeps it beside the job, and it moves between shards.
public struct ItemProgress: Equatable, BitwiseCopyable, Sendable {
    /// Attempts that APNs answered or may have seen.
    public var attempts: UInt16 = 0
    /// Failures since APNs last accepted the item that count towards the maximum of attempts; part of ``attempts``.
    public var failures: UInt16 = 0
    /// Time of the first attempt, in milliseconds since the epoch; 0 when never sent.
    public var firstSentMilliseconds: Int64 = 0
    /// Expiration in milliseconds since the epoch, as capped when the job arrived.
    public var expiryMilliseconds: Int64 = .max
    /// True when APNs has accepted the item, and its receipt is awaited.
    public var isAccepted = false
    /// True when the offset counts as complete: the item is durable in the store.
    public var isOffsetDone = false
    /// True when the store has the item, or was asked to keep it.
    public var isStored = false
    /// Version of the store's last request for this item; it grows over all items of a machine.
    public var storeVersion: UInt64 = 0
    /// Kind of the wait, when the item is restored from or handed to the store.
    public var wait = Wait.none
    /// End of that wait, in milliseconds since the epoch; 0 when no clock ends it.
    public var wakeMilliseconds: Int64 = 0
    /// Time at which the store has to bring the item back, in milliseconds since the epoch. It is the end of the
    /// item's wait or life.
    public var dueMilliseconds: Int64 = .max
    /// Earliest time of the next attempt, on the monotonic clock. Only for another shard of this process, not for a
    /// store.
    public var notBeforeNanoseconds: UInt64 = 0

    public init() {}

    /// Kind of a wait.
    public typealias Wait = StoredPush.Wait
}

/// Position of a cancel or device event in Kafka. The event has no effect on later records there, because it may be
/// read again after a restart.
public struct RecordOrigin: Equatable, BitwiseCopyable, Sendable {
    /// Owner's number of the Kafka partition.
    public var partition: UInt16
    /// Offset of the event's record, as in ``RecordPlace/offset``.
    public var offset: Int64

    public init(partition: UInt16, offset: Int64) {
        self.partition = partition
        self.offset = offset
    }
}

/// State of an item for its owner, until the owner releases the slot.
public struct ItemInfo: Equatable, Sendable {
    public var state: ItemState
    public var progress: ItemProgress
    /// Owner's number of the Kafka partition.
    public var partition: UInt16
    /// Offset of the job's record, as in ``RecordPlace/offset``.
    public var offset: Int64
    /// Owner's number of the `apns-topic`.
    public var topic: UInt16
}

/// A push that a newer one has replaced in its slot.
public struct ReplacedPush: Equatable, Sendable {
    /// Progress of the replaced push.
    public var progress: ItemProgress
    /// Owner's number of the replaced push's Kafka partition.
    public var partition: UInt16
    /// Offset of the replaced push's record, as in ``RecordPlace/offset``.
    public var offset: Int64
}

/// Result of handing in a push.
public enum Admission: Equatable, Sendable {
    /// The push has this slot. The owner keeps the job there.
    case placed(UInt32)
    /// The push replaced an older push of its identity, whose job the owner still has under the slot. The older push
    /// ended as `superseded`, and the new job belongs in the slot. An action follows that ends the new push when it
    /// has expired.
    case replaced(UInt32, ReplacedPush)
    /// The slot holds a newer push of its identity, as when Kafka repeats records after a restart. The handed-in push
    /// ended as `superseded` by that push, and isn't kept.
    case obsolete(by: UInt32)
    /// The slot holds the same record, restored from the store. When the record is durable there, its offset is
    /// complete.
    case repeated(UInt32, isDurable: Bool)
    /// The push ended as `undeliverable` (``OutcomeCause/deviceLimit``), because its device has as many pending
    /// pushes as it may.
    case deviceFull
    /// The push ended as `expired`, and no older push of its identity was here.
    case expired
    /// There is no slot for the push; nothing has changed.
    case full
}

/// An answer other than 200.
public struct AttemptAnswer: Equatable, Sendable {
    /// Class of the answer, which decides what follows.
    public var `class`: ReasonClass
    public var reason: Reason
    /// With 410: time since which APNs has known that the token is invalid, in milliseconds since the epoch; nil
    /// otherwise.
    public var invalidSinceMilliseconds: Int64?
    /// Wait that the answer asks for, in milliseconds; 0 when it has none.
    public var retryAfterMilliseconds: Int64
    /// True when the connection can't serve the item, and there is no other yet: even a first retry waits.
    public var mustWait: Bool

    public init(
        class: ReasonClass, reason: Reason, invalidSinceMilliseconds: Int64? = nil,
        retryAfterMilliseconds: Int64 = 0, mustWait: Bool = false
    ) {
        self.class = `class`
        self.reason = reason
        self.invalidSinceMilliseconds = invalidSinceMilliseconds
        self.retryAfterMilliseconds = retryAfterMilliseconds
        self.mustWait = mustWait
    }
}

/// Items that a cancel names.
public enum CancelTarget: Equatable, Sendable {
    /// A collapse identifier, under one topic or under all.
    case collapseKey(UInt64, topic: UInt16?)
    /// An `apns-id`.
    case notificationKey(UInt64)
}

/// Result of a cancel; it found nothing when both counts are 0.
public struct CancelResult: Equatable, Sendable {
    /// Items that were withdrawn.
    public var cancelled = 0
    /// Items in flight: a request to APNs can't be called back. If their attempt fails, it was their last.
    public var tooLate = 0

    public init(cancelled: Int = 0, tooLate: Int = 0) {
        self.cancelled = cancelled
        self.tooLate = tooLate
    }
}

import SluiceModel

/// What the delivery machine knows of a push. Everything else of the job stays with the owner, by slot.
public struct PushFacts: Equatable, Sendable {
    public var device: DeviceKey
    /// Of the collapse identifier; 0 where the push has none, and its identity is its `apns-id` then.
    public var collapseKey: UInt64
    /// Of the `apns-id`.
    public var notificationKey: UInt64
    /// The owner's number of the `apns-topic`; it belongs to one lane.
    public var topic: UInt16
    /// The owner's number of the credential's pool.
    public var lane: UInt16
    /// The owner's number of the Kafka partition.
    public var partition: UInt16
    public var offset: Int64
    /// Nothing is sent from this moment on, in milliseconds since the epoch; `.max` where the job gives none.
    public var expirationMilliseconds: Int64
    /// `apns-expiration: 0`: APNs makes one attempt and never stores it.
    public var isOnce: Bool
    /// Not before this moment, in milliseconds since the epoch; 0 = at once.
    public var deliverAtMilliseconds: Int64
    public var createdMilliseconds: Int64
    /// When the app registered the device token; `.min` where unknown.
    public var registeredAtMilliseconds: Int64
    /// How long a receipt may take under ``DeliveryMode/confirm``.
    public var receiptTimeoutSeconds: UInt32
    /// How long it waits for a successor before it is sent. Of no effect without a collapse identifier.
    public var coalesceWindowMilliseconds: UInt32
    public var priority: Priority
    public var delivery: DeliveryMode
    public var duplicates: DuplicatePolicy

    public init(
        device: DeviceKey, collapseKey: UInt64 = 0, notificationKey: UInt64, topic: UInt16, lane: UInt16 = 0,
        partition: UInt16, offset: Int64, expirationMilliseconds: Int64 = .max, isOnce: Bool = false,
        deliverAtMilliseconds: Int64 = 0, createdMilliseconds: Int64, registeredAtMilliseconds: Int64 = .min,
        receiptTimeoutSeconds: UInt32 = JobLimits.defaultReceiptTimeout,
        coalesceWindowMilliseconds: UInt32 = 0,
        priority: Priority = .immediate, delivery: DeliveryMode = .accept,
        duplicates: DuplicatePolicy = .allow
    ) {
        self.device = device
        self.collapseKey = collapseKey
        self.notificationKey = notificationKey
        self.topic = topic
        self.lane = lane
        self.partition = partition
        self.offset = offset
        self.expirationMilliseconds = expirationMilliseconds
        self.isOnce = isOnce
        self.deliverAtMilliseconds = deliverAtMilliseconds
        self.createdMilliseconds = createdMilliseconds
        self.registeredAtMilliseconds = registeredAtMilliseconds
        self.receiptTimeoutSeconds = receiptTimeoutSeconds
        self.coalesceWindowMilliseconds = coalesceWindowMilliseconds
        self.priority = priority
        self.delivery = delivery
        self.duplicates = duplicates
    }
}

/// What has become of an item so far: what a store keeps beside the job, and what travels between shards.
public struct ItemProgress: Equatable, BitwiseCopyable, Sendable {
    /// Attempts that APNs answered or may have seen.
    public var attempts: UInt16 = 0
    /// Of those, the failures since it was last accepted that count towards the maximum of attempts.
    public var failures: UInt16 = 0
    /// Milliseconds since the epoch; 0 = never sent.
    public var firstSentMilliseconds: Int64 = 0
    /// When the expiration is, as it was capped when the job came in.
    public var expiryMilliseconds: Int64 = .max
    /// APNs has accepted it, and its receipt is awaited.
    public var isAccepted = false
    /// The offset counts as complete: the item is durable in the store.
    public var isOffsetDone = false
    /// The store has it, or was asked to take it.
    public var isStored = false
    /// Of the last time that the store was asked; grows over all items of a machine.
    public var storeVersion: UInt64 = 0
    /// How it waits, when it comes from or goes to the store.
    public var wait = Wait.none
    /// When that wait ends, in milliseconds since the epoch; 0: by no clock.
    public var wakeMilliseconds: Int64 = 0
    /// When the store has to bring it back, in milliseconds since the epoch: at the end of its wait, or when it expires.
    public var dueMilliseconds: Int64 = .max
    /// Not before this moment of the monotonic clock: for another shard of this process, of no meaning in a store.
    public var notBeforeNanoseconds: UInt64 = 0

    public init() {}

    public typealias Wait = StoredPush.Wait
}

/// Where a cancel or device event stands in Kafka. It has no effect on what came after it there, as it may be read
/// once more after a restart.
public struct RecordOrigin: Equatable, BitwiseCopyable, Sendable {
    /// The owner's number of the Kafka partition.
    public var partition: UInt16
    public var offset: Int64

    public init(partition: UInt16, offset: Int64) {
        self.partition = partition
        self.offset = offset
    }
}

/// What the owner may want to know of an item, until it releases the slot.
public struct ItemInfo: Equatable, Sendable {
    public var state: ItemState
    public var progress: ItemProgress
    public var partition: UInt16
    public var offset: Int64
    public var topic: UInt16
}

/// A push that a newer one has replaced in its slot.
public struct ReplacedPush: Equatable, Sendable {
    public var progress: ItemProgress
    public var partition: UInt16
    public var offset: Int64
}

/// What became of a push that was handed in.
public enum Admission: Equatable, Sendable {
    /// It has this slot. The owner keeps the job there.
    case placed(UInt32)
    /// It took the place of an older push of its identity, whose job the owner still has under the slot: that one
    /// ended as `superseded`, and the new job goes there. An action follows that ends the new one when it has expired.
    case replaced(UInt32, ReplacedPush)
    /// The slot holds a newer push of its identity, as happens when Kafka repeats records after a restart: the push
    /// ended as `superseded` by the slot's, and isn't kept.
    case obsolete(by: UInt32)
    /// The slot holds this very record, restored from the store. When it is durable there, its offset is complete.
    case repeated(UInt32, isDurable: Bool)
    /// As many pushes are pending for its device as may be: it ended as `undeliverable` (``OutcomeCause/deviceLimit``).
    case deviceFull
    /// It ended as `expired`, and nothing older of its identity was here.
    case expired
    /// There is no slot for it; nothing has changed.
    case full
}

/// An answer other than 200.
public struct AttemptAnswer: Equatable, Sendable {
    public var `class`: ReasonClass
    public var reason: Reason
    /// With 410: since when APNs has known that the token is invalid, in milliseconds since the epoch.
    public var invalidSinceMilliseconds: Int64?
    /// 0 where the answer has none.
    public var retryAfterMilliseconds: Int64
    /// The connection is no good for the item, and there is no other yet: even a first repetition waits.
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

/// What a cancel names.
public enum CancelTarget: Equatable, Sendable {
    /// A collapse identifier, under one topic or under all.
    case collapseKey(UInt64, topic: UInt16?)
    /// An `apns-id`.
    case notificationKey(UInt64)
}

/// What a cancel found; nothing at all when both are 0.
public struct CancelResult: Equatable, Sendable {
    /// Items that were withdrawn.
    public var cancelled = 0
    /// Items in flight: what APNs has can't be called back. Should their attempt fail, it was their last.
    public var tooLate = 0

    public init(cancelled: Int = 0, tooLate: Int = 0) {
        self.cancelled = cancelled
        self.tooLate = tooLate
    }
}

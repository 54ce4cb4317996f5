/// A header of a Kafka record, borrowed.
public struct RecordHeader {
    /// Name in UTF-8, without a terminator.
    public var name: UnsafeRawBufferPointer
    /// Bytes of the value; nil where Kafka carries a null.
    public var value: UnsafeRawBufferPointer?

    public init(name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer?) {
        self.name = name
        self.value = value
    }
}

/// A consumed record, borrowed: the bytes must outlive every job that is decoded from it.
public struct JobRecord {
    /// Bytes of the record's key; nil: the record has no key.
    public var key: UnsafeRawBufferPointer?
    /// Bytes of the record's value; nil: the value is null.
    public var value: UnsafeRawBufferPointer?
    /// Headers of the record, in order.
    public var headers: UnsafeBufferPointer<RecordHeader>
    /// Name of the Kafka topic.
    public var topic: UnsafeRawBufferPointer
    public var partition: Int32
    public var offset: Int64
    /// Timestamp of the record in milliseconds since the epoch; negative where it has none.
    public var timestampMilliseconds: Int64

    public init(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?,
        headers: UnsafeBufferPointer<RecordHeader>,
        topic: UnsafeRawBufferPointer, partition: Int32, offset: Int64, timestampMilliseconds: Int64
    ) {
        self.key = key
        self.value = value
        self.headers = headers
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestampMilliseconds = timestampMilliseconds
    }
}

/// Condition under which a push counts as done: the `delivery` field.
public enum DeliveryMode: UInt8, CaseIterable, Sendable {
    /// Done when APNs answers 200.
    case accept
    /// Like `accept`, but the push is kept while the device is known to be offline.
    case holdWhileOffline
    /// Done when a receipt for the push's `apns-id` arrives.
    case confirm

    /// Value of the field `delivery`.
    public var name: StaticString {
        switch self {
        case .accept: "accept"
        case .holdWhileOffline: "hold-while-offline"
        case .confirm: "confirm"
        }
    }
}

/// Policy for a push that APNs may have processed, because the connection was lost before the answer: the `duplicates`
/// field.
public enum DuplicatePolicy: UInt8, CaseIterable, Sendable {
    /// Sends again: the device may show the push twice, unless a collapse identifier replaces the first.
    case allow
    /// Doesn't send again: the push may be lost, and its outcome reports that.
    case avoid

    /// Value of the field `duplicates`.
    public var name: StaticString {
        switch self {
        case .allow: "allow"
        case .avoid: "avoid"
        }
    }
}

/// A valid push to a device, or a broadcast to a channel. Its slices point into the record, or into `storage`.
public struct PushJob {
    /// Hexadecimal text of the device token, unmodified; of a broadcast: the channel identifier in base64.
    public var deviceToken: UnsafeRawBufferPointer
    /// True for a broadcast to a channel (`kind: broadcast`).
    public var isBroadcast: Bool
    /// Value of `apns-topic`; of a broadcast: the app's bundle identifier.
    public var topic: UnsafeRawBufferPointer
    /// Value of `apns-push-type`.
    public var pushType: PushType
    /// Value of `apns-priority`.
    public var priority: Priority
    /// Identifier from the job, or ``APNSID/derived(topic:partition:offset:)``.
    public var apnsID: APNSID
    /// Expiration from `apns-expiration`, or from `ttl` counted from `deliver-at` or else from the creation.
    public var expiration: Expiration
    /// Collapse identifier of at most 64 bytes of printable ASCII; nil: none.
    public var collapseIdentifier: UnsafeRawBufferPointer?
    /// Payload: a single JSON object, sent unmodified.
    public var payload: UnsafeRawBufferPointer
    /// Earliest time to send, in milliseconds since the epoch; nil: at once.
    public var deliverAtMilliseconds: Int64?
    /// Condition for the push to count as delivered.
    public var delivery: DeliveryMode
    /// Seconds to wait for a receipt under ``DeliveryMode/confirm``.
    public var receiptTimeoutSeconds: UInt32
    /// Time at which the app registered the device token, in milliseconds since the epoch; nil: unknown.
    public var registeredAtMilliseconds: Int64?
    /// Treatment of an attempt whose answer was lost.
    public var duplicates: DuplicatePolicy
    /// APNs environment to send to; nil: that of the app's credential.
    public var environment: JobEnvironment?
    /// Creation in milliseconds since the epoch: `created-at`, else the record's timestamp, else the time of decoding.
    public var createdMilliseconds: Int64
    /// Times that were later than the worker's clock.
    public var adjustments: JobAdjustments
    /// Headers of the job that return on its outcome.
    public var passedHeaders: PassedHeaders
    /// Memory of passed headers and unescaped values, freed by ``release()``; nil: none.
    public var storage: UnsafeMutableRawPointer?

    /// Makes a push in code. The slices must outlive the push.
    public init(
        deviceToken: UnsafeRawBufferPointer, isBroadcast: Bool = false, topic: UnsafeRawBufferPointer,
        pushType: PushType, priority: Priority,
        apnsID: APNSID, expiration: Expiration, collapseIdentifier: UnsafeRawBufferPointer? = nil,
        payload: UnsafeRawBufferPointer, deliverAtMilliseconds: Int64? = nil,
        delivery: DeliveryMode = .accept,
        receiptTimeoutSeconds: UInt32 = JobLimits.defaultReceiptTimeout,
        registeredAtMilliseconds: Int64? = nil,
        duplicates: DuplicatePolicy = .allow, environment: JobEnvironment? = nil, createdMilliseconds: Int64,
        adjustments: JobAdjustments = [], passedHeaders: PassedHeaders = .none,
        storage: UnsafeMutableRawPointer? = nil
    ) {
        self.deviceToken = deviceToken
        self.isBroadcast = isBroadcast
        self.topic = topic
        self.pushType = pushType
        self.priority = priority
        self.apnsID = apnsID
        self.expiration = expiration
        self.collapseIdentifier = collapseIdentifier
        self.payload = payload
        self.deliverAtMilliseconds = deliverAtMilliseconds
        self.delivery = delivery
        self.receiptTimeoutSeconds = receiptTimeoutSeconds
        self.registeredAtMilliseconds = registeredAtMilliseconds
        self.duplicates = duplicates
        self.environment = environment
        self.createdMilliseconds = createdMilliseconds
        self.adjustments = adjustments
        self.passedHeaders = passedHeaders
        self.storage = storage
    }

    /// Frees `storage`. Must be called once, when neither the job nor its slices are used any more.
    public func release() { storage?.deallocate() }
}

/// A valid cancel or device event. Its slices point into the record, or into `storage`.
public struct ControlJob {
    /// Content of the job, by its kind.
    public enum Detail {
        /// Withdraws pending pushes of this collapse identifier.
        case cancelCollapseIdentifier(UnsafeRawBufferPointer)
        /// Withdraws pending pushes of this `apns-id`.
        case cancelNotification(APNSID)
        /// The device reports its state.
        case online, offline, unregistered
        /// All data of the device is to be erased.
        case erase
        /// The device reports the arrival of the notification with this `apns-id`.
        case receipt(APNSID)
        /// Pending items move to this device token.
        case tokenChanged(UnsafeRawBufferPointer)
    }

    public var kind: JobKind
    /// The device token.
    public var address: UnsafeRawBufferPointer
    /// Value of `apns-topic`; empty where the kind has none.
    public var topic: UnsafeRawBufferPointer
    /// Identifier of this job itself, for its outcome: derived from its record.
    public var apnsID: APNSID
    public var detail: Detail
    /// Time of a device event, in milliseconds since the epoch.
    public var occurredMilliseconds: Int64
    /// Creation in milliseconds since the epoch, as in ``PushJob/createdMilliseconds``.
    public var createdMilliseconds: Int64
    /// Times that were later than the worker's clock.
    public var adjustments: JobAdjustments
    /// Headers of the job that return on its outcome.
    public var passedHeaders: PassedHeaders
    /// Memory of passed headers and unescaped values, freed by ``release()``; nil: none.
    public var storage: UnsafeMutableRawPointer?

    /// Frees `storage`. Must be called once, when neither the job nor its slices are used any more.
    public func release() { storage?.deallocate() }
}

/// Result of decoding a record.
public enum DecodedJob {
    case push(PushJob)
    /// A cancel or a device event.
    case control(ControlJob)
}

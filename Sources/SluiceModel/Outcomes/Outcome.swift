/// How a job ended: exactly one per job. A `cancel` that withdrew something ends as ``cancelled`` itself.
public enum OutcomeKind: UInt8, CaseIterable, BitwiseCopyable, Sendable {
    /// APNs answered 200.
    case accepted
    /// The device reported the notification's arrival.
    case confirmed
    /// APNs refused it for good.
    case rejected
    /// Its expiration came first.
    case expired
    /// A newer job of the same identity took its place.
    case superseded
    /// Withdrawn by a `cancel`.
    case cancelled
    /// Sluice gave up, or can't do what the job asks for.
    case undeliverable
    /// Of a `cancel`: what it names is in flight already.
    case tooLate
    /// Of a `cancel`: nothing is pending under what it names.
    case notFound
    /// Of a `device` event: it was taken in.
    case applied

    public var name: StaticString {
        switch self {
        case .accepted: "accepted"
        case .confirmed: "confirmed"
        case .rejected: "rejected"
        case .expired: "expired"
        case .superseded: "superseded"
        case .cancelled: "cancelled"
        case .undeliverable: "undeliverable"
        case .tooLate: "too-late"
        case .notFound: "not-found"
        case .applied: "applied"
        }
    }
}

/// Why Sluice itself ended a job: the `cause` of an outcome.
public enum OutcomeCause: UInt8, CaseIterable, BitwiseCopyable, Sendable {
    /// The job asks for something that this version can't do.
    case notSupported
    /// As many attempts as configured, or as expiration 0 allows, and none was accepted.
    case attemptsExhausted
    /// The connection was lost before the answer, and the job says `duplicates: avoid` or has expiration 0.
    case answerLost
    /// No credential is configured for the job's topic.
    case noCredential
    /// As many pushes as may be are pending for its device.
    case deviceLimit
    /// The device token is no longer registered, as the answer to another push or a device event says.
    case deviceUnregistered
    /// The store's copy of the job exceeds a limit of this version: a newer one wrote it, or it is damaged.
    case notSendable

    /// Machine-readable code.
    public var name: StaticString {
        switch self {
        case .notSupported: "not-supported"
        case .attemptsExhausted: "attempts-exhausted"
        case .answerLost: "answer-lost"
        case .noCredential: "no-credential"
        case .deviceLimit: "device-limit"
        case .deviceUnregistered: "device-unregistered"
        case .notSendable: "not-sendable"
        }
    }

    /// For people.
    public var message: StaticString {
        switch self {
        case .notSupported: "not supported yet"
        case .attemptsExhausted: "no attempt was accepted"
        case .answerLost: "the connection was lost before the answer, and the job allows no second attempt"
        case .noCredential: "no credential is configured for this topic"
        case .deviceLimit: "too many pushes are pending for this device"
        case .deviceUnregistered: "the device token is no longer registered"
        case .notSendable: "what the store has of the push exceeds a limit of this version of Sluice"
        }
    }
}

/// One terminal outcome, borrowed: its slices live as long as the job's.
public struct Outcome {
    public var kind: OutcomeKind
    /// What kind of job it was.
    public var job = JobKind.push
    /// The device token, or the channel of a broadcast; it is the outcome record's key as well.
    public var deviceToken: UnsafeRawBufferPointer
    /// Value of `apns-topic`; empty where unknown.
    public var topic: UnsafeRawBufferPointer
    public var pushType: PushType?
    public var apnsID: APNSID
    public var collapseIdentifier: UnsafeRawBufferPointer?

    /// HTTP status of APNs' last answer; 0 without one.
    public var status: UInt16 = 0
    /// APNs' last reason.
    public var reason = Reason.absent
    /// Text of an unknown reason.
    public var unknownReason = ReasonText()
    /// Class of APNs' last answer; nil without one.
    public var reasonClass: ReasonClass?
    /// Whether the sender should delete the device token.
    public var deleteToken = false
    /// The device token is at fault, unless environment or topic are.
    public var suspectToken = false
    /// With 410: since when APNs has known, in milliseconds since the epoch.
    public var tokenInvalidSinceMilliseconds: Int64?
    /// Why Sluice itself ended it; nil where APNs' answer says it all.
    public var cause: OutcomeCause?
    /// What was not supported, for ``OutcomeCause/notSupported``.
    public var unsupported: UnsupportedFeature?
    /// Of a `cancel` or `device` event: how many pushes it withdrew, held, released, moved, ended or confirmed.
    public var count: UInt32?
    /// The `apns-id` of the job that took this one's place.
    public var supersededBy: APNSID?

    /// How often it was sent.
    public var attempts: UInt32 = 0
    /// Where the job came from.
    public var sourceTopic: UnsafeRawBufferPointer
    public var partition: Int32
    public var offset: Int64

    // Instants in milliseconds since the epoch; nil where it didn't come to that.
    /// When the job was made.
    public var createdMilliseconds: Int64
    /// When the worker polled it from Kafka.
    public var polledMilliseconds: Int64
    /// When it was first sent to APNs.
    public var firstSentMilliseconds: Int64?
    /// When it ended.
    public var finishedMilliseconds: Int64

    public init(
        kind: OutcomeKind, deviceToken: UnsafeRawBufferPointer, topic: UnsafeRawBufferPointer,
        pushType: PushType?,
        apnsID: APNSID, collapseIdentifier: UnsafeRawBufferPointer?, sourceTopic: UnsafeRawBufferPointer,
        partition: Int32, offset: Int64, createdMilliseconds: Int64, polledMilliseconds: Int64,
        finishedMilliseconds: Int64
    ) {
        self.kind = kind
        self.deviceToken = deviceToken
        self.topic = topic
        self.pushType = pushType
        self.apnsID = apnsID
        self.collapseIdentifier = collapseIdentifier
        self.sourceTopic = sourceTopic
        self.partition = partition
        self.offset = offset
        self.createdMilliseconds = createdMilliseconds
        self.polledMilliseconds = polledMilliseconds
        self.finishedMilliseconds = finishedMilliseconds
    }

    /// The outcome of a push.
    public init(
        _ kind: OutcomeKind, of job: borrowing PushJob, sourceTopic: UnsafeRawBufferPointer, partition: Int32,
        offset: Int64, polledMilliseconds: Int64, finishedMilliseconds: Int64
    ) {
        self.init(
            kind: kind, deviceToken: job.deviceToken, topic: job.topic, pushType: job.pushType,
            apnsID: job.apnsID,
            collapseIdentifier: job.collapseIdentifier, sourceTopic: sourceTopic, partition: partition,
            offset: offset, createdMilliseconds: job.createdMilliseconds,
            polledMilliseconds: polledMilliseconds,
            finishedMilliseconds: finishedMilliseconds)
    }

    /// The outcome of a job of another kind. `undeliverable` says that it is not supported.
    public init(
        _ kind: OutcomeKind, of job: borrowing ControlJob, count: UInt32? = nil,
        sourceTopic: UnsafeRawBufferPointer, partition: Int32, offset: Int64, polledMilliseconds: Int64,
        finishedMilliseconds: Int64
    ) {
        self.init(
            kind: kind, deviceToken: job.address, topic: job.topic, pushType: nil, apnsID: job.apnsID,
            collapseIdentifier: nil, sourceTopic: sourceTopic, partition: partition, offset: offset,
            createdMilliseconds: job.createdMilliseconds, polledMilliseconds: polledMilliseconds,
            finishedMilliseconds: finishedMilliseconds)
        self.job = job.kind
        self.count = count
        if case .cancelCollapseIdentifier(let identifier) = job.detail { collapseIdentifier = identifier }
        guard kind == .undeliverable else { return }
        cause = .notSupported
        unsupported = .broadcast
    }

    /// Takes over APNs' answer.
    public mutating func apply(_ verdict: ResponseVerdict, registeredAtMilliseconds: Int64?) {
        status = verdict.status
        reason = verdict.reason
        unknownReason = verdict.unknownReason
        reasonClass = verdict.class
        deleteToken = verdict.retiresToken(registeredAtMilliseconds: registeredAtMilliseconds)
        suspectToken = verdict.suspectsToken
        tokenInvalidSinceMilliseconds = verdict.timestampMilliseconds
    }
}

/// End of a job: exactly one per job. A `cancel` that withdrew something itself ends as ``cancelled``.
public enum OutcomeKind: UInt8, CaseIterable, BitwiseCopyable, Sendable {
    /// APNs answered 200.
    case accepted
    /// The device reported the notification's arrival.
    case confirmed
    /// APNs refused the push for good.
    case rejected
    /// The push expired first.
    case expired
    /// A newer job of the same identity replaced the push.
    case superseded
    /// A `cancel` or `erase` withdrew the push.
    case cancelled
    /// Sluice gave up, or doesn't support the job's request.
    case undeliverable
    /// A `cancel` found its push in flight already.
    case tooLate
    /// A `cancel` found no pending push.
    case notFound
    /// A `device` event was processed.
    case applied

    /// Value of the member `outcome`.
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

/// Cause of an outcome that Sluice itself decided: the `cause` field.
public enum OutcomeCause: UInt8, CaseIterable, BitwiseCopyable, Sendable {
    /// The push has a form that this version can't send.
    case notSupported
    /// The configured number of attempts, or the single one of expiration 0, was made, and none was accepted.
    case attemptsExhausted
    /// The connection was lost before the answer, and the job has `duplicates: avoid` or expiration 0.
    case answerLost
    /// No credential is configured for the job's topic, or for the environment that the job names.
    case noCredential
    /// The limit of pending pushes for the job's device is reached.
    case deviceLimit
    /// The device token is no longer registered, according to the answer to another push or a device event.
    case deviceUnregistered
    /// The data of the job's device was erased.
    case deviceErased
    /// The store's copy of the job exceeds a limit of this version. A newer version wrote the copy, or it is damaged.
    case notSendable
    /// Connections ended again and again with the push in flight, at last those that carried the push alone.
    case endsConnections

    /// Machine-readable code.
    public var name: StaticString {
        switch self {
        case .notSupported: "not-supported"
        case .attemptsExhausted: "attempts-exhausted"
        case .answerLost: "answer-lost"
        case .noCredential: "no-credential"
        case .deviceLimit: "device-limit"
        case .deviceUnregistered: "device-unregistered"
        case .deviceErased: "device-erased"
        case .notSendable: "not-sendable"
        case .endsConnections: "ends-connections"
        }
    }

    /// Text for people.
    public var message: StaticString {
        switch self {
        case .notSupported: "this version of Sluice can't send the push"
        case .attemptsExhausted: "no attempt was accepted"
        case .answerLost: "the connection was lost before the answer, and the job allows no second attempt"
        case .noCredential: "no credential is configured for this topic and environment"
        case .deviceLimit: "too many pushes are pending for this device"
        case .deviceUnregistered: "the device token is no longer registered"
        case .deviceErased: "the data of the device was erased"
        case .notSendable: "the stored push exceeds a limit of this version of Sluice"
        case .endsConnections: "each connection with the push ended, even when it carried nothing else"
        }
    }
}

/// A terminal outcome, borrowed: its slices live as long as the job's.
public struct Outcome {
    public var kind: OutcomeKind
    /// Kind of the job.
    public var job = JobKind.push
    /// Device token, or the channel of a broadcast; also the key of the outcome record.
    public var deviceToken: UnsafeRawBufferPointer
    /// Value of `apns-topic`; empty where unknown.
    public var topic: UnsafeRawBufferPointer
    /// Push type of the job; nil where unknown.
    public var pushType: PushType?
    /// APNs environment that the job names; nil: none.
    public var environment: JobEnvironment?
    /// Identifier of the job.
    public var apnsID: APNSID
    /// Identifier that APNs gave the accepted push, for its delivery log; nil: none. APNs answers with such an identifier
    /// in its development environment, and for broadcasts.
    public var uniqueID: APNSID?
    /// Collapse identifier of the push; nil: none.
    public var collapseIdentifier: UnsafeRawBufferPointer?

    /// HTTP status of APNs' last answer; 0 without an answer.
    public var status: UInt16 = 0
    /// Reason of APNs' last answer.
    public var reason = Reason.absent
    /// Text of an unknown reason.
    public var unknownReason = ReasonText()
    /// Class of APNs' last answer; nil without an answer.
    public var reasonClass: ReasonClass?
    /// True when the sender should delete the device token.
    public var deleteToken = false
    /// True when the device token is at fault, unless environment or topic are.
    public var suspectToken = false
    /// Time since which APNs considers the token invalid, in milliseconds since the epoch; nil without 410.
    public var tokenInvalidSinceMilliseconds: Int64?
    /// Cause of an end that Sluice decided; nil where APNs' answer is sufficient.
    public var cause: OutcomeCause?
    /// Number of pushes that a `cancel` or `device` event withdrew, held, released, moved, ended or confirmed; nil
    /// otherwise.
    public var count: UInt32?
    /// `apns-id` of the job that replaced this one; nil: none.
    public var supersededBy: APNSID?

    /// Number of times that the push was sent.
    public var attempts: UInt32 = 0
    /// Kafka topic of the job's record.
    public var sourceTopic: UnsafeRawBufferPointer
    /// Partition of the job's record.
    public var partition: Int32
    /// Offset of the job's record.
    public var offset: Int64

    /// Times of the job that were later than the worker's clock.
    public var adjustments = JobAdjustments()
    /// Headers of the job that return on the outcome's record.
    public var passedHeaders = PassedHeaders.none

    // Instants in milliseconds since the epoch; nil where the event didn't happen.
    /// Creation of the job.
    public var createdMilliseconds: Int64
    /// Time at which the worker polled the job from Kafka.
    public var polledMilliseconds: Int64
    /// Time of the first attempt.
    public var firstSentMilliseconds: Int64?
    /// End of the job.
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

    /// Makes the outcome of a push.
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
        if job.isBroadcast { self.job = .broadcast }
        environment = job.environment
        adjustments = job.adjustments
        passedHeaders = job.passedHeaders
    }

    /// Makes the outcome of a cancel or device event.
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
        adjustments = job.adjustments
        passedHeaders = job.passedHeaders
        if case .cancelCollapseIdentifier(let identifier) = job.detail { collapseIdentifier = identifier }
    }

    /// Copies APNs' answer into the outcome.
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

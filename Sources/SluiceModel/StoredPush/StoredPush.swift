/// A push as a store keeps it: its job, its record's place, and its progress, as one run of bytes. The name of the
/// Kafka topic isn't part of it, because the store has the name.
///
/// The format has little-endian integers. An *instant* is a zigzag varint of the milliseconds since `created`.
///
/// | bytes | |
/// |---|---|
/// | 1 | version: ``plainVersion`` or ``extendedVersion`` |
/// | 2 | flags (``Flags``), among them what the push waits for (bits 13–15) |
/// | 1 | push type (bits 0–3), priority (4–5), delivery (6–7) |
/// | 1 | bytes of the device token: half of its digits |
/// | 1 | length of the topic |
/// | 1 | length of the collapse identifier; 0: none |
/// | 2 | length of the payload |
/// | 16 | `apns-id`: high, low |
/// | varints | created (zigzag), polled (instant), partition and offset (zigzag) |
/// | varints | by flag: expiration (zigzag, seconds since `created`), deliver-at, registered-at (instants) |
/// | varints | by flag: receipt timeout (seconds), attempts and failures |
/// | varints | by flag: first sent, expiry, wake (instants), store version |
/// | varint | with ``extendedVersion`` only: flags of further parts (``Extension``) |
/// | varint, bytes | by these flags: length of the passed headers, and the headers (``PassedHeaders``) |
/// | token | device token, packed two digits to a byte, unless it has letters of both cases |
/// | the rest | topic, collapse identifier, payload |
///
/// A usual push with a collapse identifier and an expiration has 39 bytes beside token, topic, collapse identifier and
/// payload.
public struct StoredPush {
    /// Version of a push without further parts. Earlier versions of Sluice read this version only, and therefore every
    /// push that needs no other.
    public static let plainVersion: UInt8 = 1
    /// Version of a push with at least one further part.
    public static let extendedVersion: UInt8 = 2

    /// Job of the push. Its slices point into the decoded bytes.
    public var push: PushJob
    /// Progress of the push when it was stored.
    public var progress: Progress
    /// Partition of the job's record.
    public var partition: Int32
    /// Offset of the job's record.
    public var offset: Int64
    /// Time at which the worker polled the record, in milliseconds since the epoch.
    public var polledMilliseconds: Int64

    public init(
        push: PushJob, progress: Progress = Progress(), partition: Int32, offset: Int64,
        polledMilliseconds: Int64
    ) {
        self.push = push
        self.progress = progress
        self.partition = partition
        self.offset = offset
        self.polledMilliseconds = polledMilliseconds
    }

    /// ``topicHash(_:_:)`` of the push's topic if the push waits with it; nil: the push waits for something else.
    public var suspendedTopic: UInt32? {
        progress.wait == .suspended ? Self.topicHash(push.topic, push.environment) : nil
    }

    /// Progress of a push.
    public struct Progress: Equatable, BitwiseCopyable, Sendable {
        /// Number of times that the push was sent.
        public var attempts: UInt32
        /// Attempts that count towards the maximum of attempts.
        public var failures: UInt32
        /// Time of the first attempt, in milliseconds since the epoch; nil: never sent.
        public var firstSentMilliseconds: Int64?
        /// Expiry by the worker's own limit, in milliseconds since the epoch; nil: the job's expiration alone counts.
        public var expiryMilliseconds: Int64?
        /// Cause of the push's wait.
        public var wait: Wait
        /// Latest end of the wait, in milliseconds since the epoch; nil: the wait has no end of its own.
        public var wakeMilliseconds: Int64?
        /// The owner's number of this state of the push; 0: none.
        public var storeVersion: UInt64

        public init(
            attempts: UInt32 = 0, failures: UInt32 = 0, firstSentMilliseconds: Int64? = nil,
            expiryMilliseconds: Int64? = nil, wait: Wait = .none, wakeMilliseconds: Int64? = nil,
            storeVersion: UInt64 = 0
        ) {
            self.attempts = attempts
            self.failures = failures
            self.firstSentMilliseconds = firstSentMilliseconds
            self.expiryMilliseconds = expiryMilliseconds
            self.wait = wait
            self.wakeMilliseconds = wakeMilliseconds
            self.storeVersion = storeVersion
        }
    }

    /// Cause of a stored push's wait.
    public enum Wait: CaseIterable, BitwiseCopyable, Sendable {
        /// No wait: the push may be sent as soon as it is its turn.
        case none
        /// Waits for a moment: the end of its back-off, or of the window for newer pushes of its identity.
        case retrying
        /// Waits for its receipt: APNs has accepted the push, and the device may confirm it until the moment.
        case confirming
        /// Waits for a report of its device, which is offline. The moment is that of the next attempt without a report.
        case held
        /// Waits with its topic, which APNs refuses, or whose credential has no connection. No moment ends this wait.
        case suspended
    }

    /// Flags of the optional parts, and values that need one or two bits.
    struct Flags: OptionSet {
        let rawValue: UInt16

        /// The device token is packed; its letters are lower-case, or it has none.
        static let lowerCaseToken = Flags(rawValue: 1 << 0)
        /// The device token is packed; its letters are upper-case. Without both flags it is text.
        static let upperCaseToken = Flags(rawValue: 1 << 1)
        static let expiresOnce = Flags(rawValue: 1 << 2)
        static let expiration = Flags(rawValue: 1 << 3)
        static let deliverAt = Flags(rawValue: 1 << 4)
        static let registeredAt = Flags(rawValue: 1 << 5)
        /// Unset: ``JobLimits/defaultReceiptTimeout``.
        static let receiptTimeout = Flags(rawValue: 1 << 6)
        static let avoidsDuplicates = Flags(rawValue: 1 << 7)
        static let attempts = Flags(rawValue: 1 << 8)
        static let firstSent = Flags(rawValue: 1 << 9)
        static let expiry = Flags(rawValue: 1 << 10)
        static let storeVersion = Flags(rawValue: 1 << 11)
        static let wake = Flags(rawValue: 1 << 12)

        static let packedToken: Flags = [.lowerCaseToken, .upperCaseToken]

        /// Code of the wait, in three bits.
        static func wait(_ wait: Wait) -> Flags { Flags(rawValue: UInt16(wait.storedCode) << 13) }
        /// Wait of the code; nil: no wait has this code.
        var wait: Wait? { Wait(storedCode: UInt8(truncatingIfNeeded: rawValue >> 13)) }
    }

    /// Flags of the parts that ``plainVersion`` doesn't have.
    struct Extension: OptionSet {
        let rawValue: UInt64

        static let production = Extension(rawValue: 1 << 0)
        static let development = Extension(rawValue: 1 << 1)

        static let createdAtAdjusted = Extension(rawValue: 1 << 2)
        static let registeredAtAdjusted = Extension(rawValue: 1 << 3)
        static let timestampAdjusted = Extension(rawValue: 1 << 4)
        static let passedHeaders = Extension(rawValue: 1 << 5)

        private static let all: Extension = [
            .production, .development, .createdAtAdjusted, .registeredAtAdjusted, .timestampAdjusted,
            .passedHeaders,
        ]

        /// True when this version reads all parts, and no two flags contradict each other.
        var isValid: Bool {
            !isEmpty && isSubset(of: .all) && !isSuperset(of: [.production, .development])
        }

        init(rawValue: UInt64) { self.rawValue = rawValue }

        /// Further parts of a push.
        init(of push: borrowing PushJob) {
            switch push.environment {
            case nil: self = []
            case .production: self = .production
            case .development: self = .development
            }
            if push.adjustments.contains(.createdAt) { insert(.createdAtAdjusted) }
            if push.adjustments.contains(.registeredAt) { insert(.registeredAtAdjusted) }
            if push.adjustments.contains(.timestamp) { insert(.timestampAdjusted) }
            if !push.passedHeaders.isEmpty { insert(.passedHeaders) }
        }

        /// Times of the push that were later than the worker's clock.
        var adjustments: JobAdjustments {
            var adjustments = JobAdjustments()
            if contains(.createdAtAdjusted) { adjustments.insert(.createdAt) }
            if contains(.registeredAtAdjusted) { adjustments.insert(.registeredAt) }
            if contains(.timestampAdjusted) { adjustments.insert(.timestamp) }
            return adjustments
        }

        /// Environment that the push names; nil: none.
        var environment: JobEnvironment? {
            contains(.production) ? .production : contains(.development) ? .development : nil
        }
    }

    /// Offsets of the parts with a fixed place.
    enum Place {
        static let flags = 1
        static let codes = 3
        static let tokenCount = 4
        static let topicCount = 5
        static let collapseCount = 6
        static let payloadCount = 7
        static let apnsID = 9
        /// Length of the head.
        static let end = 25
    }
}

/// Causes why bytes are not a stored push. The error never holds any of the bytes.
public enum StoredPushError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The format has a version that this code doesn't know.
    case version(UInt8)
    /// The bytes end before the push does.
    case truncated
    /// The number of bytes left behind the push.
    case trailing(Int)
    /// This part has a value that no push has.
    case invalid(Part)
    /// The room for the device token's text is smaller than this.
    case tokenText(needed: Int)

    /// Part of the format, by its name in messages.
    public enum Part: String, Hashable, Sendable {
        case flags
        case extendedFlags = "extended flags"
        case passedHeaders = "passed headers"
        case pushType = "push type"
        case priority, delivery
        case deviceToken = "device token"
        case topic
        case collapseIdentifier = "collapse identifier"
        case payload
        case partition, offset
        case created, polled, expiration, expiry, wake
        case deliverAt = "deliver-at"
        case registeredAt = "registered-at"
        case receiptTimeout = "receipt timeout"
        case attempts, failures
        case firstSent = "first sent"
        case storeVersion = "store version"
    }

    public var description: String {
        switch self {
        case .version(let version):
            "a stored push has format \(version), and this version of Sluice reads "
                + "\(StoredPush.plainVersion) and \(StoredPush.extendedVersion): run the version that wrote the push"
        case .truncated: "a stored push is truncated"
        case .trailing(let count): "a stored push is followed by \(count) unexpected bytes"
        case .invalid(let part): "a stored push is damaged: its \(part.rawValue) has an invalid value"
        case .tokenText(let needed): "the text of the device token needs room for \(needed) bytes"
        }
    }
}

/// What an answer of APNs means for the job, its device and the connection.
public enum ReasonClass: UInt8, CaseIterable, Sendable {
    /// Accepted by APNs (which does not mean delivered).
    case accepted
    /// Retire this device token.
    case token
    /// This notification can never succeed as it is.
    case job
    /// The credential or topic is at fault: stop that pool, alert, keep the tokens.
    case configuration
    /// A new provider token, then send again.
    case authentication
    /// A new connection, then send again.
    case connection
    /// Back off, then send again.
    case later

    public var name: StaticString {
        switch self {
        case .accepted: "accepted"
        case .token: "token"
        case .job: "job"
        case .configuration: "configuration"
        case .authentication: "authentication"
        case .connection: "connection"
        case .later: "later"
        }
    }

    /// Whether the same push may be sent again without a person's doing.
    public var isRetriable: Bool {
        switch self {
        case .authentication, .connection, .later: true
        case .accepted, .token, .job, .configuration: false
        }
    }
}

/// The `reason` of an APNs answer or GOAWAY: everything that Apple documents for pushes to devices ("Handling
/// notification responses from APNs"), for broadcasts and for channels ("Handling error responses from Apple
/// Push Notification service"), and what was seen in the field.
public enum Reason: UInt8, CaseIterable, Sendable {
    /// No reason: an accepted push, or an answer without a readable one.
    case absent
    /// A reason that this table doesn't hold; its status decides its class.
    case unknown

    // Pushes to devices.
    case badCollapseId, badDeviceToken, badExpirationDate, badMessageId, badPriority, badTopic,
        deviceTokenNotForTopic, duplicateHeaders, idleTimeout, invalidPushType, missingDeviceToken,
        missingTopic,
        payloadEmpty, topicDisallowed
    case badCertificate, badCertificateEnvironment, expiredProviderToken, forbidden, invalidProviderToken,
        missingProviderToken, unrelatedKeyIdInToken, badEnvironmentKeyIdInToken
    case badPath, methodNotAllowed, expiredToken, unregistered, payloadTooLarge, tooManyProviderTokenUpdates,
        tooManyRequests, internalServerError, serviceUnavailable, shutdown

    // Broadcasts and channels.
    case featureNotEnabled, missingChannelId, badChannelId, channelNotRegistered, badRequestParams,
        badRequestPayload, missingPushType, cannotCreateChannelConfig, topicMismatch, missingChannelQueueSize

    /// The text that APNs sends.
    public var name: StaticString { entry.name }
    /// The status that it comes with; 0 for ``absent`` and ``unknown``.
    public var status: UInt16 { entry.status }
    public var `class`: ReasonClass { entry.class }
    /// What to do about it, for people: one sentence.
    public var action: StaticString { entry.action }

    /// The connection that the answer came on is no good any more: replace it before sending again.
    public var replacesConnection: Bool {
        switch self {
        case .expiredProviderToken, .unrelatedKeyIdInToken, .idleTimeout, .shutdown, .internalServerError,
            .tooManyProviderTokenUpdates:
            true
        default: false
        }
    }

    /// The push that was answered so is not to be sent again, whatever the class says of others (HNR).
    public var isFinal: Bool { self == .forbidden || `class` == .token || `class` == .job }

    /// A single one is about the device token; a burst means that environment, credential and topic don't
    /// belong together.
    public var suspectsConfigurationInBursts: Bool {
        self == .badDeviceToken || self == .deviceTokenNotForTopic
    }

    /// The reason with this text. Case and blanks don't matter ("Service Unavailable"), and
    /// `BadEnvironmentKeyInToken`, which is what senders report, is `BadEnvironmentKeyIdInToken`.
    public static func parse(name: UnsafeRawBufferPointer) -> Reason {
        if name.count == 0 { return .absent }
        if equalsLoosely(name, "BadEnvironmentKeyInToken") { return .badEnvironmentKeyIdInToken }
        var raw = Reason.unknown.rawValue + 1
        while let reason = Reason(rawValue: raw) {
            if equalsLoosely(name, reason.name) { return reason }
            raw += 1
        }
        return .unknown
    }

    private static func equalsLoosely(_ text: UnsafeRawBufferPointer, _ name: StaticString) -> Bool {
        guard text.count >= name.utf8CodeUnitCount, text.count <= name.utf8CodeUnitCount + 4 else {
            return false
        }
        var position = 0
        for byte in text where byte != 0x20 {
            guard position < name.utf8CodeUnitCount,
                lowercased(byte) == lowercased(name.utf8Start[position])
            else { return false }
            position += 1
        }
        return position == name.utf8CodeUnitCount
    }
}

extension ReasonClass {
    /// The class of an answer whose reason is absent or unknown. A status that APNs doesn't document (1xx, 3xx, 600 and
    /// above) is that of a server in trouble, or of another server.
    public static func fallback(status: UInt16) -> ReasonClass {
        switch status {
        case 200..<300: .accepted
        case 410: .token
        case 403: .configuration
        case 401: .authentication
        case 421: .connection
        case 408, 425, 429: .later
        case 400..<500: .job
        default: .later
        }
    }
}

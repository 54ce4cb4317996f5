/// Consequence of an APNs answer for the job, its device and the connection.
public enum ReasonClass: UInt8, CaseIterable, Sendable {
    /// Accepted by APNs (which does not mean delivered).
    case accepted
    /// Retire this device token.
    case token
    /// This notification can never succeed as it is.
    case job
    /// The credential or topic is at fault: stop that pool, alert, keep the tokens.
    case configuration
    /// Make a new provider token, then send again.
    case authentication
    /// Open a new connection, then send again.
    case connection
    /// Back off, then send again.
    case later

    /// Name of the class in outcomes.
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

    /// True when the same push may be sent again without an operator's action.
    public var isRetriable: Bool {
        switch self {
        case .authentication, .connection, .later: true
        case .accepted, .token, .job, .configuration: false
        }
    }
}

/// The `reason` of an APNs answer or GOAWAY, in a table:
/// - Apple's reasons for pushes to devices ("Handling notification responses from APNs").
/// - Apple's reasons for broadcasts and channels ("Handling error responses from Apple Push Notification service").
/// - Reasons seen in the field.
public enum Reason: UInt8, CaseIterable, Sendable {
    /// No reason: an accepted push, or an answer without a readable reason.
    case absent
    /// A reason that isn't in this table; the status decides its class.
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

    /// Text that APNs sends.
    public var name: StaticString { entry.name }
    /// Status that accompanies the reason; 0 for ``absent`` and ``unknown``.
    public var status: UInt16 { entry.status }
    /// Class of the reason, which decides what follows.
    public var `class`: ReasonClass { entry.class }
    /// Recommended action for people, as one sentence.
    public var action: StaticString { entry.action }

    /// True when the answer's connection is unusable: replace it before sending again. After `ExpiredProviderToken` it
    /// serves on, unless the reason repeats.
    public var replacesConnection: Bool {
        switch self {
        case .unrelatedKeyIdInToken, .idleTimeout, .shutdown, .internalServerError,
            .tooManyProviderTokenUpdates:
            true
        default: false
        }
    }

    /// True when the answer refuses the signing key of the provider token, so that another key of the team may serve.
    public var refusesKey: Bool { self == .invalidProviderToken || self == .badEnvironmentKeyIdInToken }

    /// True when the answer refuses the client certificate, so that the certificate before its renewal may serve.
    public var refusesCertificate: Bool { self == .badCertificate || self == .badCertificateEnvironment }

    /// True when the push must not be sent again, also where other reasons of its class may be.
    public var isFinal: Bool { self == .forbidden || `class` == .token || `class` == .job }

    /// True when a single answer concerns the device token. A burst means that environment, credential and topic don't
    /// belong together.
    public var suspectsConfigurationInBursts: Bool {
        self == .badDeviceToken || self == .deviceTokenNotForTopic
    }

    /// Parses a reason's text. Case and blanks don't matter ("Service Unavailable"). `BadEnvironmentKeyInToken`, which
    /// senders report, is `BadEnvironmentKeyIdInToken`.
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
    /// Returns the class of an answer whose reason is absent or unknown. A status that APNs doesn't document (1xx, 3xx,
    /// 600 and above) is from a server in trouble, or another server.
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

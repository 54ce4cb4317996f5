extension Reason {
    struct Entry {
        let name: StaticString
        let status: UInt16
        let `class`: ReasonClass
        let action: StaticString

        init(_ name: StaticString, _ status: UInt16, _ class: ReasonClass, _ action: StaticString) {
            self.name = name
            self.status = status
            self.class = `class`
            self.action = action
        }
    }

    /// The table. `BadTopic` and `MissingTopic` can also mean a wrong credential. They count as the job's fault, so
    /// that a single job can't stop an app's pool.
    var entry: Entry {
        switch self {
        case .absent: Entry("", 0, .later, "no reason was given; the status decides")
        case .unknown: Entry("Unknown", 0, .later, "the reason is not documented; the status decides")

        case .badCollapseId: Entry("BadCollapseId", 400, .job, "shorten the collapse identifier to 64 bytes")
        case .badDeviceToken:
            Entry(
                "BadDeviceToken", 400, .token,
                "retire the token; a burst of these means tokens of the other environment")
        case .badExpirationDate:
            Entry(
                "BadExpirationDate", 400, .job,
                "correct apns-expiration; a channel without storage takes 0 only")
        case .badMessageId:
            Entry("BadMessageId", 400, .job, "correct apns-id, or apns-request-id of a broadcast")
        case .badPriority: Entry("BadPriority", 400, .job, "correct apns-priority")
        case .badTopic: Entry("BadTopic", 400, .job, "correct apns-topic")
        case .deviceTokenNotForTopic:
            Entry(
                "DeviceTokenNotForTopic", 400, .token,
                "retire the token for this topic; a burst of these means a wrong topic or credential")
        case .duplicateHeaders: Entry("DuplicateHeaders", 400, .job, "report it: a header was sent twice")
        case .idleTimeout: Entry("IdleTimeout", 400, .connection, "open a new connection")
        case .invalidPushType: Entry("InvalidPushType", 400, .job, "correct apns-push-type")
        case .missingDeviceToken: Entry("MissingDeviceToken", 400, .job, "give a device token")
        case .missingTopic: Entry("MissingTopic", 400, .job, "give an apns-topic")
        case .payloadEmpty: Entry("PayloadEmpty", 400, .job, "give a payload")
        case .topicDisallowed:
            Entry("TopicDisallowed", 400, .configuration, "use a credential that covers the topic")

        case .badCertificate: Entry("BadCertificate", 403, .configuration, "replace the certificate")
        case .badCertificateEnvironment:
            Entry(
                "BadCertificateEnvironment", 403, .configuration,
                "use the certificate in the environment for which it was issued")
        case .expiredProviderToken:
            Entry(
                "ExpiredProviderToken", 403, .authentication,
                "use a new provider token; if the reason repeats, use a new connection and check the clock")
        case .forbidden: Entry("Forbidden", 403, .configuration, "check what the credential is allowed to do")
        case .invalidProviderToken:
            Entry(
                "InvalidProviderToken", 403, .configuration, "check key, key identifier and team identifier")
        case .missingProviderToken:
            Entry("MissingProviderToken", 403, .configuration, "configure a key or a certificate")
        case .unrelatedKeyIdInToken:
            Entry("UnrelatedKeyIdInToken", 403, .connection, "use a connection of its own for this key")
        case .badEnvironmentKeyIdInToken:
            Entry(
                "BadEnvironmentKeyIdInToken", 403, .configuration,
                "use the key in the environment for which it was issued")

        case .badPath: Entry("BadPath", 404, .job, "report it: the request path was wrong")
        case .methodNotAllowed:
            Entry("MethodNotAllowed", 405, .job, "report it: the request's method was wrong")
        case .expiredToken: Entry("ExpiredToken", 410, .token, "retire the token")
        case .unregistered:
            Entry(
                "Unregistered", 410, .token,
                "retire the token, unless the device has registered it again since")
        case .payloadTooLarge: Entry("PayloadTooLarge", 413, .job, "shorten the payload")
        case .tooManyProviderTokenUpdates:
            Entry(
                "TooManyProviderTokenUpdates", 429, .later,
                "keep the provider token for at least 20 minutes and replace the connection")
        case .tooManyRequests:
            Entry("TooManyRequests", 429, .later, "slow down for this device token or channel")
        case .internalServerError: Entry("InternalServerError", 500, .later, "send again on a new connection")
        case .serviceUnavailable: Entry("ServiceUnavailable", 503, .later, "send again later")
        case .shutdown: Entry("Shutdown", 503, .connection, "send again on a new connection")

        case .featureNotEnabled:
            Entry(
                "FeatureNotEnabled", 400, .configuration,
                "turn on the broadcast capability of the app on Apple's developer site")
        case .missingChannelId: Entry("MissingChannelId", 400, .job, "give a channel identifier")
        case .badChannelId:
            Entry("BadChannelId", 400, .job, "give the channel identifier as APNs returned it")
        case .channelNotRegistered:
            Entry(
                "ChannelNotRegistered", 400, .job,
                "drop the channel, or use it in the environment in which it was created")
        case .badRequestParams: Entry("BadRequestParams", 400, .job, "correct the request's attributes")
        case .badRequestPayload: Entry("BadRequestPayload", 400, .job, "correct the request's JSON")
        case .missingPushType: Entry("MissingPushType", 400, .job, "give an apns-push-type")
        case .cannotCreateChannelConfig:
            Entry(
                "CannotCreateChannelConfig", 400, .job,
                "delete channels that are not used any more: the app's limit is reached")
        case .topicMismatch:
            Entry("TopicMismatch", 403, .configuration, "use a credential that covers the bundle identifier")
        case .missingChannelQueueSize:
            Entry("MissingChannelQueueSize", 400, .job, "give a valid message storage policy")
        }
    }
}

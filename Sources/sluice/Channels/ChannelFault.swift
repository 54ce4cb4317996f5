import SluiceModel

/// Refusals of channel management in words: the fault and the remedy (APNs: "Handling error responses from Apple Push
/// Notification service").
enum ChannelFault {
    /// Returns the reason's name, or the status of an answer without a known reason.
    static func name(_ reason: Reason, _ status: Int) -> String {
        reason == .absent || reason == .unknown ? "status \(status)" : "\(reason.name)"
    }

    /// Describes a refusal.
    /// - Parameter requestID: `apns-request-id` of the answer, which Apple's support asks for; nil: the answer has none.
    static func describe(_ reason: Reason, status: Int, requestID: APNSID?) -> String {
        let request = requestID.map { " (apns-request-id \($0))" } ?? ""
        return "APNs answered \(name(reason, status))\(request): \(remedy(reason))"
    }

    /// Returns fault and remedy of a reason.
    static func remedy(_ reason: Reason) -> String {
        switch reason {
        case .featureNotEnabled:
            "the app has no broadcast capability; turn it on for the app identifier, under Push Notifications on Apple's "
                + "developer site"
        case .cannotCreateChannelConfig:
            "the app has as many channels as APNs permits; delete channels that are not used any more"
        case .channelNotRegistered:
            "this environment has no such channel; compare `sluice channels list`, because each environment has its own "
                + "channels"
        case .badChannelId, .missingChannelId:
            "the channel identifier is not one of APNs; give it as `sluice channels list` shows it"
        case .topicDisallowed:
            "the bundle identifier has a suffix; give --bundle-id without .push-type.liveactivity"
        case .topicMismatch:
            "the credential is not for this bundle identifier; check --bundle-id, and the key or certificate of the app"
        case .invalidProviderToken:
            "the key, its identifier or the team is wrong; check key-file, key-id and team-id"
        case .expiredProviderToken: "the provider token is too old; check this machine's clock"
        case .missingProviderToken:
            "the credential was not accepted; configure a key or a certificate for the app"
        case .badCertificate: "the certificate is not accepted; replace certificate-file"
        case .badCertificateEnvironment, .badEnvironmentKeyIdInToken:
            "the credential is for the other environment; use --environment, or another credential"
        case .tooManyRequests:
            "the app has sent too many requests of channel management; try again in a minute"
        case .tooManyProviderTokenUpdates:
            "the key's provider tokens change too often; try again in 20 minutes, and check that all senders' clocks agree"
        case .internalServerError, .serviceUnavailable, .shutdown:
            "APNs is in trouble; try again later"
        case .badPath, .methodNotAllowed:
            "the server does not manage channels on this port; check --host and --port"
        case .absent, .unknown: "the reason is not documented; check host and port"
        default: "\(reason.action)"
        }
    }
}

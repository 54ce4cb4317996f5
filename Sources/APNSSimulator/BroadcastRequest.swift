import HTTP2
import SluiceModel

/// A broadcast as it was received: slices of the connection's memory, valid within the handler's call (APNs: "Sending
/// broadcast push notification requests to APNs").
struct BroadcastRequest {
    /// Bundle identifier of the path.
    var app = PushRequest.none
    var authorization: UnsafeRawBufferPointer?
    var channel: UnsafeRawBufferPointer?
    var expirationText: UnsafeRawBufferPointer?
    var priorityText: UnsafeRawBufferPointer?
    var pushTypeText: UnsafeRawBufferPointer?
    var identifierText: UnsafeRawBufferPointer?
    var hasDuplicateHeaders = false
    var body = PushRequest.none
    var bodyLength = 0

    /// Start of a broadcast's path.
    static let pathPrefix: StaticString = "/4/broadcasts/apps/"

    init(_ request: ServerRequest) {
        app = request.path.dropping(Self.pathPrefix) ?? PushRequest.none
        body = request.body
        bodyLength = request.bodyLength
        for index in 0..<request.headerCount {
            let (name, value) = request.header(index)
            for earlier in 0..<index where request.header(earlier).name.equals(name) {
                hasDuplicateHeaders = true
            }
            if name.equals("authorization") {
                authorization = value
            } else if name.equals("apns-channel-id") {
                channel = value
            } else if name.equals("apns-expiration") {
                expirationText = value
            } else if name.equals("apns-priority") {
                priorityText = value
            } else if name.equals("apns-push-type") {
                pushTypeText = value
            } else if name.equals("apns-request-id") {
                identifierText = value
            }
        }
    }

    /// Checks the headers' presence and forms. Returns `absent` if all are good. Apple's page has no reasons for a
    /// missing expiration and priority.
    func checkHeaders() -> Reason {
        if hasDuplicateHeaders { return .duplicateHeaders }
        if let identifierText, APNSID(canonical: identifierText) == nil { return .badMessageId }
        guard let channel, !channel.isEmpty else { return .missingChannelId }
        guard ChannelIdentifier.isValid(channel) else { return .badChannelId }
        guard expiration != nil else { return .badExpirationDate }
        guard let priorityText, Priority(headerValue: priorityText) != nil else { return .badPriority }
        guard let pushTypeText, !pushTypeText.isEmpty else { return .missingPushType }
        guard pushTypeText.text.lowercased() == "liveactivity" else { return .invalidPushType }
        return .absent
    }

    /// `apns-expiration` in seconds since 1970; nil when it is absent or no such number.
    var expiration: Int64? {
        guard let seconds = expirationText?.decimal, seconds <= Self.latestExpiration else { return nil }
        return seconds
    }

    /// Latest expiration that is read: far enough for every date, and small enough for calculations.
    private static let latestExpiration: Int64 = 1 << 40

    /// Checks size and content of the payload. A broadcast can update and end activities, not start them.
    func checkPayload() -> Reason {
        if bodyLength == 0 { return .payloadEmpty }
        if bodyLength > PushType.maximumBroadcastPayloadSize { return .payloadTooLarge }
        guard let payload = LiveActivityPayload(body), !payload.isStart else { return .badRequestPayload }
        return .absent
    }
}

import HTTP2
import SluiceModel

/// Serves the requests of channel management on one connection (APNs: "Sending channel management requests to APNs").
/// Loop's thread only.
final class ManagementHandler: ServerRequestHandler {
    private let shard: SimulatorShard
    private var credential = ConnectionCredential()
    private var certificate: PeerCertificate?

    init(shard: SimulatorShard) {
        self.shard = shard
    }

    func connectionOpened(_ connection: ServerConnection) {
        certificate = connection.peerCertificate
    }

    func requestReceived(_ request: ServerRequest, on connection: ServerConnection) {
        let call = ManagementRequest(request)
        let result = answer(call)
        let identifier =
            call.identifierText.flatMap { APNSID(canonical: $0) } ?? shard.identifiers.identifier()
        shard.counters.add(.managed)
        var headers: [(StaticString, String)] = [("apns-request-id", "\(identifier)")]
        if let channel = result.channel { headers.append(("apns-channel-id", channel)) }
        shard.respond(
            on: connection, stream: request.stream, status: result.status, reason: result.reason,
            headers: headers, json: result.json)
    }

    func requestOversized(_ request: ServerRequest, on connection: ServerConnection) {
        let identifier = ManagementRequest(request).identifierText.flatMap { APNSID(canonical: $0) }
        shard.counters.add(.managed)
        shard.respondToOversized(
            request, on: connection, name: "apns-request-id", identifier ?? shard.identifiers.identifier())
    }

    /// The answer to a request.
    private struct Answer {
        var status: UInt16
        /// Reason of an error; `absent` for a success.
        var reason = Reason.absent
        /// Identifier of a channel that was created.
        var channel: String?
        /// Content of a success; empty: none.
        var json = ""

        init(_ status: UInt16, channel: String? = nil, json: String = "") {
            self.status = status
            self.channel = channel
            self.json = json
        }

        init(_ reason: Reason) {
            status = reason.status
            self.reason = reason
        }
    }

    private func answer(_ call: ManagementRequest) -> Answer {
        guard let resource = call.resource, call.app.isTopic else { return Answer(.badPath) }
        switch (resource, call.method) {
        case (_, nil), (.allChannels, .post), (.allChannels, .delete): return Answer(.methodNotAllowed)
        default: break
        }
        let reason = checkAccess(
            to: call.app, call.authorization, certificate: certificate, credential: &credential, shard: shard)
        guard reason == .absent else { return Answer(reason) }
        if call.hasDuplicateHeaders { return Answer(.duplicateHeaders) }
        if let text = call.identifierText, APNSID(canonical: text) == nil { return Answer(.badMessageId) }
        let app = call.app.text
        guard shard.channels.admit(app: app) else { return Answer(.tooManyRequests) }
        switch (resource, call.method) {
        case (.allChannels, _):
            // Identifiers are base64, so nothing needs an escape.
            let list = shard.channels.list(app: app).map { "\"\($0)\"" }.joined(separator: ",")
            return Answer(200, json: "{\"channels\":[\(list)]}")
        case (.channels, .post): return create(call, app: app)
        case (.channels, .delete):
            return withChannel(call) { channel in
                guard shard.channels.delete(app: app, channel) else { return Answer(.channelNotRegistered) }
                closeOnDevices(channel, of: app)
                return Answer(204)
            }
        case (.channels, _):
            return withChannel(call) { channel in
                guard let storage = shard.channels.storage(app: app, channel) else {
                    return Answer(.channelNotRegistered)
                }
                return Answer(
                    200,
                    json: "{\"message-storage-policy\":\(storage.rawValue),\"push-type\":\"LiveActivity\"}")
            }
        }
    }

    /// Keeps Live Activities of the devices from starting with a deleted channel.
    private func closeOnDevices(_ channel: String, of app: String) {
        let environment = shard.options.environment.model
        shard.options.devices?.change { world, now in
            world.closeChannel(app: app, channel: channel, environment: environment, now: now)
        }
    }

    private func withChannel(_ call: ManagementRequest, _ body: (String) -> Answer) -> Answer {
        guard let channel = call.channel, !channel.isEmpty else { return Answer(.missingChannelId) }
        guard ChannelIdentifier.isValid(channel) else { return Answer(.badChannelId) }
        return body(channel.text)
    }

    private func create(_ call: ManagementRequest, app: String) -> Answer {
        if call.bodyLength == 0 { return Answer(.payloadEmpty) }
        if call.bodyLength > call.body.count { return Answer(.payloadTooLarge) }
        guard let object = FlatJSON.parse(Array(call.body)) else { return Answer(.badRequestPayload) }
        guard object.names.isSubset(of: ["message-storage-policy", "push-type"]) else {
            return Answer(.badRequestParams)
        }
        guard case .number(let text)? = object["message-storage-policy"],
            let storage = Int(text).flatMap({ ChannelStorage(rawValue: $0) })
        else { return Answer(.missingChannelQueueSize) }
        guard let type = object["push-type"] else { return Answer(.missingPushType) }
        guard type == .text("LiveActivity") else { return Answer(.invalidPushType) }
        guard let channel = shard.channels.create(app: app, storage: storage) else {
            return Answer(.cannotCreateChannelConfig)
        }
        return Answer(201, channel: channel)
    }
}

/// A request of channel management as it was received: slices of the connection's memory.
struct ManagementRequest {
    enum Method { case get, post, delete }
    enum Resource { case channels, allChannels }

    /// Nil for any other method.
    var method: Method?
    /// Nil for any other path.
    var resource: Resource?
    /// Bundle identifier of the path.
    var app = PushRequest.none
    var authorization: UnsafeRawBufferPointer?
    var channel: UnsafeRawBufferPointer?
    var identifierText: UnsafeRawBufferPointer?
    var hasDuplicateHeaders = false
    /// Body as far as it was kept.
    var body = PushRequest.none
    var bodyLength = 0

    init(_ request: ServerRequest) {
        if request.method.equals("GET") {
            method = .get
        } else if request.method.equals("POST") {
            method = .post
        } else if request.method.equals("DELETE") {
            method = .delete
        }
        body = request.body
        bodyLength = request.bodyLength
        readPath(request.path)
        for index in 0..<request.headerCount {
            let (name, value) = request.header(index)
            for earlier in 0..<index where request.header(earlier).name.equals(name) {
                hasDuplicateHeaders = true
            }
            if name.equals("authorization") {
                authorization = value
            } else if name.equals("apns-channel-id") {
                channel = value
            } else if name.equals("apns-request-id") {
                identifierText = value
            }
        }
    }

    private mutating func readPath(_ path: UnsafeRawBufferPointer) {
        guard let rest = path.dropping("/1/apps/"), let slash = rest.firstIndex(of: UInt8(ascii: "/")) else {
            return
        }
        app = UnsafeRawBufferPointer(rebasing: rest[..<slash])
        let end = UnsafeRawBufferPointer(rebasing: rest[slash...])
        if end.equals("/channels") { resource = .channels }
        if end.equals("/all-channels") { resource = .allChannels }
    }
}

import HTTP2
import SluiceModel

/// Broadcasts to channels, on the connections of pushes.
extension PushHandler {
    func broadcastReceived(_ request: ServerRequest, on connection: ServerConnection) {
        if !shard.script.isQuiet, shard.script.leavesUnanswered() { return shard.counters.add(.unanswered) }
        let broadcast = BroadcastRequest(request)
        var reason = judge(request, broadcast, connection)
        if reason == .absent { reason = shard.faults.choose(&shard.random) }
        if !shard.script.isQuiet, reason == .absent { reason = shard.script.judge(self) }
        if reason == .absent {
            reason = shard.channels.publish(
                app: broadcast.app.text, broadcast.channel?.text ?? "",
                expiration: broadcast.expiration ?? 0, payload: broadcast.body)
        }
        adaptStreamLimit(reason, connection)
        let identifier =
            broadcast.identifierText.flatMap { APNSID(canonical: $0) } ?? shard.identifiers.identifier()
        if reason == .absent, let devices = shard.options.devices {
            deliver(broadcast, identifier, to: devices)
        }
        if reason == .absent { shard.counters.add(.broadcast) } else { shard.counters.add(reason) }
        shard.log?.add(broadcast, reason: reason, identifier: identifier)
        answerInTime(
            DelayedAnswer(
                due: 0, stream: request.stream, reason: reason, identifier: identifier, isBroadcast: true,
                handler: self))
    }

    /// Checks a broadcast, from the outside to the inside as a push is checked. The channel is checked last.
    private func judge(
        _ request: ServerRequest, _ broadcast: BroadcastRequest, _ connection: ServerConnection
    ) -> Reason {
        guard request.method.equals("POST") else { return .methodNotAllowed }
        guard broadcast.app.isTopic else { return .badPath }
        var reason = checkAccess(
            to: broadcast.app, broadcast.authorization, certificate: certificate, credential: &credential,
            shard: shard)
        if certificate == nil, reason != .missingProviderToken, credential.isBound {
            acceptToken(connection)
        }
        if reason == .absent { reason = broadcast.checkHeaders() }
        if reason == .absent { reason = broadcast.checkPayload() }
        return reason
    }
}

/// Checks whether a credential may use broadcasts and channels of an app. Returns `absent` if it may.
func checkAccess(
    to app: UnsafeRawBufferPointer, _ authorization: UnsafeRawBufferPointer?, certificate: PeerCertificate?,
    credential: inout ConnectionCredential, shard: SimulatorShard
) -> Reason {
    if let certificate {
        let names = [certificate.userID].compactMap { $0 } + certificate.topics
        guard names.contains(app.text) else { return .topicMismatch }
    } else {
        let reason = credential.check(authorization, topic: app, shard: shard)
        // A key of other topics is named differently than for pushes.
        if reason == .topicDisallowed { return .topicMismatch }
        if reason != .absent { return reason }
    }
    if PushType.allCases.contains(where: {
        $0.topicSuffix.utf8CodeUnitCount > 0 && app.hasSuffix($0.topicSuffix)
    }) {
        return .topicDisallowed
    }
    guard shard.options.topics?.contains(app.text) ?? true else { return .topicMismatch }
    return shard.options.appsWithoutBroadcast.contains(app.text) ? .featureNotEnabled : .absent
}

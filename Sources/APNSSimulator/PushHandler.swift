import EventLoop
import HTTP2
import SluiceModel

/// Checks the pushes of one connection by the rules of APNs, and answers them.
final class PushHandler: ServerRequestHandler {
    private let shard: SimulatorShard
    /// Nil once the connection is closed. Until then the connection owns this handler.
    private var connection: ServerConnection?
    private var credential = ConnectionCredential()
    private var certificate: PeerCertificate?
    /// Whether the response header names are in the client's HPACK table, as they are after the first answer.
    private var hasAnswered = false

    init(shard: SimulatorShard, connection: ServerConnection) {
        self.shard = shard
        self.connection = connection
    }

    // MARK: - Connection

    func connectionOpened(_ connection: ServerConnection) {
        shard.counters.add(.opened)
        certificate = connection.peerCertificate
        connection.maximumConcurrentStreams =
            certificate == nil ? shard.options.streamsBeforeToken : shard.options.maximumStreams
        if let certificate, let reason = fault(of: certificate) {
            shard.counters.add(.refused)
            shard.refuse(connection, reason)
        }
    }

    /// Returns the fault of a push certificate of the other environment, or of a certificate that is no push
    /// certificate. APNs was seen to answer with GOAWAY.
    private func fault(of certificate: PeerCertificate) -> Reason? {
        if certificate.userID == nil, certificate.topics.isEmpty { return .badCertificate }
        let other =
            shard.options.environment == .production
            ? "Apple Development IOS Push Services" : "Apple Production IOS Push Services"
        return certificate.commonName?.hasPrefix(other) == true ? .badCertificateEnvironment : nil
    }

    func connectionClosed(_ connection: ServerConnection, reason: ServerCloseReason) {
        self.connection = nil
        if connection.wasOpened { shard.counters.add(.closed) }
    }

    func requestCancelled(stream: Int32, on connection: ServerConnection) {
        shard.counters.add(.cancelled)
    }

    // MARK: - Requests

    func requestReceived(_ request: ServerRequest, on connection: ServerConnection) {
        var push = PushRequest(request)
        var reason = judge(request, &push, connection)
        if reason == .absent { reason = shard.faults.choose(&shard.random) }
        if reason == .absent, certificate == nil {
            connection.maximumConcurrentStreams = shard.options.maximumStreams
        } else if reason == .expiredProviderToken {
            // Seen in the field: the connection is reduced to one stream until a token is accepted again.
            connection.maximumConcurrentStreams = shard.options.streamsBeforeToken
        }
        let identifier = push.identifierText.flatMap { APNSID(canonical: $0) } ?? shard.random.identifier()
        shard.counters.add(reason)
        shard.log?.add(push, topic: push.topic, reason: reason, identifier: identifier)
        if let due = shard.answerTime() {
            shard.delays.add(
                DelayedAnswer(
                    due: due, stream: request.stream, reason: reason, identifier: identifier, handler: self))
        } else {
            answer(stream: request.stream, reason: reason, identifier: identifier)
        }
    }

    /// Checks a push. APNs' order of checks isn't known; this order runs from the outside to the inside.
    private func judge(
        _ request: ServerRequest, _ push: inout PushRequest, _ connection: ServerConnection
    ) -> Reason {
        guard request.method.equals("POST") else { return .methodNotAllowed }
        var reason = push.readPath(request.path)
        if reason != .absent { return reason }
        if certificate == nil {
            reason = credential.check(push.authorization, topic: push.topic, shard: shard)
            if reason != .absent { return reason }
            connection.maximumConcurrentStreams = shard.options.maximumStreams
        }
        reason = push.checkHeaders()
        if reason == .absent { reason = checkTopic(push) }
        if reason == .absent { reason = push.checkPayload() }
        if reason == .absent { reason = push.checkDeviceToken() }
        return reason == .absent ? shard.checkDevice(push.deviceToken) : reason
    }

    private func checkTopic(_ push: PushRequest) -> Reason {
        guard let certificate else {
            guard let topic = push.topic else { return .missingTopic }
            let reason = push.checkType(topic: topic)
            return reason == .absent && !shard.isKnown(topic) ? .topicDisallowed : reason
        }
        // A certificate for one topic stands for that topic. A certificate for several topics leaves the choice to the
        // request.
        guard var standard = certificate.userID ?? certificate.topics.first else { return .missingTopic }
        if push.topic == nil, certificate.topics.count > 1 { return .missingTopic }
        return standard.withUTF8 { bytes in
            let topic = push.topic ?? UnsafeRawBufferPointer(bytes)
            let reason = push.checkType(topic: topic)
            guard reason == .absent else { return reason }
            let isCovered =
                topic.equals(UnsafeRawBufferPointer(bytes))
                || certificate.topics.contains { name in
                    var name = name
                    return name.withUTF8 { topic.equals(UnsafeRawBufferPointer($0)) }
                }
            return isCovered && shard.isKnown(topic) ? .absent : .topicDisallowed
        }
    }

    // MARK: - Answers

    /// Answers a push, unless its connection or stream is gone.
    func answer(stream: Int32, reason: Reason, identifier: APNSID) {
        guard let connection else { return }
        shard.respond(
            on: connection, stream: stream, reason: reason, identifier: identifier, isFirst: !hasAnswered)
        hasAnswered = true
    }
}

import EventLoop
import HTTP2
import SluiceModel

/// Checks the pushes of one connection by the rules of APNs, and answers them.
final class PushHandler: ServerRequestHandler, TimerHandler {
    let shard: SimulatorShard
    /// Nil once the connection is closed. Until then the connection owns this handler.
    private var connection: ServerConnection?
    var credential = ConnectionCredential()
    private(set) var certificate: PeerCertificate?
    /// Errors that the connection may still cause; nil for any number.
    var budget: ErrorBudget?
    /// Number from 0 to below 1 that decides whether faults of a share of the connections concern this connection.
    var draw = 0.0
    /// Streams that the provider token or certificate allows.
    var tokenStreams: UInt32
    /// Whether the response header names are in the client's HPACK table, as they are after the first answer.
    private var hasAnswered = false
    /// GOAWAY that is due after some more requests, or with its timer; nil when none is due.
    private var dueGoAway: DueGoAway?

    private struct DueGoAway {
        var frame: ServerGoAway
        /// Requests to leave unprocessed before the frame, at least 1.
        var requests: Int
        var timer: TimerID
    }

    init(shard: SimulatorShard, connection: ServerConnection) {
        self.shard = shard
        self.connection = connection
        budget = shard.options.errorBudget.map {
            ErrorBudget(capacity: $0, now: shard.loop.now.nanoseconds)
        }
        tokenStreams = shard.options.streamsBeforeToken
    }

    // MARK: - Connection

    func connectionOpened(_ connection: ServerConnection) {
        shard.counters.add(.opened)
        certificate = connection.peerCertificate
        if certificate != nil { tokenStreams = shard.options.maximumStreams }
        applyStreamLimit(connection)
        if let certificate, let reason = fault(of: certificate) {
            shard.counters.add(.refused)
            shard.refuse(connection, reason)
        }
        shard.script.opened(self, connection)
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
        if let dueGoAway { shard.loop.cancel(dueGoAway.timer) }
        dueGoAway = nil
        shard.script.closed(self)
        if connection.wasOpened { shard.counters.add(.closed) }
    }

    func requestCancelled(stream: Int32, on connection: ServerConnection) {
        shard.counters.add(.cancelled)
    }

    /// Ends the connection with a GOAWAY.
    /// - Parameter unprocessed: number of next requests that the GOAWAY reports as not processed. No device or log gets
    ///   them. The GOAWAY waits for them, for a second at most.
    func goAway(_ frame: ServerGoAway, unprocessed: Int) {
        guard let connection, dueGoAway == nil else { return }
        guard unprocessed > 0 else { return connection.goAway(frame) }
        var frame = frame
        frame.lastStream = connection.newestStream
        dueGoAway = DueGoAway(
            frame: frame, requests: unprocessed,
            timer: shard.loop.schedule(after: .seconds(1), handler: self))
    }

    func timerFired(_ timer: TimerID) {
        guard let due = dueGoAway else { return }
        dueGoAway = nil
        connection?.goAway(due.frame)
    }

    /// Returns whether a GOAWAY is about to report the request as not processed.
    private func leavesUnprocessed(_ stream: Int32) -> Bool {
        guard var due = dueGoAway, let last = due.frame.lastStream, stream > last else { return false }
        due.requests -= 1
        dueGoAway = due
        if due.requests == 0 {
            shard.loop.cancel(due.timer)
            timerFired(due.timer)
        }
        return true
    }

    // MARK: - Requests

    func requestReceived(_ request: ServerRequest, on connection: ServerConnection) {
        if leavesUnprocessed(request.stream) { return }
        if request.path.dropping(BroadcastRequest.pathPrefix) != nil {
            return broadcastReceived(request, on: connection)
        }
        if !shard.script.isQuiet, shard.script.leavesUnanswered() { return shard.counters.add(.unanswered) }
        var push = PushRequest(request)
        var reason = judge(request, &push, connection)
        if reason == .absent { reason = shard.faults.choose(&shard.random) }
        if !shard.script.isQuiet, reason == .absent { reason = shard.script.judge(push, self) }
        if reason == .absent { reason = checkLiveActivity(push, request.body) }
        let identifier =
            push.identifierText.flatMap { APNSID(canonical: $0) } ?? shard.identifiers.identifier()
        var since: Int64?
        if reason == .absent, let devices = shard.options.devices {
            (reason, since) = deliver(push, request.body, identifier, to: devices)
        }
        adaptStreamLimit(reason, connection)
        shard.counters.add(reason)
        shard.log?.add(push, topic: push.topic, reason: reason, identifier: identifier)
        answerInTime(
            DelayedAnswer(
                due: 0, stream: request.stream, reason: reason, identifier: identifier, isBroadcast: false,
                since: since, handler: self))
    }

    func requestOversized(_ request: ServerRequest, on connection: ServerConnection) {
        let identifier = PushRequest(request).identifierText.flatMap { APNSID(canonical: $0) }
        shard.counters.add(.unknown)
        shard.respondToOversized(
            request, on: connection, name: "apns-id", identifier ?? shard.identifiers.identifier())
    }

    /// Checks the members of a Live Activity's payload that concern APNs, and counts a subscription to a channel.
    private func checkLiveActivity(_ push: PushRequest, _ body: UnsafeRawBufferPointer) -> Reason {
        guard push.pushTypeText?.equals(PushType.liveActivity.headerValue) == true, let topic = push.topic,
            let payload = LiveActivityPayload(body)
        else { return .absent }
        let reason = payload.checkForDevice()
        guard reason == .absent, let channel = payload.channel else { return reason }
        let app = UnsafeRawBufferPointer(
            rebasing: topic.dropLast(PushType.liveActivity.topicSuffix.utf8CodeUnitCount))
        let isKnown = shard.channels.subscribe(app: app.text, String(decoding: channel, as: UTF8.self))
        return isKnown ? .absent : .channelNotRegistered
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
            acceptToken(connection)
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
            let reason = push.checkType(topic: topic) { shard.isBundle(topic) }
            return reason == .absent && !shard.isKnown(topic) ? .topicDisallowed : reason
        }
        // A certificate for one topic stands for that topic. A certificate for several topics leaves the choice to the
        // request.
        guard var standard = certificate.userID ?? certificate.topics.first else { return .missingTopic }
        if push.topic == nil, certificate.topics.count > 1 { return .missingTopic }
        return standard.withUTF8 { bytes in
            let topic = push.topic ?? UnsafeRawBufferPointer(bytes)
            let reason = push.checkType(topic: topic) { topic.equals(UnsafeRawBufferPointer(bytes)) }
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

    /// Answers now, or after the latency.
    func answerInTime(_ answer: DelayedAnswer) {
        guard let due = shard.answerTime() else { return self.answer(answer) }
        var answer = answer
        answer.due = due
        shard.delays.add(answer)
    }

    /// Answers a push or broadcast, unless its connection or stream is gone.
    func answer(_ answer: DelayedAnswer) {
        guard let connection else { return }
        if answer.isBroadcast {
            return shard.respondToBroadcast(
                on: connection, stream: answer.stream, reason: answer.reason, identifier: answer.identifier)
        }
        shard.respond(
            on: connection, stream: answer.stream, reason: answer.reason, identifier: answer.identifier,
            since: answer.since, isFirst: !hasAnswered)
        hasAnswered = true
    }
}

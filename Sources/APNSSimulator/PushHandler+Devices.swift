import DeviceModel
import HTTP2
import SluiceModel

/// Pushes and broadcasts on their way to the devices.
extension PushHandler {
    /// Hands a push that has passed all checks to its device. Returns the reason of a refusal, and the timestamp of a
    /// 410 in milliseconds since 1970.
    func deliver(
        _ push: PushRequest, _ body: UnsafeRawBufferPointer, _ identifier: APNSID,
        to devices: DeviceRegistry
    ) -> (reason: Reason, since: Int64?) {
        // A certificate's own topic stands for the field's.
        var standard = certificate.map { $0.userID ?? $0.topics.first ?? "" } ?? ""
        let answer = standard.withUTF8 { bytes in
            devices.receive(
                ArrivedPush(
                    token: push.deviceToken, environment: shard.options.environment.model,
                    topic: push.topic ?? UnsafeRawBufferPointer(bytes),
                    type: push.pushTypeText.flatMap { PushType(headerValue: $0) } ?? .alert,
                    priority: push.priorityText.flatMap { Priority(headerValue: $0) } ?? .immediate,
                    expiration: push.expirationText?.decimal, collapseID: push.collapseIdentifier,
                    apnsID: identifier, payload: body))
        }
        return switch answer {
        case .accepted: (.absent, nil)
        case .refused(let reason, let since): (reason, since)
        }
    }

    /// Hands a broadcast that was published to the devices.
    func deliver(_ broadcast: BroadcastRequest, _ identifier: APNSID, to devices: DeviceRegistry) {
        guard let channel = broadcast.channel else { return }
        let storage = shard.channels.storage(app: broadcast.app.text, channel.text)
        devices.broadcast(
            ArrivedBroadcast(
                app: broadcast.app, channel: channel, environment: shard.options.environment.model,
                priority: broadcast.priorityText.flatMap { Priority(headerValue: $0) } ?? .immediate,
                expiration: broadcast.expiration ?? 0, isStored: storage == .newest, apnsID: identifier,
                payload: broadcast.body))
    }
}

extension SimulatorOptions.Environment {
    /// The environment's name in the device model.
    var model: PushEnvironment {
        switch self {
        case .production: .production
        case .sandbox: .sandbox
        }
    }
}

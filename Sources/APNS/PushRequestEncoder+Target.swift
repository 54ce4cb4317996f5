import HTTP2
import SluiceModel

extension PushRequestEncoder {
    /// Destination of requests in this encoder; looked up once, not per request.
    public enum Target {
        /// Pushes to devices, by their topic.
        case devices(Topic)
        /// Broadcasts to the channels of an app.
        case channels(BroadcastApp)
    }

    /// Adds a topic of pushes, or the bundle identifier of an app with broadcasts.
    public func target(_ name: UnsafeRawBufferPointer, isBroadcast: Bool) -> Target {
        isBroadcast ? .channels(broadcastApp(name)) : .devices(topic(name))
    }

    /// Writes the header block of one push or broadcast. With `collapsesByIdentifier`, a push without a collapse
    /// identifier uses its `apns-id`.
    @inline(__always)
    public func encode(
        _ push: borrowing PushJob, to target: Target, collapsesByIdentifier: Bool,
        into block: inout HeaderBlockEncoder
    ) {
        switch target {
        case .devices(let topic):
            encode(push, topic: topic, collapsesByIdentifier: collapsesByIdentifier, into: &block)
        case .channels(let app):
            encodeBroadcast(
                to: app, channel: push.deviceToken, priority: push.priority, expiration: push.expiration,
                identifier: push.apnsID, into: &block)
        }
    }
}

import HTTP2
import SluiceModel

/// Header blocks of broadcasts (APNs: "Sending broadcast push notification requests to APNs"), on the same connections
/// as pushes to devices.
extension PushRequestEncoder {
    /// App of broadcasts in this encoder; looked up once, not per broadcast.
    public struct BroadcastApp {
        fileprivate var index: Int
    }

    /// Header fields that only broadcasts have.
    struct BroadcastFields {
        var channel: StableFields.ID
        var requestID: StableFields.ID
        /// Paths by the app's index.
        var paths: [StableFields.ID] = []
        /// Bundle identifiers by the app's index, for copies of the encoder.
        var apps: [[UInt8]] = []
    }

    /// Adds an app by its bundle identifier. The path is the same for all broadcasts of the app, so that it enters the
    /// connection's table.
    public func broadcastApp(_ bundleIdentifier: UnsafeRawBufferPointer) -> BroadcastApp {
        broadcasts.apps.append(Array(bundleIdentifier))
        broadcasts.paths.append(
            fields.add(name: ":path", value: Array("/4/broadcasts/apps/".utf8) + Array(bundleIdentifier)))
        return BroadcastApp(index: broadcasts.paths.count - 1)
    }

    /// Writes the header block of one broadcast. The job's identifier is the request's: `apns-request-id`.
    ///
    /// - Parameters:
    ///   - channel: the channel's identifier in base64, as APNs gave it.
    ///   - expiration: a channel without storage accepts ``Expiration/once`` only. An unspecified expiration is sent as
    ///     0, because APNs requires the field.
    public func encodeBroadcast(
        to app: BroadcastApp, channel: UnsafeRawBufferPointer, priority: Priority, expiration: Expiration,
        identifier: APNSID, into block: inout HeaderBlockEncoder
    ) {
        block.indexedStatic(Self.methodPost)
        block.indexedStatic(Self.schemeHTTPS)
        block.stable(authority)
        block.stable(broadcasts.paths[app.index])
        if let authorization { block.stable(authorization) }
        block.stable(pushTypes[Int(PushType.liveActivity.rawValue)])
        block.stable(priorities[priorityIndex(priority)])
        block.value(broadcasts.channel, channel)
        block.value(self.expiration, decimal: expiration.headerSeconds ?? 0)
        block.value(broadcasts.requestID, identifier: identifier.high, identifier.low)
    }
}

/// Kind of a notification: the `apns-push-type` header and its rules (APNs: "Sending notification requests to APNs").
public enum PushType: UInt8, CaseIterable, Sendable {
    case alert, background, voip, complication, fileProvider, mdm, location, liveActivity, pushToTalk,
        widgets,
        controls

    /// Value of the `apns-push-type` header.
    public var headerValue: StaticString {
        switch self {
        case .alert: "alert"
        case .background: "background"
        case .voip: "voip"
        case .complication: "complication"
        case .fileProvider: "fileprovider"
        case .mdm: "mdm"
        case .location: "location"
        case .liveActivity: "liveactivity"
        case .pushToTalk: "pushtotalk"
        case .widgets: "widgets"
        case .controls: "controls"
        }
    }

    /// Suffix of the topic behind the bundle identifier; empty where the topic is the bundle identifier itself. Empty
    /// also for `mdm`, whose topic is in the certificate (``topicPrefix``).
    public var topicSuffix: StaticString {
        switch self {
        case .alert, .background, .mdm: ""
        case .voip: ".voip"
        case .complication: ".complication"
        case .fileProvider: ".pushkit.fileprovider"
        case .location: ".location-query"
        case .liveActivity: ".push-type.liveactivity"
        case .pushToTalk: ".voip-ptt"
        case .widgets: ".push-type.widgets"
        case .controls: ".push-type.controls"
        }
    }

    /// Prefix of the topic, with which the UID of an MDM push certificate's subject begins; empty for other types.
    public var topicPrefix: StaticString { self == .mdm ? "com.apple.mgmt." : "" }

    /// Largest payload in bytes: 5,120 for VoIP, 4,096 for every other push to a device.
    public var maximumPayloadSize: Int { self == .voip ? 5120 : 4096 }

    /// Largest payload in bytes of a broadcast to a channel.
    public static let maximumBroadcastPayloadSize = 5120

    /// Priority of a job that names none. APNs' own default is 10, which APNs refuses for `background`.
    public var defaultPriority: Priority { self == .background ? .powerAware : .immediate }

    /// Returns whether this push type may carry the priority. APNs documents `background` as 5 only and Live Activities
    /// as 5 or 10.
    public func allows(_ priority: Priority) -> Bool {
        switch self {
        case .background: priority == .powerAware
        case .liveActivity: priority != .lowPower
        default: true
        }
    }

    /// Parses an `apns-push-type` value (lower-case, as APNs documents it); nil for anything else.
    public init?(headerValue: UnsafeRawBufferPointer) {
        var raw: UInt8 = 0
        while let type = PushType(rawValue: raw) {
            if headerValue.elementsEqual(bytesOf: type.headerValue) {
                self = type
                return
            }
            raw += 1
        }
        return nil
    }
}

/// The `apns-priority` header.
public enum Priority: UInt8, CaseIterable, Sendable {
    /// 10: send at once.
    case immediate = 10
    /// 5: send with regard to the device's power; APNs may group, throttle or drop the push.
    case powerAware = 5
    /// 1: power first; the push never wakes the device.
    case lowPower = 1

    /// Value of the `apns-priority` header.
    public var headerValue: StaticString {
        switch self {
        case .immediate: "10"
        case .powerAware: "5"
        case .lowPower: "1"
        }
    }

    public init?(headerValue: UnsafeRawBufferPointer) {
        switch headerValue.decimal {
        case 10: self = .immediate
        case 5: self = .powerAware
        case 1: self = .lowPower
        default: return nil
        }
    }
}

/// The `apns-expiration` header.
public enum Expiration: Hashable, Sendable {
    /// No header: APNs stores the notification under its own policy, 30 days by default.
    case unspecified
    /// 0: one delivery attempt, never stored.
    case once
    /// UNIX seconds until which APNs stores and retries. APNs caps them at 30 days ahead.
    case at(UInt32)

    /// Value of the header, or nil when it is omitted.
    public var headerSeconds: UInt32? {
        switch self {
        case .unspecified: nil
        case .once: 0
        case .at(let seconds): seconds
        }
    }

    /// Returns whether the instant of expiration is reached.
    public func isPast(atMilliseconds now: Int64) -> Bool {
        guard case .at(let seconds) = self else { return false }
        return Int64(seconds) * 1000 <= now
    }

    /// Returns the expiration, but no later than `latest`, in milliseconds since the epoch.
    public func capped(atMilliseconds latest: Int64) -> Expiration {
        guard case .at(let seconds) = self, Int64(seconds) * 1000 > latest else { return self }
        return .at(UInt32(clamping: latest / 1000))
    }
}

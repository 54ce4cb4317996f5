/// What kind of notification this is: the `apns-push-type` header and the rules that follow from it
/// (APNs: "Sending notification requests to APNs").
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

    /// What the topic must end with after the bundle identifier; empty where the topic is the bundle
    /// identifier itself, and for `mdm`, whose topic comes from the certificate (``topicPrefix``).
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

    /// What the topic must begin with: the UID of an MDM push certificate's subject begins so.
    public var topicPrefix: StaticString { self == .mdm ? "com.apple.mgmt." : "" }

    /// Largest payload in bytes: 5,120 for VoIP, 4,096 for every other push to a device.
    public var maximumPayloadSize: Int { self == .voip ? 5120 : 4096 }

    /// Largest payload in bytes of a broadcast to a channel.
    public static let maximumBroadcastPayloadSize = 5120

    /// The priority of a job that names none. APNs' own default is 10, which it refuses for `background`.
    public var defaultPriority: Priority { self == .background ? .powerAware : .immediate }

    /// Priorities that this push type may carry. APNs documents `background` as 5 only and Live Activities
    /// as 5 or 10.
    public func allows(_ priority: Priority) -> Bool {
        switch self {
        case .background: priority == .powerAware
        case .liveActivity: priority != .lowPower
        default: true
        }
    }

    /// The type with this `apns-push-type` value (lower-case, as APNs documents it).
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
    /// 5: with regard to the device's power; may be grouped, throttled or dropped.
    case powerAware = 5
    /// 1: power first; never wakes the device.
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
    /// UNIX seconds until which APNs stores and retries. APNs caps it at 30 days ahead.
    case at(UInt32)

    /// Value of the header, or nil when it is omitted.
    public var headerSeconds: UInt32? {
        switch self {
        case .unspecified: nil
        case .once: 0
        case .at(let seconds): seconds
        }
    }

    /// Whether the instant of expiration has come.
    public func isPast(atMilliseconds now: Int64) -> Bool {
        guard case .at(let seconds) = self else { return false }
        return Int64(seconds) * 1000 <= now
    }

    /// The expiration, but no later than `latest`, in milliseconds since the epoch.
    public func capped(atMilliseconds latest: Int64) -> Expiration {
        guard case .at(let seconds) = self, Int64(seconds) * 1000 > latest else { return self }
        return .at(UInt32(clamping: latest / 1000))
    }
}

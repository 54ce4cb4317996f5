import SluiceModel

/// A notification in the delivered list.
struct DeliveredNotification: Sendable {
    /// Collapse identifier or the app's own; nil: generated from `push`.
    var identifier: String?
    /// Number of the push; 0 for a local notification.
    var push: UInt64
    /// Zero for a local notification.
    var apnsID: APNSID
    var at: Int64
    var trigger: Trigger = .push
    /// Surfaces that showed the notification.
    var surfaces: Surfaces = []
    /// Notifications that this one replaced.
    var replaced: UInt16 = 0
    var payload: [UInt8]
    /// Changes of the service extension; nil: none.
    var changes: Boxed<ContentChanges>?

    enum Trigger: UInt8, Sendable {
        case push, interval, calendar, location, none
    }
}

/// Surfaces and effects of a notification.
struct Surfaces: OptionSet, Sendable {
    let rawValue: UInt8
    static let list = Surfaces(rawValue: 1)
    static let banner = Surfaces(rawValue: 2)
    static let lockScreen = Surfaces(rawValue: 4)
    static let sound = Surfaces(rawValue: 8)
    static let badge = Surfaces(rawValue: 16)
    /// The notification waits for the scheduled summary.
    static let summary = Surfaces(rawValue: 32)
}

/// Content that a service extension has put in place of the original.
struct ContentChanges: Sendable {
    var title: String?
    var subtitle: String?
    var body: String?
    var category: String?
    var thread: String?
    var sound: String?
    /// Identifiers of attachments.
    var attachments: [UInt64] = []
}

/// Lists of an app on a device.
struct NotificationCentre: Sendable {
    /// Oldest first.
    private(set) var delivered: [DeliveredNotification] = []
}

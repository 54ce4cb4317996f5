/// Choice of devices for the grid.
public struct DeviceQuery: Codable, Sendable, Equatable {
    public enum Filter: String, Codable, Sendable, CaseIterable { case online, offline, unread, activity }
    public enum Order: String, Codable, Sendable, CaseIterable { case id, recent }
    public var offset = 0
    /// Most devices of the page.
    public var limit = 100
    /// Part of the name or of a notification's text, start of a token, or an `apns-id`. Nil: all devices.
    public var query: String?
    /// App that must be installed; nil: any.
    public var app: String?
    public var filter: Filter?
    public var order = Order.id

    public init() {}
}

/// Part of the grid.
public struct DevicePage: Codable, Sendable, Equatable {
    /// Devices that match.
    public var total: Int
    public var offset: Int
    public var items: [DeviceSummary]
}

public struct TokenQuery: Codable, Sendable, Equatable {
    public var device: UInt32?
    public var app: String?
    public var purpose: TokenPurpose?
    public var environment: PushEnvironment?
    public var offset = 0
    public var limit = 1_000

    public init() {}
}

public struct PushQuery: Codable, Sendable, Equatable {
    /// Start of a token, an `apns-id`, or part of the text. Nil: all pushes.
    public var query: String?
    public var device: UInt32?
    public var app: String?
    public var fate: String?
    /// Pushes with a smaller number only; nil: from the newest.
    public var before: UInt64?
    public var limit = 100

    public init() {}
}

public struct EventBatch: Sendable, Equatable {
    public var events: [DeviceEvent]
    /// Number for the next call.
    public var next: UInt64
    /// Whether events before these were dropped because the reader was too slow.
    public var lost: Bool
}

/// Condition that a test waits for. All members that are set must hold for one notification, push or activity.
public struct WaitCondition: Codable, Sendable, Equatable {
    public var device: UInt32?
    public var app: String?
    /// Identifier of a delivered notification.
    public var identifier: String?
    /// Whole title and body.
    public var title: String?
    public var body: String?
    /// Part of title, subtitle or body.
    public var text: String?
    public var level: String?
    /// Number on the app's icon.
    public var badge: Int?
    /// Delivered notifications that match; at least one by default.
    public var count: Int?
    /// Push with this identifier.
    public var apnsID: String?
    /// State of a push, as in ``PushView/fate``.
    public var fate: String?
    /// State of a Live Activity: `active`, `stale`, `ended`, `dismissed`.
    public var activity: String?
    /// Whether the device is reachable.
    public var isOnline: Bool?
    /// Action of a response.
    public var response: String?
    /// Whether nothing may match.
    public var isAbsent: Bool?

    public init() {}
}

public struct WaitResult: Codable, Sendable, Equatable {
    public var matches: Bool
    /// Matching notifications, at most 100.
    public var notifications: [NotificationView]
    public var pushes: [PushView]
    public var activities: [ActivityView]
    public var responses: [ResponseView]
}

/// Forms of the model's state that the API and the page receive. Times are milliseconds since 1970.

/// Device in the grid.
public struct DeviceSummary: Codable, Sendable, Equatable {
    public var id: UInt32
    public var name: String
    /// Whether APNs reaches the device.
    public var isOnline: Bool
    public var isLocked: Bool
    /// Sum of the badges.
    public var badge: Int
    /// Notifications in all delivered lists.
    public var delivered: Int
    /// Pushes that APNs stores for the device.
    public var stored: Int
    public var activities: Int
    /// Time of the last push; nil: none yet.
    public var lastPushAt: Int64?
    /// Text of the newest notification; nil: none.
    public var lastText: String?
    /// App of that notification.
    public var lastApp: String?
}

/// A device with all that it shows.
public struct DeviceView: Codable, Sendable, Equatable {
    public var id: UInt32
    public var name: String
    public var now: Int64
    public var state: DeviceState
    public var isOnline: Bool
    public var apps: [InstalledAppView]
    /// Banner on the unlocked screen; nil: none.
    public var banner: ShownView?
    /// Entries of the lock screen, newest first.
    public var lockScreen: [ShownView]
    /// Entries that wait for the scheduled summary.
    public var summary: [ShownView]
    /// Next time of the scheduled summary; nil: no app uses it.
    public var nextSummaryAt: Int64?
    /// Pushes that APNs stores.
    public var stored: [StoredView]
    /// Incoming VoIP call; nil: none.
    public var call: CallView?
}

/// A notification on a surface.
public struct ShownView: Codable, Sendable, Equatable {
    public var app: String
    public var identifier: String
    /// End of the surface, as the end of a temporary banner; nil: it stays.
    public var until: Int64?
}

public struct CallView: Codable, Sendable, Equatable {
    public var app: String
    public var at: Int64
    public var payload: JSONValue
}

/// Switches and settings of a device.
public struct DeviceState: Codable, Sendable, Equatable {
    public var isPoweredOn = true
    public var hasNetwork = true
    public var isInAirplaneMode = false
    public var isInLowPowerMode = false
    public var isCharging = false
    public var isLocked = false
    public var isScreenOn = true
    /// Whether the user has unlocked the device since it booted.
    public var wasUnlockedSinceBoot = true
    public var isMuted = false
    public var hasDynamicIsland = true
    /// Whether apps may be woken in the background.
    public var refreshesInBackground = true
    /// Language of the device, as in `strings`.
    public var language = "en"
    /// Offset of the local time to UTC in minutes.
    public var timeZoneMinutes = 0
    /// Region that the device is in; nil: none.
    public var region: String?
    /// Active Focus; nil: none.
    public var focus: FocusState?
    /// Times of the scheduled summary in minutes since local midnight.
    public var summaryTimes: [Int] = [480, 1080]

    public init() {}
}

public struct FocusState: Codable, Sendable, Equatable {
    public var name: String
    public var allowedApps: [String]
    public var allowsTimeSensitive: Bool
    /// `filter-criteria` that the Focus lets through; nil: no filter.
    public var filter: String?

    public init(
        name: String, allowedApps: [String] = [], allowsTimeSensitive: Bool = true, filter: String? = nil
    ) {
        self.name = name
        self.allowedApps = allowedApps
        self.allowsTimeSensitive = allowsTimeSensitive
        self.filter = filter
    }
}

public enum Authorization: String, Codable, Sendable, CaseIterable {
    case notDetermined = "not-determined"
    case denied, authorized, provisional, ephemeral
}

/// Settings of an app that the user can change.
public struct NotificationSettings: Codable, Sendable, Equatable {
    public enum AlertStyle: String, Codable, Sendable { case none, banner, alert }
    public enum Previews: String, Codable, Sendable { case always, whenUnlocked = "when-unlocked", never }
    public enum Grouping: String, Codable, Sendable { case automatic, byApp = "by-app", off }
    public var alerts = true
    public var alertStyle = AlertStyle.banner
    public var lockScreen = true
    public var notificationCentre = true
    public var sounds = true
    public var badges = true
    public var timeSensitive = true
    public var critical = true
    public var previews = Previews.whenUnlocked
    public var grouping = Grouping.automatic
    /// Whether passive and active notifications wait for the scheduled summary.
    public var scheduledSummary = false
    public var backgroundRefresh = true
    public var liveActivities = true
    public var frequentUpdates = false

    public init() {}
}

/// State of an app's process.
public enum AppState: String, Codable, Sendable, CaseIterable {
    case notRunning = "not-running"
    case foreground, background
    /// Ended by the user's gesture.
    case forceQuit = "force-quit"
}

public struct InstalledAppView: Codable, Sendable, Equatable {
    public var bundle: String
    public var name: String
    public var icon: String?
    public var environment: PushEnvironment
    public var state: AppState
    /// Whether the app was launched at least once.
    public var wasLaunched: Bool
    public var authorization: Authorization
    /// Whether the permission prompt waits for the user.
    public var isAsking: Bool
    public var settings: NotificationSettings
    public var badge: Int
    public var tokens: [TokenView]
    /// Newest first.
    public var delivered: [NotificationView]
    /// Groups of the delivered list, newest first.
    public var groups: [GroupView]
    /// In the order of their next time.
    public var pending: [PendingView]
    /// Newest first; bounded.
    public var responses: [ResponseView]
    public var activities: [ActivityView]
    /// Silent pushes that still may wake the app within this hour.
    public var wakesLeft: Int
    /// Whether a silent push waits for its wake.
    public var holdsSilentPush: Bool
    /// AES-GCM key of the service extension as hexadecimal text; nil: none.
    public var extensionKey: String?
}

public struct TokenView: Codable, Sendable, Equatable {
    public var token: String
    public var bundle: String
    public var purpose: TokenPurpose
    public var environment: PushEnvironment
    public var isValid: Bool
    /// Time since which the token is invalid; nil while it is valid.
    public var invalidSince: Int64?
    /// Device of the token.
    public var device: UInt32
}

public struct NotificationView: Codable, Sendable, Equatable {
    /// Request identifier: the collapse identifier, or a generated one.
    public var identifier: String
    /// `apns-id` of the push; nil for a local notification.
    public var apnsID: String?
    /// Number of the push in the journal; nil for a local notification.
    public var push: UInt64?
    /// `push`, `interval`, `calendar`, `location`, `none`.
    public var trigger: String
    public var at: Int64
    public var title: String
    public var subtitle: String
    public var body: String
    /// Texts as hidden previews show them; nil: previews are not hidden now.
    public var hidden: HiddenTexts?
    public var sound: String?
    public var badge: Int?
    public var thread: String?
    public var category: String?
    public var actions: [ActionDeclaration]
    /// `passive`, `active`, `time-sensitive`, `critical`.
    public var level: String
    public var relevance: Double
    public var targetContent: String?
    public var attachments: [AttachmentView]
    /// Title and body before the service extension changed them; nil: unchanged.
    public var original: OriginalTexts?
    /// Expanded view of the content extension; nil: none draws this category.
    public var custom: CustomView?
    /// Notifications that this one has replaced in place.
    public var replaced: Int
    /// Payload as it arrived.
    public var payload: JSONValue

    public struct HiddenTexts: Codable, Sendable, Equatable {
        public var title: String
        public var subtitle: String
        public var body: String
    }

    public struct OriginalTexts: Codable, Sendable, Equatable {
        public var title: String
        public var subtitle: String
        public var body: String
    }
}

public struct AttachmentView: Codable, Sendable, Equatable {
    /// Identifier for `GET /api/attachments/{id}`.
    public var id: UInt64
    /// MIME type.
    public var type: String
    public var bytes: Int
}

/// Expanded view of a content extension.
public struct CustomView: Codable, Sendable, Equatable {
    public var title: String?
    public var sizeRatio: Double
    public var hidesDefaultContent: Bool
    public var isInteractive: Bool
    public var fields: [ContentExtensionDeclaration.Field]
    /// Text that an action has put into the view; nil: none.
    public var status: String?
}

public struct GroupView: Codable, Sendable, Equatable {
    /// Thread; empty for the app's own group.
    public var thread: String
    /// Identifiers, newest first.
    public var identifiers: [String]
    /// Line below the newest entry; nil for a single entry.
    public var summary: String?
}

public struct PendingView: Codable, Sendable, Equatable {
    public var identifier: String
    public var trigger: String
    /// Next time; nil for a location.
    public var at: Int64?
    public var repeats: Bool
    public var title: String
    public var body: String
}

/// `UNNotificationResponse` as the app receives it.
public struct ResponseView: Codable, Sendable, Equatable {
    public var at: Int64
    public var identifier: String
    /// Apple's names for tap and dismissal, or the action's own.
    public var action: String
    public var userText: String?
    /// State of the app while it handles the response.
    public var appState: AppState
}

public struct ActivityView: Codable, Sendable, Equatable {
    public var id: UInt64
    public var type: String
    /// `active`, `stale`, `ended`, `dismissed`.
    public var state: String
    public var startedAt: Int64
    public var updatedAt: Int64
    public var staleAt: Int64?
    public var dismissAt: Int64?
    public var relevance: Double
    /// Channel that the activity listens to; nil: none.
    public var channel: String?
    /// Update token; nil: none.
    public var token: String?
    public var attributes: JSONValue
    public var contentState: JSONValue
    /// Texts of the layout.
    public var title: String
    public var lines: [String]
    public var leading: String
    public var trailing: String
    public var progress: Double?
    /// Whether the last update lit the screen.
    public var alerted: Bool
}

/// Push that APNs stores for a device.
public struct StoredView: Codable, Sendable, Equatable {
    public var push: UInt64
    public var apnsID: String
    public var app: String
    public var topic: String
    public var since: Int64
    public var expires: Int64
    /// Rule that keeps the push from the device.
    public var rule: String
}

/// A push and its fate.
public struct PushView: Codable, Sendable, Equatable {
    /// Number in the journal, from 1.
    public var number: UInt64
    public var at: Int64
    public var apnsID: String
    /// Device; nil: the token is unknown.
    public var device: UInt32?
    public var app: String
    public var topic: String
    public var type: String
    public var priority: Int
    public var collapseID: String?
    /// `apns-expiration`; nil without the header.
    public var expiration: Int64?
    public var environment: PushEnvironment
    public var token: String
    /// HTTP status of the answer.
    public var status: Int
    public var reason: String?
    /// Latest state: `accepted`, `rejected`, `stored`, `held`, `running` (in the extension), `shown`, `silent` (in the list only),
    /// `woken`, `updated`, `replaced`, `removed`, `dropped`, `expired`, `opened`, `dismissed`.
    public var fate: String
    public var steps: [StepView]
    /// Title and body of the notification; nil for other pushes.
    public var text: String?
    public var payload: JSONValue
}

public struct StepView: Codable, Sendable, Equatable {
    public var at: Int64
    /// Identifier of a ``DeviceRule``.
    public var rule: String
    public var text: String
    /// `documented`, `observed`, `assumed`.
    public var basis: RuleBasis
}

/// Rule of the model, as `GET /api/rules` lists it.
public struct RuleView: Codable, Sendable, Equatable {
    public var rule: String
    public var text: String
    public var basis: RuleBasis
    /// Section of the documentation that the rule is taken from.
    public var source: String
}

/// Change of the model, as server-sent events and the export report it.
public struct DeviceEvent: Codable, Sendable, Equatable {
    public enum Kind: String, Codable, Sendable, CaseIterable {
        /// A push reached APNs, or its fate changed. `push` is set.
        case push
        /// Switches or settings of a device changed.
        case device
        case app
        /// A notification was shown, replaced or removed.
        case notification
        /// The user has responded to a notification.
        case response
        case activity
        /// A token is new, or no longer valid.
        case token
        /// The device has become reachable, or unreachable.
        case online, offline
        /// The service extension ran.
        case receipt
        /// The app was woken by a silent push.
        case wake
        case call
        case reset
    }
    /// Number of the event, from 1, without gaps.
    public var number: UInt64
    public var at: Int64
    public var kind: Kind
    public var device: UInt32?
    public var app: String?
    public var push: UInt64?
    public var apnsID: String?
    public var identifier: String?
    /// Latest state of the push, as in ``PushView/fate``; nil for other events.
    public var fate: String?
    /// Action, token or further text; nil: none.
    public var detail: String?
    public var token: String?
    /// Earlier token of a `token` event; nil: none.
    public var formerToken: String?
}

/// Numbers of the model.
public struct WorldStatus: Codable, Sendable, Equatable {
    public var now: Int64
    public var devices: Int
    public var online: Int
    public var tokens: Int
    public var apps: Int
    public var pushes: UInt64
    /// Pushes by their latest state.
    public var fates: [String: UInt64]
    /// Pushes that APNs stores now.
    public var stored: Int
    /// Notifications in all delivered lists.
    public var delivered: Int
    public var activities: Int
    /// Number of the last event.
    public var event: UInt64
    /// Oldest push of the journal.
    public var oldestPush: UInt64
}

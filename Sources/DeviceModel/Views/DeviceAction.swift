/// Act of a user, of an app's code or of the surroundings on a device. Members that an act doesn't need are nil.
public struct DeviceAction: Codable, Sendable, Equatable {
    public enum Kind: String, Codable, Sendable, CaseIterable {
        // The device's switches; `on` is the new state.
        case power, network, airplane, lowPower = "low-power", charging, lock, screen, mute
        case backgroundRefresh = "background-refresh"
        case dynamicIsland = "dynamic-island"
        /// `focus` is the new Focus; nil ends it.
        case focus
        /// `text` is the region that the device enters; nil leaves all regions.
        case location
        /// `text` is the language.
        case language
        /// `number` is the offset of the local time to UTC in minutes.
        case timeZone = "time-zone"
        /// `text` has the times of the scheduled summary, as `8:00,18:00`; empty: none.
        case summaryTimes = "summary-times"
        case reboot
        /// Restores a backup: all tokens change.
        case restore
        // An app; `app` is its bundle identifier.
        case install, uninstall
        /// Brings the app to the front.
        case launch
        /// Leaves the app for the home screen.
        case home
        case forceQuit = "force-quit"
        /// Answers the permission prompt; `on`: allow.
        case answer
        /// Keeps or turns off provisional notifications; `on`: keep.
        case keep
        /// `settings` replaces the app's settings.
        case settings
        // A notification; `identifier` names it.
        case tap, dismiss
        /// `action` is chosen; `text` is typed.
        case act
        /// Flicks the banner away.
        case flick
        /// Opens the expanded view.
        case expand
        /// Clears a group; `text` is its thread.
        case clearGroup = "clear-group"
        /// Clears the whole notification centre.
        case clearAll = "clear-all"
        // Code of the app.
        case removeDelivered = "remove-delivered"
        case removePending = "remove-pending"
        case removeAllDelivered = "remove-all-delivered"
        case removeAllPending = "remove-all-pending"
        /// `number` is the badge.
        case setBadge = "set-badge"
        /// `request` is added.
        case schedule
        // Live Activities; `number` is the activity.
        /// `text` is the type, `payload` has `attributes` and `content-state`, `choice` is a channel or nil.
        case startActivity = "start-activity"
        case endActivity = "end-activity"
        case dismissActivity = "dismiss-activity"
        case tapActivity = "tap-activity"
        /// Ends the incoming call; `on`: accept.
        case call
    }

    public var action: Kind
    public var app: String?
    public var identifier: String?
    public var on: Bool?
    public var text: String?
    public var number: Int?
    /// Identifier of the chosen action, for `act`.
    public var choice: String?
    public var settings: NotificationSettings?
    public var focus: FocusState?
    public var request: LocalRequest?
    public var payload: JSONValue?

    public init(_ action: Kind, app: String? = nil, identifier: String? = nil, on: Bool? = nil) {
        self.action = action
        self.app = app
        self.identifier = identifier
        self.on = on
    }
}

/// Cause why an action is impossible: the fault and the remedy.
public struct DeviceFault: Error, Codable, Sendable, Equatable, CustomStringConvertible {
    public enum Kind: String, Codable, Sendable {
        /// The device, app, notification or activity does not exist.
        case absent
        /// A member is missing or out of range.
        case invalid
        /// The device's state does not allow the action.
        case impossible
        /// The model's limit is reached.
        case limit
    }
    public var kind: Kind
    public var description: String

    public init(_ kind: Kind, _ description: String) {
        self.kind = kind
        self.description = description
    }
}

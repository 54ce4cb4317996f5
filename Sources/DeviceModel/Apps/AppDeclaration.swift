/// Behaviour of an app, declared without code. `apps.yaml` and `PUT /api/apps` have the same members.
public struct AppDeclaration: Codable, Sendable, Equatable {
    /// Bundle identifier.
    public var bundle: String
    /// Name under the icon; the bundle identifier by default.
    public var name: String?
    /// Emoji that stands for the icon; nil: the name's first letter.
    public var icon: String?
    /// Entitlement `aps-environment`, which decides the environment of the app's tokens.
    public var environment: PushEnvironment?
    /// Purposes that the app registers tokens for; `alert` alone by default.
    public var purposes: [TokenPurpose]?
    /// Members of `UIBackgroundModes`: `remote-notification`, `voip`, `location`. Nil: all of them.
    public var backgroundModes: [String]?
    /// Granted entitlements.
    public var entitlements: [Entitlement]?
    /// Permission that the app asks for.
    public var permission: PermissionRequest?
    /// Presentation in the foreground (`willPresent`); nil: the app has no delegate.
    public var foreground: [PresentationOption]?
    /// Localised strings: language, then key, then format.
    public var strings: [String: [String: String]]?
    /// Sound files of the app's bundle. Nil: each name exists.
    public var sounds: [String]?
    /// Registered categories.
    public var categories: [CategoryDeclaration]?
    /// Notification service extension; nil for none.
    public var serviceExtension: ServiceExtensionDeclaration?
    /// Notification content extensions.
    public var contentExtensions: [ContentExtensionDeclaration]?
    /// Code that runs on a silent push, first matching rule first.
    public var silent: [SilentRule]?
    /// Live Activities that the app can show.
    public var activities: [ActivityDeclaration]?
    /// Local notifications that the app schedules at its first launch.
    public var local: [LocalRequest]?

    public init(bundle: String) { self.bundle = bundle }

    enum CodingKeys: String, CodingKey {
        case bundle, name, icon, environment, purposes, entitlements, permission, foreground, strings, sounds
        case categories, silent, activities, local
        case backgroundModes = "background-modes"
        case serviceExtension = "service-extension"
        case contentExtensions = "content-extensions"
    }
}

/// Environment of APNs that a token belongs to.
public enum PushEnvironment: String, Codable, Sendable, CaseIterable {
    case production, sandbox
}

/// Purpose of a device token.
public enum TokenPurpose: String, Codable, Sendable, CaseIterable {
    case alert, voip, location, complication, fileprovider, pushtotalk, widgets, controls
    case activityStart = "activity-start"
    /// Token of one running Live Activity.
    case activity
}

public enum Entitlement: String, Codable, Sendable, CaseIterable {
    case timeSensitive = "time-sensitive"
    case critical
    /// Lets the service extension hide a notification.
    case filtering
    /// Larger update budget of Live Activities.
    case frequentUpdates = "frequent-updates"
}

/// Presentation that an app chooses in the foreground.
public enum PresentationOption: String, Codable, Sendable, CaseIterable {
    case banner, list, sound, badge
}

public struct PermissionRequest: Codable, Sendable, Equatable {
    public enum Moment: String, Codable, Sendable {
        /// The prompt appears at the first launch.
        case launch
        /// The app never asks.
        case never
    }
    /// Answer of the simulated user.
    public enum Answer: String, Codable, Sendable {
        case allow, deny
        /// The prompt waits for an action of the API or the page.
        case wait
    }
    public var ask: Moment?
    /// Requested options: `alert`, `badge`, `sound`, `critical`, `provisional`, `car-play`, `settings`.
    public var options: [String]?
    /// `allow` by default.
    public var answer: Answer?

    public init() {}
}

public struct CategoryDeclaration: Codable, Sendable, Equatable {
    public var identifier: String
    public var actions: [ActionDeclaration]?
    /// Options: `custom-dismiss`, `hidden-previews-show-title`, `hidden-previews-show-subtitle`, `car-play`.
    public var options: [String]?
    /// Body while previews are hidden; `%u` is the number of notifications in the thread.
    public var hiddenBody: String?
    /// Summary of a group; `%u` is the number of further notifications.
    public var summary: String?

    public init(identifier: String) { self.identifier = identifier }

    enum CodingKeys: String, CodingKey {
        case identifier, actions, options, summary
        case hiddenBody = "hidden-body"
    }
}

public struct ActionDeclaration: Codable, Sendable, Equatable {
    public var identifier: String
    public var title: String
    /// Options: `foreground`, `destructive`, `authentication`.
    public var options: [String]?
    /// Text field of the action; nil for a plain button.
    public var input: TextInput?
    /// Changes that the content extension makes when this action is chosen; nil for none.
    public var shows: String?
    /// End of a custom view after the action: `stay`, `dismiss`, `forward`. `forward` by default.
    public var then: String?

    public struct TextInput: Codable, Sendable, Equatable {
        /// Title of the send button.
        public var button: String
        public var placeholder: String?

        public init(button: String, placeholder: String? = nil) {
            self.button = button
            self.placeholder = placeholder
        }
    }

    public init(identifier: String, title: String) {
        self.identifier = identifier
        self.title = title
    }
}

public struct ServiceExtensionDeclaration: Codable, Sendable, Equatable {
    /// AES-GCM key as hexadecimal text of 16, 24 or 32 bytes; nil: nothing is decrypted.
    public var key: String?
    /// Member of the payload with base64 of nonce (12 bytes), cipher text and tag (16 bytes).
    public var encryptedMember: String?
    /// Member of the payload with an attachment's URL.
    public var attachmentMember: String?
    /// Hosts, with optional port, that attachments may be fetched from. Loopback only by default.
    public var allowedHosts: [String]?
    /// Texts that replace members: `title`, `subtitle`, `body`, `category`, `thread`, `sound`, `badge`, `level`,
    /// `relevance`. `{title}` and `{member}` stand for the former text and for members of the payload. A text that needs an
    /// absent member is not set.
    public var set: [String: String]?
    /// Duration of the extension's own work, in seconds. From 30 on the extension runs out of time.
    public var takes: Double?
    /// End of the extension: `done` (default), `crash`, `empty` (hides the notification with `filtering`), or
    /// `best-attempt`, which hands over the changes so far when the time runs out.
    public var ends: String?

    public init() {}

    enum CodingKeys: String, CodingKey {
        case key, set, takes, ends
        case encryptedMember = "encrypted-member"
        case attachmentMember = "attachment-member"
        case allowedHosts = "allowed-hosts"
    }
}

public struct ContentExtensionDeclaration: Codable, Sendable, Equatable {
    /// Categories that the extension draws.
    public var categories: [String]
    /// Height by width when the view opens; 1 by default.
    public var sizeRatio: Double?
    /// Whether title, subtitle and body are hidden.
    public var hidesDefaultContent: Bool?
    /// Title in place of the app's name; nil for the name.
    public var title: String?
    /// Whether controls inside of the view work.
    public var isInteractive: Bool?
    /// Fields of the view from the top down.
    public var fields: [Field]

    /// Field of a simple layout.
    public struct Field: Codable, Sendable, Equatable {
        /// `text`, `image`, `progress`, `input`, `button`.
        public var kind: String
        public var label: String?
        /// Text with `{member}` for members of the payload.
        public var value: String?

        public init(kind: String, label: String? = nil, value: String? = nil) {
            self.kind = kind
            self.label = label
            self.value = value
        }
    }

    public init(categories: [String], fields: [Field]) {
        self.categories = categories
        self.fields = fields
    }

    enum CodingKeys: String, CodingKey {
        case categories, title, fields
        case sizeRatio = "size-ratio"
        case hidesDefaultContent = "hides-default-content"
        case isInteractive = "interactive"
    }
}

/// Reaction of an app's code to a silent push.
public struct SilentRule: Codable, Sendable, Equatable {
    /// Member of the payload that must exist; nil: each silent push matches.
    public var member: String?
    /// Text that the member must equal; nil: any value.
    public var equals: String?
    /// Member with the identifiers to remove from the delivered list: a text or an array of texts.
    public var removesDelivered: String?
    /// Member with the identifiers to remove from the pending list.
    public var removesPending: String?
    /// Member with the number for `setBadgeCount`.
    public var setsBadge: String?
    /// Local notification that the app posts; nil for none.
    public var posts: LocalRequest?
    /// Result of the handler: `new-data` (default), `no-data`, `failed`, `never` (the app is ended).
    public var result: String?

    public init() {}

    enum CodingKeys: String, CodingKey {
        case member, equals, posts, result
        case removesDelivered = "removes-delivered"
        case removesPending = "removes-pending"
        case setsBadge = "sets-badge"
    }
}

public struct ActivityDeclaration: Codable, Sendable, Equatable {
    /// Swift type name of the attributes (`attributes-type`).
    public var type: String
    /// Members that the content state must have. A state without them does not decode.
    public var requires: [String]?
    /// Texts with `{member}` for members of the content state and the attributes.
    public var title: String?
    public var lines: [String]?
    public var leading: String?
    public var trailing: String?
    /// Member of the content state with a number from 0 to 1; nil for no bar.
    public var progress: String?

    public init(type: String) { self.type = type }
}

/// A notification that an app schedules on the device.
public struct LocalRequest: Codable, Sendable, Equatable {
    public var identifier: String
    /// Payload in the form of a push: `aps` and members beside it.
    public var payload: JSONValue?
    public var trigger: LocalTrigger?

    public init(identifier: String) { self.identifier = identifier }
}

/// Exactly one member is set; none: at once.
public struct LocalTrigger: Codable, Sendable, Equatable {
    /// Seconds from scheduling.
    public var interval: Double?
    /// Time of day in minutes since midnight, local to the device.
    public var minuteOfDay: Int?
    /// Region whose border the device passes.
    public var region: String?
    /// `enter` (default), `exit`, `both`.
    public var on: String?
    public var repeats: Bool?

    public init() {}

    enum CodingKeys: String, CodingKey {
        case interval, region, on, repeats
        case minuteOfDay = "minute-of-day"
    }
}

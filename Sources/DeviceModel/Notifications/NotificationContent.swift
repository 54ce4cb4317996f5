/// Content of a notification, as the app and the user see it. Made for views and for rare decisions, not at arrival.
struct NotificationContent: Sendable, Equatable {
    struct Sound: Sendable, Equatable {
        /// File of the app, or `default`.
        var name: String
        var isCritical = false
        /// Volume of a critical sound, 0 to 1.
        var volume = 1.0
    }
    var title = ""
    var subtitle = ""
    var body = ""
    /// Whether there is an alert with title, subtitle or body.
    var hasText = false
    /// Whether a text comes from the app's strings table.
    var isLocalized = false
    /// Whether the strings table lacks a key.
    var lacksString = false
    /// New badge, 0 or more; nil: the badge stays.
    var badge: Int32?
    /// Nil: silent.
    var sound: Sound?
    /// Nil: the group of the app.
    var thread: String?
    var category: String?
    var level = InterruptionLevel.active
    /// Order in the summary, 0 to 1.
    var relevance = 0.0
    var targetContent: String?
    var filter: String?
    /// Whether `content-available` is 1.
    var wakesApp = false
    /// Whether `mutable-content` is 1.
    var asksForExtension = false
    /// Members beside `aps`.
    var userInfo: [String: JSONValue] = [:]

    init() {}

    /// Reads a payload. A payload that is not a JSON object has no content.
    /// - Parameters:
    ///   - strings: strings tables of the app by language.
    ///   - language: language of the device.
    init(_ payload: [UInt8], strings: [String: [String: String]]? = nil, language: String = "en") {
        guard case .object(let members)? = JSONValue(payload) else { return }
        userInfo = members
        guard let aps = userInfo.removeValue(forKey: "aps")?.members else { return }
        readAlert(aps["alert"], StringsTable(strings, language: language))
        badge = Self.badge(aps["badge"])
        sound = Self.sound(aps["sound"])
        thread = aps["thread-id"]?.string
        category = aps["category"]?.string
        level =
            InterruptionLevel.allCases.first { "\($0.name)" == aps["interruption-level"]?.string } ?? .active
        relevance = min(1, max(0, aps["relevance-score"]?.double ?? 0))
        targetContent = aps["target-content-id"]?.string
        filter = aps["filter-criteria"]?.string
        wakesApp = aps["content-available"]?.integer == 1
        asksForExtension = aps["mutable-content"]?.integer == 1
    }

    private mutating func readAlert(_ alert: JSONValue?, _ table: StringsTable) {
        switch alert {
        case .string(let text):
            body = text
            hasText = !text.isEmpty
        case .object(let members):
            title = text(members, "title", "title-loc-key", "title-loc-args", table)
            subtitle = text(members, "subtitle", "subtitle-loc-key", "subtitle-loc-args", table)
            body = text(members, "body", "loc-key", "loc-args", table)
            hasText = isLocalized || !(title.isEmpty && subtitle.isEmpty && body.isEmpty)
        default: break
        }
    }

    /// The key wins over the plain text.
    private mutating func text(
        _ members: [String: JSONValue], _ plain: String, _ key: String, _ arguments: String,
        _ table: StringsTable
    ) -> String {
        guard let key = members[key]?.string, !key.isEmpty else { return members[plain]?.string ?? "" }
        isLocalized = true
        guard let format = table[key] else {
            lacksString = true
            return key
        }
        return FormattedText.fill(format, (members[arguments]?.elements ?? []).map(\.plainText))
    }

    /// Badge that a member sets; nil for an absent member, another type and a number that is negative or not whole.
    static func badge(_ value: JSONValue?) -> Int32? {
        guard let number = value?.integer, number >= 0 else { return nil }
        return Int32(clamping: number)
    }

    private static func sound(_ value: JSONValue?) -> Sound? {
        switch value {
        case .string(let name): return name.isEmpty ? nil : Sound(name: name)
        case .object(let members):
            let name = members["name"]?.string ?? "default"
            guard !name.isEmpty else { return nil }
            let volume = min(1, max(0, members["volume"]?.double ?? 1))
            return Sound(name: name, isCritical: members["critical"]?.integer == 1, volume: volume)
        default: return nil
        }
    }

    /// Takes over what the service extension has changed.
    mutating func apply(_ changes: ContentChanges) {
        if let title = changes.title { self.title = title }
        if let subtitle = changes.subtitle { self.subtitle = subtitle }
        if let body = changes.body { self.body = body }
        if let category = changes.category { self.category = category }
        if let thread = changes.thread { self.thread = thread }
        if let sound = changes.sound { self.sound = sound.isEmpty ? nil : Sound(name: sound) }
        if let badge = changes.badge { self.badge = badge }
        if let level = changes.level { self.level = level }
        if let relevance = changes.relevance { self.relevance = relevance }
    }

    /// Title and body in a line; nil without an alert.
    var line: String? {
        guard hasText else { return nil }
        let parts = [title, title.isEmpty || body.isEmpty ? subtitle : "", body].filter { !$0.isEmpty }
        return parts.joined(separator: ": ")
    }
}

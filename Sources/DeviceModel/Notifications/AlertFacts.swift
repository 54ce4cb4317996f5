import SluiceModel

/// Facts of a payload that decide its presentation. Texts are not among the facts.
struct AlertFacts: Sendable, Equatable {
    /// Relation of a name in the payload to what the app or the Focus knows.
    enum Name: UInt8, Sendable {
        case absent, known, unknown
    }
    /// Whether there is an alert with title, subtitle or body.
    var hasText = false
    /// Whether a text comes from the app's strings table.
    var isLocalized = false
    /// New badge, 0 or more; nil: the badge stays.
    var badge: Int32?
    /// Sound. A file that the app lacks is unknown.
    var sound = Name.absent
    /// Whether the sound asks to be critical.
    var isCriticalSound = false
    var level = InterruptionLevel.active
    /// Category. Without registration a category is unknown.
    var category = Name.absent
    /// Filter criteria. Criteria that differ from those of the Focus are unknown.
    var filter = Name.absent
    /// Whether `content-available` is 1.
    var wakesApp = false
    /// Whether `mutable-content` is 1.
    var asksForExtension = false

    /// Whether the user can notice the payload.
    var isPresentable: Bool { hasText || sound != .absent || badge != nil }

    init() {}
}

/// Names that the payload's names are compared with.
struct AlertExpectations: Sendable {
    /// Registered categories; nil: none.
    var categories: [CategoryDeclaration]?
    /// Sound files of the app; nil: each name exists.
    var sounds: [String]?
    /// Filter of the active Focus; nil: there is none.
    var filter: String?

    func category(_ name: String) -> AlertFacts.Name {
        categories?.contains { $0.identifier == name } ?? false ? .known : .unknown
    }

    /// An empty name is no sound. `default` always exists.
    func sound(_ name: String) -> AlertFacts.Name {
        if name.isEmpty { return .absent }
        return name == "default" || sounds?.contains(name) ?? true ? .known : .unknown
    }

    func filter(_ criteria: String) -> AlertFacts.Name {
        filter.map { $0 == criteria } ?? true ? .known : .unknown
    }
}

extension AlertFacts {
    /// Reads a payload in a single pass over its bytes. A payload that is not JSON has no facts.
    init(_ payload: [UInt8], _ expected: AlertExpectations) {
        let read = payload.withUnsafeBytes { bytes -> AlertFacts? in
            var reader = AlertReader(bytes, expected)
            return reader.read()
        }
        // Escapes in names are rare, so that the tree may decide them.
        self = read ?? AlertFacts(NotificationContent(payload), expected)
    }

    init(_ content: NotificationContent, _ expected: AlertExpectations) {
        hasText = content.hasText
        isLocalized = content.isLocalized
        badge = content.badge
        sound = content.sound.map { expected.sound($0.name) } ?? .absent
        isCriticalSound = sound != .absent && content.sound?.isCritical ?? false
        level = content.level
        category = content.category.map { expected.category($0) } ?? .absent
        filter = content.filter.map { expected.filter($0) } ?? .absent
        wakesApp = content.wakesApp
        asksForExtension = content.asksForExtension
    }

    /// Takes over what the service extension has changed.
    mutating func apply(_ changes: ContentChanges, _ expected: AlertExpectations) {
        if let sound = changes.sound {
            self.sound = expected.sound(sound)
            isCriticalSound = false
        }
        if let category = changes.category { self.category = expected.category(category) }
        if let badge = changes.badge { self.badge = badge }
        if let level = changes.level { self.level = level }
    }
}

/// Reads facts from bytes that may be anything. Builds nothing.
private struct AlertReader {
    private let bytes: UnsafeRawBufferPointer
    private var scanner: JSONScanner
    private let expected: AlertExpectations
    private var facts = AlertFacts()
    /// Whether no name so far has an escape, which a comparison of bytes does not see.
    private var isPlain = true

    init(_ bytes: UnsafeRawBufferPointer, _ expected: AlertExpectations) {
        self.bytes = bytes
        self.expected = expected
        scanner = JSONScanner(bytes)
    }

    /// Returns the facts; nil when only the tree can decide them.
    mutating func read() -> AlertFacts? {
        // The scanner bounds the nesting below a member. Only many brackets can exceed the bound of the whole text.
        var brackets = 0
        for byte in bytes where byte == UInt8(ascii: "{") || byte == UInt8(ascii: "[") { brackets &+= 1 }
        if brackets > 100 { return nil }
        guard (try? root()) != nil, scanner.index == bytes.count else { return AlertFacts() }
        return isPlain ? facts : nil
    }

    private mutating func root() throws(JSONFault) {
        scanner.skipWhitespace()
        var object = try enter()
        while let name = try next(&object) {
            if isEqual(name, "aps") {
                facts = AlertFacts()
                try aps()
            } else {
                try scanner.skipValue()
            }
        }
        scanner.skipWhitespace()
    }

    private mutating func aps() throws(JSONFault) {
        var object = try enter()
        while let name = try next(&object) {
            switch name.count {
            case 5:
                if isEqual(name, "alert") {
                    try alert()
                } else if isEqual(name, "badge") {
                    facts.badge = NotificationContent.badge(try number())
                } else if isEqual(name, "sound") {
                    try sound()
                } else {
                    try scanner.skipValue()
                }
            case 8 where isEqual(name, "category"):
                facts.category = try text().map { category($0) } ?? .absent
            case 15 where isEqual(name, "mutable-content"): facts.asksForExtension = try isOne()
            case 15 where isEqual(name, "filter-criteria"):
                facts.filter = try text().map { filter($0) } ?? .absent
            case 17 where isEqual(name, "content-available"): facts.wakesApp = try isOne()
            case 18 where isEqual(name, "interruption-level"):
                let value = try text()
                facts.level = value.map { level($0) } ?? .active
            default: try scanner.skipValue()
            }
        }
    }

    private mutating func alert() throws(JSONFault) {
        facts.isLocalized = false
        if scanner.peek == UInt8(ascii: "\"") {
            facts.hasText = try text().map { $0.count > 0 } ?? false
            return
        }
        var title = false
        var subtitle = false
        var body = false
        var titleKey = false
        var subtitleKey = false
        var bodyKey = false
        var object = try enter()
        while let name = try next(&object) {
            switch name.count {
            case 4 where isEqual(name, "body"): body = try hasText()
            case 5 where isEqual(name, "title"): title = try hasText()
            case 7 where isEqual(name, "loc-key"): bodyKey = try hasText()
            case 8 where isEqual(name, "subtitle"): subtitle = try hasText()
            case 13 where isEqual(name, "title-loc-key"): titleKey = try hasText()
            case 16 where isEqual(name, "subtitle-loc-key"): subtitleKey = try hasText()
            default: try scanner.skipValue()
            }
        }
        facts.isLocalized = titleKey || subtitleKey || bodyKey
        facts.hasText = title || subtitle || body || facts.isLocalized
    }

    private mutating func sound() throws(JSONFault) {
        facts.isCriticalSound = false
        if scanner.peek == UInt8(ascii: "\"") {
            facts.sound = try text().map { sound($0) } ?? .absent
            return
        }
        let isObject = scanner.peek == UInt8(ascii: "{")
        facts.sound = isObject ? .known : .absent
        var object = try enter()
        while let name = try next(&object) {
            if isEqual(name, "name") {
                facts.sound = try text().map { sound($0) } ?? .known
            } else if isEqual(name, "critical") {
                facts.isCriticalSound = try isOne()
            } else {
                try scanner.skipValue()
            }
        }
        if facts.sound == .absent { facts.isCriticalSound = false }
    }

    // MARK: - Values

    /// State of the walk through an object.
    private enum Walk {
        case first, later, ended
    }

    /// Enters an object. Skips another value, whose walk has ended.
    private mutating func enter() throws(JSONFault) -> Walk {
        guard scanner.peek == UInt8(ascii: "{") else {
            try scanner.skipValue()
            return .ended
        }
        try scanner.expect(UInt8(ascii: "{"), "'{'")
        return .first
    }

    /// Moves to the next value of an object, and returns its name; nil behind the object.
    private mutating func next(_ walk: inout Walk) throws(JSONFault) -> UnsafeRawBufferPointer? {
        if walk == .ended { return nil }
        scanner.skipWhitespace()
        if scanner.peek == UInt8(ascii: "}") {
            try scanner.expect(UInt8(ascii: "}"), "'}'")
            walk = .ended
            return nil
        }
        if walk == .later {
            try scanner.expect(UInt8(ascii: ","), "','")
            scanner.skipWhitespace()
        }
        walk = .later
        if scanner.peek != UInt8(ascii: "\"") { try scanner.expect(UInt8(ascii: "\""), "a member name") }
        let name = try quoted()
        noteEscapes(name)
        scanner.skipWhitespace()
        try scanner.expect(UInt8(ascii: ":"), "':'")
        scanner.skipWhitespace()
        return name
    }

    /// Skips a string, and returns what is between its quotes.
    private mutating func quoted() throws(JSONFault) -> UnsafeRawBufferPointer {
        let start = scanner.index
        try scanner.skipString()
        return scanner.slice(start + 1..<scanner.index - 1)
    }

    /// Skips a value. Returns what is between the quotes of a string; nil for another value.
    private mutating func text() throws(JSONFault) -> UnsafeRawBufferPointer? {
        guard scanner.peek == UInt8(ascii: "\"") else {
            try scanner.skipValue()
            return nil
        }
        return try quoted()
    }

    private mutating func hasText() throws(JSONFault) -> Bool { try text().map { $0.count > 0 } ?? false }

    private mutating func number() throws(JSONFault) -> JSONValue? {
        let start = scanner.index
        try scanner.skipValue()
        let raw = scanner.slice(start..<scanner.index)
        guard let first = raw.first, first == UInt8(ascii: "-") || first &- UInt8(ascii: "0") < 10 else {
            return nil
        }
        guard raw.count < 10 else { return JSONValue(raw) }
        var value: Int64 = 0
        for byte in raw {
            guard byte &- UInt8(ascii: "0") < 10 else { return JSONValue(raw) }
            value = value &* 10 &+ Int64(byte &- UInt8(ascii: "0"))
        }
        return .integer(value)
    }

    private mutating func isOne() throws(JSONFault) -> Bool { try number()?.integer == 1 }

    // MARK: - Comparisons

    private mutating func noteEscapes(_ text: UnsafeRawBufferPointer) {
        if text.contains(UInt8(ascii: "\\")) { isPlain = false }
    }

    private mutating func level(_ text: UnsafeRawBufferPointer) -> InterruptionLevel {
        noteEscapes(text)
        return InterruptionLevel.allCases.first { isEqual(text, $0.name) } ?? .active
    }

    private mutating func category(_ text: UnsafeRawBufferPointer) -> AlertFacts.Name {
        noteEscapes(text)
        for category in expected.categories ?? [] where isSame(text, category.identifier) { return .known }
        return .unknown
    }

    private mutating func sound(_ text: UnsafeRawBufferPointer) -> AlertFacts.Name {
        noteEscapes(text)
        if text.count == 0 { return .absent }
        guard let sounds = expected.sounds, !isEqual(text, "default") else { return .known }
        for sound in sounds where isSame(text, sound) { return .known }
        return .unknown
    }

    private mutating func filter(_ text: UnsafeRawBufferPointer) -> AlertFacts.Name {
        noteEscapes(text)
        guard let filter = expected.filter else { return .known }
        return isSame(text, filter) ? .known : .unknown
    }
}

private func isEqual(_ bytes: UnsafeRawBufferPointer, _ literal: StaticString) -> Bool {
    guard bytes.count == literal.utf8CodeUnitCount else { return false }
    let other = literal.utf8Start
    for index in 0..<bytes.count where bytes[index] != other[index] { return false }
    return true
}

/// Another name than that for literals, because a literal would be a `String` by default.
private func isSame(_ bytes: UnsafeRawBufferPointer, _ text: String) -> Bool {
    text.utf8.count == bytes.count && text.utf8.elementsEqual(bytes)
}

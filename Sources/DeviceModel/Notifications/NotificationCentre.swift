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
    /// Surfaces that show the notification.
    var surfaces: Surfaces = []
    /// Notifications that this one replaced.
    var replaced: UInt16 = 0
    var payload: [UInt8]
    /// Changes of the extensions; nil: none.
    var changes: Boxed<ContentChanges>?

    enum Trigger: UInt8, Sendable {
        case push, interval, calendar, location, none
    }

    /// Bytes that the notification takes of the room for all.
    var bytes: Int {
        var bytes = 128 + payload.count + (identifier?.utf8.count ?? 0)
        if let changes = changes?.value {
            for text in [
                changes.title, changes.subtitle, changes.body, changes.category, changes.thread,
                changes.sound, changes.status,
            ] { bytes += text?.utf8.count ?? 0 }
        }
        return bytes
    }

    /// Request identifier as the app sees it.
    func identifier(seed: UInt64) -> String { identifier ?? GeneratedIdentifier.text(push, seed: seed) }

    func isNamed(_ name: RequestName, seed: UInt64) -> Bool {
        if let identifier { return identifier == name.text }
        return name.generated.map { GeneratedIdentifier.isIdentifier($0, of: push, seed: seed) } ?? false
    }
}

/// Name that a list is searched for.
struct RequestName {
    var text: String
    /// Value of a name that may be generated; nil for every other name.
    var generated: APNSID?

    init(_ text: String) {
        self.text = text
        generated = GeneratedIdentifier.parse(text)
    }
}

/// Request identifier of a push without a collapse identifier. It is derived whenever a reader needs it.
enum GeneratedIdentifier {
    /// Returns a random UUID (RFC 9562 §5.4) in upper case, the same at each call.
    static func text(_ push: UInt64, seed: UInt64) -> String {
        var random = generator(push, seed: seed)
        let high = high(&random)
        return "\(APNSID(high: high, low: low(&random)))".uppercased()
    }

    /// Value of a text that has the form of a generated identifier; nil for every other text.
    static func parse(_ text: String) -> APNSID? {
        // Most names differ in their length, or have lower-case letters.
        guard text.utf8.count == APNSID.textLength, !text.utf8.contains(where: { $0 > UInt8(ascii: "F") })
        else { return nil }
        let bytes = Array(text.utf8)
        guard let id = bytes.withUnsafeBytes({ APNSID(anyCase: $0) }), id.high & 0xF000 == 0x4000,
            id.low >> 62 == 0b10
        else { return nil }
        return id
    }

    /// Whether a value is the identifier of a push. Nothing is allocated, because lists are searched at each arrival.
    static func isIdentifier(_ id: APNSID, of push: UInt64, seed: UInt64) -> Bool {
        var random = generator(push, seed: seed)
        return high(&random) == id.high && low(&random) == id.low
    }

    private static func generator(_ push: UInt64, seed: UInt64) -> SeededGenerator {
        SeededGenerator(seed: seed ^ 0x6964_656E_7469_6679 &+ push &* 0x9E37_79B9_7F4A_7C15)
    }

    private static func high(_ random: inout SeededGenerator) -> UInt64 { random.next() & ~0xF000 | 0x4000 }

    private static func low(_ random: inout SeededGenerator) -> UInt64 {
        random.next() & ~(0b11 << 62) | 0b10 << 62
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
    /// Surfaces that need an entry in the delivered list.
    static let entries: Surfaces = [.list, .banner, .lockScreen, .summary]
    /// Surfaces that keep an entry after the banner's end.
    static let lasting: Surfaces = [.list, .lockScreen, .summary]
}

/// Content that extensions have put in place of the original.
struct ContentChanges: Sendable {
    var title: String?
    var subtitle: String?
    var body: String?
    var category: String?
    var thread: String?
    var sound: String?
    /// New badge, 0 or more; nil: that of the payload.
    var badge: Int32?
    /// Interruption level; nil: that of the payload.
    var level: InterruptionLevel?
    /// Order in the summary, 0 to 1; nil: that of the payload.
    var relevance: Double?
    /// Identifiers of attachments.
    var attachments: [UInt64] = []
    /// Text that an action has put into the content extension's view; nil: none.
    var status: String?
}

/// Lists of an app on a device.
struct NotificationCentre: Sendable {
    /// Oldest first.
    private(set) var delivered: [DeliveredNotification] = []
    /// Bytes of the delivered list.
    private(set) var bytes = 0
    /// Pending requests; nil: there were none.
    private var requests: Boxed<PendingList>?

    // MARK: - Delivered list

    /// Whether an entry is on no lasting surface: a banner alone shows it.
    var hasFleetingEntry: Bool {
        delivered.indices.contains { delivered[$0].surfaces.isDisjoint(with: .lasting) }
    }

    /// Adds a notification on top. A notification with the same identifier leaves its place.
    /// - Returns: the notification that was replaced, and the oldest one if the list was full.
    mutating func insert(
        _ notification: DeliveredNotification, limit: Int, seed: UInt64
    ) -> (replaced: DeliveredNotification?, dropped: DeliveredNotification?) {
        var notification = notification
        var replaced: DeliveredNotification?
        if let name = notification.identifier, let index = index(name, seed: seed) {
            let former = take(index)
            notification.replaced = former.replaced == .max ? .max : former.replaced + 1
            replaced = former
        }
        let dropped = delivered.count >= max(1, limit) ? take(0) : nil
        bytes += notification.bytes
        delivered.append(notification)
        return (replaced, dropped)
    }

    /// Place of a notification, searched from the newest; nil: none has the name.
    private func index(_ name: String, seed: UInt64) -> Int? {
        let name = RequestName(name)
        return delivered.lastIndex { $0.isNamed(name, seed: seed) }
    }

    func notification(_ name: String, seed: UInt64) -> DeliveredNotification? {
        index(name, seed: seed).map { delivered[$0] }
    }

    mutating func remove(_ name: String, seed: UInt64) -> DeliveredNotification? {
        index(name, seed: seed).map { take($0) }
    }

    /// Removes the oldest notification if it is not younger than a time.
    mutating func removeOldest(until time: Int64) -> DeliveredNotification? {
        guard let first = delivered.first, first.at <= time else { return nil }
        return take(0)
    }

    private mutating func take(_ index: Int) -> DeliveredNotification {
        let taken = delivered.remove(at: index)
        bytes -= taken.bytes
        return taken
    }

    /// Removes the notifications that `isRemoved` accepts, and returns them, newest first.
    mutating func remove(where isRemoved: (DeliveredNotification) -> Bool) -> [DeliveredNotification] {
        var removed: [DeliveredNotification] = []
        guard delivered.contains(where: isRemoved) else { return removed }
        delivered.removeAll { notification in
            guard isRemoved(notification) else { return false }
            removed.append(notification)
            bytes -= notification.bytes
            return true
        }
        return removed.reversed()
    }

    /// Changes the surfaces of each notification.
    mutating func move(_ body: (inout Surfaces) -> Void) {
        for index in delivered.indices { body(&delivered[index].surfaces) }
    }

    /// Sets the status of a content extension's view.
    mutating func setStatus(_ status: String?, of name: String, seed: UInt64) {
        guard let index = index(name, seed: seed) else { return }
        var changes = delivered[index].changes?.value ?? ContentChanges()
        changes.status = status
        bytes -= delivered[index].bytes
        delivered[index].changes = Boxed(changes)
        bytes += delivered[index].bytes
    }

    // MARK: - Pending list

    /// Pending requests, soonest first.
    var pending: [PendingRequest] { requests?.value.requests ?? [] }

    /// Changes the pending list.
    mutating func changePending<Result>(_ body: (inout PendingList) -> Result) -> Result {
        var list = requests?.value ?? PendingList()
        // The list is not copied when the box holds it no longer.
        requests = nil
        let result = body(&list)
        requests = list.requests.isEmpty ? nil : Boxed(list)
        return result
    }

    /// Removes a pending request. Returns whether there was one.
    mutating func removePending(_ identifier: String) -> Bool {
        guard requests != nil else { return false }
        return changePending { $0.remove(identifier) } != nil
    }
}

import SluiceModel

/// Treatment of broadcasts to devices that are offline (`message-storage-policy`). Fixed when a channel is created.
public enum ChannelStorage: Int, Sendable, CaseIterable {
    /// Nothing is stored; broadcasts must have an expiration of 0.
    case none = 0
    /// The newest broadcast is stored until it expires, for at most eight hours.
    case newest = 1
}

/// Channels of the simulated environment, by app. Pure: times are arguments, in milliseconds since 1970.
struct ChannelTable {
    /// Limits of channels. APNs documents the number of channels, and that channels without storage may publish more.
    struct Limits {
        /// Channels that an app may have.
        var channels = 10_000
        /// Broadcasts of a channel that stores, within a second; nil for any number.
        var perSecond: Int?
        /// Broadcasts of a channel without storage, within a second; nil for any number.
        var perSecondUnstored: Int?
        /// Requests of channel management for an app, within a second; nil for any number.
        var requestsPerSecond: Int?
    }

    /// Broadcast that a channel keeps for devices that subscribe or return.
    struct Stored: Equatable {
        var payload: [UInt8]
        /// First millisecond at which the broadcast is gone.
        var expires: Int64
    }

    struct Channel {
        let storage: ChannelStorage
        /// Number of the creation, for the order of lists.
        let number: UInt64
        var stored: Stored?
        /// Broadcasts that were accepted.
        var published: UInt64 = 0
        /// Live Activities that were started with this channel.
        var subscriptions: UInt64 = 0
        /// Subscriptions that received the stored broadcast at once.
        var replayed: UInt64 = 0
        fileprivate var rate = Rate()
    }

    /// Requests within the current second.
    fileprivate struct Rate {
        private var second: Int64 = 0
        private var count = 0

        /// Counts a request; returns false if the request exceeds the limit.
        mutating func admit(_ limit: Int?, now: Int64) -> Bool {
            guard let limit else { return true }
            if second != now / 1_000 {
                second = now / 1_000
                count = 0
            }
            count += 1
            return count <= limit
        }
    }

    private struct App {
        var channels: [String: Channel] = [:]
        var rate = Rate()
    }

    private let limits: Limits
    private var apps: [String: App] = [:]
    private var created: UInt64 = 0
    private var random: SeededGenerator

    /// Longest storage of a broadcast: eight hours.
    static let longestStorage: Int64 = 8 * 3_600 * 1_000

    init(limits: Limits, seed: UInt64) {
        self.limits = limits
        random = SeededGenerator(seed: seed)
    }

    /// Counts a request of channel management. Returns false if the app has made too many within this second.
    mutating func admit(app: String, now: Int64) -> Bool {
        guard limits.requestsPerSecond != nil else { return true }
        return apps[app, default: App()].rate.admit(limits.requestsPerSecond, now: now)
    }

    /// Creates a channel and returns its identifier; nil at the app's limit.
    mutating func create(app: String, storage: ChannelStorage) -> String? {
        guard apps[app]?.channels.count ?? 0 < limits.channels else { return nil }
        created += 1
        var bytes: [UInt8] = []
        for _ in 0..<2 { withUnsafeBytes(of: random.next().bigEndian) { bytes += $0 } }
        let identifier = ChannelIdentifier.encode(bytes)
        apps[app, default: App()].channels[identifier] = Channel(storage: storage, number: created)
        return identifier
    }

    /// Returns a channel; nil if it does not exist.
    func channel(app: String, _ identifier: String) -> Channel? { apps[app]?.channels[identifier] }

    /// Deletes a channel; returns false if it does not exist.
    mutating func delete(app: String, _ identifier: String) -> Bool {
        apps[app]?.channels.removeValue(forKey: identifier) != nil
    }

    /// Identifiers of the app's channels, in the order of their creation.
    func list(app: String) -> [String] {
        (apps[app]?.channels ?? [:]).sorted { $0.value.number < $1.value.number }.map(\.key)
    }

    /// Publishes a broadcast. Returns the reason of a refusal, or `absent`.
    /// - Parameter expiration: `apns-expiration` in seconds since 1970.
    mutating func publish(
        app: String, _ identifier: String, expiration: Int64, payload: UnsafeRawBufferPointer, now: Int64
    ) -> Reason {
        guard var channel = apps[app]?.channels[identifier] else { return .channelNotRegistered }
        guard channel.storage == .newest || expiration == 0 else { return .badExpirationDate }
        let limit = channel.storage == .newest ? limits.perSecond : limits.perSecondUnstored
        let isAdmitted = channel.rate.admit(limit, now: now)
        if isAdmitted {
            channel.published += 1
            // An expiration of 0, or in the past, replaces the stored broadcast by nothing.
            let expires = min(expiration * 1_000, now + Self.longestStorage)
            channel.stored =
                channel.storage == .newest && expires > now
                ? Stored(payload: Array(payload), expires: expires) : nil
        }
        apps[app]?.channels[identifier] = channel
        return isAdmitted ? .absent : .tooManyRequests
    }

    /// Counts a Live Activity that starts with the channel; returns false if the channel does not exist.
    mutating func subscribe(app: String, _ identifier: String, now: Int64) -> Bool {
        guard var channel = apps[app]?.channels[identifier] else { return false }
        channel.subscriptions += 1
        if let stored = channel.stored {
            if stored.expires > now { channel.replayed += 1 } else { channel.stored = nil }
        }
        apps[app]?.channels[identifier] = channel
        return true
    }
}

/// Form of channel identifiers: base64 with padding (RFC 4648 §4), of variable length.
enum ChannelIdentifier {
    /// Longest accepted text. APNs documents no length.
    static let maximumLength = 128

    static func encode(_ bytes: [UInt8]) -> String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
        var text: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start..<min(start + 3, bytes.count)]
            let bits = group.reduce(UInt32(0)) { $0 << 8 | UInt32($1) } << UInt32(8 * (3 - group.count))
            for index in 0..<4 {
                text.append(
                    index <= group.count
                        ? alphabet[Int(bits >> UInt32(18 - 6 * index) & 63)] : UInt8(ascii: "="))
            }
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// Returns whether the text has the form of an identifier.
    static func isValid(_ text: UnsafeRawBufferPointer) -> Bool {
        guard text.count > 0, text.count % 4 == 0, text.count <= maximumLength else { return false }
        var end = text.count
        while end > text.count - 2, text[end - 1] == UInt8(ascii: "=") { end -= 1 }
        return text[..<end].allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), UInt8(ascii: "/"):
                true
            default: false
            }
        }
    }
}

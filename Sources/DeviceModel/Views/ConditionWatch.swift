import SluiceModel

/// A condition with what has been found of it so far. The first look visits everything, in portions between which the
/// owner of the world may do other things. Later looks visit what has changed since.
public struct ConditionWatch: Sendable {
    /// Result of a look.
    public enum Look: Sendable, Equatable {
        /// Something was not visited yet; the next look goes on.
        case more
        /// Everything was visited, and the condition does not hold.
        case nothing
        case matched(WaitResult)
    }

    public let condition: WaitCondition
    /// Identifier of the push; nil when the condition has none, or one that is no UUID.
    let apnsID: APNSID?
    /// Number of the world's reset that the watch began after; nil before the first look.
    var resets: UInt64?
    /// Devices with something that matches.
    private(set) var devices: [UInt32: Found] = [:]
    /// Sums over the devices.
    private(set) var sums = Found()
    /// Pushes that match.
    private(set) var pushes: Set<UInt64> = []
    /// Devices that the first look has still to visit.
    var restOfDevices: Range<Int> = 0..<0
    /// Pushes that the first look has still to visit: those with smaller numbers, newest first. Nil: none.
    var pushesBefore: UInt64?
    /// Positions in the lists of changes from which the next look goes on.
    var touched: UInt64 = 0
    var event: UInt64 = 0
    var push: UInt64 = 0

    /// Numbers of what matches, on a device or on all.
    struct Found: Sendable, Equatable {
        var apps = 0
        var notifications = 0
        var badges = 0
        var activities = 0
        var responses = 0
        var online = 0

        static func += (left: inout Found, right: Found) { left.add(right, 1) }
        static func -= (left: inout Found, right: Found) { left.add(right, -1) }

        private mutating func add(_ other: Found, _ sign: Int) {
            apps += sign * other.apps
            notifications += sign * other.notifications
            badges += sign * other.badges
            activities += sign * other.activities
            responses += sign * other.responses
            online += sign * other.online
        }
    }

    public init(_ condition: WaitCondition) {
        self.condition = condition
        apnsID = condition.apnsID.flatMap { APNSID(text: $0) }
    }

    /// Sets what matches on a device.
    mutating func set(_ found: Found, of device: UInt32) {
        if let former = devices.removeValue(forKey: device) { sums -= former }
        guard found != Found() else { return }
        sums += found
        devices[device] = found
    }

    mutating func set(_ matches: Bool, push: UInt64) {
        if matches { pushes.insert(push) } else { pushes.remove(push) }
    }

    mutating func forget() {
        devices = [:]
        sums = Found()
        pushes = []
    }

    /// Whether each member of the condition has a match, or nothing has one if that is asked for.
    var holds: Bool {
        var holds = true
        if condition.asksForNotification {
            // An absent device or app has no list, not an empty one.
            holds =
                condition.count.map { sums.notifications == $0 && sums.apps > 0 } ?? (sums.notifications > 0)
        }
        if condition.asksForPush { holds = holds && !pushes.isEmpty }
        if condition.badge != nil { holds = holds && sums.badges > 0 }
        if condition.activity != nil { holds = holds && sums.activities > 0 }
        if condition.response != nil { holds = holds && sums.responses > 0 }
        if condition.isOnline != nil { holds = holds && sums.online > 0 }
        return holds != (condition.isAbsent ?? false)
    }

    /// Whether a match may be told before everything was visited.
    var isEarly: Bool { condition.count == nil && condition.isAbsent != true }
}

extension WaitCondition {
    /// Whether a device must be looked at.
    var asksForDevice: Bool {
        asksForNotification || badge != nil || activity != nil || isOnline != nil || response != nil
    }
}

/// Wakes of an app by silent pushes.
struct BackgroundBudget: Sendable {
    /// Wakes and the held push; nil: neither.
    private var box: Boxed<Wakes>?

    private struct Wakes: Sendable {
        /// Times of the wakes within the last hour, oldest first.
        var times: [Int64] = []
        /// Wakes until `reset`.
        var today = 0
        /// End of the day of the last wake, in milliseconds since 1970.
        var reset: Int64 = 0
        var held: HeldPush?
    }

    private static let hour: Int64 = 3_600_000

    /// Silent push that waits; nil: none.
    var held: HeldPush? { box?.value.held }

    /// Wakes that are left.
    func left(_ settings: DeviceSettings, now: Int64) -> Int {
        guard let wakes = box?.value else { return max(0, min(settings.wakesPerHour, settings.wakesPerDay)) }
        let recent = wakes.times.count { $0 > now - Self.hour }
        let today = now < wakes.reset ? wakes.today : 0
        return max(0, min(settings.wakesPerHour - recent, settings.wakesPerDay - today))
    }

    /// Time of the next chance for a held push, and whether that is the daily reset, which drops the push.
    func chance(_ settings: DeviceSettings, midnight: Int64, now: Int64) -> (at: Int64, isReset: Bool) {
        guard let wakes = box?.value else { return (midnight, true) }
        let today = now < wakes.reset ? wakes.today : 0
        let recent = wakes.times.filter { $0 > now - Self.hour }
        guard today < settings.wakesPerDay, settings.wakesPerHour > 0 else {
            return (now < wakes.reset ? wakes.reset : midnight, true)
        }
        let excess = recent.count - settings.wakesPerHour
        guard excess >= 0, excess < recent.count else { return (now, false) }
        return (recent[excess] + Self.hour, false)
    }

    /// Counts a wake.
    /// - Parameter midnight: next local midnight.
    mutating func wake(midnight: Int64, now: Int64) {
        var wakes = box?.value ?? Wakes()
        box = nil
        wakes.times.removeAll { $0 <= now - Self.hour }
        wakes.times.append(now)
        if now >= wakes.reset {
            wakes.today = 0
            wakes.reset = midnight
        }
        wakes.today += 1
        box = Boxed(wakes)
    }

    /// Holds a push. Returns the held push that leaves.
    mutating func hold(_ push: HeldPush?) -> HeldPush? {
        guard push != nil || box?.value.held != nil else { return nil }
        var wakes = box?.value ?? Wakes()
        let former = wakes.held
        wakes.held = push
        box = Boxed(wakes)
        return former
    }
}

/// Silent push that a device keeps for a later wake, the newest one of an app.
struct HeldPush: Sendable {
    var push: TransitPush
    /// Whether the wake decides the fate of the push. An alert that was shown keeps its fate.
    var decidesFate: Bool
    /// Rule that holds the push.
    var rule: DeviceRule
}

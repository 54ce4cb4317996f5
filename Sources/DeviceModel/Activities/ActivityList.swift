/// Live Activities of an app on a device, in the order of their start. Bounded.
struct ActivityList: Sendable {
    /// Entries with those that have ended or were dismissed. The oldest of these leave first.
    private(set) var activities: [Activity] = []
    private var budget = UpdateBudget()
    /// Starts by push.
    private var starts = UpdateBudget()

    /// Ended activities that the lock screen keeps.
    static let mostEnded = 16
    /// Dismissed activities that are kept for readers.
    static let mostDismissed = 8

    /// Activities that have not ended.
    var running: Int { activities.count { $0.isRunning } }
    /// Activities that are not dismissed.
    private(set) var visible = 0

    subscript(number: UInt64) -> Activity? { activities.first { $0.number == number } }

    mutating func add(_ activity: Activity) {
        activities.append(activity)
        if activity.phase != .dismissed { visible += 1 }
    }

    /// Changes an activity; returns nil without calling when it is gone.
    mutating func change<Result>(_ number: UInt64, _ body: (inout Activity) -> Result) -> Result? {
        guard let index = activities.firstIndex(where: { $0.number == number }) else { return nil }
        if activities[index].phase != .dismissed { visible -= 1 }
        defer { if activities[index].phase != .dismissed { visible += 1 } }
        return body(&activities[index])
    }

    /// Counts an update against the hour's budget. Returns false when the budget is used up.
    mutating func spend(_ limit: Int, now: Int64) -> Bool { budget.spend(limit, now: now) }

    /// Counts a start by push against the hour's budget. Returns false when the budget is used up.
    mutating func spendStart(_ limit: Int, now: Int64) -> Bool { starts.spend(limit, now: now) }

    /// Forgets the oldest dismissed activities beyond the limit.
    mutating func forgetDismissed() {
        var surplus = activities.count { $0.phase == .dismissed } - Self.mostDismissed
        guard surplus > 0 else { return }
        activities.removeAll { activity in
            guard surplus > 0, activity.phase == .dismissed else { return false }
            surplus -= 1
            return true
        }
    }

    /// Oldest ended activity when there are too many; nil otherwise.
    var surplusEnded: UInt64? {
        let ended = activities.filter { $0.phase == .ended }
        return ended.count > Self.mostEnded ? ended.first?.number : nil
    }
}

/// Updates of priority 10, or starts by push, within an hour, which starts with the first of them (assumed).
struct UpdateBudget: Sendable {
    /// Start of the hour in milliseconds since 1970; nil before the first update or start.
    private var start: Int64?
    private var used: Int32 = 0
    private static let hour: Int64 = 3_600_000

    mutating func spend(_ limit: Int, now: Int64) -> Bool {
        if start.map({ now >= $0 + Self.hour || now < $0 }) ?? true {
            start = now
            used = 0
        }
        guard used < Int32(clamping: limit) else { return false }
        used += 1
        return true
    }
}

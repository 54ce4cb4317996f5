import SluiceModel

/// Errors that a connection may cause before APNs slows it down and ends it. Pure: times are nanoseconds of the
/// monotonic clock.
///
/// Apple documents that too many 4xx end a connection, that `BadDeviceToken` weighs more, that 410 doesn't count, and
/// that 4xx lower the throughput by SETTINGS. All numbers are assumed.
struct ErrorBudget: Equatable {
    /// Points of a full budget.
    let capacity: Int
    /// Points that are left, 0 to `capacity`.
    private(set) var remaining: Double
    /// Time of the last answer.
    private var updatedAt: UInt64
    /// Step of the stream limit, from 0 (a single stream) to 4 (all streams).
    private var step = 4

    /// Points that `BadDeviceToken` costs. Other counted errors cost 1.
    static let badDeviceTokenCost = 4.0
    /// Eighths of the budget that must be left above a threshold before the stream limit rises over it again, so that
    /// good and bad pushes in turn don't change the limit each time.
    static let riseMargin = 0.5
    /// Points that an accepted push gives back.
    static let acceptedGain = 1.0
    /// Time in which an empty budget becomes full again without a push.
    static let refillTime: UInt64 = 600_000_000_000

    init(capacity: Int, now: UInt64) {
        self.capacity = max(capacity, 1)
        remaining = Double(self.capacity)
        updatedAt = now
    }

    /// Returns the points that an answer costs; 0 for answers that don't count.
    static func cost(of reason: Reason) -> Double {
        guard (400..<500).contains(reason.status), reason.status != 410, reason.status != 429 else {
            return 0
        }
        return reason == .badDeviceToken ? badDeviceTokenCost : 1
    }

    /// Records an answer. Returns whether the budget is used up, which ends the connection.
    mutating func record(_ reason: Reason, now: UInt64) -> Bool {
        let full = Double(capacity)
        if reason == .absent, remaining == full {
            updatedAt = now
            return false
        }
        if now > updatedAt { remaining += full * (Double(now - updatedAt) / Double(Self.refillTime)) }
        updatedAt = now
        if reason == .absent { remaining += Self.acceptedGain }
        remaining = max(min(remaining, full) - Self.cost(of: reason), 0)
        updateStep()
        return remaining == 0
    }

    private mutating func updateStep() {
        let eighths = remaining * 8 / Double(capacity)
        let fallen = min(Int(eighths), 4)
        let risen = min(Int(max(eighths - Self.riseMargin, 0)), 4)
        step = fallen < step ? fallen : max(step, risen)
    }

    /// Returns the stream limit: all streams above half of the budget, then a half, a quarter and an eighth of them. A
    /// single stream is left in the last eighth of the budget. The limit rises some points later than it falls.
    func limit(of maximum: UInt32) -> UInt32 {
        switch step {
        case 4...: maximum
        case 3: max(maximum / 2, 1)
        case 2: max(maximum / 4, 1)
        case 1: max(maximum / 8, 1)
        default: 1
        }
    }
}

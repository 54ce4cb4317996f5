/// Interruption level of a notification.
enum InterruptionLevel: UInt8, Sendable, CaseIterable {
    case passive, active, timeSensitive, critical

    /// Value of `interruption-level`.
    var name: StaticString {
        switch self {
        case .passive: "passive"
        case .active: "active"
        case .timeSensitive: "time-sensitive"
        case .critical: "critical"
        }
    }
}

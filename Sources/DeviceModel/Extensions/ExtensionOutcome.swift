/// End of a service extension's run. The raw value is the detail of the `receipt` event.
enum ExtensionOutcome: String, Sendable, CaseIterable {
    /// The handler was called with the changed content.
    case done
    /// The time ran out, and the extension handed over its changes so far.
    case bestAttempt = "best-attempt"
    case timedOut = "timed-out"
    case crashed
    /// Empty content with the entitlement: nothing is shown.
    case hidden
    /// Empty content without the entitlement.
    case empty
    /// The key was unreadable, because the device was not unlocked since it booted.
    case locked
    case notDecrypted = "not-decrypted"

    /// Whether the changed content takes the place of the original.
    var keepsChanges: Bool { self == .done || self == .bestAttempt }

    var rule: DeviceRule {
        switch self {
        case .done: .extensionRan
        case .bestAttempt: .extensionBestAttempt
        case .timedOut: .extensionTimedOut
        case .crashed: .extensionCrashed
        case .hidden: .extensionHid
        case .empty: .extensionEmpty
        case .locked: .extensionLocked
        case .notDecrypted: .decryptionFailed
        }
    }
}

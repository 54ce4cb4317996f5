import DeliveryCore

/// State of a worker's switches at one moment.
public struct SwitchStatus: Sendable, Equatable {
    /// Pauses in force, in order of their scopes.
    public var pauses: [SwitchRecord]
    /// False until the control topic is read. Nothing is sent before.
    public var areKnown: Bool
    /// Place that keeps the switches: `topic NAME`, `file PATH`, or `memory`.
    public var home: String
    /// Changes that took effect since the worker's start.
    public var changes: Int
    /// Changes that the place does not keep yet.
    public var unkept: Int
    /// Records of the control topic that could not be read, or for which there was no room.
    public var unreadable: Int
    /// True while the worker goes on without the control topic, with the last known pauses.
    public var isTopicAway: Bool

    public init(
        pauses: [SwitchRecord], areKnown: Bool, home: String, changes: Int, unkept: Int, unreadable: Int,
        isTopicAway: Bool = false
    ) {
        self.pauses = pauses
        self.areKnown = areKnown
        self.home = home
        self.changes = changes
        self.unkept = unkept
        self.unreadable = unreadable
        self.isTopicAway = isTopicAway
    }
}

/// Result of an operator's change.
public struct SwitchChange: Sendable, Equatable {
    /// Status after the change.
    public var status: SwitchStatus
    /// True when the file or the topic has the change. A change that is not kept yet is in force on this worker alone,
    /// and the worker goes on trying to keep it.
    public var isKept: Bool
    /// Reason for which the change was refused; nil when it is in force.
    public var refusal: String?
}

/// Pauses in force, as the loops of a worker see them.
public struct Switches: Sendable, Equatable {
    /// False until the control topic is read. Nothing is sent before, because a pause may be in force.
    public var areKnown: Bool
    private var paused: Set<PauseScope>

    /// Makes the switches of a worker on which nothing is paused.
    public init() {
        areKnown = true
        paused = []
    }

    init(areKnown: Bool, paused: Set<PauseScope>) {
        self.areKnown = areKnown
        self.paused = paused
    }

    /// True when nothing may be sent and no job is taken.
    public var pausesAll: Bool { !areKnown || paused.contains(.all) }

    /// True when an app, a topic or a credential is paused.
    public var pausesParts: Bool { paused.contains { $0 != .all } }

    /// Returns whether pushes of this app, topic and credential are paused, by one of the three.
    public func pauses(app: String, topic: String, credential: String) -> Bool {
        !paused.isEmpty
            && (paused.contains(.app(app)) || paused.contains(.topic(topic))
                || paused.contains(.credential(credential)))
    }
}

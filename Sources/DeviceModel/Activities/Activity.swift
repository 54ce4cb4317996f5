/// A Live Activity. Pure: decides itself whether a message changes it.
struct Activity: Sendable {
    enum Phase: String, Sendable {
        case active, stale
        /// Visible on the lock screen with its last state.
        case ended
        case dismissed
    }

    /// Number in the world, from 1.
    let number: UInt64
    let type: String
    let environment: PushEnvironment
    let attributes: JSONValue
    /// Length of the attributes in bytes of JSON.
    private let attributesSize: Int
    /// Start in milliseconds since 1970.
    let startedAt: Int64
    /// Channel that the activity listens to until its end; nil: none.
    let channel: String?
    private(set) var phase = Phase.active
    private(set) var content: JSONValue
    /// Last change of the state in milliseconds since 1970.
    private(set) var updatedAt: Int64
    /// `timestamp` of the applied message in seconds since 1970.
    private(set) var timestamp: Double
    /// Milliseconds since 1970; nil: the state never becomes stale.
    private(set) var staleAt: Int64?
    /// Removal from the lock screen in milliseconds since 1970; nil while the activity runs.
    private(set) var dismissAt: Int64?
    private(set) var relevance: Double
    /// Whether the last applied message has lit the screen.
    private(set) var alerted: Bool
    /// Push that was applied last; 0: none.
    private(set) var push: UInt64
    /// Whether the activity waits for an update token, which needs the network.
    var wantsToken: Bool
    /// Index of the update token; `TokenTable.none` without.
    var token: UInt32 = TokenTable.none
    /// Number of the newest broadcast that was handed over; 0: none.
    var broadcast: UInt64 = 0
    /// Time of the due entry in milliseconds since 1970; nil: none is scheduled.
    var wakeAt: Int64?

    /// Longest run: eight hours, in milliseconds.
    static let longestRun: Int64 = 8 * 3_600_000
    /// Longest time on the lock screen after the end: four hours, in milliseconds.
    static let longestStay: Int64 = 4 * 3_600_000

    init(_ number: UInt64, _ start: ActivityStart, now: Int64) {
        self.number = number
        type = start.type
        environment = start.environment
        attributes = start.attributes
        attributesSize = start.attributes.encodedSize
        content = start.content
        startedAt = now
        updatedAt = now
        timestamp = start.timestamp
        staleAt = start.staleAt
        relevance = start.relevance
        channel = start.channel
        wantsToken = start.wantsToken
        alerted = start.hasAlert
        push = start.push
        becomeStale(now: now)
    }

    var isRunning: Bool { phase == .active || phase == .stale }

    // MARK: - Messages

    /// Rule that keeps a message from the activity whatever its state holds; nil: none does.
    func refusal(_ message: ActivityMessage) -> DeviceRule? {
        guard isRunning else { return .activityAlreadyEnded }
        guard let event = message.event, let time = message.timestamp,
            event == .end || message.content != nil
        else { return .activityIncomplete }
        guard event != .start else { return .activityWrongEvent }
        return time < timestamp ? .activityOutdated : nil
    }

    /// Rule that makes a state unusable; nil: the state decodes.
    /// - Parameters:
    ///   - size: length of the state in bytes of JSON.
    ///   - requires: members that the state must have.
    func refusal(state: JSONValue, size: Int, requires: [String]) -> DeviceRule? {
        guard Self.decodes(state, requires) else { return .activityNotDecoded }
        return attributesSize + size > ActivityStart.longest ? .activityTooLarge : nil
    }

    /// Whether a state is an object with all required members.
    static func decodes(_ state: JSONValue, _ requires: [String]) -> Bool {
        state.members != nil && requires.allSatisfy { state[$0] ?? .null != .null }
    }

    /// Replaces the whole state. The caller has checked the message.
    mutating func update(_ message: ActivityMessage, push: UInt64, now: Int64) {
        guard isRunning else { return }
        if let state = message.content { content = state }
        timestamp = message.timestamp ?? timestamp
        updatedAt = now
        staleAt = message.staleAt
        relevance = message.relevance
        alerted = message.hasAlert
        self.push = push
        phase = .active
        becomeStale(now: now)
    }

    /// Ends the activity. The caller has checked the message.
    /// - Parameters:
    ///   - state: final state; nil: the last state stays.
    ///   - dismissAt: wanted removal in milliseconds since 1970; nil: as late as possible.
    mutating func end(state: JSONValue?, dismissAt: Int64?, now: Int64) {
        guard isRunning else { return }
        if let state {
            content = state
            updatedAt = now
        }
        let latest = now + Self.longestStay
        self.dismissAt = min(max(dismissAt ?? latest, now), latest)
        phase = self.dismissAt == now ? .dismissed : .ended
        wantsToken = false
    }

    /// Takes over what an ending message has beside the state.
    mutating func ended(by message: ActivityMessage, push: UInt64) {
        timestamp = message.timestamp ?? timestamp
        relevance = message.relevance
        alerted = message.hasAlert
        self.push = push
    }

    /// Removes the activity from the screen.
    mutating func dismiss(now: Int64) {
        guard phase != .dismissed else { return }
        phase = .dismissed
        dismissAt = now
        wantsToken = false
    }

    // MARK: - Time

    /// Next time at which something happens by itself, in milliseconds since 1970; nil: nothing ever.
    var nextDue: Int64? {
        switch phase {
        case .active: min(staleAt ?? Int64.max, startedAt + Self.longestRun)
        case .stale: startedAt + Self.longestRun
        case .ended: dismissAt
        case .dismissed: nil
        }
    }

    /// Becomes stale when the time has come. Returns whether the phase has changed.
    @discardableResult
    mutating func becomeStale(now: Int64) -> Bool {
        guard phase == .active, let staleAt, staleAt <= now else { return false }
        phase = .stale
        return true
    }
}

/// Members of a payload that concern a Live Activity. Values of a wrong type count as absent.
struct ActivityMessage: Sendable {
    enum Event: String, Sendable {
        case start, update, end
    }

    var event: Event?
    /// Seconds since 1970; nil when absent.
    var timestamp: Double?
    /// Value of `content-state`; nil when absent.
    var content: JSONValue?
    /// Length of `content-state` in bytes of JSON; 0 when absent.
    var contentSize = 0
    /// Milliseconds since 1970; nil when absent.
    var staleAt: Int64?
    /// Milliseconds since 1970; nil when absent.
    var dismissAt: Int64?
    /// Order among the app's Live Activities; 0 when absent.
    var relevance: Double = 0
    var hasAlert = false
    var attributesType: String?
    /// Attributes; nil when absent or no object.
    var attributes: JSONValue?
    /// Channel to listen to; nil when absent.
    var channel: String?
    /// Whether an update token is wanted. Older payloads ask for none and receive one.
    var wantsToken = true

    /// Reads a payload. A text that is not JSON has no members.
    init(_ payload: [UInt8]) {
        guard let aps = JSONValue(payload)?["aps"] else { return }
        event = aps["event"]?.string.flatMap { Event(rawValue: $0) }
        timestamp = aps["timestamp"]?.double
        content = aps["content-state"]
        contentSize = content?.encodedSize ?? 0
        staleAt = aps["stale-date"]?.milliseconds
        dismissAt = aps["dismissal-date"]?.milliseconds
        relevance = aps["relevance-score"]?.double ?? 0
        switch aps["alert"] {
        case .string(let text): hasAlert = !text.isEmpty
        case .object(let members): hasAlert = !members.isEmpty
        default: hasAlert = false
        }
        attributesType = aps["attributes-type"]?.string
        attributes = aps["attributes"].flatMap { $0.members == nil ? nil : $0 }
        channel = aps["input-push-channel"]?.string
        wantsToken =
            aps["input-push-token"].map { $0 == .integer(1) || $0 == .bool(true) } ?? (channel == nil)
    }
}

/// A Live Activity that is to start.
struct ActivityStart: Sendable {
    var type: String
    var attributes: JSONValue
    var content: JSONValue
    var environment: PushEnvironment
    /// Seconds since 1970 of the first state.
    var timestamp: Double
    /// Milliseconds since 1970; nil: the state never becomes stale.
    var staleAt: Int64?
    var relevance: Double = 0
    /// Channel to listen to; nil: none.
    var channel: String?
    /// Whether the activity gets an update token.
    var wantsToken: Bool
    var hasAlert: Bool
    /// Number of the push; 0 for a start by the app.
    var push: UInt64

    /// Longest attributes and state together, in bytes of JSON.
    static let longest = 4_096
}

/// A configuration document as a tree in which every value knows where it was written. YAML, JSON (which is read as
/// YAML) and environment variables all become such a tree before anything is interpreted.
struct ConfigurationValue: Equatable {
    enum Content: Equatable {
        /// The text as written, without quotes. `plain` is false when it was quoted.
        case scalar(String, plain: Bool)
        case list([ConfigurationValue])
        case map([Entry])
        /// Nothing was written after the key.
        case empty
    }

    struct Entry: Equatable {
        var key: String
        var keyLocation: ConfigurationProblem.Location
        var value: ConfigurationValue
    }

    var content: Content
    var location: ConfigurationProblem.Location

    /// Kind of the value, for messages.
    var kind: String {
        switch content {
        case .scalar: "a single value"
        case .list: "a list"
        case .map: "a map"
        case .empty: "nothing"
        }
    }
}
